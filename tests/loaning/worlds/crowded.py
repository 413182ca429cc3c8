"""Small full cells in which a job waits: rows that a property draws, and the state that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from fallow.shared.cluster.model.config import PreemptRule, Queue
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import (
    JobSpec,
    Level,
    NodeSpec,
    NodeStatus,
    Position,
    Resources,
    TopologyRequest,
    Wish,
    WorkerPlace,
)
from fallow.shared.events.operations import CellPolicy, PreemptionMode, Quota, ReclaimFrom
from tests.cluster.worlds.examples import DIGEST, cell, then

NOW_MS = 1_000_000
WAITS = "waits"
TENANTS = ("ada", "bob", "cyd")


@dataclass(frozen=True)
class Row:
    """A running gang: `nodes` has one number for each worker. It started `age_s` before now."""

    tenant: int
    nodes: tuple[int, ...]
    gpus: int = 1
    priority: int = 0
    age_s: int = 100
    checkpoint_s: int | None = None
    preemptible: bool = True


@dataclass(frozen=True)
class Share:
    """A tenant's quota in GPUs."""

    guaranteed: int = 0
    limit: int | None = None
    reclaim: ReclaimFrom = ReclaimFrom.ANY
    min_run_s: int = 0
    reclaimable: bool = True
    weight: int = 1


@dataclass(frozen=True)
class Crowd:
    """`nodes` are the GPUs of each node, `leaves` under which leaf switch it stands."""

    nodes: tuple[int, ...]
    leaves: tuple[int, ...]
    shares: tuple[Share, ...]
    rows: tuple[Row, ...]
    tenant: int = 0
    workers: int = 1
    gpus: int = 1
    priority: int = 0
    in_leaf: bool = False
    takes_newer: bool = False
    names: tuple[str, ...] = field(default=TENANTS)

    @property
    def queue(self) -> Queue:
        """The line in which the job waits."""
        return Queue(name="line", preempt=PreemptRule.LOWER_OR_NEWER_EQUAL if self.takes_newer else PreemptRule.LOWER)

    def job(self, number: int) -> str:
        """The id of a running job."""
        return f"job-{number}"


