"""A real Kafka that requires a password: SCRAM, TLS and ACLs, from its jars on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from fallow.shared.runtime.kafka_access import KafkaAccess, Mechanism, Protocol
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.stack.secured.certificate import make_certificate

SUPER = "admin"
"""The user that makes topics and gives rights."""

BROKER, CONTROLLER = "broker", "controller"
MECHANISM = Mechanism.SCRAM_SHA_512


class SecuredKafka(KafkaFromJars):
    """One node with a listener for SASL over TLS, which is its address, and one for SASL in the clear, by which the
    broker comes to itself. `passwords` are those of its users by name; SUPER and the broker's own get new ones.
    """

    def __init__(
        self, folder: Path, passwords: Mapping[str, str], *, durable: bool = False, quick_start: bool = True
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.tls_port, self.certificate = folder, free_port(), make_certificate(folder)
        self._passwords = {BROKER: token_hex(), SUPER: token_hex(), **passwords}
        super().__init__(folder / "data", durable=durable, quick_start=quick_start, users=self._passwords)
        self.more = self._secured_properties(token_hex())

    @property
    def address(self) -> str:
        """The bootstrap address, for SASL over TLS."""
        return f"{LOCAL}:{self.tls_port}"

    @property
    def description(self) -> str:
        """Name, version and what it asks for."""
        return f"{super().description}, with {Protocol.SASL_SSL} by {MECHANISM} and rights"

    def access(self, user: str, password: str | None = None, *, tls: bool = True) -> KafkaAccess:
        """How this user comes in, by its own password or another one."""
        protocol = Protocol.SASL_SSL if tls else Protocol.SASL_PLAINTEXT
        address = self.address if tls else f"{LOCAL}:{self.port}"
        proof = MECHANISM, user, password or self._passwords[user]
        return KafkaAccess(address, protocol, *proof, self.certificate.file if tls else None)

    def settings(self, user: str) -> dict[str, str]:
        """The access of a service, as its environment: the password is in a file of a folder of its own."""
        secrets = self._folder / f"secrets-{user}"
        secrets.mkdir(mode=0o700, exist_ok=True)
        (secrets / "fallow_kafka_password").write_text(self._passwords[user], encoding="ascii")
        return {
            "FALLOW_KAFKA": self.address,
            "FALLOW_KAFKA_SECURITY": Protocol.SASL_SSL.value,
            "FALLOW_KAFKA_MECHANISM": MECHANISM.value,
            "FALLOW_KAFKA_USERNAME": user,
            "FALLOW_KAFKA_CA_FILE": str(self.certificate.file),
            "FALLOW_SECRETS_DIR": str(secrets),
        }

    def _secured_properties(self, own: str) -> dict[str, str]:
        """As deploy/kafka/secured.properties, for this machine. `own` is the password of the controller, which knows no
        SCRAM.
        """
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ports = self.port, self.tls_port, self.controller_port
        return {
            "listeners": "CLIENTS://{0}:{1},TLS://{0}:{2},CONTROLLER://{0}:{3}".format(LOCAL, *ports),
            "advertised.listeners": f"CLIENTS://{LOCAL}:{self.port},TLS://{self.address}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,TLS:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": MECHANISM.value,
            "sasl.mechanism.inter.broker.protocol": MECHANISM.value,
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                f'{scram} username="{BROKER}" password="{self._passwords[BROKER]}";'
            ),
            "listener.name.tls.scram-sha-512.sasl.jaas.config": f"{scram};",
            "sasl.mechanism.controller.protocol": Mechanism.PLAIN.value,
            "listener.name.controller.sasl.enabled.mechanisms": Mechanism.PLAIN.value,
            "listener.name.controller.plain.sasl.jaas.config": (
                f'{plain} username="{CONTROLLER}" password="{own}" user_{CONTROLLER}="{own}";'
            ),
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(self.certificate.store),
            "listener.name.tls.ssl.truststore.type": "PEM",
            "listener.name.tls.ssl.truststore.location": str(self.certificate.file),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{BROKER};User:{CONTROLLER};User:{SUPER}",
            "allow.everyone.if.no.acl.found": "false",
        }
