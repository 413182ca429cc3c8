"""A Kafka and a Redis of this machine that are secured as SECURITY.md says, and with what each process comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from fallow.local.service_set import KINDS
from fallow.shared.cluster.model.config import CellFile, PublicKey, Signing
from fallow.shared.log.admin.access_admin import put_access_in_force
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.opening import declared_access
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.shared.runtime.stack import kafka_jars, valkey
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.choose import Choice, first_of
from fallow.shared.runtime.stack.secured.kafka import SUPER, SecuredKafka
from fallow.shared.runtime.stack.secured.valkey import SecuredValkey
from fallow.shared.runtime.stack.server import Server, Source
from fallow.shared.view.access.users import ADMIN, acl_file, declared_users
from fallow.shared.view.redis_view import RedisFunctions

OPERATOR = "operator"
"""Who submits, and reads all that the cell writes."""

WRITER, VIEW_WRITER, VIEW_LOADER = "placement", "projector", "loader"


@dataclass(frozen=True, slots=True)
class Security:
    """The users of both servers, which run, and the key that signs decisions. All of it is made anew for one run."""

    kafka: SecuredKafka
    redis: SecuredValkey
    redis_passwords: Mapping[str, str]
    key: SigningKey

    @property
    def admin(self) -> KafkaAccess:
        """The user that makes topics and grants rights."""
        return self.kafka.access(SUPER)

    @property
    def operator(self) -> KafkaAccess:
        """The user as which this process submits and reads."""
        return self.kafka.access(OPERATOR)

    def signed(self, file: CellFile) -> CellFile:
        """The cell file with the public key in each of its cells."""
        signing = Signing(from_version=1, keys=(PublicKey(public=self.key.public),))
        cells = tuple(cell.model_copy(update={"signing": signing}) for cell in file.cells)
        return file.model_copy(update={"cells": cells})

    def settings(self, service: str) -> dict[str, str]:
        """What a service has in its environment beside all others: who it is at Kafka, and what is its own alone. Only
        the projector has a user at Redis.
        """
        settings = self.kafka.settings(service)
        if service == WRITER:
            secret = Path(settings["FALLOW_SECRETS_DIR"]) / "fallow_signing_key"
            secret.write_text(self.key.text, encoding="ascii")
        if service == VIEW_WRITER:
            settings["FALLOW_REDIS"] = self._redis_url(VIEW_WRITER)
        return settings

    async def put_in_force(self, file: CellFile, namespace: str) -> None:
        """Give each user its rights in this namespace, whose topics are there. Raises StackError, LogUnavailable,
        ViewUnavailable.
        """
        report = await put_access_in_force(self.admin, declared_access(file, namespace))
        if report is None or not report.is_as_declared:
            raise StackError("the rights at Kafka are not those that deploy/kafka/access.yaml declares")
        self.redis.users_file.write_text(acl_file(namespace, self.redis_passwords), encoding="ascii")
        admin, loader = (RedisFunctions(self._redis_url(user)) for user in (ADMIN, VIEW_LOADER))
        try:
            await admin.ask("ACL LOAD")
            await loader.load()
        finally:
            await admin.stop()
            await loader.stop()

    def told(self) -> dict[str, object]:
        """By what clients come in, for `--json`."""
        access = self.operator
        return {
            "kafka": access.protocol.value,
            "mechanism": access.mechanism.value,
            "redis_users": True,
            "redis_tls": self.redis.has_tls,
        }

    def _redis_url(self, user: str) -> str:
        return self.redis.url(user, self.redis_passwords[user])


def choose_secured(folder: Path, *, durable: bool) -> tuple[Choice, Choice, Security]:
    """A Kafka from its jars and a Redis of this machine, not started yet. Raises StackError where FALLOW_KAFKA or
    FALLOW_REDIS names a server that runs, or there is none to start.
    """
    users = {name: token_hex() for name in (*(kind.name for kind in KINDS), OPERATOR)}
    passwords = {name: token_hex() for name in (ADMIN, *declared_users("any"))}

    def redis_of(program: valkey.Program | str) -> Server | str:
        if isinstance(program, str):
            return program
        return SecuredValkey(program, folder / "redis", acl_file("none", passwords))

    def kafka_from_jars() -> Server | str:
        obstacle = kafka_jars.obstacle()
        return obstacle or SecuredKafka(folder / "kafka", users, durable=durable, quick_start=False)

    kafka = first_of("FALLOW_KAFKA", "Kafka", {Source.JARS: kafka_from_jars})
    redis = first_of(
        "FALLOW_REDIS",
        "Redis",
        {
            Source.PATH: lambda: redis_of(valkey.program_on_path()),
            Source.WHEEL: lambda: redis_of(valkey.program_in_wheel()),
        },
    )
    if not isinstance(kafka.server, SecuredKafka) or not isinstance(redis.server, SecuredValkey):
        raise StackError("a secured Kafka and Redis are started here: unset FALLOW_KAFKA and FALLOW_REDIS")
    return kafka, redis, Security(kafka.server, redis.server, passwords, SigningKey.made())
