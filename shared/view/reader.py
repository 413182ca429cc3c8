"""Reads the view. Each answer comes with the version of the state that it belongs to, taken in the same step.

A reader that has seen a version asks for `at_least` that one, and so never sees the cell go back, not even when Redis
lost its tail and is being brought forward again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fallow.shared.cluster.model.job import HOLDING, WAITING, JobStatus
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.view.keys import keys_of
from fallow.shared.view.row_text import NoRow, account_rows, job_row, node_row, pool_rows
from fallow.shared.view.rows import JobRow, NodeRow, QueueHeadRows, SummaryRow, TenantRow
from fallow.shared.view.store import FENCED, SHOWS, TOO_MANY, Functions, ViewNeedsChange, ViewUnavailable

T = TypeVar("T")

STATUSES = tuple(JobStatus)
WAITING_STATUSES = tuple(status for status in STATUSES if status in WAITING)
RUNNING_STATUSES = tuple(status for status in STATUSES if status in HOLDING)
LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What was read, and of which state: its version, the offset of its last record, and its cell time. `is_fenced`:
    the log behind it cannot be trusted, so nothing goes on there.
    """

    value: T
    version: int
    offset: int
    at_ms: int
    is_fenced: bool = False


class NoSuchCell(Exception):
    """There is no view of such a cell, and no projector has begun one."""

    def __init__(self, cell: str) -> None:
        super().__init__(f"there is no cell {cell!r} in the view")
        self.cell = cell


class ViewRebuilding(Exception):
    """The view is being built. Ask again a little later."""

    def __init__(self, cell: str) -> None:
        super().__init__(f"the view of cell {cell} is being built; ask again in a moment")
        self.cell = cell


class ViewFenced(ViewUnavailable):
    """There is no whole view, and the log from which it would be made cannot be trusted. A person has to look."""

    def __init__(self, cell: str) -> None:
        super().__init__(f"there is no view of cell {cell}, and the cell is fenced. Run: fallow verify")
        self.cell = cell


class TooManyNamesakes(ViewUnavailable):
    """More jobs have names as elements of an array have than the view looks through. The log tells, or a full name."""

    def __init__(self, cell: str) -> None:
        super().__init__(
            f"more jobs of cell {cell} are named as elements of an array of this id are than the view looks through"
        )
        self.cell = cell


class ViewForeign(ViewNeedsChange):
    """What Redis holds under the view's keys is not as Fallow writes it. A view that is gone is built anew."""

    def __init__(self, cell: str, what: str) -> None:
        told = shorten(what)
        super().__init__(
            f"the view of cell {cell} holds what Fallow did not write ({told}); flush Redis: it comes back"
        )
        self.cell = cell


class ViewBehind(Exception):
    """The view is not as far as was asked for. Ask again a little later."""

    def __init__(self, cell: str, *, version: int, at_least: int) -> None:
        super().__init__(f"the view of cell {cell} is at version {version}, {at_least} was asked for")
        self.cell, self.version, self.at_least = cell, version, at_least


