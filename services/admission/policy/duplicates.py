"""Keys that stand twice in one object of a command. A reader would have to guess which of the two counts."""

from __future__ import annotations

from json import JSONDecoder
from types import NoneType
from typing import Any

from shared.events.base import Value
from shared.events.values import JobKind

_PLAIN = frozenset({str, int, bool, tuple, NoneType, JobKind})


class StandsTwice(Exception):
    """The key that stands twice."""


def key_twice(value: bytes, command: Value) -> str | None:
    """The first key that stands twice in the JSON text `value`, or None. `command` is what the text was read as.

    Each key brings a colon. Where the text has no more colons than the command has fields that were set, no key stands
    twice; only otherwise (a colon within a string will do) the text is read again, with an eye on its keys.
    """
    if value.count(b":") == _fields_set(command):
        return None
    try:
        _KEYS.decode(value.decode())
    except StandsTwice as found:
        return str(found)
    return None


def _fields_set(part: Value) -> int:
    """How many keys the text must have had at least."""
    count = len(part.model_fields_set)
    for inner in part.__dict__.values():
        kind = type(inner)
        if kind is dict:
            count += len(inner)
        elif kind not in _PLAIN and Value in kind.__mro__:  # isinstance with pydantic is slow
            count += _fields_set(inner)
    return count


def _look(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        raise StandsTwice(next(name for at, name in enumerate(names) if name in names[:at]))


_KEYS = JSONDecoder(object_pairs_hook=_look)
