"""`fallow quota`: how much each tenant may use, as the cell knows it, and commands that change it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.paths import file_to_read
from fallow.cli.errors.failures import Exit, end_with, say
from fallow.cli.log.newest import newest_state
from fallow.cli.node.operate import give, operation, tell_answer
from fallow.cli.output.output import AsJson, CellName, print_json, print_table
from fallow.cli.quota.rows import COLUMNS, SPARE, as_object, table
from fallow.cli.quota.wish import changed_fields, read_quotas
from fallow.shared.client.port import News
from fallow.shared.events.effects import ProposalRefused, QuotaRemoved, QuotaSet
from fallow.shared.events.operations import ReclaimFrom, RemoveQuota, SetQuota
from fallow.shared.near import listed, meant

app = typer.Typer(no_args_is_help=True, help="Show and change how much of which GPU type each tenant may use.")

SET_QUOTA, REMOVE_QUOTA = "set-quota", "remove-quota"
"""How a refusal names what it is about."""

TenantName = Annotated[str | None, typer.Argument(metavar="[TENANT]", help="The tenant.", show_default=False)]
GpuType = Annotated[str, typer.Option("--gpu-type", help="The GPU type.")]
FileOption = Annotated[
    Path | None, typer.Option("--file", callback=file_to_read, help="Set all quotas of this file at once, each whole.")
]
Guaranteed = Annotated[str | None, typer.Option(metavar="GPUS", help="What is always there for the tenant.")]
Limit = Annotated[str | None, typer.Option(metavar="GPUS|none", help="The most that it may use.")]
BorrowLimit = Annotated[str | None, typer.Option(metavar="GPUS|none", help="The most beyond its guarantee.")]
LendLimit = Annotated[str | None, typer.Option(metavar="GPUS|none", help="The most of its idle guarantee for others.")]
Weight = Annotated[int | None, typer.Option(min=0, help="Its share beside others.", show_default=False)]
Lends = Annotated[bool | None, typer.Option("--lends/--no-lends", help="Whether others may have what is idle.")]
Borrows = Annotated[bool | None, typer.Option("--borrows/--no-borrows", help="Whether it may use what others lend.")]
Reclaim = Annotated[ReclaimFrom | None, typer.Option(help="From which tenants it may take back what it lent.")]
Reclaimable = Annotated[
    bool | None, typer.Option("--reclaimable/--no-reclaimable", help="Whether its jobs yield to other tenants'.")
]
MinRun = Annotated[str | None, typer.Option(metavar="TIME|none", help="How long its jobs run before that: 10min.")]
Parent = Annotated[str | None, typer.Option(metavar="TENANT|none", help="The tenant above it.")]
Yes = Annotated[bool, typer.Option("--yes", help="Also of a GPU type, or a tenant, that the cell file does not have.")]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")]


@app.command()
def show(
    context: typer.Context,
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant, those above it, whose limits hold for it, and those below it.")
    ] = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """The tree of tenants of each GPU type, in GPUs: guaranteed, limit, in use, borrowed, lent, and still available.

    Exit 1 if the tenant is none of the cell file and has no quota.
    """
    access = access_of(context)
    state = run(newest_state(access, access.cell(cell)))
    rows = table(state, tenant)
    known = dict.fromkeys(each.name for each in access.cells().tenants)
    if as_json:
        print_json(as_object(state, tenant))
    if not rows and tenant is not None and tenant not in known:
        end_with(Exit.NO, f"fallow: {tenant} is no tenant of the cell file ({listed(known)}){meant(tenant, known)}")
    if not as_json:
        whose = "" if tenant is None else f" around {tenant}"
        print_table(f"Quotas{whose} of cell {state.cell} at version {state.version}", COLUMNS, rows, SPARE)


@app.command("set")
def set_(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    tenant: TenantName = None,
    gpu_type: GpuType = "gpu",
    file: FileOption = None,
    guaranteed: Guaranteed = None,
    limit: Limit = None,
    borrow_limit: BorrowLimit = None,
    lend_limit: LendLimit = None,
    weight: Weight = None,
    lends: Lends = None,
    borrows: Borrows = None,
    reclaim: Reclaim = None,
    min_run: MinRun = None,
    reclaimable: Reclaimable = None,
    parent: Parent = None,
    yes: Yes = False,
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Change a tenant's quota of one GPU type, while the cell runs; what no option names stays as it is. No job is
    stopped by it: what is in use above the guarantee counts as borrowed.
    """
    access = access_of(context)
    options = {
        "guaranteed": guaranteed,
        "limit": limit,
        "borrow_limit": borrow_limit,
        "lend_limit": lend_limit,
        "weight": weight,
        "lends": lends,
        "borrows": borrows,
        "reclaim": reclaim,
        "min_run": min_run,
        "reclaimable": reclaimable,
        "parent": parent,
    }
    changes = changed_fields(options)
    if (tenant is None) == (file is None) or bool(changes) == (file is not None):
        end_with(Exit.USAGE, "fallow: quota set: name a tenant and what is to change, or a --file alone")
    if file is not None:
        quotas, fields = read_quotas(file, access.cells()), []
    else:
        quotas, fields = [{"tenant": tenant, "gpu_type": gpu_type, **changes}], sorted(changes)
    name = access.cell(cell)
    if not yes:
        _refuse_unknown_types(access, name, quotas)
        _refuse_unknown_tenants(access, name, quotas)
    wish = operation(SetQuota, cell=name, quotas=quotas, fields=fields)
    _give(access, wish, timeout_s, as_json=as_json)


