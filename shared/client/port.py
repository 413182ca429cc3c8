"""What programs and people may ask of the cells, and wish of them. One contract, whatever carries it.

A wish (submit, cancel, update, an operation) returns once it cannot be lost any more, with a mark of where the log was
before. What came of it is among the news after that mark. A read tells the version that it belongs to; a client that
has seen version V may ask for at least V, so that what it reads never goes back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.base import Name
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import Effect, JobRefused
from fallow.shared.events.fields.job_ids import parted
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.operations import Operation
from fallow.shared.events.submissions import JobChanges
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import JobRow, NodeRow, QueueHeadRows, SummaryRow, TenantRow


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the life of all cells: the next offset of each partition (`topic/partition`) that tells news."""

    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class News:
    """One thing that happened: an effect of an accepted decision, or admission's no, without version and time."""

    cell: Name | None
    event: Effect | JobRejected
    version: int | None = None
    at_ms: int | None = None

    @property
    def job(self) -> str | None:
        """The job that it is about, or None."""
        return job_of(self.event)


class ClientUnavailable(Exception):
    """What the client needs does not answer; the text says what. Anything that was wished may have happened."""


class ViewUnanswering(ClientUnavailable):
    """It is the view that does not answer: what the log tells can be had all the same."""


class NotYet(ClientUnavailable):
    """What is read of this cell is being built, or is not as far as was asked for. Ask again in a moment."""

    def __init__(self, text: str, cell: str) -> None:
        super().__init__(text)
        self.cell = cell


class CellClient(Protocol):
    """One program's way to the cells. It connects when it is first asked for something."""

    @property
    def cells(self) -> tuple[str, ...]:
        """All cells, in the order of their ordinals."""

    async def stop(self) -> None:
        """Let go of all connections. May be called twice."""

    async def submit(self, jobs: Sequence[JobSpec], *, submit_ms: int | None = None) -> Mark:
        """Submit these jobs, waiting since `submit_ms` of cell time (None: since they are seen).

        The same job again does no harm. Up to 64 jobs queue in the order given, as far as the brokers' clocks agree; of
        more at once the order is any. Raises ClientUnavailable.
        """

    async def cancel(self, job: str, tenant: str, *, cell: str | None = None, reason: str = "") -> Mark:
        """Wish that a job stops. Raises ClientUnavailable."""

    async def update(self, job: str, tenant: str, changes: JobChanges, *, cell: str | None = None) -> Mark:
        """Wish that a job changes. Raises ClientUnavailable."""

    async def operate(self, operation: Operation) -> Mark:
        """Give an operator's command: Cordon, Uncordon, Drain, HoldJob, ReleaseJob, ... Raises ClientUnavailable."""

    def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        """Everything that happens after the mark, in each cell's order, without end.

        Where nothing comes for `wait_ms`, an empty list does, so that the reader can look at its clock. Raises
        ClientUnavailable.
        """

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        """The cells of which news behind the mark were passed over up to now, since no key of the client's own cell
        file proves them. Silence of such a cell proves nothing: its answer may be among them.
        """

    def decisions(self, cell: str, first: int, last: int | None = None) -> AsyncGenerator[Decision, None]:
        """The accepted decisions of these versions, as far as the log holds them now. Raises ClientUnavailable."""

    def newest(self, cell: str, count: int, *, follow: bool = False) -> AsyncGenerator[Decision, None]:
        """The last `count` accepted decisions; with `follow` each new one, without end. Raises ClientUnavailable."""

    def story(self, cell: str, job: str) -> AsyncGenerator[News, None]:
        """Everything that the log still tells of one job, in order, but for a no to the request of another tenant: it
        touches nothing. Raises ClientUnavailable.
        """

    async def names(self, cell: str, own: str, *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        """The jobs and arrays, in full, that have this id of their tenants, by name. Raises as `job` does."""

    async def arrays(self, cell: str, jobs: Sequence[str], *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        """Those of these ids (1 to 200, in full) that are arrays of which an element is over, by name. Raises as
        `job` does.
        """

    async def names_told(self, cell: str, own: str) -> tuple[str, ...]:
        """The names as far as the log still tells of them, for which it is read as for a story; where it tells of none,
        those that admission turned away. Raises ClientUnavailable.
        """

    async def job(self, cell: str, job: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        """One job, or None where the cell does not know it (any more). Raises ClientUnavailable, NotYet."""

    async def jobs(
        self,
        cell: str,
        *,
        tenant: str | None = None,
        statuses: Collection[JobStatus] = (),
        limit: int = 100,
        after: str = "",
        at_least: int | None = None,
    ) -> Read[tuple[JobRow, ...]]:
        """A page of jobs by id, behind the id `after`: those in one of `statuses`, or all where none is named. One
        shorter than `limit` is the last. Raises as `job` does.
        """

    async def nodes(self, cell: str, *, at_least: int | None = None) -> Read[tuple[NodeRow, ...]]:
        """Every node, by id. Raises as `job` does."""

    async def tenants(self, cell: str, *, at_least: int | None = None) -> Read[tuple[TenantRow, ...]]:
        """Every tenant that the cell has heard of, by name. Raises as `job` does."""

    async def queue(
        self, cell: str, queue: str, *, limit: int = 100, at_least: int | None = None
    ) -> Read[QueueHeadRows]:
        """The first jobs of a queue, in its order. Raises as `job` does."""

    async def summary(self, cell: str, *, at_least: int | None = None) -> Read[SummaryRow]:
        """The cell in a few numbers. Raises as `job` does."""


def is_of_a_stranger(event: Effect | JobRejected) -> bool:
    """Whether this is a no to a request of a tenant about another tenant's job."""
    if not isinstance(event, JobRefused | JobRejected):
        return False
    owner = parted(event.job)[0]
    return bool(owner) and event.tenant not in {None, owner}


def job_of(event: Effect | JobRejected) -> str | None:
    """The job that an effect or a rejection is about, or None."""
    job = getattr(event, "job", None)
    if job is None:
        spec = getattr(event, "spec", None)
        job = spec.id if isinstance(spec, JobSpec) else None
    return job
