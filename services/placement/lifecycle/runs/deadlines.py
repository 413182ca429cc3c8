"""What must happen at a time of its own: limits by cell time, answers awaited by wall time.

The entries follow from the decisions; where others wrote, they are made from the state. A wait that this process has
begun goes on then. Of one that another process has begun, as much is over as the log tells by its cell times, up to the
last decision: so it ends, however often writers take turns. The wait for single workers that leave begins anew: nothing
but a word in the audit trail follows from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from fallow.services.placement.decision.decision import STEPS_OF_AN_EFFECT, DecisionBuilder
from fallow.services.placement.lifecycle.nodes import maintenance, quarantine, removal
from fallow.services.placement.lifecycle.nodes.nodes import empty
from fallow.services.placement.lifecycle.runs.retry import avoided
from fallow.services.placement.lifecycle.runs.worker_timeouts import WorkerTimeouts
from fallow.services.placement.requests import dependencies
from fallow.services.placement.requests.requests import stopping
from fallow.shared.cluster.fold.due import ROOM_LEAST, DueHeap
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import starting_on
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.reasons import PendingReason, StopReason

_STARTING = JobStatus.STARTING  # to look it up for each start costs more than what is done with it

_Due = tuple[int, str, str, int]
"""When, what, of which job or node, and of which attempt."""

UNREAD_MS = 5_000
"""For so long, in cell time, a writer that takes over looks for an unknown job: it may lie unread."""

_Awaited = dict[tuple[str, str, int], int]
"""When, by what, of which job, and of which attempt."""

_BRING_NOTHING: frozenset[type[e.Effect]] = frozenset({e.JobEnqueued, e.JobRunning, e.JobFinished})
"""The most frequent effects besides starts: no time is due by them."""

_OF_NODES = frozenset({e.NodeChanged, e.MaintenanceSet, e.LeaseExpired, e.PolicySet, e.NodeRemoved})

_NODE_DEADLINES = frozenset({"drain", "maintenance", "quarantine", "forget"})
"""What is due of nodes; all else is of jobs."""

_LOOKS = {"quarantine": quarantine.lift, "forget": removal.forget}
"""A look at a node, which tells when to look again. The newest time of each counts, and no other."""

STEPS_OF_A_NODE = 100
"""What it costs to change a node: the indices over all nodes of its pool follow."""


class Deadlines:
    """Due times of one cell. An entry that has become pointless does nothing when it is due, and is let go of before
    when there are many.

    What was acted upon is gone. If its decision cannot be written, it is put back; if others wrote, everything begins
    anew from the state.
    """

    def __init__(self, *, forgets_nodes: bool = True, speed: float = 1.0) -> None:
        """`forgets_nodes`: whether lost nodes are forgotten after a while. `speed`: how fast cell time goes by."""
        self._forgets_nodes, self._speed = forgets_nodes, speed
        self._by_cell, self._by_wall = DueHeap[_Due](), DueHeap[_Due]()
        self._entrances = WorkerTimeouts()
        self._starting_room = ROOM_LEAST
        self._starting: deque[tuple[int, str, int]] = deque()
        """Nearly all waits are for a start, come in the order in which they are due, and end long before."""
        self._looks: dict[tuple[str, str], int] = {}
        """When which node is looked at next, by what for."""
        self._done: list[tuple[DueHeap[_Due] | None, _Due]] = []

    def from_state(self, state: CellState, wall_ms: int) -> None:
        """Begin anew for a state of which others may have written; what is awaited still is due when it was."""
        self.put_back()
        kept = self._awaited()
        self._by_cell, self._by_wall, self._looks = DueHeap(), DueHeap(), {}
        self._starting.clear()
        self._entrances.from_state(state, wall_ms, self._waited_ms)
        self._from_jobs(state, wall_ms, kept)
        for node_id in sorted(state.nodes):
            self._drain(state, node_id, state.nodes[node_id].drain_deadline_ms)
            self._rest(state, node_id, state.nodes[node_id].quarantined_until_ms)
            for at_ms in state.nodes[node_id].maintenance_ms or ():
                self._push(state, (at_ms, "maintenance", node_id, 0))
            self._forget(state, node_id)

    def _from_jobs(self, state: CellState, wall_ms: int, kept: _Awaited) -> None:
        starting: list[tuple[int, str, int]] = []
        for job_id in sorted(state.jobs):
            job = state.jobs[job_id]
            if job.status in HOLDING:
                self._limit(state, job)
                due_ms = kept.get((_AWAITED.get(job.status, ""), job_id, job.attempt))
                if job.status is JobStatus.STARTING:
                    left_ms = max(0, state.policy.start_timeout_wall_ms - self._waited_ms(state, job.started_ms))
                    starting.append((wall_ms + left_ms if due_ms is None else due_ms, job_id, job.attempt))
                elif job.status is JobStatus.STOPPING:
                    self._await_stop(state, job, wall_ms, due_ms)
            elif job.waits_for:
                due_ms = kept.get(("unknown", job_id, job.attempt))
                self._look_for_unknown(state, job, _still_unknown(state, job) if due_ms is None else due_ms)
        self._starting.extend(sorted(starting))

    def note(self, state: CellState, effects: tuple[e.AnyEffect, ...], wall_ms: int) -> None:
        """Take in the effects of a decision that is in force."""
        self.begin()
        has_singly = bool(state.independent_jobs)
        for effect in effects:
            kind = type(effect)
            if kind in _BRING_NOTHING:
                continue
            if has_singly and (kind is e.JobStarted or kind is e.JobResizing):
                self._entrances.note(state, effect, wall_ms)  # type: ignore[arg-type]  # said by the line above
            if kind is e.JobStarted or kind is e.JobStopping:
                job = state.jobs.get(effect.job)  # type: ignore[union-attr]  # said by the line above
                if job is not None and job.attempt == effect.attempt:  # type: ignore[union-attr]
                    self._await(state, job, wall_ms)
                    if kind is e.JobStarted:
                        self._limit(state, job)
            elif kind is e.JobUpdated:
                job = state.jobs.get(effect.job)  # type: ignore[union-attr]
                if job is not None and job.status in HOLDING:
                    self._limit(state, job)
            elif kind in _OF_NODES:
                self._note_node(state, effect)
            elif kind is e.JobDeferred and effect.code is PendingReason.AFTER:  # type: ignore[union-attr]
                self._look_for_unknown(state, state.jobs.get(effect.job))  # type: ignore[union-attr]
        self._forget_started(state)

    def _awaited(self) -> _Awaited:
        """What is awaited of jobs, in no order: answers by wall time, unknown jobs by cell time."""
        dues = [*self._by_wall.entries, *(due for due in self._by_cell.entries if due[1] == "unknown")]
        found = {(what, job_id, attempt): due_ms for due_ms, what, job_id, attempt in dues}
        found.update((("start", job_id, attempt), due_ms) for due_ms, job_id, attempt in self._starting)
        return found

    def _waited_ms(self, state: CellState, since_ms: int | None) -> int:
        """How long before the last decision this cell time was, in wall time."""
        return 0 if since_ms is None else int(max(0, state.at_ms - since_ms) / self._speed)

    def _note_node(self, state: CellState, effect: e.AnyEffect) -> None:
        match effect:
            case e.NodeChanged():
                self._drain(state, effect.spec.id, effect.drain_deadline_ms)
                self._rest(state, effect.spec.id, effect.quarantined_until_ms)
            case e.MaintenanceSet():
                self._maintain(state, effect)
            case e.LeaseExpired():
                self._forget(state, effect.node)
            case e.PolicySet():
                for node_id in state.nodes:
                    self._forget(state, node_id)
            case e.NodeRemoved():
                for what in _LOOKS:
                    self._looks.pop((what, effect.node), None)

    def _forget_started(self, state: CellState) -> None:
        starting = self._starting
        while starting:
            _, job_id, attempt = starting[0]
            if _starts(state, job_id, attempt):
                break
            starting.popleft()
        if len(starting) > self._starting_room:  # behind one that takes its time
            self._starting = deque(entry for entry in starting if _starts(state, *entry[1:]))
            self._starting_room = ROOM_LEAST + 2 * len(self._starting)

    def _push(self, state: CellState, due: _Due) -> None:
        self._by_cell.push(due, _lives_in(state, self._looks))

    def _limit(self, state: CellState, job: Job) -> None:
        if job.spec.max_run_ms is not None and job.started_ms is not None:
            self._push(state, (job.started_ms + job.spec.max_run_ms, "run", job.id, job.attempt))

    def _await(self, state: CellState, job: Job, wall_ms: int) -> None:
        if job.status is _STARTING:
            due_ms = wall_ms + state.policy.start_timeout_wall_ms
            if self._starting and self._starting[-1][0] > due_ms:  # the policy has changed
                self._by_wall.push((due_ms, "start", job.id, job.attempt), _lives_in(state, self._looks))
            else:
                self._starting.append((due_ms, job.spec.id, job.attempt))
        elif job.status is JobStatus.STOPPING:
            self._await_stop(state, job, wall_ms, None)

    def _await_stop(self, state: CellState, job: Job, wall_ms: int, due_ms: int | None) -> None:
        if job.stopping_ms is None:
            return  # that it is late is in the log
        if due_ms is None:
            wait_ms = job.stop_grace_wall_ms + state.policy.lease_margin_wall_ms
            due_ms = wall_ms + max(0, wait_ms - self._waited_ms(state, job.stopping_ms))
        self._by_wall.push((due_ms, "stop", job.id, job.attempt), _lives_in(state, self._looks))

    def _maintain(self, state: CellState, effect: e.MaintenanceSet) -> None:
        for at_ms in (effect.begin_ms, effect.end_ms):
            if at_ms is not None:
                self._push(state, (at_ms, "maintenance", effect.node, 0))

    def _look_for_unknown(self, state: CellState, job: Job | None, due_ms: int | None = None) -> None:
        """A job that names unknown jobs waits for them to come, but not for ever."""
        if job is not None and dependencies.waits_for_unknown(state, job):
            due_ms = state.at_ms + state.policy.unknown_dependency_ms if due_ms is None else due_ms
            self._push(state, (due_ms, "unknown", job.id, job.attempt))

    def _drain(self, state: CellState, node_id: str, deadline_ms: int | None) -> None:
        if deadline_ms is not None:
            self._push(state, (deadline_ms, "drain", node_id, 0))

    def _rest(self, state: CellState, node_id: str, until_ms: int | None) -> None:
        if until_ms is not None:
            self._look_at(state, until_ms, "quarantine", node_id)

    def _forget(self, state: CellState, node_id: str) -> None:
        node = state.nodes.get(node_id)
        if self._forgets_nodes and node is not None and node.lost_ms is not None and state.policy.remove_lost_ms:
            self._look_at(state, node.lost_ms + state.policy.remove_lost_ms, "forget", node_id)

    def _look_at(self, state: CellState, at_ms: int, what: str, node_id: str) -> None:
        self._looks[what, node_id] = at_ms
        self._push(state, (at_ms, what, node_id, 0))

    def next_cell_ms(self) -> int | None:
        """The next due cell time."""
        first = self._by_cell.first
        return None if first is None else first[0]

    def begin(self) -> None:
        """A decision begins: what was done before is done."""
        self._done.clear()
        self._entrances.begin()

    def put_back(self) -> None:
        """The decision in the making cannot be written: what was done since `begin` is due again."""
        for heap, due in reversed(self._done):
            if heap is None:
                self._starting.appendleft((due[0], due[2], due[3]))
            else:
                heap.put_back(due)
            if due[1] in _LOOKS:
                self._looks[due[1], due[2]] = due[0]
        self._done.clear()
        self._entrances.put_back()

    def act(self, decision: DecisionBuilder, heard_ms: int | None) -> bool:
        """Do what is due, as far as the record has room and the turn has steps; whether some of it is left for the next
        one. `heard_ms`: all that nodes had said up to this wall time is taken in; None: nothing is known yet. No answer
        is late before that: it may lie unread in the log.
        """
        while self._by_cell.is_due(decision.now_ms) and decision.does_what_is_due:
            due = self._by_cell.pop()
            if due[1] in _LOOKS and self._looks.get((due[1], due[2])) != due[0]:
                continue
            self._done.append((self._by_cell, due))
            if not self._at_its_cost(decision, due, self._act_by_cell):
                self._by_cell.put_back(due)
                break
        if heard_ms is None:
            return self._by_cell.is_due(decision.now_ms)
        while self._starting and self._starting[0][0] <= heard_ms and decision.does_what_is_due:
            due_ms, job_id, attempt = self._starting.popleft()
            due = (due_ms, "start", job_id, attempt)
            self._done.append((None, due))
            self._at_its_cost(decision, due, self._act_by_wall)
        while self._by_wall.is_due(heard_ms) and decision.does_what_is_due:
            due = self._by_wall.pop()
            self._done.append((self._by_wall, due))
            self._at_its_cost(decision, due, self._act_by_wall)
        are_late = self._entrances.act(decision, heard_ms)
        is_start_late = bool(self._starting) and self._starting[0][0] <= heard_ms
        return are_late or is_start_late or self._by_cell.is_due(decision.now_ms) or self._by_wall.is_due(heard_ms)

    @staticmethod
    def _at_its_cost(decision: DecisionBuilder, due: _Due, act: Callable[[DecisionBuilder, _Due], bool]) -> bool:
        """Act on what is due, and count what that costs. Whether all of it is done."""
        known, (_, what, subject, _) = len(decision.effects), due
        if what in _NODE_DEADLINES:
            node = decision.state.nodes.get(subject)
            decision.due_steps += STEPS_OF_A_NODE + (0 if node is None else len(node.jobs))
        else:
            job = decision.state.jobs.get(subject)
            decision.due_steps += 1 if job is None else 1 + len(job.workers)
        is_done = act(decision, due)
        decision.due_steps += STEPS_OF_AN_EFFECT * (len(decision.effects) - known)
        return is_done

    def _act_by_cell(self, decision: DecisionBuilder, due: _Due) -> bool:
        """Whether all is done, or the record has no room for the rest of it."""
        at_ms, what, subject, _ = due
        if what == "drain":
            node = decision.state.nodes.get(subject)
            is_due = node is not None and node.status is NodeStatus.DRAINING and node.drain_deadline_ms == at_ms
            return node is None or not is_due or empty(decision, node)
        if what == "maintenance":
            node = decision.state.nodes.get(subject)
            return node is None or maintenance.act(decision, node, at_ms)
        if what in _LOOKS:
            del self._looks[what, subject]
            again_ms = _LOOKS[what](decision, decision.state.nodes.get(subject))
            if again_ms is not None:
                self._look_at(decision.state, again_ms, what, subject)
            return True
        self._act_on_job(decision, due)
        return True

    @staticmethod
    def _act_on_job(decision: DecisionBuilder, due: _Due) -> None:
        at_ms, what, subject, attempt = due
        job = decision.state.jobs.get(subject)
        if what == "unknown":
            if job is not None:
                dependencies.give_up(decision, job)
            return
        if job is None or job.attempt != attempt or job.status not in HOLDING or job.status is JobStatus.STOPPING:
            return
        if (
            job.started_ms is not None
            and job.spec.max_run_ms is not None
            and job.started_ms + job.spec.max_run_ms <= at_ms
        ):
            decision.emit(e.AttemptTimedOut(job=job.id, attempt=attempt, what="run"))
            decision.emit(stopping(job, StopReason.RUN_TIME_LIMIT, decision.state.policy.stop_grace_wall_ms))

    @staticmethod
    def _act_by_wall(decision: DecisionBuilder, due: _Due) -> bool:
        _, what, job_id, attempt = due
        job = decision.state.jobs.get(job_id)
        if job is None or job.attempt != attempt:
            return True
        if what == "start" and job.status is JobStatus.STARTING:
            decision.emit(e.AttemptTimedOut(job=job_id, attempt=attempt, what="start"))
            avoid = avoided(job, {*starting_on(job)}, decision.now_ms)
            decision.emit(
                stopping(job, StopReason.START_TIMED_OUT, decision.state.policy.stop_grace_wall_ms, avoid=avoid)
            )
        elif what == "stop" and job.status is JobStatus.STOPPING and job.stopping_ms is not None:
            # Its places stay held: a node that does not confirm may still run it. The audit trail tells, once.
            decision.emit(e.AttemptTimedOut(job=job_id, attempt=attempt, what="stop"))
        return True


_AWAITED = {JobStatus.STARTING: "start", JobStatus.STOPPING: "stop"}


def _still_unknown(state: CellState, job: Job) -> int:
    """When a job that this writer has not seen come has waited long enough for those that are unknown."""
    wait_ms = state.policy.unknown_dependency_ms
    left_ms = job.submit_ms + wait_ms - state.at_ms
    return state.at_ms + min(wait_ms, max(left_ms, UNREAD_MS))


def _lives_in(state: CellState, looks: Mapping[tuple[str, str], int]) -> Callable[[_Due], bool]:
    """Tells of an entry whether something would be done when it is due, as things stand in this state."""

    def lives(due: _Due) -> bool:
        at_ms, what, subject, attempt = due
        if what in ("drain", "maintenance"):
            node = state.nodes.get(subject)
            times = () if node is None else (node.drain_deadline_ms,) if what == "drain" else node.maintenance_ms or ()
            return at_ms in times
        if what in _LOOKS:
            node = state.nodes.get(subject)
            since_ms = None if node is None else node.lost_ms if what == "forget" else node.quarantined_until_ms
            return since_ms is not None and looks.get((what, subject)) == at_ms
        job = state.jobs.get(subject)
        if job is None or job.attempt != attempt:
            return False
        if what == "unknown":
            return bool(job.waits_for)
        if what == "run":
            return job.status in HOLDING and job.started_ms == at_ms - (job.spec.max_run_ms or 0)
        return job.status is (JobStatus.STARTING if what == "start" else JobStatus.STOPPING)

    return lives


def _starts(state: CellState, job_id: str, attempt: int) -> bool:
    """Whether this attempt is still to be confirmed by its nodes."""
    job = state.jobs.get(job_id)
    return job is not None and job.attempt == attempt and job.status is _STARTING
