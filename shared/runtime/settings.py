"""Settings that every service has, from the environment (FALLOW_...) and from secret files.

A service subclasses `ServiceSettings` in its settings.py and adds its own. A wrong value stops the process at its
start with the field, the value and the rule.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticKnownError
from pydantic_settings import BaseSettings, SettingsConfigDict

from fallow.shared.checker_words import in_our_words
from fallow.shared.digits import is_written_with_digits
from fallow.shared.runtime.addresses import KAFKA_RULE, REDIS_RULE, is_kafka, is_redis
from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines
from fallow.shared.runtime.errors.system_words import words_of_system
from fallow.shared.runtime.files.signs import visible
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file
from fallow.shared.runtime.kafka_access import AccessError, KafkaAccess, Mechanism, Protocol
from fallow.shared.unshown import without_secrets

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$")]

LATEST_CELL_MS = 2**60
"""The latest cell time that a record can hold."""

CLOCK_AHEAD_MS = 60_000
"""By so much the clock of the machine that set the origin may be ahead of this one."""

CLOCK_ROOM_MS = 10 * 365 * 86_400_000
"""For so long a cell's clock must be able to go on."""


class ClockKind(StrEnum):
    """How cell time goes on."""

    WALL = "wall"  # by itself, from `clock_origin_ms` with `clock_speed`
    STEPPED = "stepped"  # by AdvanceTime commands only (replay)


class LogFormat(StrEnum):
    """The readers of the logs: people or programs."""

    JSON = "json"
    CONSOLE = "console"


SHOWN_CHARACTERS_MAX = 100

UNSHOWN = frozenset({"kafka", "redis", "kafka_password", "signing_key"})
"""Settings whose values no message shows."""


SHAPES = {
    "namespace": "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends",
    "log_level": "must be debug, info, warning or error",
}
"""What the text of a setting must be like."""


class SettingsError(ErrorOfSeveralLines):
    """The settings cannot be used; the message has one line for each wrong field: name, value, rule."""


