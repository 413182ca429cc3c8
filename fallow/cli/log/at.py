"""`fallow log at`: a cell as it was at a version or a time."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.job.story.why_waits import waits
from fallow.cli.log.past import Then, past_of, then
from fallow.cli.log.sentences import gpus
from fallow.cli.output.durations import moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_line, print_sentence, print_table
from fallow.shared.cluster.model.arrays import arrays_among
from fallow.shared.cluster.model.job import Job, wait_reason
from fallow.shared.cluster.model.node import Node, bits
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import GPU
from fallow.shared.near import first_named

JOB_COLUMNS = ("JOB", "STATUS", ">GPUS", "WHERE OR WHY")
NODE_COLUMNS = ("NODE", "POOL", "STATUS", ">GPUS", ">FREE", "JOBS")
USE_COLUMNS = ("TENANT", "GPU TYPE", ">IN USE", ">GUARANTEED", ">LIMIT")

ROWS_SHOWN_MAX = 40
NAMED_MAX = 3
"""So many nodes of a job, or jobs of a node, are named in a row."""

When = Annotated[
    str, typer.Argument(metavar="VERSION|TIME", help="`1200`, `2026-03-01 12:30`, `day 3 07:15`.", show_default=False)
]


def at(
    context: typer.Context,
    when: When,
    rows: Annotated[int, typer.Option(min=0, help="Lines of a table at most.")] = ROWS_SHOWN_MAX,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """The cell as it was: behind the decision of a version, or behind the last one up to a time of the cell's clock."""
    access = access_of(context)
    state = run(_state(access, access.cell(cell), then("VERSION|TIME", when)))
    if as_json:
        print_json(as_object(state))
    else:
        _tell(state, rows)


async def _state(access: Access, cell: str, moment_asked: Then) -> CellState:
    async with past_of(access, cell, moment_asked) as past:
        return await past.go_to(moment_asked)


def as_object(state: CellState) -> dict[str, Any]:
    """The state for programs; jobs by their ids, nodes by theirs."""
    return {
        "cell": state.cell,
        "version": state.version,
        "at_ms": state.at_ms,
        "offset": state.offset,
        "epoch": state.epoch,
        "jobs_by_status": by_status(state),
        "jobs_over": sum(by_status_over(state).values()),
        "jobs": [_job(state.jobs[job]) for job in sorted(state.jobs)],
        "nodes": [_node(state.nodes[node]) for node in sorted(state.nodes)],
        "use": use(state),
        "inputs": dict(sorted(state.inputs.items())),
    }


def by_status(state: CellState) -> dict[str, int]:
    """How many jobs are in each status, the remembered ones too."""
    counts = Counter(job.status.value for job in state.jobs.values())
    return dict(sorted((counts + by_status_over(state)).items()))


def by_status_over(state: CellState) -> Counter[str]:
    """The number of remembered finished jobs by status. Arrays, which are remembered beside their elements, are no
    jobs.
    """
    names = [over.id for over in state.finished.values()]
    arrays = arrays_among(names, names)
    return Counter(over.status.value for over in state.finished.values() if over.id not in arrays)


def use(state: CellState) -> list[dict[str, Any]]:
    """What each tenant used of each GPU type, with its quota where it has one."""
    found = []
    for tenant, gpu_type in sorted({**state.usage, **state.quotas}):
        quota = state.quotas.get((tenant, gpu_type))
        found.append(
            {
                "tenant": tenant,
                "gpu_type": gpu_type,
                "used_milli": state.usage.get((tenant, gpu_type), 0),
                "guaranteed_milli": 0 if quota is None else quota.guaranteed_milli,
                "limit_milli": None if quota is None else quota.limit_milli,
            }
        )
    return found


def nodes_of(job: Job) -> list[str]:
    """The nodes that a job holds, in the order of its workers."""
    return list(dict.fromkeys(place.node for place in job.workers + job.joining))


def _job(job: Job) -> dict[str, Any]:
    why = wait_reason(job.status, job.deferred)
    return {
        "job": job.id,
        "id": own_id(job.id),
        "tenant": job.spec.tenant,
        "status": job.status.value,
        "gpus_milli": job.spec.gpus_milli,
        "attempt": job.attempt,
        "submit_ms": job.submit_ms,
        "deferred": None if why is None else why.value,
        "waits_for": list(job.waits_for),
        "nodes": nodes_of(job),
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "node": node.id,
        "pool": node.pool,
        "status": node.status.value,
        "gpus": node.spec.gpus,
        "gpus_free": node.gpus_free,
        "gpus_failed": bits(node.failed),
        "allocated_milli": node.allocated_milli,
        "jobs": sorted(node.jobs),
    }


def _tell(state: CellState, rows: int) -> None:
    print_sentence(f"cell {state.cell} at version {state.version}, {moment(state.at_ms)}, epoch {state.epoch}")
    told = ", ".join(f"{count} {status}" for status, count in by_status(state).items())
    print_sentence(f"jobs: {told or 'none'}")
    for name, pool in sorted(state.pools.items()):
        print_line(f"pool {name}: {pool.allocated_milli / GPU:g} of {gpus(pool.gpus_milli)} in use")
    live = [_job(state.jobs[job]) for job in sorted(state.jobs)]
    _table("live jobs", JOB_COLUMNS, [_job_row(job) for job in live], rows)
    nodes = [_node(state.nodes[node]) for node in sorted(state.nodes)]
    _table("nodes", NODE_COLUMNS, [_node_row(node) for node in nodes], rows)
    accounts = [(found["tenant"], found["gpu_type"], *_use_row(found)) for found in use(state)]
    _table("use", USE_COLUMNS, accounts, rows)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], most: int) -> None:
    if not rows or not most:
        return
    more = f", the first {most}" if len(rows) > most else ""
    print_table(f"{title}: {len(rows)}{more}", columns, rows[:most])


def _job_row(job: dict[str, Any]) -> tuple[Any, ...]:
    where = first_named(job["nodes"], NAMED_MAX) or waits(job["deferred"], "", job["waits_for"])
    return (job["job"], job["status"], f"{job['gpus_milli'] / GPU:g}", where)


def _node_row(node: dict[str, Any]) -> tuple[Any, ...]:
    return (
        node["node"],
        node["pool"],
        node["status"],
        node["gpus"],
        node["gpus_free"],
        first_named(node["jobs"], NAMED_MAX),
    )


def _use_row(found: dict[str, Any]) -> tuple[str, ...]:
    limit = found["limit_milli"]
    each = (found["used_milli"], found["guaranteed_milli"])
    return (*(f"{milli / GPU:g}" for milli in each), "none" if limit is None else f"{limit / GPU:g}")
