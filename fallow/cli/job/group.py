"""`fallow job`: everything that a person does with one job, each a command behind the noun."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fallow.cli.job.cancel import cancel
from fallow.cli.job.hold import hold
from fallow.cli.job.job import job
from fallow.cli.job.jobs import jobs
from fallow.cli.job.release import release
from fallow.cli.job.scale import scale

SHOW = "show"
HELP = ("--help",)


class JobGroup(TyperGroup):
    """The commands of one job. `fallow job ID` is the short form of `fallow job show ID`."""

    def in_full(self, args: list[str]) -> list[str]:
        """The words with `show` in front where the first one is an id or an option of `show`. A word that is no
        command and stands before another word is a mistyped command, since a job has one id.
        """
        if not args or args[0] in self.commands or args[0] in HELP:
            return args
        is_short_form = args[0].startswith("-") or len(args) == 1 or args[1].startswith("-")
        return [SHOW, *args] if is_short_form else args

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As every group, of the words in full."""
        return super().parse_args(ctx, self.in_full(args))


app = typer.Typer(
    cls=JobGroup,
    no_args_is_help=True,
    help="Show one job, list jobs, cancel, hold, release or scale them. `fallow job ID` is short for "
    "`fallow job show ID`.",
)
app.command(SHOW)(job)
app.command("list")(jobs)
app.command()(cancel)
app.command()(hold)
app.command()(release)
app.command()(scale)
