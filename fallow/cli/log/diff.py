"""`fallow log diff`: what changed in a cell between two moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.job.story.why_waits import waits
from fallow.cli.log.at import ROWS_SHOWN_MAX, nodes_of
from fallow.cli.log.past import Then, past_of, then
from fallow.cli.log.sentences import devices, gpus, of_job
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import duration, moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence
from fallow.cli.quota.words import quota_rules
from fallow.shared.cluster.model.job import Job, wait_reason
from fallow.shared.cluster.model.node import Node, bits
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota

KINDS = ("jobs", "nodes", "quotas", "use", "policy")
NOTHING = "nothing"

Earlier = Annotated[str, typer.Argument(metavar="V1", help="A version or a time, as for `log at`.", show_default=False)]
Later = Annotated[str, typer.Argument(metavar="V2", help="The same, not before V1.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Portrait:
    """A state in words, by kind and name: a fold changes states in place, so the earlier one must be written down."""

    version: int
    at_ms: int
    words: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is otherwise than it was. None: it was not there, or is not there any more."""

    kind: str
    name: str
    before: str | None
    after: str | None


def diff(
    context: typer.Context,
    earlier: Earlier,
    later: Later,
    rows: Annotated[int, typer.Option(min=0, help="Lines of each kind at most.")] = ROWS_SHOWN_MAX,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """What is otherwise at V2 than it was at V1: jobs, nodes, quotas, use by tenant and policy."""
    access = access_of(context)
    first, second = then("V1", earlier), then("V2", later)
    before, after = run(_portraits(access, access.cell(cell), first, second))
    changes = changes_between(before, after)
    if as_json:
        print_json(_as_object(access.cell(cell), before, after, changes))
    else:
        _tell(before, after, changes, rows)


async def _portraits(access: Access, cell: str, first: Then, second: Then) -> tuple[Portrait, Portrait]:
    async with past_of(access, cell, first) as past:
        before = portrait(await past.go_to(first))
        if not second.includes(before.version, before.at_ms):
            end_with(Exit.USAGE, f"fallow: {second} is before {first}")
        return before, portrait(await past.go_to(second))


def portrait(state: CellState) -> Portrait:
    """The state in words."""
    words = {
        "jobs": {job.id: _job(job) for job in state.jobs.values()}
        | {over.id: f"{over.status}" for over in state.finished.values()},
        "nodes": {node.id: _node(node) for node in state.nodes.values()},
        "quotas": {f"{tenant} {gpu_type}": _quota(quota) for (tenant, gpu_type), quota in state.quotas.items()},
        "use": {
            f"{account[0]} {account[1]}": gpus(state.usage.get(account, 0))
            for account in {**state.quotas, **state.usage}
        },
        "policy": {name: str(value) for name, value in _fields(state.policy)},
    }
    return Portrait(state.version, state.at_ms, words)


def _fields(value: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(value, name)) for name in sorted(type(value).__annotations__)]


def _job(job: Job) -> str:
    where = f" on {', '.join(nodes_of(job))}" if job.workers or job.joining else ""
    attempt = f", attempt {job.attempt}" if job.attempt else ""
    reason = waits(wait_reason(job.status, job.deferred), job.held_why, job.waits_for)
    why = f" ({reason})" if reason and not where else ""
    return f"{job.status}{where}{why}{attempt}: {of_job(job.spec)}, priority {job.spec.priority}"


def _node(node: Node) -> str:
    failed = f", devices {devices(bits(node.failed))} out of use" if node.failed else ""
    loan = f", lent to {node.lent_to}" if node.lent_to else ""
    used = f"{node.allocated_milli / GPU:g} of {node.spec.gpus} GPUs in use"
    return f"{node.status}, {used}{failed}{loan} ({node.boot})"


def _quota(quota: Quota) -> str:
    limit = "no limit" if quota.limit_milli is None else f"at most {gpus(quota.limit_milli)}"
    below = () if quota.parent is None else (f"below {quota.parent}",)
    sure, weight = f"{gpus(quota.guaranteed_milli)} guaranteed", f"weight {quota.weight}"
    return ", ".join((sure, limit, weight, *below, *quota_rules(quota)))


def changes_between(before: Portrait, after: Portrait) -> list[Change]:
    """Every change, kind by kind, in the order of the names."""
    found: list[Change] = []
    for kind in KINDS:
        old, new = before.words[kind], after.words[kind]
        names = [name for name in sorted({**old, **new}) if old.get(name) != new.get(name)]
        found += [Change(kind, name, old.get(name), new.get(name)) for name in names]
    return found


def _as_object(cell: str, before: Portrait, after: Portrait, changes: list[Change]) -> dict[str, Any]:
    body: dict[str, Any] = {"cell": cell, "from_version": before.version, "from_ms": before.at_ms}
    body |= {"to_version": after.version, "to_ms": after.at_ms, "decisions": after.version - before.version}
    for kind in KINDS:
        of_kind = [change for change in changes if change.kind == kind]
        body[kind] = [{"name": change.name, "before": change.before, "after": change.after} for change in of_kind]
    return body


def _tell(before: Portrait, after: Portrait, changes: list[Change], rows: int) -> None:
    print_sentence(f"from version {before.version}, {moment(before.at_ms)}")
    print_sentence(f"to version {after.version}, {moment(after.at_ms)}")
    count = after.version - before.version
    print_sentence(f"{counted(count, 'decision')} in {duration(after.at_ms - before.at_ms)}")
    for kind in KINDS:
        of_kind = [change for change in changes if change.kind == kind]
        print_sentence(f"{kind}: {len(of_kind) or NOTHING} changed")
        for change in of_kind[:rows]:
            print_sentence(f"    {_line(change)}")
        if len(of_kind) > rows:
            print_sentence(f"    and {len(of_kind) - rows} more")


def _line(change: Change) -> str:
    if change.before is None:
        return f"+ {change.name}: {change.after}"
    if change.after is None:
        return f"- {change.name}: was {change.before}"
    return f"  {change.name}: {change.before} -> {change.after}"
