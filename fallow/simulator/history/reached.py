"""What a world came to: which effects stand in its decisions, and which reasons were given, by their codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from inspect import getmembers, isclass
from typing import get_args, get_type_hints

from fallow.shared.events import reasons
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect
from fallow.shared.events.fields.value import Value
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import DeadLetterReason
from fallow.simulator.history.record import History, Logged

EFFECTS: tuple[str, ...] = tuple(sorted(effect.__name__ for effect in get_args(AnyEffect)))
"""Every effect of the language."""

_CODES = tuple(
    found
    for _, found in getmembers(reasons, isclass)
    if issubclass(found, StrEnum) and found.__module__ == reasons.__name__
)

REASONS: tuple[str, ...] = tuple(f"{codes.__name__}.{code.value}" for codes in _CODES for code in codes)
"""Every code, by the list that it belongs to."""


def reached(history: History) -> Counter[str]:
    """How often each effect and each reason stands in the log."""
    found: Counter[str] = Counter()
    for logged in history.records("decisions"):
        event = logged.event()
        for effect in event.effects if isinstance(event, Decision) and not logged.is_forged else ():
            found[type(effect).__name__] += 1
            found.update(_reasons_of(effect))
    for logged in history.records("jobs"):
        event = logged.event()
        if isinstance(event, JobRejected):
            found.update(_reasons_of(event))
    for logged in history.records("dead-letters"):
        found.update(_reason_of_letter(logged))
    return found


def _reasons_of(said: Value) -> Iterator[str]:
    for name in _coded_fields(type(said)):
        code = getattr(said, name)
        if isinstance(code, _CODES):
            yield f"{type(code).__name__}.{code.value}"


@cache
def _coded_fields(cls: type[Value]) -> tuple[str, ...]:
    """The fields of an event or an effect that may hold a code."""
    hints = get_type_hints(cls)
    return tuple(name for name, hint in hints.items() if any(part in _CODES for part in (hint, *get_args(hint))))


def _reason_of_letter(logged: Logged) -> Iterator[str]:
    """A letter's key ends with its reason in worlds without headers, else a header holds it."""
    known = {reason.value for reason in DeadLetterReason}
    sent = logged.record(logged.topic).headers
    words = [logged.key.rpartition(" ")[2], *(value.decode() for key, value in sent if key == "reason")]
    for word in words[-1:] if words[-1] in known else words[:1]:
        if word in known:
            yield f"{DeadLetterReason.__name__}.{word}"
