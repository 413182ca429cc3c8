"""Wrong use in one line: the option, its value, and the rule that the value breaks."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import Any

import typer

from fallow.cli.errors.suggestions import OPTION_WAYS, command_meant, option_meant, value_meant, way_for, words_too_many
from fallow.shared.checker_words import in_our_words

_NO_COMMAND = re.compile(r"No such command '(.*?)'\.", re.DOTALL)
_NOT_ONE_OF = re.compile(r"^'(.*)' is not one of (?=')", re.DOTALL)
_ONE = re.compile(r"'(.*?)'")
_TOO_MANY = re.compile(r"unexpected extra arguments? ?(?:\(s\))? ?\((.+)\)", re.DOTALL)


class WrongValue(typer.BadParameter):
    """A value that an option cannot have. It is raised by the option's callback, which need not know the option."""

    def __init__(self, value: str, rule: str) -> None:
        super().__init__(rule)
        self.value = value


def in_one_line(error: typer.TyperException) -> str:
    """What was wrong with the command line, for people."""
    from fallow.shared.events.codec.encoding import shorten  # noqa: PLC0415 - keeps `fallow --help` quick

    context = getattr(error, "ctx", None)
    command = "fallow" if context is None else context.command_path
    if not isinstance(error, typer.BadParameter) or error.param is None:
        return _about_words(command, error)
    option = _variable(error) or _name(error.param)
    if type(error).__name__ == "MissingParameter":
        return f"{command}: {option} is missing"
    value = _value(error)
    shown = "" if value is None else f" = {shorten(repr(value))}"
    return f"{command}: {option}{shown}: {own_words(error.message)}{_value_meant(option, in_our_words(error.message))}"


def _value_meant(option: str, message: str) -> str:
    """` (did you mean queued?)` behind the values that there are, or nothing."""
    found = _NOT_ONE_OF.match(message)
    if found is None:
        return ""
    meant = value_meant(option, found[1], _ONE.findall(message[found.end() :]))
    return f" (did you mean {meant}?)" if meant else ""


def _about_words(command: str, error: typer.TyperException) -> str:
    """Wrong use that is not of one value: a command or an option that there is not, or one too many."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    message, meant, way, ours = error.format_message(), "", "", command.removeprefix("fallow").strip()
    if found := _NO_COMMAND.match(message):
        message, known = found[0], context.command.list_commands(context) if context is not None else ()
        way = way_for(ours, found[1], _behind(found[1]))
        meant = "" if way else command_meant(ours, found[1], known, _behind(found[1]))
    elif context is not None and type(error).__name__ == "NoSuchOption":
        message, way = error.message, OPTION_WAYS.get(ours, {}).get(str(option), "")
        meant = option_meant(str(option), [name for param in context.command.params for name in param.opts])
        if any(option in param.opts for param in context.find_root().command.params):
            way = f"{option} stands before the command: fallow {option} ... {ours}"
    elif found := _TOO_MANY.search(message):
        way = words_too_many(ours, found[1])
    told = f"{command}: {_lower(message)}"
    if way:
        return f"{told}; {way}; see {command} --help"
    return f"{told}; did you mean {meant}? See {command} --help" if meant else f"{told}; see {command} --help"


def _behind(word: str) -> str:
    """The word that was typed behind this one."""
    return next((later for earlier, later in pairwise(sys.argv) if earlier == word), "")


def _variable(error: typer.BadParameter) -> str | None:
    """The variable of the environment from which the value came; None where it was typed."""
    param: Any = error.param
    source = None if error.ctx is None else error.ctx.get_parameter_source(param.name)
    return None if source is None or source.name != "ENVIRONMENT" else str(param.envvar)


def _name(param: Any) -> str:
    """`--timeout`, or the name of an argument."""
    if param.param_type_name == "option":
        return str(max(param.opts, key=len))
    return str(param.metavar or param.name.upper().removesuffix("_ID")).strip("[]{}").removesuffix("...")


def _value(error: typer.BadParameter) -> object:
    """The value that was refused, where it is known."""
    if isinstance(error, WrongValue):
        return error.value
    errors = getattr(error.__cause__, "errors", None)
    return errors()[0]["input"] if errors is not None else None


def own_words(message: str) -> str:
    """A rule as it is told here. The value stands before it."""
    return _lower(_NOT_ONE_OF.sub("must be one of ", in_our_words(message)))


def _lower(message: str) -> str:
    """As it stands behind a colon: without a capital and without a full stop."""
    line = " ".join(message.split()).removesuffix(".")
    return line[:1].lower() + line[1:]
