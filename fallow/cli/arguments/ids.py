"""What ids and words given on the command line must be, checked before anything is asked: callbacks of arguments."""

from __future__ import annotations

from typing import Any

from fallow.cli.errors.wrong_use import WrongValue


def a_job(value: str | list[str] | None) -> str | list[str] | None:
    """A job, or several, each by its id or as TENANT/ID; None where an option names none."""
    from fallow.shared.events.base import JobId  # noqa: PLC0415 - keeps `fallow --help` quick
    from fallow.shared.events.validation.rules_told import JOB_RULE  # noqa: PLC0415 - the same

    return None if value is None else _checked(value, JobId, JOB_RULE)


def a_node(value: str | list[str]) -> str | list[str]:
    """The id of a node, or several."""
    from fallow.shared.events.base import NodeId  # noqa: PLC0415 - keeps `fallow --help` quick
    from fallow.shared.events.validation.rules_told import ID_RULE  # noqa: PLC0415 - the same

    return _checked(value, NodeId, ID_RULE)


def a_tenant(value: str | None) -> str | None:
    """A tenant's name; an empty variable of the environment is none."""
    from fallow.shared.events.base import Name  # noqa: PLC0415 - keeps `fallow --help` quick
    from fallow.shared.events.validation.rules_told import NAME_RULE  # noqa: PLC0415 - the same

    return None if not value else str(_checked(value, Name, NAME_RULE))


def a_reason(value: str) -> str:
    """Words that a command brings for people."""
    from fallow.shared.events.base import TEXT_CHARACTERS_MAX, Line  # noqa: PLC0415 - keeps `fallow --help` quick
    from fallow.shared.events.validation.rules_told import LINE_RULE  # noqa: PLC0415 - the same

    return str(_checked(value, Line, f"{LINE_RULE}, of at most {TEXT_CHARACTERS_MAX} characters"))


def _checked(value: str | list[str], kind: Any, rule: str) -> str | list[str]:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - keeps `fallow --help` quick

    check = TypeAdapter(kind).validate_python
    for each in [value] if isinstance(value, str) else [*value]:
        try:
            check(each)
        except ValidationError as error:
            raise WrongValue(each, rule) from error
    return value
