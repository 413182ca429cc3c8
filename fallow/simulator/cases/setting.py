"""A case's cluster, queues and jobs in the product's own words: a cell file, nodes, specifications of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.shared.cluster.model.config import CellFile, CellPart, Limits, Pool, PreemptRule, Queue, Tenant, TenantQuota
from fallow.shared.events.fields.values import (
    GPU,
    JobSpec,
    Level,
    NodeSpec,
    Position,
    Resources,
    RetryPolicy,
    TopologyRequest,
    VirtualRun,
    Wish,
)
from fallow.shared.events.operations import CellPolicy, PreemptionMode, ReclaimFrom
from fallow.shared.events.queue import QueueDiscipline
from fallow.simulator.cases.names import Names, shuffled
from fallow.simulator.cases.schema import Case, JobRow, NodeRow, PendingRow, QueueRow, RunningRow, Strict
from fallow.simulator.engine import Chance

CELL = "cell-a"
S_MS = 1_000
POOL_LABEL, POOL, GPU_TYPE = "pool", "main", "gpu"

DISCIPLINES = {"strict_fifo": "strict-fifo", "best_effort_fifo": "best-effort-fifo", "backfill": "backfill"}
LEVELS: dict[str, Level] = {
    "domain": Level.DOMAIN,
    "rack": Level.LEAF,
    "leaf": Level.LEAF,
    "block": Level.SPINE,
    "pod": Level.SPINE,
    "spine": Level.SPINE,
    "superspine": Level.SUPERSPINE,
}
"""How the cases call the levels of the network."""


class NotBuiltIn(Exception):
    """The case needs something at its beginning that the product does not have."""


def ms(seconds: float) -> int:
    """Seconds of a case in milliseconds."""
    return round(seconds * S_MS)


class Setting:
    """The case before its first moment. `remarks` are what it sets and this version does not go by."""

    def __init__(self, case: Case, names: Names, chance: Chance | None) -> None:
        self.case, self.names = case, names
        self.remarks = remarks_of(case)
        # Of nodes that are equally good the one of the lowest id is taken, so the ids go as the rows do.
        names.in_order("node", [row.name for row in case.cluster.nodes])
        for row in case.queues:
            names.inside("queue", row.name)
        self.nodes = tuple(self._node(row) for row in shuffled(case.cluster.nodes, chance))
        self.file = self._file(shuffled(case.queues, chance))

    def _pool(self, row: NodeRow) -> str:
        return self.names.inside("pool", f"{row.labels.get(POOL_LABEL, POOL)} {row.gpu_type or GPU_TYPE}")

    def _node(self, row: NodeRow) -> NodeSpec:
        unknown = [key for key in row.labels if key != POOL_LABEL and key not in LEVELS]
        if unknown:
            raise NotBuiltIn(f"{unknown[0]!r} is no level of the network")
        at = {LEVELS[key].value: self.names.inside("place", f"{key} {name}") for key, name in row.labels.items()
              if key != POOL_LABEL}  # fmt: skip
        return NodeSpec(
            id=self.names.inside("node", row.name),
            pool=self._pool(row),
            gpu_type=row.gpu_type or GPU_TYPE,
            gpus=row.gpus,
            position=Position(**at),
        )

    def _file(self, queues: list[QueueRow]) -> CellFile:
        discipline = DISCIPLINES[self.case.policy.queue_policy or "best_effort_fifo"]
        if discipline not in [known.value for known in QueueDiscipline]:
            raise NotBuiltIn(f"the order of queues {self.case.policy.queue_policy!r} is not built in")
        members: dict[str, list[NodeSpec]] = {}
        for node in sorted(self.nodes, key=lambda node: node.id):
            members.setdefault(node.pool, []).append(node)
        guaranteed = self._guaranteed()
        pools = tuple(
            Pool(
                name=name,
                gpu_type=nodes[0].gpu_type,
                gpus=max(guaranteed, sum(node.gpus for node in nodes)),
                gpus_per_node=max(node.gpus for node in nodes),
            )
            for name, nodes in members.items()
        )
        # In the order of their rows, whatever is shuffled: queues are served in the order of the cell file.
        lines = tuple(
            Queue(
                name=self.names.inside("queue", row.name),
                discipline=QueueDiscipline(discipline),
                preempt=PreemptRule(row.preempt),
            )
            for row in self.case.queues
        )
        known = {row.name for row in queues}
        parents = [row.parent for row in queues if row.parent is not None]
        above = dict.fromkeys(name for name in parents if name not in known)
        types = list(dict.fromkeys(pool.gpu_type for pool in pools))
        tenants = [Tenant(name=self.names.inside("queue", name)) for name in above]
        tenants += [self._tenant(row, types) for row in queues]
        cell = CellPart(name=CELL, ordinal=0, pools=pools, queues=lines, policy=self._policy())
        return CellFile(cells=(cell,), tenants=tuple(tenants), limits=Limits(submit_skew_ms=None))

    def _guaranteed(self) -> int:
        """The most that is guaranteed to all queues together at any time. Peers' cases promise more than their nodes
        have; here no more may be promised than a pool will ever have, so it will have more nodes than there are yet.
        """
        most = {row.name: row.quota or 0 for row in self.case.queues}
        for step in (step for then in self.case.then for step in then.do):
            if step.set_queue is not None:
                most[step.set_queue] = max(most.get(step.set_queue, 0), step.quota or 0)
        return sum(most.values())

    @property
    def _is_about_plans(self) -> bool:
        """Whether jobs tell how long they run. Such a case is about what is planned by that: priorities order there, as
        in the scheduler from which it comes, and preempt no job.
        """
        return any(row.time_limit_s is not None for row in (*self.case.running, *self.case.pending))

    def _policy(self) -> CellPolicy:
        """A node is passed when it has more unconfirmed tasks than the case allows: with one more, it is full."""
        most = self.case.policy.max_unacknowledged
        limits = [row.default_time_limit_s for row in self.case.queues if row.default_time_limit_s is not None]
        return CellPolicy(
            max_unacknowledged_starts_per_node=0 if most is None else most + 1,
            default_run_estimate_ms=ms(max(limits, default=0)),
            preemption=PreemptionMode.RECLAIM if self._is_about_plans else PreemptionMode.ALL,
        )

    def _tenant(self, row: QueueRow, gpu_types: Iterable[str]) -> Tenant:
        name, plain = self.names.inside("queue", row.name), QueueRow(name=row.name)
        rules = ("quota", "limit", "borrow", "borrow_limit", "reclaim", "min_runtime_s", "reclaimable", "weight")
        has_quota = any(getattr(row, rule) != getattr(plain, rule) for rule in rules)
        quotas = tuple(self.quota(row, gpu_type) for gpu_type in gpu_types) if has_quota else ()
        parent = None if row.parent is None else self.names.inside("queue", row.parent)
        return Tenant(name=name, queue=name, parent=parent, quotas=quotas)

    @staticmethod
    def quota(row: QueueRow, gpu_type: str) -> TenantQuota:
        """The queue's quota of one GPU type."""
        guaranteed = row.quota or 0
        return TenantQuota(
            gpu_type=gpu_type,
            guaranteed=guaranteed if row.limit is None else min(guaranteed, row.limit),
            limit=row.limit,
            weight=row.weight,
            borrows=row.borrow,
            borrow_limit=row.borrow_limit,
            reclaim=ReclaimFrom(row.reclaim),
            min_run_ms=None if row.min_runtime_s is None else ms(row.min_runtime_s),
            reclaimable=row.reclaimable,
        )

    def spec(self, row: JobRow, *, name: str | None = None, tasks: int | None = None) -> JobSpec:
        """The job as its submitter would describe it."""
        wanted = max(row.tasks, row.min_tasks or 1) if tasks is None else tasks
        limit = None if row.time_limit_s is None else max(1, ms(row.time_limit_s))
        left_s = row.runtime_left_s if isinstance(row, RunningRow) else None
        pending = row if isinstance(row, PendingRow) else None
        topology = None
        if pending is not None and pending.topology is not None:
            topology = _wish(pending.topology.required, pending.topology.preferred)
        fewest = row.min_tasks if tasks is None and row.min_tasks not in (None, wanted) else None
        return JobSpec(
            id=self.names.job_of(row.queue, name or row.job),
            tenant=self.names.inside("queue", row.queue),
            priority=row.priority,
            gpu_type=pending.gpu_type if pending is not None else None,
            workers=wanted,
            workers_min=fewest,
            resources=Resources(gpu_milli=row.gpus_per_task * GPU),
            topology=topology,
            run=VirtualRun(duration_ms=None if left_s is None else ms(left_s)),
            preemptible=row.preemptible,
            max_run_ms=limit,
            estimate_run_ms=limit,
            retry=RetryPolicy(budget=(pending.max_retries or 0) if pending is not None else 0),
        )


