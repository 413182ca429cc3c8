"""`fallow job release`: a held job that may start again."""

from __future__ import annotations

from functools import partial

import typer

from fallow.cli.access import access_of
from fallow.cli.job.hold import JobNames, Jobs, Timeout, give
from fallow.cli.job.named import TenantName
from fallow.cli.node.operate import operation
from fallow.cli.output.output import AsJson, CellName
from fallow.shared.events.operations import ReleaseJob


def release(
    context: typer.Context,
    jobs: JobNames,
    tenant: TenantName = None,
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Let held jobs start again.

    Exit 1 if one is refused, 3 if one is not answered in time.
    """
    access = access_of(context)
    name = access.cell(cell)
    give(access, partial(operation, ReleaseJob, cell=name), Jobs(jobs, tenant, name), timeout_s, as_json=as_json)
