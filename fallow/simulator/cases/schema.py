"""The schema of a conformance case. A key that stands nowhere here is an error that names it."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.validation.rules_told import rule_broken

Seconds = Annotated[float, Field(allow_inf_nan=False)]
Gpus = Annotated[int, Field(strict=True, ge=0)]
Tasks = Annotated[int, Field(strict=True, ge=1)]


class CaseError(ValueError):
    """A case that cannot be read; the message names the file, the key, the value and the rule."""


class Strict(BaseModel):
    """A part of a case. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class NodeRow(Strict):
    """A node of the case's cluster."""

    name: str
    gpus: Gpus
    labels: dict[str, str] = {}
    gpu_type: str | None = None
    healthy: bool = True
    last_heartbeat_s_ago: Seconds = 0
    unacknowledged: int = 0


class Cluster(Strict):
    """The nodes."""

    nodes: tuple[NodeRow, ...]


class QueueRow(Strict):
    """A queue with its quota: here a tenant and the line in which its jobs wait."""

    name: str
    quota: Gpus | None = None
    weight: int = 1
    borrow: bool = True
    borrow_limit: Gpus | None = None
    limit: Gpus | None = None
    guarantee: Gpus | None = None
    parent: str | None = None
    owner_of: str | None = None
    reclaim: Literal["any", "lower_priority", "never"] = "any"
    reclaimable: bool = True
    preempt: Literal["lower", "lower_or_newer_equal"] = "lower"
    min_runtime_s: Seconds | None = None
    default_time_limit_s: Seconds | None = None


class Topology(Strict):
    """Where all tasks of a job are to be: within one unit of this level."""

    required: str | None = None
    preferred: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Topology:
        if (self.required is None) == (self.preferred is None):
            raise ValueError("names either `required` or `preferred`")
        return self


class JobRow(Strict):
    """What running and pending jobs have in common."""

    job: str
    queue: str
    priority: int = 0
    preemptible: bool = True
    tasks: Tasks = 1
    gpus_per_task: Tasks = 1
    min_tasks: Tasks | None = None
    time_limit_s: Seconds | None = None
    task_priority: tuple[int, ...] | None = None
    note: str = ""


class RunningRow(JobRow):
    """A job that runs when the case begins."""

    nodes: tuple[str, ...]
    runtime_left_s: Seconds | None = None
    running_for_s: Seconds | None = None
    started_s: Seconds | None = None
    eviction_takes_s: Seconds = 0
    acknowledged: bool = True

    @model_validator(mode="after")
    def _has_a_node_for_each_task(self) -> RunningRow:
        if len(self.nodes) != self.tasks:
            raise ValueError(f"nodes: {len(self.nodes)} nodes for {self.tasks} tasks")
        return self


class PendingRow(JobRow):
    """A job that is submitted."""

    submit_s: Seconds = 0
    gpu_type: str | None = None
    topology: Topology | None = None
    preemption_delay_s: Seconds | None = None
    max_retries: Annotated[int, Field(strict=True, ge=0)] | None = None


class Policy(Strict):
    """How the cell decides; what is not named is as the product has it."""

    queue_policy: Literal["strict_fifo", "best_effort_fifo", "backfill"] | None = None
    reclaim_to: Literal["quota", "fair_share"] | None = None
    protected_fraction_of_fair_share: float | None = None
    preemption_delay_s: Seconds | None = None
    consolidation: bool | None = None
    stale_gang_grace_s: Seconds | None = None
    node_timeout_s: Seconds | None = None
    max_unacknowledged: int | None = None


class Expect(Strict):
    """What must be so. A key that is left out is not asked."""

    running: dict[str, tuple[str, ...]] | None = None
    running_tasks: dict[str, int] | None = None
    running_count: dict[str, int] | None = None
    running_task_of: dict[str, int] | None = None
    pending: tuple[str, ...] | None = None
    pending_tasks: dict[str, int] | None = None
    pending_count: dict[str, int] | None = None
    started: tuple[str, ...] | None = None
    deleted: tuple[str, ...] | None = None
    atomic: tuple[str, ...] | None = None
    start_order_later: tuple[str, ...] | None = None
    preempted: tuple[str, ...] | None = None
    preempted_any: tuple[str, ...] | None = None
    preempted_one_of: tuple[str, ...] | None = None
    untouched: tuple[str, ...] | None = None
    untouched_one_of: tuple[str, ...] | None = None
    preempted_from: str | None = None
    preempted_count_by_queue: dict[str, int] | None = None
    shrunk: tuple[str, ...] | None = None
    evicted_tasks: int | None = None
    max_evictions_per_job: int | None = None
    migrated_count: int | None = None
    partial_gangs: int | None = None
    retries: dict[str, int] | None = None
    planned_start_s: dict[str, Seconds] | None = None
    start_window_s: dict[str, tuple[Seconds, Seconds]] | None = None
    verdict_within_s: Seconds | None = None
    effective_min_runtime_s: dict[str, Seconds] | None = None
    reason_code: str | None = None
    reason_code_of: dict[str, str] | None = None
    reason_contains: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    reason_domains: tuple[str, ...] | None = None
    nodes_used: tuple[str, ...] | None = None
    nodes_used_by_queue: dict[str, int] | None = None
    new_on: dict[str, int] | None = None
    gpus_held_after: int | None = None
    overcommit: int | None = None
    duplicate_allocations: int | None = None
    view_equals_running: bool | None = None

    def asked(self) -> dict[str, Any]:
        """The keys that are asked, in the order of the schema."""
        return {key: getattr(self, key) for key in type(self).model_fields if getattr(self, key) is not None}


