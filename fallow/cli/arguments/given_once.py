"""An option that takes one value is given once: of two values one would be dropped without a word."""

from __future__ import annotations

from typing import Any

import typer


def refuse_repeated(command: Any) -> None:
    """Have this command, and each below it, refuse an option that stands twice with one value to take."""
    for below in getattr(command, "commands", {}).values():
        refuse_repeated(below)
    parse = command.parse_args

    def parse_once(context: Any, args: list[str]) -> Any:
        check_given_once(command, context, args)
        return parse(context, args)

    command.parse_args = parse_once


def check_given_once(command: Any, context: Any, args: list[str]) -> None:
    """Raises typer.BadParameter where an option with one value stands twice among these words. A flag that can only be
    set may be set again.
    """
    if context.resilient_parsing or (not args and command.no_args_is_help):
        return
    in_full = getattr(command, "in_full", list)  # of a group with a short form
    _, _, order = command.make_parser(context).parse_args(args=list(in_full(args)))
    options = [param for param in order if param.param_type_name == "option" and not _may_repeat(param)]
    for param in options:
        if options.count(param) > 1:
            raise typer.BadParameter("is given twice, and takes one value", ctx=context, param=param)


def _may_repeat(param: Any) -> bool:
    return bool(param.multiple or param.count or (param.is_flag and not param.secondary_opts))
