"""`fallow tenant shares`: how much each tenant has beside the others, for queues in fair-share order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from fallow.cli.access import access_of, run
from fallow.cli.log.newest import newest_state
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence, print_table
from fallow.services.placement.explain.fair_share import TenantShare, shares_of
from fallow.services.placement.queue.fair_share import SHARE_ONE
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU

COLUMNS = (
    "TENANT", "PARENT", ">SHARE %", ">WAITING", ">MAY WAIT", ">GPUS WANTED", "GPU TYPE", ">WEIGHT", ">HELD", ">OF LATE",
)  # fmt: skip
SPARE = ("PARENT", "GPUS WANTED", "MAY WAIT", "WEIGHT")

NOT_RECORDED = "OF LATE: nothing is recorded (fair_half_life_ms is 0; docs/queues.md)."


def shares(context: typer.Context, cell: CellName = None, as_json: AsJson = False) -> None:
    """List tenants as they come by their shares: by weight, of what they hold now and of what they held of late."""
    access = access_of(context)
    state = run(newest_state(access, access.cell(cell)))
    found = shares_of(state, state.at_ms)
    if as_json:
        print_json(as_object(state, found))
        return
    title = f"Shares of cell {state.cell} at version {state.version}"
    is_recorded = state.fair.half_life_ms > 0
    print_table(title, COLUMNS, [row for tenant in found for row in rows_of(tenant, is_recorded=is_recorded)], SPARE)
    if not is_recorded:
        print_sentence(NOT_RECORDED)


def as_object(state: CellState, found: list[TenantShare]) -> dict[str, Any]:
    """The shares for programs."""
    return {
        "cell": state.cell,
        "version": state.version,
        "at_ms": state.at_ms,
        "half_life_ms": state.fair.half_life_ms,
        "shares": [asdict(tenant) for tenant in found],
    }


def percent(tenant: TenantShare) -> str:
    """A share for people."""
    return f"{100 * tenant.share / SHARE_ONE:.2f}" + (", last" if tenant.has_no_weight else "")


def rows_of(tenant: TenantShare, *, is_recorded: bool) -> Iterator[tuple[object, ...]]:
    """The lines of one tenant, one for each GPU type. `is_recorded`: the cell knows what was held of late."""
    wanted = f"{tenant.waiting_milli / GPU:g}"
    may_wait = "" if tenant.waiting_max is None else tenant.waiting_max
    head: tuple[object, ...] = (tenant.tenant, tenant.parent or "", percent(tenant), tenant.waiting, may_wait, wanted)
    if not tenant.types:
        yield (*head, "", "", "", "")
    for each in tenant.types:
        lately = f"{each.lately_milli / GPU:.1f}" if is_recorded else "-"
        yield (*head, each.gpu_type, each.weight, f"{each.held_milli / GPU:g}", lately)
        head = ("", "", "", "", "", "")
