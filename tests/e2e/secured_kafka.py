"""A real Kafka that lets nobody in without a password: SCRAM, TLS and ACLs, from its jars on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fallow.shared.runtime.kafka_access import KafkaAccess, Mechanism, Protocol
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.shared.runtime.stack.ports import LOCAL, free_ports

SUPER = "admin"


def password_of(user: str) -> str:
    return f"pass-of-{user}"


class SecuredKafka:
    """One node with a listener for SASL in the clear (the broker's own, too) and one for SASL over TLS."""

    def __init__(self, folder: Path, users: list[str]) -> None:
        self._folder, (self.tls_port,) = folder, free_ports(1)
        self.ca_file, self.key_store = folder / "ca.pem", folder / "kafka.pem"
        self._make_certificate()
        passwords = {name: password_of(name) for name in ("broker", SUPER, *users)}
        self.server = KafkaFromJars(folder / "data", users=passwords)
        self.server.more = self._properties()

    def access(self, user: str, password: str | None = None, *, tls: bool = True) -> KafkaAccess:
        protocol = Protocol.SASL_SSL if tls else Protocol.SASL_PLAINTEXT
        address = f"localhost:{self.tls_port}" if tls else self.server.address
        proof = Mechanism.SCRAM_SHA_512, user, password or password_of(user)
        return KafkaAccess(address, protocol, *proof, self.ca_file if tls else None)

    def settings(self, user: str) -> dict[str, str]:
        """The same for a service, which has its password in a file."""
        secrets = self._folder / f"secrets-{user}"
        secrets.mkdir(exist_ok=True)
        (secrets / "fallow_kafka_password").write_text(password_of(user))
        return {
            "FALLOW_KAFKA": f"localhost:{self.tls_port}",
            "FALLOW_KAFKA_SECURITY": "SASL_SSL",
            "FALLOW_KAFKA_USERNAME": user,
            "FALLOW_KAFKA_CA_FILE": str(self.ca_file),
            "FALLOW_SECRETS_DIR": str(secrets),
        }

    def _make_certificate(self) -> None:
        key, certificate = self._folder / "key.pem", self.ca_file
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
        self.key_store.write_text(key.read_text() + certificate.read_text())

    def _properties(self) -> dict[str, str]:
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ports = self.server.port, self.tls_port, self.server.controller_port
        return {
            "listeners": "CLIENTS://{0}:{1},TLS://{0}:{2},CONTROLLER://{0}:{3}".format(LOCAL, *ports),
            "advertised.listeners": f"CLIENTS://{LOCAL}:{ports[0]},TLS://localhost:{ports[1]}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,TLS:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                f'{scram} username="broker" password="{password_of("broker")}";'
            ),
            "listener.name.tls.scram-sha-512.sasl.jaas.config": f"{scram};",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": (
                f'{plain} username="controller" password="control" user_controller="control";'
            ),
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(self.key_store),
            "listener.name.tls.ssl.truststore.type": "PEM",
            "listener.name.tls.ssl.truststore.location": str(self.ca_file),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:broker;User:controller;User:{SUPER}",
            "allow.everyone.if.no.acl.found": "false",
        }
