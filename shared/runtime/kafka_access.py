"""How a client connects to Kafka: addresses, user and TLS. Words and values are those of Kafka's own clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from fallow.shared.runtime.errors.system_words import words_of_system


class Protocol(StrEnum):
    """Kafka's `security.protocol`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_password(self) -> bool:
        """Whether the client names a user and proves it with a password."""
        return self.value.startswith("SASL")

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.value.endswith("SSL")


class Mechanism(StrEnum):
    """Kafka's `sasl.mechanism`, as far as aiokafka speaks it with a password."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class AccessError(ValueError):
    """Settings of this access that contradict each other, or name a file that cannot be used: field and rule."""

    def __init__(self, field_name: str, rule: str) -> None:
        super().__init__(f"{field_name}: {rule}")
        self.field_name, self.rule = field_name, rule


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Addresses (host:port, with commas between), and the user and the TLS of each connection to them."""

    addresses: str
    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def __post_init__(self) -> None:
        """Raise AccessError for settings that no connection could be made with."""
        if self.protocol.has_password and not (self.username and self.password):
            missing = "kafka_password" if self.username else "kafka_username"
            raise AccessError(missing, f"is needed where kafka_security is {self.protocol}")
        if not self.protocol.has_password and (self.username or self.password):
            given = "kafka_username" if self.username else "kafka_password"
            raise AccessError(given, f"is of no use where kafka_security is {self.protocol}: no SASL there")
        files = {"kafka_ca_file": self.ca_file, "kafka_cert_file": self.cert_file, "kafka_key_file": self.key_file}
        given_files = [name for name, path in files.items() if path]
        if not self.protocol.has_tls and given_files:
            raise AccessError(given_files[0], f"is of no use where kafka_security is {self.protocol}: no TLS there")
        if (self.cert_file is None) != (self.key_file is None):
            raise AccessError("kafka_cert_file", "goes together with kafka_key_file")

    def __str__(self) -> str:
        """The addresses, for messages: no user and no password."""
        return self.addresses

    def tls(self) -> ssl.SSLContext | None:
        """What a connection is encrypted with; None where it is not. Raises AccessError for a file that is no use."""
        if not self.protocol.has_tls:
            return None
        for name, path in (("ca", self.ca_file), ("cert", self.cert_file), ("key", self.key_file)):
            if path is not None and path.exists() and not path.is_file():
                # OpenSSL would wait for a pipe to be written.
                raise AccessError(f"kafka_{name}_file", f"{path} is no file")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            rule = f"{self.ca_file} holds no certificates: {words_of_system(error)}"
            raise AccessError("kafka_ca_file", rule) from error
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file, self._no_password)
            except (OSError, ssl.SSLError) as error:
                rule = f"{self.cert_file}, {self.key_file}: {words_of_system(error)}"
                raise AccessError("kafka_cert_file", rule) from error
        return context

    def _no_password(self) -> str:
        """What a key that asks for one is told: OpenSSL would ask at the terminal, and the process would wait there."""
        raise AccessError("kafka_key_file", f"{self.key_file} asks for a password: it must be a key without one")

    def client_options(self) -> dict[str, Any]:
        """The arguments of an aiokafka client for its addresses and its user."""
        options: dict[str, Any] = {"bootstrap_servers": self.addresses, "security_protocol": self.protocol.value}
        if self.protocol.has_tls:
            options["ssl_context"] = self.tls()
        if self.protocol.has_password:
            options["sasl_mechanism"] = self.mechanism.value
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = self.password
        return options


def access_to(kafka: str | KafkaAccess) -> KafkaAccess:
    """The access itself, or that to plain addresses, where no proof is asked for."""
    return kafka if isinstance(kafka, KafkaAccess) else KafkaAccess(kafka)