class ViewReader:
    """Reads the views of one namespace.

    With `cells` given, these exist whether they have a view or not: one without is being built. Without, a cell that
    has no view does not exist.

    Every method raises NoSuchCell, ViewRebuilding, ViewUnavailable, and ViewBehind when the view has not reached the
    version `at_least`.
    """

    def __init__(self, functions: Functions, namespace: str, cells: Collection[str] | None = None) -> None:
        self._functions, self._namespace, self._cells = functions, namespace, cells

    async def job(self, cell: str, job_id: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        """One job, or None where the cell does not know it (any more)."""
        return await self._read(cell, "read_job", [job_id], _first_job, at_least)

    async def names(self, cell: str, own: str, *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        """The jobs and arrays, in full, that have this id of their tenants, by name. Raises TooManyNamesakes, too."""
        return await self._read(cell, "read_names", [own, *STATUSES], _names, at_least)

    async def arrays(self, cell: str, jobs: Sequence[str], *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        """Those of these ids (1 to 200, in full) that are arrays of which an element is over, by name."""
        return await self._read(cell, "read_arrays", jobs, _names, at_least)

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
        """A page of jobs by id, behind the id `after`: those in one of `statuses`, or all where none is named. A page
        shorter than `limit` (at most 10,000) is the last.
        """
        wanted = [status for status in STATUSES if not statuses or status in statuses]
        arguments = [tenant or "", after, str(_limit(limit)), *wanted]
        return await self._read(cell, "read_jobs", arguments, _job_rows, at_least)

    async def nodes(self, cell: str, *, at_least: int | None = None) -> Read[tuple[NodeRow, ...]]:
        """Every node, by id."""
        return await self._read(cell, "read_nodes", [], _node_rows, at_least)

    async def tenants(self, cell: str, *, at_least: int | None = None) -> Read[tuple[TenantRow, ...]]:
        """Every tenant that has a quota, uses something, or has a job that is remembered; by name."""
        arguments = [str(len(WAITING_STATUSES)), *WAITING_STATUSES, *RUNNING_STATUSES]
        return await self._read(cell, "read_tenants", arguments, _tenant_rows, at_least)

    async def queue(
        self, cell: str, queue: str, *, limit: int = 100, at_least: int | None = None
    ) -> Read[QueueHeadRows]:
        """The first jobs of a queue, in its order. A queue in which no job waits is empty, whether it exists or not."""

        def head(found: Sequence[Any]) -> QueueHeadRows:
            return QueueHeadRows(queue, found[0], _job_rows(found[1:]))

        return await self._read(cell, "read_queue", [queue, str(_limit(limit))], head, at_least)

    async def summary(self, cell: str, *, at_least: int | None = None) -> Read[SummaryRow]:
        """The cell in a few numbers."""
        return await self._read(cell, "read_summary", STATUSES, _summary_row, at_least)

    async def _read(
        self, cell: str, name: str, arguments: Sequence[str], made: Callable[[Sequence[Any]], T], at_least: int | None
    ) -> Read[T]:
        if self._cells is not None and cell not in self._cells:
            raise NoSuchCell(cell)
        answer = await self._functions.call(name, keys_of(self._namespace, cell), arguments)
        if answer[0] == "NONE" and self._cells is None:
            raise NoSuchCell(cell)
        if answer[0] == FENCED and len(answer) == 1:
            raise ViewFenced(cell)
        if answer[0] == TOO_MANY:
            raise TooManyNamesakes(cell)
        if answer[0] not in SHOWS:
            raise ViewRebuilding(cell)
        try:
            version = int(answer[1])
            read = Read(made(answer[4:]), version, int(answer[2]) - 1, int(answer[3]), answer[0] == FENCED)
        except (NoRow, ValueError, TypeError, IndexError, AttributeError) as error:
            raise ViewForeign(cell, str(error)) from error
        if at_least is not None and version < at_least:
            raise ViewBehind(cell, version=version, at_least=at_least)
        return read


def _limit(limit: int) -> int:
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(f"limit = {limit}: must be 1 to {LIMIT_MAX}")
    return limit


def _job_rows(found: Sequence[Any]) -> tuple[JobRow, ...]:
    return tuple(job_row(text, position) for text, position in zip(found[::2], found[1::2], strict=True))


def _first_job(found: Sequence[Any]) -> JobRow | None:
    return job_row(found[0], found[1]) if found else None


def _names(found: Sequence[Any]) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in found):
        raise TypeError("the name of a job is no text")
    return tuple(sorted(found))


def _node_rows(found: Sequence[Any]) -> tuple[NodeRow, ...]:
    return tuple(sorted((node_row(text) for text in found), key=lambda node: node.id))


def _tenant_rows(found: Sequence[Any]) -> tuple[TenantRow, ...]:
    rows = [
        TenantRow(found[at], account_rows(found[at + 1]), found[at + 2], found[at + 3])
        for at in range(0, len(found), 4)
    ]
    return tuple(sorted(rows, key=lambda row: row.tenant))


def _summary_row(found: Sequence[Any]) -> SummaryRow:
    queues = found[2 + len(STATUSES) :]
    return SummaryRow(
        pools=pool_rows(found[0]),
        nodes=found[1],
        jobs=dict(zip(STATUSES, found[2:], strict=False)),
        queues=dict(zip(queues[::2], queues[1::2], strict=True)),
    )
