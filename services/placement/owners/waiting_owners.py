"""The jobs of owners that wait, or run and lack workers, and what is claimed for them: kept by what has changed since
it was last looked at.

Tenants that stand below each other, of whatever GPU type, are one group: what is claimed for its jobs changes only with
these jobs and with its use. Everything is looked at anew when a quota changes, or a node becomes another one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop
from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import marks_of_reach
from fallow.services.placement.owners.claims import Claim, Form, Waiter, Wanted, claims_of, could_use_room, waiter
from fallow.services.placement.queue.lines.classes import TENANT
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.lines.row import Row
from fallow.services.placement.queue.lines.touched import Touched
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.tree import Account, Branch
from fallow.shared.events.operations import PreemptionMode
from fallow.shared.events.queue import QueueDiscipline, QueueOrder


class Change(NamedTuple):
    """What is claimed no more, and what is now. With `is_all` everything was looked at anew: the `new` are all."""

    gone: list[Claim]
    new: list[Claim]
    is_all: bool = False


class _Basis(NamedTuple):
    """While this is what it was, what follows from nodes and quotas for a class of jobs holds. All of it is compared by
    what it is, not by what it holds, but for the list of marks.
    """

    touched: Touched
    branches: dict[Account, Branch]
    marks: list[object]
    preemption: PreemptionMode

    def is_still(self, other: _Basis) -> bool:
        """Whether the other one is the same."""
        is_same = self.touched is other.touched and self.branches is other.branches
        return is_same and self.marks == other.marks and self.preemption is other.preemption


class _First(NamedTuple):
    """The first job of a strict line that room would help; None where there is none. `is_passing` says that the array
    of one before it may have no more: then it may be another one as soon as the array may.
    """

    job: str
    row: Row | None
    is_passing: bool


class _Group:
    """Tenants of which one stands below another, with their jobs in the order of their places, and what is claimed."""

    __slots__ = ("_forms", "_limited", "_of", "_waiters", "claims")

    def __init__(self) -> None:
        self._of: dict[Row, Waiter] = {}
        self._waiters: list[Waiter] = []
        self._forms: dict[Form, int] = {}
        self._limited: dict[Row, None] = {}
        self.claims: dict[tuple[int, tuple[int, int, int]], Claim] = {}

    @property
    def is_limited(self) -> bool:
        """Whether one of its jobs is of an array that may have so many at once only."""
        return bool(self._limited)

    def put(self, row: Row, found: Waiter | None, *, is_limited: bool) -> bool:
        """This job waits in the row now, or none. Whether that is another one than before."""
        before = self._of.get(row)
        if found == before:
            return False
        if before is not None:
            del self._waiters[bisect_left(self._waiters, before[:1])]
            self._count(before.wanted.form, -1)
            self._limited.pop(row, None)
            del self._of[row]
        if found is not None:
            insort(self._waiters, found, key=_place)
            self._count(found.wanted.form, 1)
            self._of[row] = found
            if is_limited:
                self._limited[row] = None
        return True

    def _count(self, form: Form, more: int) -> None:
        many = self._forms[form] = self._forms.get(form, 0) + more
        if not many:
            del self._forms[form]

    def choose(self, state: CellState) -> Change:
        """Look what is claimed now."""
        before, gone, new = self.claims, list[Claim](), list[Claim]()
        self.claims = {claim[:2]: claim for claim in claims_of(state, self._waiters, self._forms)}
        for name, claim in self.claims.items():
            was = before.pop(name, None)
            if was == claim:
                self.claims[name] = was
            else:
                new.append(claim)
                gone += [was] if was is not None else []
        gone += before.values()
        return Change(gone, new)


def _place(waiter: Waiter) -> tuple[int, int, int]:
    return waiter.place


class WaitingOwners:
    """The jobs that wait in the lines of a cell, as far as something is guaranteed to any tenant above them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Look at everything anew next time."""
        self._basis: _Basis | None = None
        self._group_of: dict[str, _Group] = {}
        self._wanted: dict[Row, Wanted] = {}
        self._firsts: dict[Line, _First] = {}
        self._passing: dict[Line, None] = {}
        self._with_limits: dict[_Group, None] = {}

    def look(self, state: CellState, lines: Lines) -> Change:
        """What has changed since the last look."""
        basis = _Basis(lines.touched, state.tree.branches, marks_of_reach(state), state.policy.preemption)
        is_all = bool(state.maintenance_starts) or self._basis is None or not self._basis.is_still(basis)
        if is_all:
            self.forget()
            self._basis, self._group_of = basis, groups_of(basis.branches)
        touched = lines.touched.take()
        if is_all:
            touched = {row: line for tenant in lines.tenants() for row, line in lines.rows_of(tenant)}
        changed = self._look_at_rows(state, touched)
        changed.update(self._with_limits)
        for cohort in state.tree.cohorts.values():
            changed.update({self._group_of[account[0]]: None for account in cohort.touched})
            cohort.touched.clear()
        found = Change([], [], is_all)
        for group in changed:
            change = group.choose(state)
            found.gone.extend(change.gone)
            found.new.extend(change.new)
        return found

    def _look_at_rows(self, state: CellState, touched: dict[Row, Line]) -> dict[_Group, None]:
        """Bring these classes to what they are now. The groups of which other jobs wait than before."""
        strict = {line: None for line in touched.values() if _is_strict(line)} | self._passing
        rows = touched | {row: line for line in strict for row in self._other_firsts(state, line)}
        changed = dict[_Group, None]()
        for row, line in rows.items():
            group = self._group_of.get(str(row.key[TENANT]))
            if group is not None and self._look_at(state, group, row, line):
                changed[group] = None
        return changed

    def _other_firsts(self, state: CellState, line: Line) -> Iterator[Row]:
        """The rows of the first job that a strict line had, and has now, where these are two."""
        before, now = self._firsts.get(line), _first_of(state, line)
        if line.rows:
            self._firsts[line] = now
        else:
            self._firsts.pop(line, None)
        self._passing.pop(line, None)
        if now.is_passing:
            self._passing[line] = None
        if before is None or before.job != now.job:
            yield from [each.row for each in (before, now) if each is not None and each.row is not None]

    def _look_at(self, state: CellState, group: _Group, row: Row, line: Line) -> bool:
        """Bring a class to what it is now. Whether another job waits in it than before."""
        found, is_limited = None, False
        if row.first is None:
            self._wanted.pop(row, None)
        else:
            job = state.jobs[row.first[-1]]
            if not _is_strict(line) or self._firsts[line].job == job.spec.id:
                wanted = self._wanted.get(row)
                if wanted is None:
                    wanted = self._wanted[row] = Wanted(state, job)
                is_fair = line.queue.order is QueueOrder.FAIR_SHARE
                found = waiter(state, job, wanted, is_sure=_is_strict(line) and is_fair)
                array = state.arrays.get(job.spec.array_of or "")
                is_limited = array is not None and array.max_running is not None
        is_other = group.put(row, found, is_limited=is_limited)
        if is_other:
            self._with_limits.pop(group, None)
            if group.is_limited:
                self._with_limits[group] = None
        return is_other


def _is_strict(line: Line) -> bool:
    return line.queue.discipline is QueueDiscipline.STRICT_FIFO


def _first_of(state: CellState, line: Line) -> _First:
    """The first job of a line that room would help. In a strict line room is kept for that one only: to keep room for
    one behind it could keep the first from starting, and then both would wait for ever.
    """
    firsts = [(row.first, row.number, row) for row in line.rows.values() if row.first is not None]
    heapify(firsts)
    is_passing = False
    while firsts:
        order, _, row = heappop(firsts)
        job = state.jobs[order[-1]]
        if job.status is JobStatus.QUEUED and not may_start_one_more(state, job.spec):
            is_passing = True
        elif could_use_room(state, job):
            return _First(job.spec.id, row, is_passing)
    return _First("", None, is_passing)


def groups_of(branches: dict[Account, Branch]) -> dict[str, _Group]:
    """The group of each tenant that has a quota, or stands above one that has."""
    root: dict[str, str] = {}

    def find(tenant: str) -> str:
        while root.setdefault(tenant, tenant) != tenant:
            root[tenant] = tenant = root[root[tenant]]
        return tenant

    for (tenant, _), branch in branches.items():
        if branch.parent is not None:
            root[find(tenant)] = find(branch.parent.account[0])
    groups: dict[str, _Group] = {}
    return {tenant: groups.setdefault(find(tenant), _Group()) for tenant, _ in branches}