class KafkaSecurity(BaseSettings):
    """The user and the TLS of each connection to Kafka. Each field is read from FALLOW_<NAME>, or from a file of that
    name in FALLOW_SECRETS_DIR.
    """

    model_config = SettingsConfigDict(
        env_prefix="FALLOW_",
        # Secrets (a Redis URL with its password) may be files, as container platforms mount them.
        secrets_dir=os.environ.get("FALLOW_SECRETS_DIR") or None,
        frozen=True,
        extra="ignore",
        validate_default=True,
        hide_input_in_errors=True,
    )

    kafka_security: Protocol = Field(Protocol.PLAINTEXT, description="Kafka's security.protocol")
    kafka_mechanism: Mechanism = Field(Mechanism.SCRAM_SHA_512, description="Kafka's sasl.mechanism")
    kafka_username: str = Field("", max_length=200)
    kafka_password: SecretStr = SecretStr("")
    kafka_ca_file: Path | None = Field(
        None, description="authorities that sign the brokers' certificates; else the system's"
    )
    kafka_cert_file: Path | None = Field(None, description="this client's own certificate, where brokers ask for one")
    kafka_key_file: Path | None = None

    @classmethod
    def load(cls) -> Self:
        """Read the settings; SettingsError names each field that is wrong."""
        secrets = cls.model_config.get("secrets_dir")
        if secrets is not None and not Path(str(secrets)).is_dir():
            raise SettingsError(f"FALLOW_SECRETS_DIR = {shown(secrets)}: must be a folder that is there")
        if secrets is not None:
            _must_be_text(Path(str(secrets)), cls.model_fields)
        try:
            return cls()
        except ValidationError as error:
            raise SettingsError("\n".join(explanation(cls, error))) from error

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_digits(cls, value: object, info: ValidationInfo) -> object:
        kind: Any = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, str) and kind in (int, float) and not is_written_with_digits(value.strip(), kind):
            raise PydanticKnownError("int_parsing" if kind is int else "float_parsing")
        return value

    @field_validator("kafka_ca_file", "kafka_cert_file", "kafka_key_file", mode="before")
    @classmethod
    def _nothing_is_no_file(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _can_connect(self) -> Self:
        self.access_at("").tls()
        return self

    def access_at(self, addresses: str) -> KafkaAccess:
        """Everything that a client needs to connect to these addresses."""
        return KafkaAccess(
            addresses,
            self.kafka_security,
            self.kafka_mechanism,
            self.kafka_username,
            self.kafka_password.get_secret_value(),
            self.kafka_ca_file,
            self.kafka_cert_file,
            self.kafka_key_file,
        )


PRIVATE_KEY = re.compile(r"ed25519-private:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=")


class WriterSecurity(KafkaSecurity):
    """The security of a writer of decisions, with the private key that proves them."""

    signing_key: SecretStr = Field(SecretStr(""), description="as `fallow cell key` writes it; empty: none")

    @field_validator("signing_key")
    @classmethod
    def _is_a_key(cls, text: SecretStr) -> SecretStr:
        if text.get_secret_value() and not PRIVATE_KEY.fullmatch(text.get_secret_value()):
            raise ValueError("must be a private key as `fallow cell key` writes it")
        return text


class ServiceSettings(KafkaSecurity):
    """What every service needs to know. Each field is read from FALLOW_<NAME>."""

    kafka: str = Field("127.0.0.1:9092", description="bootstrap addresses, host:port, by commas")
    redis: SecretStr = Field(SecretStr("redis://127.0.0.1:6379/0"), description="its URL, which may hold a password")
    namespace: Name = Field("fallow", description="first word of every topic, group and key")
    instance: str = Field("", max_length=200, description="name of this process; empty: service, host and process id")
    cell_file: Path = Field(Path("deploy/cell.yaml"), description="tenants, pools, cells and limits")
    data_dir: Path | None = Field(None, description="for what a process keeps on disk: node diaries")

    http_host: str = Field("127.0.0.1", min_length=1)
    http_port: int = Field(0, ge=0, le=65535, description="0: the system picks one, see port_file")
    port_file: Path | None = Field(None, description="the port is written here once it is known")

    log_format: LogFormat = LogFormat.JSON
    log_level: Annotated[str, StringConstraints(to_lower=True, pattern="^(debug|info|warning|error)$")] = "info"

    clock: ClockKind = ClockKind.WALL
    clock_origin_ms: int = Field(
        0, ge=0, le=LATEST_CELL_MS, description="wall time at which cell time is 0; all services share it"
    )
    clock_speed: float = Field(1.0, gt=0, le=1_000_000, description="cell milliseconds for one of wall time")

    replicas: int = Field(1, ge=1, le=100, description="copies of each topic, as they were asked for at creation")
    embedded: bool = Field(default=False, description="the log is the embedded broker: its limits hold, see the README")

    @field_validator("kafka")
    @classmethod
    def _kafka_is_an_address(cls, text: str) -> str:
        if not is_kafka(text):
            raise ValueError(KAFKA_RULE)
        return text

    @field_validator("redis")
    @classmethod
    def _redis_is_a_url(cls, url: SecretStr) -> SecretStr:
        if not is_redis(url.get_secret_value()):
            raise ValueError(REDIS_RULE)
        return url

    @field_validator("clock_origin_ms")
    @classmethod
    def _cell_time_has_begun(cls, origin_ms: int, info: ValidationInfo) -> int:
        now_ms = time.time_ns() // 1_000_000
        if _goes_by_wall(info) and origin_ms > now_ms + CLOCK_AHEAD_MS:
            raise ValueError(
                f"must be a moment that is past: this machine's clock says {now_ms}, and cell time stands still before"
            )
        return origin_ms

    @field_validator("clock_speed")
    @classmethod
    def _cell_time_has_room(cls, speed: float, info: ValidationInfo) -> float:
        origin_ms = info.data.get("clock_origin_ms", 0)
        end_ms = (time.time_ns() // 1_000_000 - origin_ms + CLOCK_ROOM_MS) * speed
        if _goes_by_wall(info) and end_ms > LATEST_CELL_MS:
            raise ValueError(
                f"cell time would end within ten years; count it from a later clock_origin_ms: {origin_ms}"
            )
        return speed

    @property
    def kafka_access(self) -> KafkaAccess:
        """Kafka's addresses, and the user as which a connection comes in."""
        return self.access_at(self.kafka)


def _must_be_text(secrets: Path, names: Iterable[str]) -> None:
    """Raises SettingsError for the secret file of a setting that cannot be read."""
    for name in names:
        file = secrets / f"fallow_{name}"
        try:
            if file.is_file():
                read_text_file(file)
        except (TextFileError, OSError) as error:
            why = error if isinstance(error, TextFileError) else f"cannot be read: {words_of_system(error)}"
            raise SettingsError(f"FALLOW_{name.upper()}: {visible(str(file))}: {why}") from error


def _goes_by_wall(info: ValidationInfo) -> bool:
    """Whether cell time goes on by itself: a stepped clock has no origin and no speed."""
    return info.data.get("clock") is not ClockKind.STEPPED


def shown(value: object) -> str:
    """A value in a message: shortened, a secret in it masked."""
    text = without_secrets(repr(value))
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."


def explanation(settings: type[KafkaSecurity], error: ValidationError) -> list[str]:
    """One line for each wrong field. The value of an address or a secret is not shown: it may hold a password."""
    lines = []
    for problem in error.errors(include_url=False):
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, AccessError):
            lines.append(f"FALLOW_{cause.field_name.upper()}: {cause.rule}")
            continue
        field = str(problem["loc"][0]) if problem["loc"] else "settings"
        variable = f"{settings.model_config.get('env_prefix', '')}{field}".upper()
        value = "" if field in UNSHOWN else f" = {shown(os.environ.get(variable, ''))}"
        lines.append(f"{variable}{value}: {_rule(field, problem)}")
    return lines


def _rule(field: str, problem: ErrorDetails) -> str:
    """What the value must be, in words: also where the checker of values would show an expression."""
    if problem["type"] == "string_pattern_mismatch" and field in SHAPES:
        return SHAPES[field]
    return in_our_words(problem["msg"], field)
