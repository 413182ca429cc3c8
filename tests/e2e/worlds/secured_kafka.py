"""The secured Kafka of this machine with users whose passwords tests know."""

from __future__ import annotations

from pathlib import Path

from fallow.shared.runtime.stack import kafka_jars
from fallow.shared.runtime.stack.secured.kafka import SecuredKafka


def obstacle() -> str | None:
    """Why there is none here, or None."""
    reason = kafka_jars.obstacle()
    return f"needs a Kafka of its own from jars: {reason}" if reason else None


def password_of(user: str) -> str:
    return f"pass-of-{user}"


def secured_kafka(folder: Path, users: list[str]) -> SecuredKafka:
    return SecuredKafka(folder, {name: password_of(name) for name in users})
