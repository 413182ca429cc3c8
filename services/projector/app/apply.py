"""From decisions to rows: which entities they touch, and what the folded state says of these.

Rows are absolute. So it does no harm to name an entity too often, and when Redis was away it is enough to remember the
names: their rows are made from the state as it is when Redis is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import Account, accounts
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.view.row_batch import Rows, Stand, Totals
from fallow.shared.view.row_text import accounts_by_tenant, job_text, node_text, over_text, pools_text, tenant_text

FORGOTTEN_PER_END_MAX = 2
"""How many remembered jobs the fold may forget for each that ends."""

LOAD_CHARS = 1_000_000
"""Of the rows that a rebuild puts at a time: some 20 ms of Redis's time, however long the rows are."""


@dataclass(slots=True)
class Touched:
    """Entities whose rows may have changed, in the order in which they were first touched. The tenants above a tenant
    follow from the quotas, and are not named here.

    `oldest` are jobs that are over and may have been forgotten, with the numbers under which they are remembered: of
    one that still is nothing has changed.
    """

    jobs: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    tenants: dict[str, None] = field(default_factory=dict)
    oldest: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jobs) + len(self.nodes) + len(self.tenants) + len(self.oldest)

    def clear(self) -> None:
        """Nothing is touched."""
        self.jobs.clear()
        self.nodes.clear()
        self.tenants.clear()
        self.oldest.clear()

    def note(self, state: CellState, decision: Decision) -> None:
        """Take in what a decision touches. `state` is the one BEFORE it, which tells what an ending job gives back."""
        ended = 0
        for effect in decision.effects:
            touch = TOUCH[type(effect)]
            if touch is not None:
                touch(self, state, effect)
                ended += touch is _end
        if ended:
            for array in _arrays_over(state, decision.effects):
                self.jobs[array] = None
        for number in range(state.over_first, state.over_first + FORGOTTEN_PER_END_MAX * ended):
            job_id = state.finished.id_of(number)
            if job_id is None:
                return
            self.oldest[job_id] = number


def _job(touched: Touched, _: CellState, effect: e.JobEffect) -> None:
    touched.jobs[effect.job] = None


def _spec(touched: Touched, _: CellState, effect: e.JobEnqueued) -> None:
    touched.jobs[effect.spec.id] = None
    touched.tenants[effect.spec.tenant] = None


def _updated(touched: Touched, _: CellState, effect: e.JobUpdated) -> None:
    touched.jobs[effect.job] = None
    touched.tenants[effect.tenant] = None


def _start(touched: Touched, state: CellState, effect: e.JobStarted) -> None:
    _places(touched, effect.workers)
    _move(touched, state, effect)


def _resize(touched: Touched, state: CellState, effect: e.JobResizing) -> None:
    _places(touched, effect.add)
    _move(touched, state, effect)


def _move(touched: Touched, state: CellState, effect: e.JobEffect) -> None:
    """Places are held that were free, or free that were held."""
    touched.jobs[effect.job] = None
    job = state.jobs.get(effect.job)
    if job is not None:  # else it was enqueued by this same decision, which touched its tenant
        _places(touched, job.workers)
        _places(touched, job.joining)
        touched.tenants[job.spec.tenant] = None
    if state.rooms and effect.job in state.rooms:
        _places(touched, state.rooms[effect.job].workers)


def _room(touched: Touched, state: CellState, effect: e.RoomHeld) -> None:
    """Room is held, and with it what the job will use of its quotas."""
    _places(touched, effect.workers)
    _move(touched, state, effect)


def _end(touched: Touched, state: CellState, effect: e.JobEffect) -> None:
    """The job is over. Those that wait for it are told by effects of their own."""
    _move(touched, state, effect)