class Submission(Strict):
    """New jobs in the middle of a case."""

    job: str | None = None
    prefix: str | None = None
    count: Tasks = 1
    queue: str
    tasks: Tasks = 1
    gpus_per_task: Tasks = 1
    min_tasks: Tasks | None = None
    priority: int = 0
    time_limit_s: Seconds | None = None

    @model_validator(mode="after")
    def _has_a_name(self) -> Submission:
        if (self.job is None) == (self.prefix is None):
            raise ValueError("names either `job` or `prefix`")
        return self


class Step(Strict):
    """One thing that happens; at `at_s` if that is given."""

    submit: Submission | None = None
    every_s: Seconds | None = None
    from_s: Seconds | None = None
    times: Tasks | None = None
    finish: str | None = None
    at_s: Seconds | None = None
    advance_by_s: Seconds | None = None
    advance_to_s: Seconds | None = None
    node: str | None = None
    state: Literal["up", "down", "cordoned", "healthy"] | None = None
    set_queue: str | None = None
    quota: Gpus | None = None
    reclaim: Literal["any", "lower_priority", "never"] | None = None
    set_policy: Policy | None = None
    round: bool | None = None
    restart_case: bool | None = None
    set_running: dict[str, int] | None = None
    restart_services: bool | None = None
    redeliver_s: Seconds | None = None
    slow_load: bool | None = None
    delete: str | None = None
    release: Literal["lost_then_twice"] | None = None

    @model_validator(mode="after")
    def _stands_for_something(self) -> Step:
        said = {key for key, value in self if value is not None}
        if not said:
            raise ValueError("says nothing")
        for key, others in _TOGETHER.items():
            if key in said and said.isdisjoint(others):
                raise ValueError(f"`{key}` says nothing without {' or '.join(f'`{each}`' for each in others)}")
        return self


_TOGETHER: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("every_s", "from_s", "times"), ("submit",)),
    "node": ("state",),
    "state": ("node",),
    "set_queue": ("quota", "reclaim"),
    "quota": ("set_queue",),
    "reclaim": ("set_queue",),
    "set_running": ("restart_case",),
    **dict.fromkeys(("redeliver_s", "slow_load"), ("restart_services",)),
    "delete": ("release",),
    "release": ("delete",),
}
"""Keys of a step that mean something only beside one of these."""


class Then(Strict):
    """What happens next, and what must be so behind it."""

    event: str = ""
    do: tuple[Step, ...] = ()
    expect: Expect = Expect()


class Case(Strict):
    """One case."""

    id: Annotated[str, Field(coerce_numbers_to_str=True)]
    name: str
    title: str = ""
    tier: Literal["core", "extended"] = "core"
    area: str = ""
    source: str = ""
    unit: str = ""
    note: str = ""
    policy: Policy = Policy()
    cluster: Cluster
    queues: tuple[QueueRow, ...]
    running: tuple[RunningRow, ...] = ()
    pending: tuple[PendingRow, ...] = ()
    expect_words: str = ""
    expect: Expect = Expect()
    then: tuple[Then, ...] = ()

    @model_validator(mode="after")
    def _names_are_given_once(self) -> Case:
        for kind, names in (
            ("node", [node.name for node in self.cluster.nodes]),
            ("queue", [queue.name for queue in self.queues]),
            ("job", [row.job for row in (*self.running, *self.pending)]),
        ):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"{kind} {twice[0]!r} stands twice")
        return self

    @model_validator(mode="after")
    def _names_are_known(self) -> Case:
        nodes = {node.name for node in self.cluster.nodes}
        queues = {queue.name for queue in self.queues}
        for row in (*self.running, *self.pending):
            if row.queue not in queues:
                raise ValueError(f"job {row.job}: queue {row.queue!r} is not in this case")
        for running in self.running:
            for name in running.nodes:
                if name not in nodes:
                    raise ValueError(f"job {running.job}: node {name!r} is not in this case")
        return self


def case_of(content: object, where: str) -> Case:
    """The case that a file holds. Raises CaseError."""
    try:
        return Case.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shorten(".".join(str(part) for part in first["loc"])) or "the file"
        rule = "is no key of a case" if first["type"] == "extra_forbidden" else rule_broken(first)
        raise CaseError(f"{where}: {field}: {rule}") from error
