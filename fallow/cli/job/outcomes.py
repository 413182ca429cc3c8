"""What came of a command on jobs, one or several: each job has its own answer, and the worst gives the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import typer

from fallow.cli.errors.failures import Exit, say
from fallow.cli.errors.unanswered import Passes, unanswered
from fallow.cli.output.output import print_json, print_sentence


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer about one job, and its exit code. `is_from_cell`: it is the cell's answer, else a line of our own for
    want of one. `more` is what JSON says beside it, and `hint` a line for people in its place.
    """

    job: str
    answer: str
    code: Exit = Exit.OK
    is_from_cell: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""

    def as_object(self) -> dict[str, Any]:
        """The outcome for programs, as a JSON object."""
        return {"job": self.job, "ok": self.code is Exit.OK, "answer": self.answer, **self.more}


def no_answer(job: str, passes: Passes, wait_s: int) -> Outcome:
    """Of a command that the cell has not answered in this time."""
    return Outcome(job, unanswered(job, passes, wait_s), Exit.AWAY, is_from_cell=False)


def tell_each(outcomes: Iterable[Outcome], *, as_json: bool) -> None:
    """Tell each outcome as soon as it is known, and end the command with the worst: a no counts more than silence.
    Where something fails on the way, programs too get what was done before.
    """
    told, is_whole = list[Outcome](), False
    try:
        for outcome in outcomes:
            told.append(outcome)
            if outcome.hint or not outcome.is_from_cell:
                say(f"fallow: {outcome.hint or outcome.answer}")
            elif not as_json:
                print_sentence(outcome.answer)
        is_whole = True
    finally:
        codes = {outcome.code for outcome in told} - {Exit.OK}
        if as_json and told:
            objects = [outcome.as_object() for outcome in told]
            is_one = is_whole and len(objects) == 1
            print_json(objects[0] if is_one else {"ok": is_whole and not codes, "jobs": objects})
    if codes:
        raise typer.Exit(min(codes))
