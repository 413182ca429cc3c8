"""What the fields of a job must be, in words: for each mistake that the model finds in a job file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from fallow.cli.ids import ID_RULE
from fallow.cli.output.counts import counted
from fallow.shared.events.base import JobId, Label, Name
from fallow.shared.events.values import NO_NUL_PATTERN, VARIABLE_PATTERN

NAME_RULE = "must be 1 to 63 of a to z, 0 to 9 and '-', beginning and ending with a letter or a digit"
LABEL_RULE = "must be 1 to 128 letters, digits, '.', '_', '/' and '-', beginning and ending with a letter or a digit"

_PATTERNS: dict[str, str] = {
    get_args(kind)[1].pattern: rule for kind, rule in ((JobId, ID_RULE), (Name, NAME_RULE), (Label, LABEL_RULE))
}

_PATTERNS |= {
    VARIABLE_PATTERN: "the name of a variable must have a character, and neither '=' nor NUL",
    NO_NUL_PATTERN: "must hold no NUL",
}

_KINDS = {
    "missing": "is missing",
    "extra_forbidden": "unknown field (docs/jobs.md lists them)",
    "union_tag_not_found": "is missing: 'virtual' or 'process' (docs/jobs.md)",
    "model_type": "must be a mapping of fields",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
}


def rule_of(field: str, kind: str, message: str, context: Mapping[str, Any]) -> str:
    """The rule that a value of this field breaks. `kind`, `message` and `context` are what pydantic says of it."""
    if kind == "too_short":
        return f"must have at least {counted(context['min_length'], 'item')}"
    if kind == "too_long":
        return f"must have at most {counted(context['max_length'], 'item')}"
    if kind == "union_tag_invalid":
        return f"must be {context['expected_tags'].replace(', ', ' or ')}"
    if kind == "string_pattern_mismatch":
        plain = f"is not written as docs/jobs.md says of {field.partition('.')[0]}"
        return _PATTERNS.get(context["pattern"], plain)
    if kind in _KINDS:
        return _KINDS[kind]
    return message.removeprefix("Value error, ").replace("Input should be", "must be", 1)
