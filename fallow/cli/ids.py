"""What an id given on the command line must be, checked before anything is asked: callbacks of its arguments."""

from __future__ import annotations

from fallow.cli.wrong_use import WrongValue


def an_id(value: str | list[str]) -> str | list[str]:
    """The id of a job or of a node, or several."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - keeps `fallow --help` quick

    from fallow.shared.events.base import JobId  # noqa: PLC0415
    from fallow.shared.events.rules_told import ID_RULE  # noqa: PLC0415

    check = TypeAdapter(JobId).validate_python
    for each in [value] if isinstance(value, str) else [*value]:
        try:
            check(each)
        except ValidationError as error:
            raise WrongValue(each, ID_RULE) from error
    return value
