"""`fallow release`: a held job that may start again."""

from __future__ import annotations

import typer

from fallow.cli.access import access_of
from fallow.cli.job.hold import JobName, Timeout, give
from fallow.cli.node.operate import operation
from fallow.cli.output.output import AsJson, CellName
from fallow.shared.events.operations import ReleaseJob

app = typer.Typer()


@app.command()
def release(
    context: typer.Context, job: JobName, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Let a held job start again."""
    access = access_of(context)
    wish = operation(ReleaseJob, cell=access.cell(cell), job=job)
    give(access, wish, job, timeout_s, as_json=as_json)
