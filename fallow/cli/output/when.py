"""Moments and durations as people write them: `2026-03-01 12:30Z`, `day 3 07:15:00`, `10min`, `90s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from fallow.cli.output.durations import CALENDAR_TO_MS, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from fallow.shared.events.base import CALENDAR_FROM_MS

MOMENT_RULE = (
    "a version of up to 15 digits, a time in UTC or with its offset (2026-03-01 12:30[:00[.000]][+01:00]), "
    "from 1974 on, "
    "or a time since the origin (day 3 07:15[:00], with up to 9 digits of the day)"
)
DURATION_RULE = "a number of up to 9 digits and a unit: 500ms, 90s, 10min, 2h, 1d"
POINT_RULE = (
    "a duration from now (90s, 10min, 2h, 1d; up to 9 digits) or a time in UTC, from 1974 on (2026-03-01 12:30)"
)

_DAY = re.compile(r"day (\d{1,9})(?: ([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,3}))?)?)?", re.ASCII)
_DURATION = re.compile(r"(\d{1,9}) ?(ms|s|min|m|h|d)", re.ASCII)
_UNITS = {"ms": 1, "s": SECOND_MS, "min": MINUTE_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}


def moment_of(text: str) -> int | None:
    """The time in milliseconds, as `durations.moment` writes it or a part of that; None if it is none. What
    the calendar says before its times begin, or behind their end, would be told as another time than was typed.
    """
    found = _DAY.fullmatch(text.strip())
    if found is not None:
        day, hour, minute, second = (int(found[group] or 0) for group in (1, 2, 3, 4))
        thousandths = int((found[5] or "0").ljust(3, "0"))
        return day * DAY_MS + hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + thousandths
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    at = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    # By whole numbers: a float of seconds would lose the last millisecond.
    at_ms = (since.days * DAY_MS) + since.seconds * SECOND_MS + since.microseconds // 1000
    return at_ms if CALENDAR_FROM_MS <= at_ms < CALENDAR_TO_MS else None


def duration_of(text: str) -> int | None:
    """The duration in milliseconds; None if it is none."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class Point:
    """A time that is given, or so many milliseconds ahead of the cell's time now."""

    ms: int
    is_ahead: bool

    def at_ms(self, now_ms: int) -> int:
        """The time by the cell's clock."""
        return now_ms + self.ms if self.is_ahead else self.ms


def point_of(text: str) -> Point | None:
    """A duration from now, or a time; None if it is neither."""
    ahead_ms = duration_of(text)
    if ahead_ms is not None:
        return Point(ahead_ms, is_ahead=True)
    at_ms = moment_of(text)
    return None if at_ms is None else Point(at_ms, is_ahead=False)