def _wish(required: str | None, preferred: str | None) -> TopologyRequest:
    level = required or preferred or ""
    if level not in LEVELS:
        raise NotBuiltIn(f"{level!r} is no level of the network")
    return TopologyRequest(level=LEVELS[level], wish=Wish.REQUIRED if required is not None else Wish.PREFERRED)


def is_many(row: RunningRow) -> bool:
    """Whether the row stands for as many jobs of one task each."""
    return "independent" in row.note


def is_invalid(row: RunningRow) -> bool:
    """Whether the job's first task may not stay on its node: as the case begins, its device there fails."""
    return "no longer matches its node" in row.note


POLICY_GONE_BY = ("queue_policy", "max_unacknowledged")
QUEUES_NOT_GONE_BY = (
    "guarantee",
    "owner_of",
    "default_time_limit_s",
)
NODES_NOT_GONE_BY = ("last_heartbeat_s_ago", "unacknowledged")
JOBS_NOT_GONE_BY = ("task_priority", "preemption_delay_s", "eviction_takes_s")
STEPS_NOT_GONE_BY = ("slow_load",)


def remarks_of(case: Case) -> tuple[str, ...]:
    """What the case sets and this version does not go by."""
    steps = [step for then in case.then for step in then.do]
    found = [key for key, value in case.policy if value is not None and key not in POLICY_GONE_BY]
    found += _set_in(case.queues, QUEUES_NOT_GONE_BY)
    found += _set_in(case.cluster.nodes, NODES_NOT_GONE_BY)
    found += _set_in((*case.running, *case.pending), JOBS_NOT_GONE_BY)
    found += _set_in(steps, STEPS_NOT_GONE_BY)
    return tuple(f"{key} is not gone by" for key in found)


def _set_in(rows: Iterable[Strict], keys: Sequence[str]) -> list[str]:
    """Those of the keys that a row sets to something else than what it would be without it."""
    return [key for key in keys if any(_is_set(row, key) for row in rows)]


def _is_set(row: Strict, key: str) -> bool:
    field = type(row).model_fields.get(key)
    return field is not None and getattr(row, key) != field.default
