"""`fallow tenant list`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.cell.retry import patiently
from fallow.cli.job.jobs import as_object
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence, print_table
from fallow.shared.events.fields.values import GPU
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import TenantRow

COLUMNS = ("TENANT", ">WAITING", ">RUNNING", "GPU TYPE", ">IN USE", ">GUARANTEED", ">LIMIT", ">BORROWED")
SPARE = ("BORROWED", "GPU TYPE")


def tenants(context: typer.Context, cell: CellName = None, as_json: AsJson = False) -> None:
    """List tenants with their jobs, and their use and quota of each GPU type in GPUs."""
    access = access_of(context)
    name = access.cell(cell)
    read = run(_tenants(access, name))
    if as_json:
        print_json(as_object(name, read, "tenants"))
        return
    listed, gone = parted(read.value, [tenant.name for tenant in access.cells().tenants])
    title = f"{counted(len(listed), 'tenant')} of cell {name} at version {read.version}"
    print_table(title, COLUMNS, [row for tenant in listed for row in _rows(tenant)], SPARE)
    if gone:
        print_sentence(f"not in the cell file any more, without jobs and quota: {', '.join(gone)}")


def parted(tenants: Sequence[TenantRow], known: Collection[str]) -> tuple[list[TenantRow], list[str]]:
    """The tenants that a table shows, and the names of those of which nothing is left but that the cell has heard of
    them: no job, no quota, and no place in the cell file.
    """
    gone = [row for row in tenants if row.tenant not in known and not (row.accounts or row.waiting or row.running)]
    return [row for row in tenants if row not in gone], [row.tenant for row in gone]


async def _tenants(access: Access, cell: str) -> Read[tuple[TenantRow, ...]]:
    async with access.client() as client:
        return await patiently(lambda: client.tenants(cell))


def _rows(tenant: TenantRow) -> Iterator[tuple[object, ...]]:
    head: tuple[object, ...] = (tenant.tenant, tenant.waiting, tenant.running)
    if not tenant.accounts:
        yield (*head, "", "", "", "", "")
    for account in tenant.accounts:
        yield (
            *head,
            account.gpu_type,
            _gpus(account.used_milli),
            _gpus(account.guaranteed_milli),
            "none" if account.limit_milli is None else _gpus(account.limit_milli),
            _gpus(account.borrowed_milli),
        )
        head = ("", "", "")


def _gpus(milli: int) -> str:
    return f"{milli / GPU:g}"
