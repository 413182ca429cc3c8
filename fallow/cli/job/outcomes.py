"""What came of a command on jobs, one or several: each job has its own answer, and the worst gives the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import typer

from fallow.cli.failures import Exit, say
from fallow.cli.output.output import print_json, print_sentence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is told of one job, and its exit code. `is_from_cell`: it is the cell's answer, else a line of our own for
    want of one. `more` is what JSON says beside it.
    """

    job: str
    answer: str
    code: Exit = Exit.OK
    is_from_cell: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        """The same for programs."""
        return {"job": self.job, "ok": self.code is Exit.OK, "answer": self.answer, **self.more}


def no_answer(job: str) -> Outcome:
    """Of a command that the cell has not answered in time."""
    said = f"no answer yet about {job}; the request is on its way"
    return Outcome(job, said, Exit.AWAY, is_from_cell=False)


def tell_each(outcomes: Iterable[Outcome], *, as_json: bool) -> None:
    """Tell each outcome as soon as it is known, and end the command with the worst: a no counts more than silence."""
    told = []
    for outcome in outcomes:
        told.append(outcome)
        if not outcome.is_from_cell:
            say(f"fallow: {outcome.answer}")
        elif not as_json:
            print_sentence(outcome.answer)
    codes = {outcome.code for outcome in told} - {Exit.OK}
    if as_json:
        objects = [outcome.as_object() for outcome in told]
        print_json(objects[0] if len(objects) == 1 else {"ok": not codes, "jobs": objects})
    if codes:
        raise typer.Exit(min(codes))
