"""Times and durations in milliseconds as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from fallow.shared.events.base import CALENDAR_FROM_MS

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
CALENDAR_TO_MS = 253_402_300_800_000
"""The calendar ends with the year 9999. Times go on: a fast clock gets there, and a tenant may ask for such a pause."""


def moment(ms: int) -> str:
    """A time: of the calendar in UTC, `2026-03-01 12:30:00.000Z`, where the cell runs by it, else days and time since
    the cell's origin, which are of no zone.
    """
    return _written(ms, f".{ms % SECOND_MS:03}")


def to_the_second(ms: int) -> str:
    """A duration without milliseconds, for tables."""
    return _written(ms, "")


def window(begin_ms: int, end_ms: int, why: str = "") -> str:
    """A time that is planned, and for what: `from 2026-03-01 12:30:00Z to 2026-03-01 14:00:00Z (new fans)`."""
    return f"from {to_the_second(begin_ms)} to {to_the_second(end_ms)}{f' ({why})' if why else ''}"


def _written(ms: int, behind_seconds: str) -> str:
    if CALENDAR_FROM_MS <= ms < CALENDAR_TO_MS:
        return f"{datetime.fromtimestamp(ms // SECOND_MS, UTC):%Y-%m-%d %H:%M:%S}{behind_seconds}Z"
    clock = f"{ms // HOUR_MS % 24:02}:{ms // MINUTE_MS % 60:02}:{ms // SECOND_MS % 60:02}"
    return f"day {ms // DAY_MS} {clock}{behind_seconds}"


def duration(ms: int) -> str:
    """A duration with its two largest units: 250 ms, 12.5 s, 3 min 20 s, 4 h 5 min, 2 d 3 h."""
    if ms < SECOND_MS:
        return f"{ms} ms"
    if ms < MINUTE_MS:
        return f"{ms / SECOND_MS:.1f} s"
    for unit, name, below, below_name in (
        (DAY_MS, "d", HOUR_MS, "h"),
        (HOUR_MS, "h", MINUTE_MS, "min"),
        (MINUTE_MS, "min", SECOND_MS, "s"),
    ):
        if ms >= unit:
            rest = ms % unit // below
            return f"{ms // unit} {name} {rest} {below_name}" if rest else f"{ms // unit} {name}"
    raise AssertionError("a minute or more has a unit")


def setting(name: str, value: object) -> str:
    """The value of a setting; one in milliseconds also as a duration: `1800000 (30 min)`."""
    if name.endswith("_ms") and isinstance(value, int) and value > 0:
        return f"{value} ({duration(value)})"
    return str(value)
