"""How a number is written where a person gives it: with ASCII digits, and nothing between them.

Options, variables and tables go by it; files of YAML say the same of their numbers.
"""

from __future__ import annotations

import re

RULES = {int: "must be a whole number", float: "must be a number"}

_WRITTEN = {
    int: re.compile(r"[+-]?[0-9]+"),
    float: re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE),
}


def is_written_with_digits(text: str, kind: type) -> bool:
    """Whether a number of this kind is written so. What is no finite number passes: its bounds refuse it."""
    return _WRITTEN[kind].fullmatch(text) is not None