def state_of(crowd: Crowd, policy: str = "best-fit") -> tuple[CellState, Job]:
    """The cell, and the job that waits in it."""
    state = cell(
        e.PolicySet(policy=CellPolicy(placement=policy, preemption=PreemptionMode.ALL)),
        *(_node(number, gpus, crowd.leaves[number]) for number, gpus in enumerate(crowd.nodes)),
        *(_quota(crowd.names[number], share) for number, share in enumerate(crowd.shares)),
    )
    free = [list(range(gpus)) for gpus in crowd.nodes]
    order = sorted(range(len(crowd.rows)), key=lambda number: -crowd.rows[number].age_s)
    for number in order:
        row, at_ms = crowd.rows[number], NOW_MS - 1000 * crowd.rows[number].age_s
        places = []
        for rank, node in enumerate(row.nodes):
            devices = tuple(free[node].pop(0) for _ in range(row.gpus))
            places.append(WorkerPlace(rank=rank, node=f"n{node}", devices=devices, gpu_milli=1000 * row.gpus))
        job = crowd.job(number)
        spec = _spec(job, crowd.names[row.tenant], len(row.nodes), row.gpus, row.priority,
                     preemptible=row.preemptible, checkpoint_interval_ms=_ms(row.checkpoint_s))  # fmt: skip
        then(state, e.JobEnqueued(spec=spec, submit_ms=at_ms, digest=DIGEST), at_ms=at_ms)
        then(state, e.JobStarted(job=job, attempt=1, workers=tuple(places)), at_ms=at_ms)
        then(state, e.JobRunning(job=job, attempt=1), at_ms=at_ms)
    more: dict[str, Any] = {}
    if crowd.in_leaf:
        more["topology"] = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    spec = _spec(WAITS, crowd.names[crowd.tenant], crowd.workers, crowd.gpus, crowd.priority, **more)
    then(state, e.JobEnqueued(spec=spec, submit_ms=NOW_MS // 2, digest=DIGEST), at_ms=NOW_MS)
    return state, state.jobs[WAITS]


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else 1000 * seconds


def _spec(name: str, tenant: str, workers: int, gpus: int, priority: int, **more: Any) -> JobSpec:
    return JobSpec(
        id=name,
        tenant=tenant,
        workers=workers,
        priority=priority,
        queue="line",
        resources=Resources(gpu_milli=1000 * gpus),
        **more,
    )


def _node(number: int, gpus: int, leaf: int) -> e.NodeChanged:
    spec = NodeSpec(id=f"n{number}", pool="train", gpus=gpus, position=Position(leaf=f"leaf-{leaf}"))
    return e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY)


def _quota(tenant: str, share: Share) -> e.QuotaSet:
    quota = Quota(
        tenant=tenant,
        gpu_type="gpu",
        guaranteed_milli=1000 * share.guaranteed,
        limit_milli=None if share.limit is None else 1000 * share.limit,
        reclaim=share.reclaim,
        min_run_ms=1000 * share.min_run_s,
        reclaimable=share.reclaimable,
        weight=share.weight,
    )
    return e.QuotaSet(quota=quota)


@st.composite
def crowds(draw: st.DrawFn, jobs_max: int = 7) -> Crowd:
    """Cells of two to four nodes that are nearly full, with guarantees of as many GPUs as there are at most. In half of
    them the waiting job is within the guarantee of its tenant, unless running jobs use it up.
    """
    nodes = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=4)))
    leaves = tuple(draw(st.lists(st.integers(0, 1), min_size=len(nodes), max_size=len(nodes))))
    workers, gpus = draw(st.integers(1, 3)), draw(st.sampled_from([2, 1, 3]))
    is_owner, is_by_shares = draw(st.booleans()), draw(st.integers(0, 3)) == 3
    shares, left = [], sum(nodes)
    for number in range(draw(st.sampled_from([2, 3, 1]))):
        wants = min(left, workers * gpus) if number == 0 and is_owner else 0
        guaranteed = draw(st.integers(wants, left)) if number == 0 and is_owner else draw(st.integers(0, left // 2))
        guaranteed = 0 if is_by_shares else guaranteed
        left -= guaranteed
        shares.append(
            Share(
                guaranteed=guaranteed,
                limit=draw(st.sampled_from([None, None, None, max(guaranteed, sum(nodes) // 2)])),
                reclaim=draw(st.sampled_from([ReclaimFrom.ANY, ReclaimFrom.ANY, *ReclaimFrom])),
                min_run_s=draw(st.sampled_from([0, 0, 0, 100])),
                reclaimable=draw(st.integers(0, 5)) < 5,
                weight=draw(st.sampled_from([1, 2, 3])),
            )
        )
    return Crowd(
        nodes=nodes,
        leaves=leaves,
        shares=tuple(shares),
        rows=tuple(draw(_rows(nodes, shares, jobs_max))),
        workers=workers,
        gpus=gpus,
        priority=draw(st.sampled_from([1, 2, 0])),
        in_leaf=draw(st.booleans()),
        takes_newer=draw(st.booleans()),
    )


@st.composite
def _rows(draw: st.DrawFn, nodes: Sequence[int], shares: Sequence[Share], jobs_max: int) -> list[Row]:
    """Jobs until the nodes are nearly full, or a tenant would pass its limit."""
    free, used, found = [*nodes], [0] * len(shares), list[Row]()
    while len(found) < jobs_max and any(free):
        tenant = draw(st.sampled_from([*range(1, len(shares)), 0]))
        gpus, on = min(draw(st.sampled_from([1, 2, 3])), max(free)), list[int]()
        for _ in range(draw(st.sampled_from([1, 2, 3]))):
            able = [node for node, left in enumerate(free) if left >= gpus]
            limit = shares[tenant].limit
            if able and (limit is None or used[tenant] + gpus <= limit):
                on.append(draw(st.sampled_from(able)))
                free[on[-1]] -= gpus
                used[tenant] += gpus
        if not on:
            break
        found.append(
            Row(
                tenant=tenant,
                nodes=tuple(on),
                gpus=gpus,
                priority=draw(st.integers(0, 2)),
                age_s=draw(st.sampled_from([200, 300, 50])),
                checkpoint_s=draw(st.none() | st.sampled_from([60, 120])),
                preemptible=draw(st.integers(0, 7)) < 7,
            )
        )
    return found