@app.command()
def remove(
    context: typer.Context,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.", show_default=False)],
    gpu_type: Annotated[str | None, typer.Option("--gpu-type", help="Only this GPU type, not all.")] = None,
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Remove a tenant's quotas. Refused while jobs of the tenant wait or run, or other tenants stand below it. To lift
    a limit under them is `fallow quota set TENANT --limit none`.
    """
    access = access_of(context)
    wish = operation(RemoveQuota, cell=access.cell(cell), tenant=tenant, gpu_type=gpu_type)

    def is_answer(news: News) -> bool:
        event = news.event
        if isinstance(event, ProposalRefused):
            return event.proposal == REMOVE_QUOTA
        return isinstance(event, QuotaRemoved) and event.tenant == tenant

    answer = run(give(access, wish, is_answer, timeout_s * 1000, tenant))
    tell_answer({"quota": tenant}, answer, timeout_s, as_json=as_json)


def _refuse_unknown_types(access: Access, cell: str, quotas: list[dict[str, Any]]) -> None:
    """Ends the command where a quota is of GPUs that no pool has: mistyped, or of a pool that comes later."""
    types = access.cells().gpus_of(cell)
    unknown = dict.fromkeys(quota["gpu_type"] for quota in quotas if quota["gpu_type"] not in types)
    if unknown:
        why = f"no pool of cell {cell} has GPUs of type {', '.join(unknown)} (there are {listed(types)})"
        _refuse(why)


def _refuse_unknown_tenants(access: Access, cell: str, quotas: list[dict[str, Any]]) -> None:
    """Ends the command where a quota belongs to no known tenant: mistyped, or a group, which stands above tenants and
    has no jobs of its own. One that has a quota already, or is named as a parent beside its own quota, is meant.
    """
    known = dict.fromkeys(tenant.name for tenant in access.cells().tenants)
    parents = [quota.get("parent") for quota in quotas]
    unknown = [name for quota in quotas if (name := quota["tenant"]) not in known and name not in parents]
    if not unknown:
        return
    groups = dict.fromkeys(tenant for tenant, _ in run(newest_state(access, cell)).quotas)
    for name in unknown:
        if name not in groups:
            why = f"{name} is no tenant of the cell file ({listed(known)})"
            group = f"give --yes to make it a group, for tenants below it alone{meant(name, known)}"
            end_with(Exit.USAGE, f"fallow: {why}; nothing was done; {group}")


def _refuse(why: str) -> None:
    end_with(Exit.USAGE, f"fallow: {why}; nothing was done; give --yes to set it all the same")


def _give(access: Access, wish: SetQuota, timeout_s: int, *, as_json: bool) -> None:
    """Ends the command where the cell does not take the quotas; of a group that it has taken it is told that it is
    one.
    """
    accounts = [(quota.tenant, quota.gpu_type) for quota in wish.quotas]

    def is_answer(news: News) -> bool:
        event = news.event
        if isinstance(event, ProposalRefused):
            return event.proposal == SET_QUOTA
        if not isinstance(event, QuotaSet) or event.of_file:
            return False
        return (event.quota.tenant, event.quota.gpu_type) in accounts

    subject = accounts[0][0] if len(accounts) == 1 else f"{len(accounts)} quotas"
    answer = run(give(access, wish, is_answer, timeout_s * 1000, subject))
    tell_answer({"quota": subject}, answer, timeout_s, as_json=as_json)
    known = dict.fromkeys(tenant.name for tenant in access.cells().tenants)
    for name in dict.fromkeys(tenant for tenant, _ in accounts if tenant not in known):
        # Not refused: such a quota is a group, which stands above tenants and has no jobs of its own.
        group = f"it is a group, for tenants below it alone; `fallow quota remove {name}` takes it away"
        say(f"fallow: {name} is no tenant of the cell file ({listed(known)}): {group}")
