"""Topic `operations`: what operators wish for a cell. Written by gateway and CLI, read by placement and others."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta
from pydantic import BeforeValidator, Field

from fallow.shared.events.base import (
    LARGEST_INTEGER,
    CellEvent,
    Command,
    Count,
    JobId,
    Label,
    Line,
    Millis,
    Name,
    NodeId,
    Value,
)

FIELDS_MAX = 32
"""More than any operation can name."""

Fields = Annotated[tuple[Label, ...], Meta(max_length=FIELDS_MAX)]
"""The names of what is changed, each once."""


BY_CHARACTERS_SHOWN = 100
"""Of a claimed name so much is shown: a longer one must not push out of sight that it is claimed."""


class Operation(Command, CellEvent):
    """A command for one cell; `by` is who gave it, for the audit trail, as the sender says: a claim, which `claimed`
    shows as one. `voucher` is for what a gateway will say to prove it; nothing makes or checks one yet, so whatever
    stands there proves nothing.
    """

    by: Line = ""
    voucher: Line = ""


def claimed(by: str) -> str:
    """The name of the claimed sender of a command, as people are shown it where nothing vouches for it. Every
    name in a text goes through here.
    """
    shown = by if len(by) <= BY_CHARACTERS_SHOWN else by[:BY_CHARACTERS_SHOWN] + "..."
    return f"{shown} (claimed)"


class AdvanceTime(Operation, type="fallow.time.advance.v1", topic="operations"):
    """Set the stepped clock of a replay. It never goes back; cells that run by the wall clock refuse it."""

    now_ms: Millis


class Cordon(Operation, type="fallow.node.cordon.v1", topic="operations"):
    """Place nothing new on this node."""

    node: NodeId
    reason: Line = ""


class Uncordon(Operation, type="fallow.node.uncordon.v1", topic="operations"):
    """Use this node again."""

    node: NodeId


class Drain(Operation, type="fallow.node.drain.v1", topic="operations"):
    """Empty this node: nothing new, and what still runs at the deadline is stopped and queued again."""

    node: NodeId
    deadline_ms: Millis | None = None
    reason: Line = ""


class DeclareLost(Operation, type="fallow.node.declare-lost.v1", topic="operations"):
    """This node is gone for certain, whatever its lease says: its work is queued again. Do not say so of a node that
    may still run: what runs there would run twice.
    """

    node: NodeId
    reason: Line = ""


class RemoveNode(Operation, type="fallow.node.remove.v1", topic="operations"):
    """Forget this lost node, on which nothing is held any more. If it comes back, it joins as a new one."""

    node: NodeId


class ReclaimFrom(StrEnum):
    """From which jobs that use what it lent a tenant may take back what is guaranteed to it."""

    ANY = "any"
    LOWER_PRIORITY = "lower_priority"
    NEVER = "never"


class PreemptionMode(StrEnum):
    """For which causes running jobs yield to waiting ones: none, what is guaranteed to an owner alone, or all."""

    OFF = "off"
    RECLAIM = "reclaim"
    ALL = "all"


def _off_in_yaml(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return PreemptionMode.OFF.value if value is False else value


class EstimatorKind(StrEnum):
    """By what a cell expects how long its jobs run: by nothing, by what they tell of themselves, or by how long others
    like them have run.
    """

    NONE = "none"
    DECLARED = "declared"
    LEARNED = "learned"


class PlanMaintenance(Operation, type="fallow.node.plan-maintenance.v1", topic="operations"):
    """Work on this node is planned from `begin_ms` to `end_ms` of cell time. No job starts there that may run longer
    than until it begins; then the node is drained, and in the end it is used again. A node has one plan at a time.
    """

    node: NodeId
    begin_ms: Millis
    end_ms: Millis
    reason: Line = ""


class CancelMaintenance(Operation, type="fallow.node.cancel-maintenance.v1", topic="operations"):
    """The work on this node is not to be, or is over already."""

    node: NodeId


class Quota(Value):
    """A tenant's share of one GPU type, in milli-GPUs. `limit_milli` None: no limit but the cell. `parent` makes a
    tree: the use of a tenant counts at all above it, and what is guaranteed to a parent is shared by those below it.

    More than the guarantee is borrowed from what others leave idle: not at all without `borrows`, else at most
    `borrow_limit_milli` (None: as much as there is). Of an idle guarantee others may have at most `lend_limit_milli`
    (None: all of it), or nothing without `lends`. A job is not reclaimed from before it has run for `min_run_ms` (None:
    what holds for the parent). Where it is not `reclaimable`, no job of the tenant yields to one of another branch.
    """

    tenant: Name
    gpu_type: Label
    guaranteed_milli: Count = 0
    limit_milli: Count | None = None
    weight: Annotated[int, Meta(ge=0, le=1_000_000)] = 1
    lends: bool = True
    borrows: bool = True
    parent: Name | None = None
    borrow_limit_milli: Count | None = None
    lend_limit_milli: Count | None = None
    reclaim: ReclaimFrom = ReclaimFrom.ANY
    min_run_ms: Millis | None = None
    reclaimable: bool = True


class SetQuota(Operation, type="fallow.quota.set.v1", topic="operations"):
    """Change tenants' quotas at run time: all of these, or none if they contradict each other or others. No job
    is evicted by it; the excess counts as borrowed. Where `fields` are named, these alone are changed.
    """

    quotas: Annotated[tuple[Quota, ...], Meta(min_length=1, max_length=10_000)]
    fields: Fields = ()


class RemoveQuota(Operation, type="fallow.quota.remove.v1", topic="operations"):
    """Remove a tenant's quota of one GPU type, or of all: refused while jobs of the tenant live, or others stand below
    it.
    """

    tenant: Name
    gpu_type: Label | None = None


DAY_MS = 86_400_000
YEAR_MS = 366 * DAY_MS
"""A bound of this class that is a `Field` judges what is asked for alone; one in a `Meta` stops a reader of the log."""


class CellPolicy(Value, omit_defaults=False):
    """The numbers by which a cell decides. They stand in the log, so that every reader folds alike. The bounds here
    hold for what is asked for; a log may hold larger numbers, since earlier releases took them, and is folded.

    Times with `wall` in their name run by the wall clock, all others by the cell's.
    """

    start_timeout_wall_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(le=DAY_MS)] = 120_000
    """A gang that does not run whole so long after its start is stopped and queued again."""
    stop_grace_wall_ms: Annotated[Millis, Field(le=DAY_MS)] = 30_000
    """The time between the order to stop a run and its kill."""
    node_lease_wall_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(le=DAY_MS)] = 30_000
    """A node that is silent for this and the margin is lost."""
    lease_margin_wall_ms: Annotated[Millis, Field(le=DAY_MS // 2)] = 10_000
    """How much longer than the lease the cell waits, and how much earlier than its end the node ends its work. At
    most half of `node_lease_wall_ms`.
    """
    finished_jobs_max: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(le=100_000_000)] = 1_000_000
    """How many jobs that are over the cell remembers by their ids."""
    finished_jobs_ttl_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(le=10 * YEAR_MS)] = 7 * DAY_MS
    """How long the cell remembers a job that is over. Its id may be used again after that."""
    max_pending_jobs: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(le=100_000_000)] = 1_000_000
    """A job is refused while so many jobs wait."""
    live_bytes_max: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(le=2**40)] = 268_435_456
    """A job is refused where the texts of all jobs that wait or run would take more."""
    placement: Name = "e-spread"
    """The placement policy: which nodes a job gets."""
    backfill_wait_ms: Annotated[Millis, Field(le=YEAR_MS)] = 1_800_000
    """In a queue that backfills, other jobs may pass a head without a planned start for so long."""
    fair_half_life_ms: Annotated[int, Meta(ge=0, le=90 * DAY_MS)] = 0
    """After this time past use counts half for a tenant's share. 0: only what the tenant holds now counts."""
    max_unacknowledged_starts_per_node: Annotated[Count, Field(le=1_000_000)] = 0
    """A node with so many workers that were started and not yet confirmed gets no new ones. 0: no limit."""
    unknown_dependency_ms: Annotated[Millis, Field(le=YEAR_MS)] = 60_000
    """A job waits so long for a job that the cell does not know, and is cancelled then."""
    default_run_estimate_ms: Annotated[Millis, Field(le=YEAR_MS)] = 0
    """The run time that counts for a job that declares none, where maintenance is ahead. 0: it is not known."""
    breaker_wait_wall_ms: Annotated[int, Meta(ge=0, le=DAY_MS)] = 300_000
    """When many nodes are silent at once, none of them is declared lost for so long."""
    breaker_nodes_per_minute: Annotated[int, Meta(ge=1, le=100_000)] = 10
    """After that wait so many of these nodes are declared lost in a minute."""
    remove_lost_ms: Annotated[int, Meta(ge=0, le=YEAR_MS)] = DAY_MS
    """A lost node without work or orders is forgotten after this time, one that was silent for too long after an
    hour at the earliest. 0: never.
    """
    reservations_max: Annotated[int, Meta(ge=0, le=256)] = 8
    """So many waiting jobs that do not fit have a planned start. 0: none has."""
    reservation_ttl_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] = 300_000
    """A planned start that the queueing service does not confirm lapses after this time."""
    preemption: Annotated[PreemptionMode, Field(strict=False), BeforeValidator(_off_in_yaml)] = PreemptionMode.OFF
    """For which causes running jobs yield to waiting ones. `off`: none. `reclaim`: an owner takes back what is
    guaranteed to it. `all`: also jobs of lower priority yield, tenants without a guarantee get their shares by
    weight, and backfilled ones yield to the head that they delay.
    """
    preempt_grace_wall_ms: Annotated[int, Meta(ge=0, le=DAY_MS)] = 30_000
    """A job that yields has so long between the notice and its kill."""
    hold_lapse_ms: Annotated[int, Meta(ge=1, le=YEAR_MS)] = 600_000
    """Room that was made for a job is held for it for so long at most."""
    estimator: Annotated[EstimatorKind, Field(strict=False)] = EstimatorKind.DECLARED
    """By what planned starts and the policy `lifetime` expect how long jobs run. `declared`: `estimate_run_ms`, else
    `max_run_ms`, else `default_run_estimate_ms`. `learned`: how long jobs of the tenant with such a name and size ran,
    as far as some have ended, else what is declared. `none`: nothing is expected.
    """


class SetPolicy(Operation, type="fallow.policy.set.v1", topic="operations"):
    """Change the cell's policy at run time: as a whole, or, where `fields` are named, these alone."""

    policy: CellPolicy
    fields: Fields = ()


class ReloadCell(Operation, type="fallow.cell.reload.v1", topic="operations"):
    """Read the cell file again. A file with an error changes nothing."""


class OfferLoan(Operation, type="fallow.loan.offer.v1", topic="operations"):
    """These inference nodes are idle: training may have them until `deadline_ms` (None: until recalled)."""

    loan: JobId
    nodes: Annotated[tuple[NodeId, ...], Meta(min_length=1, max_length=10_000)]
    deadline_ms: Millis | None = None


class RecallLoan(Operation, type="fallow.loan.recall.v1", topic="operations"):
    """Bring so many nodes of a loan back by `deadline_ms`."""

    loan: JobId
    count: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
    deadline_ms: Millis


class HoldJob(Operation, type="fallow.job.hold.v1", topic="operations"):
    """Keep a waiting job from starting."""

    job: JobId


class ReleaseJob(Operation, type="fallow.job.release.v1", topic="operations"):
    """Let a held job start again."""

    job: JobId
