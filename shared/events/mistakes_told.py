"""What is wrong with a file that was checked as a whole: a line for each mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fallow.shared.events.encoding import shorten, written
from fallow.shared.events.rules_told import causes, field_of, is_shown, rule_broken

_CHOICE = re.compile(r"constrained-|(literal|list|dict)\[")
"""How pydantic calls one of the things that a value may be."""


def mistakes_in(file: str, problems: Sequence[Any]) -> list[str]:
    """A line for each of the `errors` of pydantic about a file, which begins with its name."""
    return [f"{file}: {line}" for line in mistakes_told(problems)]


def mistakes_told(problems: Sequence[Any]) -> list[str]:
    """A line for each of the `errors` of pydantic: field, value and rule. What may be one thing or another is told
    once, with both.
    """
    rules: dict[tuple[int | str, ...], tuple[Any, list[str]]] = {}
    for problem in problems:
        at = tuple(part for part in problem["loc"] if not _CHOICE.match(str(part)))
        rules.setdefault(at, (problem, []))[1].append(rule_broken(problem))
    told = [{**problem, "loc": at, "rule": " or ".join(dict.fromkeys(each))} for at, (problem, each) in rules.items()]
    return [_line(problem) for problem in causes(told)]


def _line(problem: Mapping[str, Any]) -> str:
    field, value = shorten(field_of(problem["loc"])), problem["input"]
    shown = f" = {written(value)}" if is_shown(problem["type"], value) else ""
    return f"{field}{shown}: {problem['rule']}" if field else f"{problem['rule']} (got {written(value)})"