def _arrays_over(state: CellState, effects: Iterable[Any]) -> Iterator[str]:
    """The arrays whose last element ends with these effects, which may have submitted it, too. Only then does an array
    have a row: not at the end of each element.
    """
    new: dict[str, str] = {}
    left: dict[str, int] = {}
    for effect in effects:
        touch = TOUCH[type(effect)]
        if touch is _spec:
            array = effect.spec.array_of
            if array is not None:
                new[effect.spec.id] = array
                left[array] = _left(state, left, array) + 1
        elif touch is _end:
            job = state.jobs.get(effect.job)
            array = new.get(effect.job) if job is None else job.spec.array_of
            if array is not None:
                left[array] = _left(state, left, array) - 1
                if not left[array]:
                    yield array


def _left(state: CellState, left: dict[str, int], array_id: str) -> int:
    if array_id in left:
        return left[array_id]
    array = state.arrays.get(array_id)
    return 0 if array is None else array.left


def _places(touched: Touched, places: tuple[WorkerPlace, ...]) -> None:
    for place in places:
        touched.nodes[place.node] = None


def _node_spec(touched: Touched, _: CellState, effect: e.NodeChanged) -> None:
    touched.nodes[effect.spec.id] = None


def _node(touched: Touched, _: CellState, effect: e.NodeEffect) -> None:
    touched.nodes[effect.node] = None


def _quota(touched: Touched, state: CellState, effect: e.QuotaSet) -> None:
    """The use moves along from the parents that the tenant has now. Those that it gets follow from the quotas."""
    _line(touched, state, effect.quota.tenant, effect.quota.gpu_type)


def _quota_gone(touched: Touched, state: CellState, effect: e.QuotaRemoved) -> None:
    _line(touched, state, effect.tenant, effect.gpu_type)


def _line(touched: Touched, state: CellState, tenant: str, gpu_type: str) -> None:
    for account in accounts(state.quotas, tenant, gpu_type):
        touched.tenants[account[0]] = None


def _all_queued(touched: Touched, state: CellState, _: e.CellFileSet) -> None:
    """The file says in which order each queue is served, and so where its jobs stand."""
    touched.jobs.update((job_id, None) for job_id, job in state.jobs.items() if job.status is JobStatus.QUEUED)


TOUCH: dict[type[e.Effect], Callable[[Touched, CellState, Any], None] | None] = {
    e.WriterStarted: None,
    e.JobEnqueued: _spec,
    e.JobUpdated: _updated,
    e.JobStarted: _start,
    e.RunObserved: None,
    e.JobRunning: _job,
    e.JobResizing: _resize,
    e.JobResized: _move,
    e.WorkersSettled: _move,
    e.JobStopping: _job,
    e.JobPreempted: _move,
    e.JobRequeued: _move,
    e.JobFinished: _end,
    e.JobFailed: _end,
    e.JobCancelled: _end,
    e.JobRefused: None,
    e.AttemptTimedOut: None,
    e.JobDeferred: _job,
    e.JobHeld: _job,
    e.JobReleased: _job,
    e.JobReady: _job,
    e.WaitShortened: _job,
    e.ReservationSet: _job,
    e.ReservationCleared: _job,
    e.RoomHeld: _room,
    e.RoomReleased: _move,
    e.HeadBlocked: None,
    e.HeadCleared: None,
    e.NodeChanged: _node_spec,
    e.MaintenanceSet: _node,
    e.MaintenanceBegan: _node,
    e.DeviceChanged: _node,
    e.LeaseExpired: _node,
    e.NodeFailures: None,
    e.NodeSilent: _node,
    e.NodeHeard: _node,
    e.NodeRemoved: _node,
    e.EvictionsHeld: None,
    e.EvictionsResumed: None,
    e.NodeLent: _node,
    e.NodeLoanDraining: _node,
    e.NodeReclaimed: _node,
    e.QuotaSet: _quota,
    e.QuotaRemoved: _quota_gone,
    e.PolicySet: None,
    e.CellFileSet: _all_queued,
    e.ProposalRefused: None,
    e.InputResumed: None,
    e.InputFenced: None,
    e.LogRepaired: None,
}
"""What each effect touches; None for those that no row shows."""


