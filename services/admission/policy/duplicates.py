"""Keys that stand twice in one object of a command. A reader would have to guess which of the two counts."""

from __future__ import annotations

from json import JSONDecoder
from typing import Any

from pydantic_core import from_json

from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode


class StandsTwice(Exception):
    """The key that stands twice."""


def key_twice(value: bytes, command: Event) -> str | None:
    """The first key that stands twice in the JSON text `value`, or None. `command` is what the text was read as.

    What is just as we would write it holds no key twice. Each key brings a colon: where another text has no more colons
    than its objects have keys, no key stands twice in it either. Only otherwise (a colon within a string will do) the
    text is read with an eye on its keys.
    """
    if value == encode(command) or value.count(b":") == _keys(from_json(value)):
        return None
    try:
        _KEYS.decode(value.decode())
    except StandsTwice as found:
        return str(found)
    return None


def _keys(part: Any) -> int:
    """How many keys the objects of a JSON value have."""
    if isinstance(part, dict):
        return len(part) + sum(map(_keys, part.values()))
    return sum(map(_keys, part)) if isinstance(part, list) else 0


def _look(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    seen: dict[str, None] = {}
    for name, _ in pairs:
        if name in seen:
            raise StandsTwice(name)
        seen[name] = None


_KEYS = JSONDecoder(object_pairs_hook=_look)
