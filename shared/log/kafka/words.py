"""What an error of Kafka's client says, for people: without the names and brackets of Python."""

from __future__ import annotations

import re

from aiokafka.errors import KafkaConnectionError

from fallow.shared.runtime.errors.system_words import words_of_system

NO_BROKER = "Unable to bootstrap"
_NUMBER = re.compile(r"^\[Error -?\d+\] ")
"""Before the name of what a broker answered."""


def words_of(error: Exception) -> str:
    """Why something did not come about, behind what that was."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, KafkaConnectionError) and NO_BROKER in str(error):
        return "nothing answers there, or not as a Kafka with these settings"
    if isinstance(error, UnicodeError):
        return "no host can have this name"
    if isinstance(error, OSError):
        return words_of_system(error) or type(error).__name__
    name = type(error).__name__
    said = _NUMBER.sub("", str(error)).removeprefix(name).removeprefix(": ")
    return said or str(getattr(error, "description", "")).rstrip(".") or name
