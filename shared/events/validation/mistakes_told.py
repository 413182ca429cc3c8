"""What is wrong with a file that was checked as a whole: a line for each mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fallow.shared.events.codec.encoding import shorten, written
from fallow.shared.events.validation.rules_told import causes, field_of, is_shown, rule_broken

_CHOICE = re.compile(r"constrained-|(literal|list|dict)\[")
"""How pydantic calls one of the things that a value may be."""


def mistakes_in(file: str, problems: Sequence[Any]) -> list[str]:
    """A line for each of the `errors` of pydantic about a file, which begins with its name."""
    return [f"{file}: {line}" for line in mistakes_told(problems)]


def mistakes_told(problems: Sequence[Any]) -> list[str]:
    """A line for each of the `errors` of pydantic: field, value and rule. What may be one thing or another is told
    once, with both.
    """
    return [_line(mistake) for mistake in _mistakes(problems)]


def first_told(problems: Sequence[Any]) -> str:
    """The first of these lines, and how many more there are. Only that one is worded: a file may have thousands."""
    first, *others = _mistakes(problems)
    return f"{_line(first)}; and {len(others)} more" if others else _line(first)


def _mistakes(problems: Sequence[Any]) -> list[Any]:
    """What is wrong in each place, without what is wrong only since something inside it is."""
    found: dict[tuple[int | str, ...], list[Any]] = {}
    for problem in problems:
        at = tuple(part for part in problem["loc"] if not _CHOICE.match(str(part)))
        found.setdefault(at, []).append(problem)
    return causes([{"loc": at, "problems": each} for at, each in found.items()])


def _line(mistake: Mapping[str, Any]) -> str:
    problem = mistake["problems"][0]
    rule = " or ".join(dict.fromkeys(rule_broken(each) for each in mistake["problems"]))
    field, value = shorten(field_of(mistake["loc"])), problem["input"]
    shown = f" = {written(value)}" if is_shown(problem["type"], value) else ""
    return f"{field}{shown}: {rule}" if field else f"{rule} (got {written(value)})"
