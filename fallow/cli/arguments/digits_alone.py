"""A number is written with ASCII digits alone: other ways that Python reads (`1_0`) are most likely mistyped."""

from __future__ import annotations

from typing import Any, get_args

from fallow.cli.errors.wrong_use import WrongValue
from fallow.shared.digits import RULES, is_written_with_digits


def read_digits_alone(command: Any) -> None:
    """Have this command, and each below it, refuse a number that is written in another way."""
    for below in getattr(command, "commands", {}).values():
        read_digits_alone(below)
    for param in command.params:
        declared = param.type_descriptor.annotation
        kind = get_args(declared)[0] if get_args(declared) else declared
        if kind in RULES:
            _check_first(param, kind)


def _check_first(param: Any, kind: type) -> None:
    process = param.process_value

    def process_digits(context: Any, value: Any) -> Any:
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and not is_written_with_digits(each, kind) and _is_read(each, kind):
                raise WrongValue(each, RULES[kind])
        return process(context, value)

    param.process_value = process_digits


def _is_read(text: str, kind: type) -> bool:
    """Whether Python takes it for such a number. What is none is told in the words of its option."""
    try:
        kind(text)
    except ValueError:
        return False
    return True