def with_parents(state: CellState, tenants: Iterable[str]) -> dict[str, None]:
    """These tenants and all above them, for any GPU type. A line is climbed as far as no other one was before it."""
    found, seen = dict.fromkeys(tenants), set[Account]()
    for tenant in list(found):
        for gpu_type in state.tree.index.types_of(tenant):
            above: str | None = tenant
            while above is not None and (above, gpu_type) not in seen:
                seen.add((above, gpu_type))
                found[above] = None
                quota = state.quotas.get((above, gpu_type))
                above = None if quota is None else quota.parent
    return found


def stand_of(state: CellState) -> Stand:
    """Where this state stands."""
    return Stand(state.offset + 1, state.version, state.chain, state.at_ms, pools_text(state))


def rows_of_touched(state: CellState, touched: Touched) -> Rows:
    """What the state says of everything that was touched."""
    rows = Rows()
    forgotten = [job_id for job_id, number in touched.oldest.items() if number < state.over_first]
    for job_id in dict.fromkeys([*touched.jobs, *forgotten]):
        text = text_of_job(state, job_id)
        if text is None:
            rows.jobs_gone.append(job_id)
        else:
            rows.jobs.append((job_id, text))
    for node_id in touched.nodes:
        node = state.nodes.get(node_id)
        if node is None:
            rows.nodes_gone.append(node_id)
        else:
            rows.nodes.append((node_id, node_text(node)))
    _add_tenants(rows, state, touched)
    return rows


def _add_tenants(rows: Rows, state: CellState, touched: Touched) -> None:
    if not touched.tenants:
        return
    types_used = {account[1]: None for account in state.usage}
    for tenant in with_parents(state, touched.tenants):
        used = [name for name in types_used if (tenant, name) in state.usage]
        held = [(tenant, name) for name in sorted({*state.tree.index.types_of(tenant), *used})]
        if held:
            rows.tenants.append((tenant, tenant_text(state, held)))
        else:
            rows.tenants_gone.append(tenant)


def text_of_job(state: CellState, job_id: str) -> str | None:
    """A job's row, or None where the cell does not know it (any more)."""
    job = state.jobs.get(job_id)
    if job is not None:
        return job_text(state, job)
    over = state.finished.get(job_id)
    return None if over is None else over_text(over)


def all_rows(state: CellState, step: int, chars: int = LOAD_CHARS) -> Iterator[Rows]:
    """Everything that the view of this state holds, at most `step` rows and about as many characters as that at a time,
    a single row more.
    """
    nodes = ((node_id, node_text(state.nodes[node_id])) for node_id in (*state.nodes,))
    for part in _parts(nodes, step, chars):
        yield Rows(nodes=part)
    tenants = ((name, tenant_text(state, held)) for name, held in accounts_by_tenant(state).items())
    for part in _parts(tenants, step, chars):
        yield Rows(tenants=part)
    jobs = ((job_id, job_text(state, state.jobs[job_id])) for job_id in (*state.jobs,))
    for part in _parts(jobs, step, chars):
        yield Rows(jobs=part)
    over = ((job_id, over_text(state.finished[job_id])) for job_id in (*state.finished,))
    for part in _parts(over, step, chars):
        yield Rows(jobs=part)


def _parts(rows: Iterable[tuple[str, str]], step: int, chars: int) -> Iterator[list[tuple[str, str]]]:
    part: list[tuple[str, str]] = []
    held = 0
    for row in rows:
        part.append(row)
        held += len(row[0]) + len(row[1])
        if len(part) >= step or held >= chars:
            yield part
            part, held = [], 0
    if part:
        yield part


def totals_of(state: CellState) -> Totals:
    """How many rows the view of this state has."""
    queued = sum(job.status == "queued" for job in state.jobs.values())
    return Totals(len(state.jobs) + len(state.finished), len(state.nodes), len(accounts_by_tenant(state)), queued)
