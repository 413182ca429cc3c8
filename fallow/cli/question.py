"""Questions to the person at the terminal. No answer is a no."""

from __future__ import annotations

import typer

from fallow.cli.errors.failures import Exit, end_with, say
from fallow.cli.errors.interrupts import INTERRUPTED

NOTHING_DONE = "fallow: nothing was done"


def agreed(question: str) -> bool:
    """Whether the answer is yes. An interrupt (Ctrl-C) or the end of the input (Ctrl-D) in place of an answer ends the
    command in one line: exit 130, as a shell has it for an interrupt, or 1, as for a no.
    """
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as error:
        say("")  # the question stands on a line of its own
        if isinstance(error.__context__, KeyboardInterrupt):
            say(NOTHING_DONE)
            raise typer.Exit(INTERRUPTED) from None
        end_with(Exit.NO, NOTHING_DONE)
