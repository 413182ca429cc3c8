"""Placement of one cell: takes inputs and the time, makes decisions. The shell appends them and says what became of
each.

One call of `decide` is one cycle: take in what came, do what is due, settle what nodes said, walk the lines.
Everything that it tries is under the writer's checkpoint, and everything that it remembers besides the state follows
from decisions in force, so a decision that did not make it into the log leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.decision.decision_room import DecisionRoom
from fallow.services.placement.decision.failures import JOBS_IN_A_ROW, Failures, RefusedStart, refused_start, told_of
from fallow.services.placement.decision.inbox import Inbox, Input, weighed
from fallow.services.placement.decision.reloads import Reloads
from fallow.services.placement.lifecycle.nodes import maintenance, nodes, quarantine, removal
from fallow.services.placement.lifecycle.nodes.breaker import Breaker, counts, with_lost
from fallow.services.placement.lifecycle.nodes.earlier_reports import EarlierReports
from fallow.services.placement.lifecycle.nodes.event_dedup import StaleReason
from fallow.services.placement.lifecycle.nodes.invalid_events import RejectedEvent, of_unknown_type
from fallow.services.placement.lifecycle.nodes.leases import is_to_be_noted, silent_after_ms
from fallow.services.placement.lifecycle.nodes.node_events import NodeEvents
from fallow.services.placement.lifecycle.runs import runs
from fallow.services.placement.lifecycle.runs.deadlines import Deadlines
from fallow.services.placement.lifecycle.runs.replica_reconciler import ReplicaReconciler
from fallow.services.placement.owners.owners import Owners, has_owners
from fallow.services.placement.queue import reservations
from fallow.services.placement.queue.fair_share_timer import FairShareTimer
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.reservations import Reservations
from fallow.services.placement.queue.scheduling_cycle import TRIES_MAX, ScheduleQueues, schedule_queues
from fallow.services.placement.queue.walk_timer import WalkTimer
from fallow.services.placement.requests import arrays, dependencies, requests, settings, tenants
from fallow.services.placement.requests.file_in_force import FileInForce
from fallow.services.placement.requests.walk_after_waits import WalkAfterWaits
from fallow.services.placement.search.gang import POLICIES, Places
from fallow.services.placement.yielding import accept as yielding
from fallow.services.placement.yielding import rooms
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.job import WAITING, Job, JobStatus
from fallow.shared.cluster.model.lease import patience_ms
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.waiting_limits import WaitingLimits
from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.base import LARGEST_INTEGER, Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.decisions import input_name
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.jobs import (
    AdmittedJob,
    JobAdmitted,
    JobCancelRequested,
    JobRejected,
    JobsAdmitted,
    JobUpdateRequested,
)
from fallow.shared.events.nodes import NodeEvent, NodesReported, RunsReported
from fallow.shared.events.proposals import PreemptionProposed, Proposal
from fallow.shared.events.queue import QueueDiscipline, StartsPlanned
from fallow.shared.events.reasons import ClearReason, DeadLetterReason, PendingReason, ProposalCode

__all__ = ["DEFERRED_MAX", "IDLE_INPUTS_MAX", "IDLE_WALL_MS", "Input", "PendingDecision", "PlacementService"]

DEFERRED_MAX = 200
"""How many jobs at most get a new reason to wait in one record; the others get theirs in the next ones."""

ROUNDS_AT_REST_MAX = 64
"""So many walks at most are made in a row that start nothing, each for other kinds of jobs behind heads."""

TRIES_AT_REST_MAX = 500
"""No further walk is made in the same decision when so many kinds were tried in vain."""

COMPARISONS_AT_REST_MAX = 100_000
"""Nor when jobs were held against heads so often: the walks that are left are made in the next decisions, at once. A
stepped clock waits for all of them.
"""

REPEATED = ("nodes-",)
"""What the sources begin with of which a newer input says again what an older one has said."""

IDLE_WALL_MS = 1_000
"""An input of any other source gets such a record after this time at the latest."""

KINDS_FEW = 100
"""A decision that looks for no more kinds of room is quick, unless the last ones were not: one takes a few tenths of a
millisecond, and ten at worst.
"""

WAITERS_FEW = 200
"""So is one in which no more jobs can stop waiting for another job's end."""

_REMEMBERED = frozenset({e.WriterStarted, e.NodeRemoved, e.NodeChanged})
"""The effects in force that this writer has to know of."""

FILE_FIRST_MAX = 4
"""So many decisions in a row, at most, only put a cell file in force; then inputs are taken in again, too."""

CLOCK_BOUND_MS = 30_000
"""How far clocks may be apart where nothing else is said."""

IDLE_INPUTS_MAX = 2_000
"""So many inputs without a decision, and the log gets a record of its own that says how far they were read."""


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """What a cycle would write, and what has to be remembered or put back when its fate is known."""

    effects: list[e.AnyEffect]
    inputs: dict[str, int]
    at_ms: int
    wall_ms: int
    taken: tuple[Input, ...]
    has_more: bool
    size_bytes: int = 0
    fault: Undecodable | None = None
    """Why nothing may be written of it: a rule of the fold that it would break."""
    input_checksums: dict[str, int] = field(default_factory=dict)
    specs_read: Collection[int] = frozenset()
    refused: RefusedStart | None = None
    """The waiting job on whose account nothing may be written of it, if that is known."""
    starts: int = 0


class PlacementService:
    """The only writer of decisions, for one cell.

    `state` is shared with the writer loop, which opens and ends checkpoints.
    """

    def __init__(  # noqa: PLR0913 - all by name but the cell's own; each is a fact of the process, or a port
        self,
        state: CellState,
        file: CellFile,
        *,
        writer: str,
        stepped: bool = False,
        speed: float = 1.0,
        takes_plans: bool | None = None,
        clock_bound_ms: int = CLOCK_BOUND_MS,
        walk: ScheduleQueues = schedule_queues,
    ) -> None:
        """`speed`: how fast cell time goes by, beside wall time. `takes_plans`: whether planned starts are put in
        force; not under a stepped clock, unless whoever plans keeps step: a replay comes to the same starts each time.
        `clock_bound_ms` is how far ahead, in cell time, the clock of a plan may be. `walk` is how lines are walked.
        """
        self.state, self._file, self._name, self._stepped = state, file, writer, stepped
        self._names, self._waiting_limits = _names_of(file), WaitingLimits(file)
        self._read: dict[str, int] = {}
        self._nodes, operations = (input_name(name, file.cell(state.cell).ordinal) for name in ("nodes", "operations"))
        self._inbox, self._reloads = Inbox(as_they_came=stepped), Reloads(operations, as_they_came=stepped)
        self._checksums: dict[str, int] = {}
        self._handed_over = dict[str, int]()
        self._passed = dict[str, int]()
        self._taken_back: dict[str, None] = {}
        self._deadlines = Deadlines(forgets_nodes=not stepped, speed=speed)
        self._hearing = NodeEvents()
        self._strays, self._culprits = list[tuple[Input, RejectedEvent]](), list[tuple[Input, RejectedEvent]]()
        self._lines, self._fair_clock = Lines(file.cell(state.cell).queues), FairShareTimer(file.cell(state.cell))
        self._walk_timer = WalkTimer()
        self._followed = 0
        self._untold: dict[str, PendingReason] = {}
        self._tending, self._waits = ReplicaReconciler(), WalkAfterWaits()
        self._owners, self._are_owners_to_note = Owners(), True
        self._walk_is_due = self.has_new_leases = True
        self._has_untried = self._has_due = False
        self.tried_in_vain = 0
        """For how many kinds of jobs the last decision found no places."""
        self._cell_ms, self._rounds_left = 0, ROUNDS_AT_REST_MAX
        self._epoch: int | None = None
        self._breaker, self._speed = Breaker(speed), speed
        self._idle_inputs = 0
        self._idle_since_ms: int | None = None
        self._reload = self._begins = self._is_configured = False
        self._room = DecisionRoom()
        self._taken: list[Input] = []
        self._words_left = self._begun_ms = 0
        self._had_plan = False
        hears_plans = not stepped if takes_plans is None else takes_plans
        self.reservations = Reservations(speed, hears_plans=hears_plans, clock_bound_ms=clock_bound_ms)
        self._walk_lines_of = walk
        self.failures = Failures()
        """What decisions failed on."""
        self._to_hold, self._without = dict[str, RefusedStart](), list[RefusedStart]()
        self._is_walking = False
        self._unproved: Exception | None = None
        self._losing: dict[str, None] = {}
        self._in_force, self._file_first = FileInForce(file, state), 0
        self._before_reload: tuple[CellFile, FileInForce] | None = None
        self._nodes_are_fenced = False

    # What the shell tells.

    def take_over(self, wall_ms: int) -> None:
        """This process is to write, and the state is folded to the end: forget what belonged to an earlier time."""
        self._inbox.clear()
        self._read, self._checksums, self._handed_over, self._passed = {}, {}, {}, {}
        self._taken_back = {}
        self._strays, self._culprits, self._room = [], [], DecisionRoom(self._room.bytes)
        self._unproved = None
        self._to_hold = {}
        self.failures.begin()
        self.has_new_leases = self._epoch is None or self.state.epoch != self._epoch
        if not self.has_new_leases:
            # No other process has written since this one did: what it heard of nodes still holds.
            self._hearing.sequences.undo()
        else:
            self._hearing, self._breaker = NodeEvents(), Breaker(self._speed)
            self._hearing.leases.begin(self.state, wall_ms)
        self._hearing.leases.listening.reads_anew()
        self.reservations.begin()
        self._forget_reloads()
        self._go_by(self._in_force.taken_over(self._file, self.state))
        self.caught_up(wall_ms)

    def take_contradiction(self) -> str:
        """What a person should know of the cell file of this process and the one in force; once, and empty where they
        agree.
        """
        return self._in_force.take_contradiction()

    def caught_up(self, wall_ms: int) -> None:
        """Decisions came from the log and not from here: nothing that was concluded from the old state holds."""
        self._hearing.caught_up(self.state, wall_ms)
        self._deadlines.from_state(self.state, wall_ms)
        self._look_anew()

    def _look_anew(self) -> None:
        """Nothing holds that was concluded from a state that is no more."""
        self._losing = nodes.half_lost(self.state)
        self._lines.forget()
        self._untold = {}
        self._owners.forget(self.state)
        self._tending.forget()
        self._waits.walked()
        self.reservations.forget()
        self._rounds_left = ROUNDS_AT_REST_MAX
        self._walk_is_due = self._are_owners_to_note = True

    def reload(self, file: CellFile) -> None:
        """This cell file was read for the reloads among the inputs that are handed over next, and is put in force in
        the place of each; where there are none among them, with the next decision.
        """
        self._reloads.read(file, self.state.cell_files)

    def _go_by(self, file: CellFile) -> None:
        if file is self._file:
            return
        self._file, self._names, part = file, _names_of(file), file.cell(self.state.cell)
        self._waiting_limits = WaitingLimits(file)
        self._lines, self._fair_clock, self._untold = Lines(part.queues), FairShareTimer(part), {}
        self._walk_is_due = self._are_owners_to_note = True

    def take(self, inputs: list[Input]) -> None:
        """Inputs in the order in which they were read. What the state has taken in already is dropped."""
        known = self.state.inputs
        unknown = [weighed(item) for item in inputs if item.next_offset > known.get(item.source, 0)]
        self._inbox.add(self._reloads.hold_back(unknown))
        newest = {item.source: item.next_offset for item in inputs}
        self._handed_over.update(newest)
        if self._nodes in newest:
            self._hearing.leases.listening.was_handed(newest[self._nodes])

    def hear_plan(self, plan: StartsPlanned) -> None:
        """What queueing would plan: the newest plan is all that counts, and one that is lost is made again."""
        self.reservations.hear(plan)

    def nodes_end(self, end: int, asked_ms: int) -> None:
        """Topic `nodes` ended at this offset when the shell asked at `asked_ms`: no lease runs out by time alone."""
        self._hearing.leases.asked(self.state, end, asked_ms)

    def nodes_said(self, earlier: EarlierReports, as_of_ms: int) -> None:
        """This is what topic `nodes` held up to this moment: nodes may have been silent before this writer began."""
        self._hearing.leases.learn(earlier, as_of_ms)

    def inputs_read(self, next_offsets: Mapping[str, int]) -> None:
        """All that stands in these inputs before these offsets was given to `take`. What is no record counts, too: what
        a transaction leaves behind the last record is passed once that record is taken in.
        """
        self._passed.update(next_offsets)
        self._hearing.leases.listening.has_read(next_offsets.get(self._nodes, 0))

    def nodes_fenced(self, *, is_fenced: bool) -> bool:
        """Whether topic `nodes` has lost records and is not read. True when that is news."""
        is_news, self._nodes_are_fenced = is_fenced is not self._nodes_are_fenced, is_fenced
        return is_news

    @property
    def hears_nodes(self) -> bool:
        """Whether topic `nodes` is read at all. Where it is not, what was started would never be confirmed, and its end
        never be heard.
        """
        stuck_ms = self._hearing.leases.listening.stuck_ms()
        return not self._nodes_are_fenced and stuck_ms <= self.state.policy.node_lease_wall_ms

    def nodes_unread_ms(self, wall_ms: int) -> int:
        """For how long topic `nodes` was not read to its end."""
        return self._hearing.leases.listening.unread_ms(wall_ms)

    @property
    def read(self) -> dict[str, int]:
        """How far each input was taken in, with everything that follows from it written."""
        return {**self.state.inputs, **self._read}

    def take_strays(self) -> list[tuple[Input, RejectedEvent]]:
        """What the last cycle could make nothing of: to be set aside before its inputs count as read."""
        found, self._strays, self._culprits = self._culprits + self._strays, [], []
        return found

    def take_without(self) -> list[RefusedStart]:
        """The jobs that the decisions in force since the last call did without, since the state refused their start."""
        found, self._without = self._without, []
        return found

    def take_past(self) -> dict[StaleReason, int]:
        """How many words of nodes were past since the last call, by why."""
        return self._hearing.take_past()

    @property
    def has_pending(self) -> bool:
        """Whether inputs wait for a decision, or a plan."""
        return bool(self._inbox or self._reloads) or self.reservations.has_plan

    @property
    def new_jobs_pending(self) -> int:
        """How many jobs, or other words of admission, are among these."""
        return self._inbox.new_jobs_count

    @property
    def others_pending(self) -> int:
        """How many are anything else, or wait behind a reload."""
        return len(self._inbox.others) + len(self._reloads)

    def next_cell_ms(self) -> int | None:
        """The next cell time at which something is due without any input."""
        if self._has_due and self._walk_is_due and not self._stepped:
            return self._cell_ms
        due = (
            self._deadlines.next_cell_ms(),
            self._lines.next_cell_ms(self.state),
            self._fair_clock.next_cell_ms(self.state, are_rivals=self._lines.are_rivals),
            self._walk_timer.next_cell_ms,
            self._owners.next_cell_ms,
            reservations.next_lapse_ms(self.state),
            rooms.next_lapse_ms(self.state),
        )
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    @property
    def may_decide_long(self) -> bool:
        """Whether the next decision may take long whatever the last one took: many kinds of jobs wait or come, and how
        many of them it looks at goes by what becomes free; or the end of a job concerns many others; or quotas change,
        each of which is held against the others; or the cell file or all of the state is looked at anew.
        """
        if (
            self._reload
            or self._reloads
            or self._begins
            or not self._lines.is_known
            or _is_waited_for_by_many(self.state)
        ):
            return True
        if self._inbox.changes_quotas:
            return True
        return self._lines.kinds + self._inbox.kinds_of_new_jobs(KINDS_FEW) > KINDS_FEW

    @property
    def leases_frozen(self) -> bool:
        """Whether so many nodes are silent at once that none is declared lost."""
        return self.state.evictions is not None

    # One cycle.

    def start(self, now_ms: int, wall_ms: int) -> PendingDecision:
        """The first decision of a writer: it takes the log over, and a new cell gets its quotas and policy."""
        self._lines.begins(self.state)
        decision = self._turn(now_ms)
        decision.emit(e.WriterStarted(epoch=self.state.epoch + 1, writer=self._name))
        self._begins = True
        self._configure(decision)
        return PendingDecision(
            decision.effects, {}, decision.now_ms, wall_ms, (), has_more=False, size_bytes=decision.bytes
        )

    def resume(self, starts: Mapping[str, int], now_ms: int, wall_ms: int) -> PendingDecision:
        """Read these inputs, which have lost records, on from these offsets."""
        decision = self._turn(now_ms)
        for source, start in sorted(starts.items()):
            self._taken_back.pop(source, None)
            decision.emit(e.InputResumed(input=source, from_offset=self.state.inputs.get(source, 0), to_offset=start))
        return PendingDecision(decision.effects, {}, decision.now_ms, wall_ms, (), has_more=False)

    def fence(self, places: Mapping[str, tuple[int, int | None]], now_ms: int, wall_ms: int) -> PendingDecision:
        """Take these inputs back to places that their topics do not continue (offset, and checksum of the record before
        it), so that every later writer finds the loss. What was read behind them and waits is still decided upon, but
        does not count as read: a person may want it read again.
        """
        decision = self._turn(now_ms)
        for source, (offset, checksum) in sorted(places.items()):
            self._taken_back[source] = None
            self._read.pop(source, None)
            at = self.state.inputs.get(source, 0)
            decision.emit(e.InputFenced(input=source, from_offset=at, to_offset=offset, checksum=checksum))
        return PendingDecision(decision.effects, {}, decision.now_ms, wall_ms, (), has_more=False)

    def decide(self, now_ms: int, wall_ms: int) -> PendingDecision | None:
        """One cycle under the writer's checkpoint. None: nothing to write, the inputs so far need no record."""
        rounds, self._rounds_left, self.tried_in_vain = self._rounds_left, ROUNDS_AT_REST_MAX, 0
        effort = self.state.capacity.effort
        begun = effort.comparisons
        while True:
            self._taken, self._words_left = [], self._room.words_max
            self._had_plan = self.reservations.has_plan
            self._prove()
            decision = self._turn(now_ms)
            self._deadlines.begin()
            try:
                tried = self._cycle(decision, wall_ms)
            except IllegalEffect as error:
                return self._not_to_be_written(decision, wall_ms, str(error))
            if tried is None and self._has_untried and rounds and self.tried_in_vain < TRIES_AT_REST_MAX:
                rounds, self._walk_is_due = rounds - 1, True  # at rest there is time for those
                if effort.comparisons - begun >= COMPARISONS_AT_REST_MAX and not self._stepped:
                    self._rounds_left, self._has_due = rounds, True  # the next decision makes them
                    return None
            elif tried is not None or not self._inbox or self._reloads:
                return tried  # one cell file is enough for one call, whether it changes anything or not

    def _not_to_be_written(self, decision: DecisionBuilder, wall_ms: int, rule: str) -> PendingDecision:
        """What the fold refuses is not written. Which job or input it comes from, `unwritable` finds out."""
        job = self.state.jobs.get(decision.refused.job) if isinstance(decision.refused, e.JobEffect) else None
        return PendingDecision(
            [],
            {},
            decision.now_ms,
            wall_ms,
            tuple(self._taken),
            has_more=True,
            size_bytes=decision.bytes,
            fault=Undecodable(DeadLetterReason.INVALID, rule),
            refused=refused_start(job, decision.starts, rule) if job is not None and self._is_walking else None,
        )

    def _prove(self) -> None:
        """After a decision that failed: raise it again where the state is not sound all the same."""
        error, self._unproved = self._unproved, None
        if error is not None and check_state(self.state):
            raise error

    def leave(self, now_ms: int, wall_ms: int) -> PendingDecision | None:
        """The last decision of a writer that leaves in order: how far it has read, and which nodes it has never heard.
        None where the log says all that already.
        """
        decision = self._turn(now_ms)
        for node_id, silent_ms in self._hearing.leases.unheard(self.state).items():
            node = self.state.nodes[node_id]
            if decision.is_full:
                break
            if node.silent_wall_ms < silent_ms:
                decision.emit(self._silent(node, silent_ms))
        inputs = self._advance(())
        if not decision.effects and not inputs:
            return None
        return PendingDecision(
            decision.effects,
            inputs,
            decision.now_ms,
            wall_ms,
            (),
            has_more=False,
            size_bytes=decision.bytes,
            input_checksums=self._checksums_of(inputs),
        )

    def _checksums_of(self, inputs: Mapping[str, int]) -> dict[str, int]:
        """What was last read of each of these inputs, where that is known; by an earlier writer, if by none since."""
        found = {source: self._checksums.get(source, self._checksum_before(source)) for source in inputs}
        return {source: checksum for source, checksum in found.items() if checksum is not None}

    def _checksum_before(self, source: str) -> int | None:
        return None if source in self._handed_over else self.state.input_checksums.get(source)

    def _cycle(self, decision: DecisionBuilder, wall_ms: int) -> PendingDecision | None:
        self._begin_reload()
        is_file_first = self._puts_file_first()
        if self._room.takes_inputs and not is_file_first:
            self._take_in(decision, wall_ms)
        taken = tuple(self._taken)
        inputs = self._advance(taken)
        decision.is_closed = bool(taken) and self._room.is_one_step
        if self._reload or self._begins:
            self._configure(decision)
        else:
            self._in_force.put(decision)
        is_late = self._do_what_is_due(decision, wall_ms)
        goes_on = (
            self._walk(decision)
            or decision.is_full
            or bool(self._inbox or self._reloads or self.state.has_waits_to_settle)
            or not self._is_done
        )
        is_late = is_late and not decision.is_full
        goes_on |= is_late
        if self.state.independent_jobs:
            known = len(decision.effects)
            self._tending.act(decision)
            self._are_owners_to_note |= len(decision.effects) > known
            if self._follow(decision):
                self._walk_is_due = goes_on = True
        idle = self._idle_inputs + len(taken)
        if (
            decision.effects
            or decision.is_worn
            or is_late
            or idle >= IDLE_INPUTS_MAX
            or self._is_idle_for_long(inputs, wall_ms)
        ):
            return PendingDecision(
                decision.effects,
                inputs,
                decision.now_ms,
                wall_ms,
                taken,
                goes_on,
                decision.bytes,
                input_checksums=self._checksums_of(inputs),
                specs_read=decision.specs_read,
                starts=decision.starts,
            )
        self._idle_inputs = idle
        self._keep()
        return None

    def _do_what_is_due(self, decision: DecisionBuilder, wall_ms: int) -> bool:
        """Do what time, nodes and plans ask for, but for the walk. Whether some of it is left for the next decision."""
        self._go_on_losing(decision)
        self._expire(decision)
        # What came in counts before what is due: who answered in the last moment has answered.
        runs.settle(decision)
        if not self._stepped:
            # A replayed trace knows which of its jobs fail, and they tell nothing of nodes.
            quarantine.judge(decision, is_shared=_is_shared(self._file))
        if self.state.offers:
            nodes.take_offers(decision)
        heard_ms = wall_ms if self._stepped else self._hearing.leases.listening.as_of_ms
        is_late = self._deadlines.act(decision, heard_ms)
        if self.state.has_waits_to_settle and not self._waits.is_owed:
            dependencies.settle(decision)
        self._hold(decision)
        if self.state.rooms:
            rooms.settle(decision)
        self._go_by_plan(decision)
        return is_late

    def _begin_reload(self) -> None:
        """Go by the next cell file that is to be put in force, once the one before it is."""
        self._begin_without_order()
        file = None if self._reload or self._begins else self._reloads.begin(self._inbox)
        if file is not None:
            self._before_reload = self._file, copy(self._in_force)
            self._go_by_read(file, self.state.cell_files)

    def _begin_without_order(self) -> None:
        read = self._reloads.take_without_order()
        if read is not None:
            self._go_by_read(*read)

    def _go_by_read(self, file: CellFile, behind: int) -> None:
        self._reload = True
        self._in_force.reloaded(file, behind)
        self._go_by(file)

    def _forget_reloads(self) -> None:
        """What waits for its place is read again. Until then the file before it counts, unless the one that was begun
        got into the log all the same.
        """
        self._reloads.forget()
        before, self._before_reload = self._before_reload, None
        if before is not None and self._in_force.is_to_be_put(self.state):
            file, self._in_force = before
            self._go_by(file)
        self._begin_without_order()
        self._reload = False

    def _puts_file_first(self) -> bool:
        """Whether the cell file is put in force before inputs are taken. It goes before a backlog; one that changes
        much is no reason to hear nothing for long.
        """
        is_first = self._in_force.is_to_be_put(self.state) and self._file_first < FILE_FIRST_MAX
        self._file_first = self._file_first + 1 if is_first else 0
        return is_first

    def _go_on_losing(self, decision: DecisionBuilder) -> None:
        """What an earlier record had no room for, of nodes that are lost."""
        for node_id in list(self._losing):
            if decision.is_full:
                break
            nodes.go_on_losing(decision, node_id)

    def _hold(self, decision: DecisionBuilder) -> None:
        """Hold the jobs that came back to the queue and whose tenant is gone, and those that the state refused to start
        when this decision was made before. One of these that runs already keeps what it has, and gets no more workers.
        """
        if decision.requeued:
            tenants.hold_requeued(decision, self._names)
        for refusal in self._to_hold.values():
            job = self.state.jobs.get(refusal.job)
            if job is None or job.status is JobStatus.HELD:
                continue
            if job.status in WAITING:
                decision.emit(e.JobHeld(job=job.id, reason=refusal.reason))
            else:
                self._lines.keep_out(job)

    def _go_by_plan(self, decision: DecisionBuilder) -> None:
        """Put the newest plan in force, and end what is planned no more."""
        if self.reservations.has_plan and self.reservations.take_newest(decision, self._backfills):
            self._walk_is_due = True
        if self.state.reservations:
            reservations.settle(decision, self._backfills)

    def _configure(self, decision: DecisionBuilder) -> None:
        """Bring the state to the cell file of this process, and last put it in force: a writer that dies in the middle
        leaves the rest to the next one.
        """
        if self._in_force.yields:
            self._is_configured = True
            return
        in_force = self._in_force.until_now(self.state)
        before = None if in_force is None else _names_of(in_force)
        policies = tuple(POLICIES)
        self._is_configured = settings.configure(decision, self._file, policies, in_force, anew=self._reload)
        self._is_configured = self._is_configured and tenants.follow_file(decision, self._names, before)
        if self._is_configured:
            if self._reload or self._in_force.is_to_be_put(self.state):
                settings.tell_contradictions(decision, self._file, in_force, anew=self._reload)
            self._in_force.put(decision)

    def _is_idle_for_long(self, inputs: dict[str, int], wall_ms: int) -> bool:
        """Whether inputs that say a thing once were read long ago, and no record says so. A cell may rest for longer
        than its topics keep records: what was read must not be taken for deleted unread.
        """
        if all(source.startswith(REPEATED) for source in inputs):
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = wall_ms
        return not self._stepped and self._idle_since_ms is not None and wall_ms - self._idle_since_ms >= IDLE_WALL_MS

    @property
    def _is_done(self) -> bool:
        """Whether nothing was begun that goes on with the next record."""
        is_configured = self._is_configured or not (self._reload or self._begins)
        return not self._losing and is_configured and not self._in_force.is_to_be_put(self.state)

    def _keep(self, starts: int = 0) -> None:
        """Nothing of the last cycle will be undone."""
        self.failures.went_well(self._taken, starts)
        for refusal in self._to_hold.values():
            self.failures.did_without(refusal)
        self._without += self._to_hold.values()
        self._to_hold = {}
        self._taken = []
        if self._is_configured:
            self._reload = self._begins = False
            self._before_reload = None
            self._inbox.add(self._reloads.end())
        self._hearing.sequences.keep()
        self._room.went_well(walk_goes_on=self._walk_is_due or self._has_untried)

    def accepted(self, tried: PendingDecision) -> None:
        """The decision is in force."""
        self._idle_inputs, self._idle_since_ms = 0, None
        self._keep(tried.starts)
        for effect in tried.effects:
            if type(effect) in _REMEMBERED:  # there are thousands of others
                self._remember(effect, tried.wall_ms)

    def _remember(self, effect: e.AnyEffect, wall_ms: int) -> None:
        match effect:
            case e.WriterStarted():
                self._epoch = effect.epoch
            case e.NodeRemoved():
                self._hearing.forget(effect.node)
            case e.NodeChanged():
                if effect.spec.id not in self._hearing.leases:
                    self._hearing.leases.heard(effect.spec.id, wall_ms)

    def note(self, effects: tuple[e.AnyEffect, ...], wall_ms: int) -> None:
        """Remember the due times that effects in force bring with them."""
        self._deadlines.note(self.state, effects, wall_ms)

    def refused(self, tried: PendingDecision) -> None:
        """The decision is not in force; the state is back at the checkpoint. Its inputs wait again.

        The shell folds forward next and says `caught_up`.
        """
        self._to_hold = {}
        self._put_back(tried.taken)

    def _put_back(self, taken: Collection[Input]) -> None:
        self._hearing.sequences.undo()
        for item in taken:
            self._read.pop(item.source, None)
        self._inbox.put_back(taken)
        self._taken, self._is_configured = [], False

    def unwritable(self, tried: PendingDecision, why: Undecodable) -> bool:
        """No reader could read the decision, or fold it: nothing of it is in the state, and it was not appended. Its
        inputs wait again. Where it failed on a waiting job, the next decision does without that job. Else it takes
        fewer inputs, and a single one that is left is the culprit: it is set aside. Whether that helps; if not, the
        decision comes from no input, and a rule of ours is broken.
        """
        self._undo(tried.taken)
        if tried.refused is not None:
            if self.failures.refused(tried.refused):
                self._unproved = IllegalEffect(tried.refused.rule)
                self._to_hold[tried.refused.job] = tried.refused
                return True
            self._to_hold = {}
        if not self._room.is_one_step:
            self._room.narrow(tried.size_bytes)
            return True
        if not tried.taken:
            return False
        (culprit,) = tried.taken
        self._set_aside(culprit, RejectedEvent(DeadLetterReason.UNWRITABLE, str(why)))
        return True

    def too_large(self, tried: PendingDecision) -> bool:
        """Every reader could read the decision, but its topic does not take a record of that size: nothing of it is in
        the state. Its inputs wait again, and none is at fault. Whether the next decision is smaller.
        """
        self._undo(tried.taken)
        if self._room.is_one_step:
            return False
        self._room.narrow(tried.size_bytes)
        return True

    def failed(self, error: Exception) -> bool:
        """`decide` raised this error, and the state is as before. The inputs wait again, and the next decision takes
        fewer of them. A single one without which it is made is the culprit: it is set aside. Whether that may help: a
        decision that raises without any input does so for ever, and several culprits in a row are no chance.
        """
        taken, self._unproved = self._taken, error
        self._undo(taken)
        if self._had_plan:
            return True  # it is gone, and made again
        words = sum(item.words for item in taken)
        if not words:
            return False
        if words > 1 or not self._room.has_done_without:
            self._room.narrow_words(words)
            return True
        (culprit,) = taken
        text = told_of(error, culprit)
        may_be = self.failures.note(culprit, text)
        if may_be:
            self._set_aside(culprit, RejectedEvent(DeadLetterReason.HANDLER_FAILED, text))
        return may_be

    def _set_aside(self, culprit: Input, why: RejectedEvent) -> None:
        self._culprits.append((culprit, why))
        self._inbox.drop_first(culprit)

    def _undo(self, taken: Collection[Input]) -> None:
        """Nothing of the last cycle holds, and neither does what was concluded meanwhile."""
        self._put_back(taken)
        self._deadlines.put_back()
        self._look_anew()
        self._strays = []
        self.reservations.drop_plan()
        if self._stepped:
            self._cell_ms = self._begun_ms

    # Inside a cycle.

    def _turn(self, now_ms: int) -> DecisionBuilder:
        self._begun_ms = self._cell_ms
        self._cell_ms = max(self._cell_ms, self.state.at_ms, 0 if self._stepped else now_ms)
        self.state.clock_ms = self._cell_ms
        self._followed, self._is_walking = 0, False
        return DecisionBuilder(
            self.state,
            self._cell_ms,
            room=self._room.bytes,
            losing=self._losing,
        )

    def _take_in(self, decision: DecisionBuilder, wall_ms: int) -> None:
        self._take_from(self._inbox.others, decision.takes, decision, wall_ms)
        self._take_from(self._inbox.new_jobs, decision.takes_new_job, decision, wall_ms)

    def _take_from(
        self, line: deque[Input], takes: Callable[[int], bool], decision: DecisionBuilder, wall_ms: int
    ) -> None:
        """Take inputs from the front of a line, as far as the record has room."""
        known, taken, is_narrow = self.state.inputs, self._taken, self._room.is_narrow
        while line and self._words_left > 0 and takes(line[0].size_bytes):
            item = line.popleft()
            if item.next_offset <= known.get(item.source, 0):
                continue
            taken.append(item)
            if not self._keeps_time(decision, item.event):
                line.appendleft(taken.pop())
                return
            if is_narrow:
                item = self._first_words(line)
            done = self._handle(decision, item, wall_ms)
            parts = None if done is None else item.cut(done)
            if parts is not None:
                taken[-1], rest = parts
                line.appendleft(rest)
                return

    def _first_words(self, line: deque[Input]) -> Input:
        """The input that was taken last from this line, or as many of its words as the decision may still take in."""
        item = self._taken[-1]
        parts = item.cut(self._words_left)
        if parts is not None:
            item, rest = parts
            self._taken[-1] = item
            line.appendleft(rest)
        self._words_left -= item.words
        return item

    def _keeps_time(self, decision: DecisionBuilder, event: Event | None) -> bool:
        """A record has one time, for all of its effects: a step of the clock needs a record in which nothing is yet."""
        return not self._stepped or decision.is_empty or _time_of(event) <= decision.now_ms

    def _expire(self, decision: DecisionBuilder) -> None:
        """Put down which nodes are silent, and lose those that were so for too long, as far as the record has room."""
        if self._stepped:
            return
        leases = self._hearing.leases
        leases.took_in(self.read.get(self._nodes, 0))
        if not self.hears_nodes:
            self._silence_all(decision)
        if leases.listening.as_of_ms is None:
            return
        if self.state.longest_patience_ms and leases.all_go_by(self.state):
            policy = self.state.policy
            decision.emit(e.PolicySet(policy=policy, longest_patience_ms=min(patience_ms(policy), LARGEST_INTEGER)))
        silent = leases.silent(self.state)
        overdue = {node_id: ms for node_id, ms in silent.items() if ms > leases.patience_ms(self.state, node_id)}
        if not decision.is_full:
            self._lose(decision, silent, overdue, leases.listened_ms)
        for node_id, silent_ms in silent.items():
            if decision.is_full:
                return
            node = self.state.nodes[node_id]
            if node.status is not NodeStatus.LOST and is_to_be_noted(
                node, silent_ms, leases.patience_ms(self.state, node_id), self.state.policy
            ):
                decision.emit(self._silent(node, silent_ms))

    def _silence_all(self, decision: DecisionBuilder) -> None:
        """Nothing is heard of any node: none gets new work until it speaks. For its lease that is no more than a
        silence that is just told, and it runs no further while nothing is read.
        """
        for node in self.state.nodes.values():
            if decision.is_full:
                return
            if node.status is not NodeStatus.LOST and not node.silent_wall_ms:
                silent_ms = silent_after_ms(self.state.policy)
                decision.emit(e.NodeSilent(node=node.id, boot=node.boot, silent_wall_ms=silent_ms))

    def _silent(self, node: Node, silent_ms: int) -> e.NodeSilent:
        """The node is silent for so long: for a new writer."""
        patience, held_ms = self._hearing.leases.patience_ms(self.state, node.id), 0
        if node.silent_wall_ms > patience:
            held_ms = node.held_from_wall_ms
        elif silent_ms > patience:
            held_ms = self._breaker.held_ms(self._hearing.leases.listened_ms)
        return e.NodeSilent(node=node.id, boot=node.boot, silent_wall_ms=silent_ms, held_wall_ms=held_ms)

    def _lose(
        self, decision: DecisionBuilder, silent: dict[str, int], overdue: dict[str, int], listened_ms: int
    ) -> None:
        """Lose as many of the nodes whose lease has run out as the breaker lets go, and the record has room for. Those
        that do not count for the breaker are lost behind all others.
        """
        counted = {node_id: ms for node_id, ms in silent.items() if counts(self.state.nodes[node_id])}
        overdue_too = {node_id: ms for node_id, ms in overdue.items() if node_id in counted}
        patience = {node_id: self._hearing.leases.patience_ms(self.state, node_id) for node_id in overdue_too}
        may_be_lost, held = self._breaker.judge(self.state, counted, overdue_too, patience, listened_ms)
        lost = self._lose_each(decision, may_be_lost)
        if isinstance(held, e.EvictionsHeld):
            held = with_lost(held, lost - len(may_be_lost), self.state.policy)
        if held is not None:
            decision.emit(held)
        self._lose_each(decision, [node_id for node_id in overdue if node_id not in counted])

    def _lose_each(self, decision: DecisionBuilder, node_ids: list[str]) -> int:
        """Lose these nodes as far as the record has room. How many that were."""
        for number, node_id in enumerate(node_ids):
            if decision.is_full:
                return number
            nodes.lose(decision, self.state.nodes[node_id])
        return len(node_ids)

    def _advance(self, taken: tuple[Input, ...]) -> dict[str, int]:
        for item in taken:
            if item.goes_on or item.source in self._taken_back:
                continue
            self._read[item.source] = item.next_offset
            if item.checksum is None:
                self._checksums.pop(item.source, None)
            else:
                self._checksums[item.source] = item.checksum
        known = self.state.inputs
        for source, passed in self._passed.items():
            if source in self._taken_back:
                continue
            read = self._read.get(source, known.get(source, 0))
            if read < passed and read >= self._handed_over.get(source, 0):
                self._read[source] = passed
        return {source: read for source, read in sorted(self._read.items()) if read > known.get(source, 0)}

    def _handle(self, decision: DecisionBuilder, item: Input, wall_ms: int) -> int | None:
        """Do what an input asks for. How many of its words are done, where it has several."""
        event = item.event
        match event:
            case JobAdmitted():
                self._step_to(decision, event)
                self._enqueue(decision, (event,), item.size_bytes)
                self._walk_is_due = True
            case JobsAdmitted():
                self._step_to(decision, event)
                self._walk_is_due = True
                return self._enqueue(decision, event.jobs, item.size_bytes // len(event.jobs))
            case JobCancelRequested():
                requests.cancel(decision, event)
            case JobUpdateRequested():
                requests.update(decision, event, self._following(item))
            case NodeEvent() | RunsReported() | NodesReported():
                self._step_to(decision, event)
                stray, heard = self._hear(decision, event, wall_ms, item.stamped_ms)
                if stray is not None:
                    self._strays.append((item, stray))
                return heard
            case o.Operation():
                self._operate(decision, event, item)
            case PreemptionProposed():
                job = self.state.jobs.get(event.preemptor)
                queue = None if job is None else self._lines.queue(job.spec.queue)
                yielding.take(decision, event, queue)
            case Proposal():
                settings.refuse(
                    decision, event.proposal, ProposalCode.UNSUPPORTED, "proposals are not carried out by this version"
                )
            case None | JobRejected():
                return None
            case _:
                # A command in another topic than its own, for example: its sender finds it among the dead letters.
                self._strays.append((item, of_unknown_type(event)))
        return None

    def _backfills(self, job: Job) -> bool:
        """Whether the job stands in a queue that backfills."""
        return self._lines.queue(job.spec.queue).discipline is QueueDiscipline.BACKFILL

    def _following(self, item: Input) -> Iterable[Event | None]:
        """What is said behind an input at the same time: a stepped clock may go on between the two."""
        return () if self._stepped else self._inbox.following(item)

    def _hear(
        self,
        decision: DecisionBuilder,
        event: NodeEvent | RunsReported | NodesReported,
        wall_ms: int,
        stamped_ms: int | None,
    ) -> tuple[RejectedEvent | None, int]:
        """What nodes say. Why it is to be set aside, or None; and how many of its words were heard."""
        if isinstance(event, RunsReported):
            return self._hearing.hear_runs(decision, event.words, wall_ms, stamped_ms)
        cell = self._file.cell(self.state.cell)
        if isinstance(event, NodesReported):
            return self._hearing.hear_reports(decision, cell, event.reports, wall_ms, stamped_ms)
        return self._hearing.hear(decision, cell, event, wall_ms, stamped_ms), 1

    def _enqueue(self, decision: DecisionBuilder, jobs: Sequence[JobAdmitted | AdmittedJob], size_bytes: int) -> int:
        """Enqueue these jobs, each of so many bytes, until the record is full. How many that were."""
        done = 0
        for job in jobs:
            requests.enqueue(decision, job, size_bytes, self._waiting_limits)
            if job.spec.tenant not in self._names:
                decision.requeued.extend(arrays.ids(job.spec))  # admission let it in before the tenant was gone
            done += 1
            if decision.bytes >= decision.room or decision.is_worn:
                break
        return done

    def _step_to(self, decision: DecisionBuilder, event: Event) -> None:
        """A stepped clock goes by every time that it is told: an answer may overtake the step that caused it."""
        if self._stepped and _time_of(event) > decision.now_ms:
            self._cell_ms = decision.now_ms = self.state.clock_ms = _time_of(event)

    def _operate(self, decision: DecisionBuilder, event: o.Operation, item: Input) -> None:
        match event:
            case o.AdvanceTime():
                if self._stepped:
                    self._step_to(decision, event)
                    self._walk_is_due = True
                else:
                    settings.refuse(
                        decision, "advance-time", ProposalCode.NOT_ALLOWED, "this cell runs by the wall clock"
                    )
            case (
                o.Cordon() | o.Uncordon() | o.Drain() | o.PlanMaintenance() | o.CancelMaintenance() | o.DeclareLost()
                | o.RemoveNode()
            ):  # fmt: skip
                why = _operate_on_node(decision, event)
                if why is not None:
                    settings.refuse(decision, event.node, ProposalCode.NODE_CHANGED, why)
            case o.SetQuota():
                settings.set_quota(decision, event, self._file)
            case o.RemoveQuota():
                tenants.remove_quota(decision, event)
            case o.SetPolicy():
                settings.set_policy(decision, event, tuple(POLICIES))
            case o.HoldJob() | o.ReleaseJob():
                settings.hold_or_release(decision, event, self._following(item), item.sent_ms)
            case o.OfferLoan() | o.RecallLoan():
                settings.refuse(
                    decision, event.loan, ProposalCode.UNSUPPORTED, "loans are not carried out by this version"
                )
            case o.ReloadCell():
                pass  # the file that was read for it, if any was, is in force by now: see Reloads
            case _:
                # Of a node the answer is looked for under the node, else under the type.
                about = getattr(event, "node", event.type)
                settings.refuse(
                    decision, about, ProposalCode.UNSUPPORTED, f"{event.type} is not carried out by this version"
                )

    def _walk(self, decision: DecisionBuilder) -> bool:
        """Whether the walk had to end before its time and goes on in the next record."""
        self._is_walking = True
        have_come = self._follow(decision)
        self._walk_is_due |= have_come
        self._walk_is_due |= self._fair_clock.is_due(self.state, decision.now_ms, are_rivals=self._lines.are_rivals)
        self._walk_is_due |= self._walk_timer.is_due(decision.now_ms)
        waited_for = self.state.unacknowledged
        if waited_for is not None and waited_for.take_opened():
            decision.has_released = True
        if decision.has_released:
            self._lines.free()
        if (
            self._are_owners_to_note
            or self._owners.are_due(decision.now_ms)
            or have_come
            or decision.effects
            or decision.has_released
            or self.state.maintenance_starts
        ):
            self._walk_is_due |= self._note_owners()
        if self._walk_is_due or decision.has_released:
            is_put_off = self._waits.puts_off(self.state) or decision.is_full
            self._walk_is_due = is_put_off or self._holds_first()
            if not self._walk_is_due:
                self._walk_is_due = self._walk_lines(decision)
                self._waits.walked()
        elif self._untold:
            self._tell(decision)
        self._is_walking = False
        return self._walk_is_due or self._are_owners_to_note or bool(self._untold)

    def _holds_first(self) -> bool:
        """Whether so many jobs were refused that the decision holds them, and the next one walks: else it might be made
        again as often as jobs wait.
        """
        is_enough = len(self._to_hold) >= JOBS_IN_A_ROW
        self._has_untried |= is_enough
        return is_enough

    def _follow(self, decision: DecisionBuilder) -> bool:
        """Bring the lines to what this turn has made so far. Whether somebody has come who may start."""
        effects = decision.effects[self._followed :] if self._followed else decision.effects
        self._followed = len(decision.effects)
        return self._lines.follow(self.state, effects, decision.now_ms)

    def _walk_lines(self, decision: DecisionBuilder) -> bool:
        """Start what fits, and say why the rest waits. Whether there is more to do."""
        passing, planned = dict[str, None](), len(self.state.reservations)

        def start(job: Job, places: Places, over: str) -> bool:
            if self.state.quotas and self._lines.has_blocked:
                passing[job.spec.tenant] = None
            if not job.spec.gang:
                return _enter(decision, job, places, over)
            has_started = decision.start(job.spec.id, job.attempt + 1, places, over)
            if has_started and job.spec.id in self.state.reservations:
                decision.emit(e.ReservationCleared(job=job.id, reason=ClearReason.STARTED))
            return has_started and not decision.is_full

        self._fair_clock.walked(decision.now_ms)
        self._lines.open_due(self.state)
        walk = self._walk_lines_of(self.state, self._lines, decision.now_ms, start)
        # What came to wait may have done so before an earlier writer, which found no such heads then: the next walk,
        # which comes at once, records those that there are beside what waits.
        are_sure = not (walk.has_come_to_wait and self._lines.may_have_waited)
        self._lines.walked(self.state, decision.now_ms)
        for job_id in walk.heads if are_sure else ():
            decision.emit(e.HeadBlocked(job=job_id))
        for job_id in walk.cleared:
            decision.emit(e.HeadCleared(job=job_id))
        self._walk_timer.walked(self.state, self._lines, decision.now_ms, walk.changes_ms)
        self._untold.update(walk.deferred)
        self._tell(decision)
        # What the walk made, the lines know.
        self._followed = len(decision.effects)
        self.tried_in_vain += TRIES_MAX - walk.tries_left
        self._has_due = not walk.is_whole or walk.has_untold or self._lines.are_due
        # Also where there is nothing to write: others may start in the next walk than in this one.
        self._has_due |= walk.has_come_to_wait or walk.has_head_due_at_once
        self._has_untried = walk.has_untried or self._has_due
        goes_on = decision.is_full or decision.is_cut or self._has_untried
        goes_on |= len(self.state.reservations) != planned  # their nodes are free for others now
        goes_on |= self._fair_clock.changes_behind(self.state)
        goes_on |= self._lines.keep_under_limits_of(self.state, passing)
        # Who waits changes with starts: the next cycle looks first, or this one where jobs get more workers in it.
        self._are_owners_to_note = walk.starts > 0 and has_owners(self.state)
        are_others = self._are_owners_to_note and bool(self.state.independent_jobs) and self._note_owners()
        return are_others or goes_on or (self._fair_clock.matters and walk.starts > 0)

    def _tell(self, decision: DecisionBuilder) -> None:
        """Tell jobs why they wait that are told something else so far, as many as one record takes."""
        told, untold, jobs = 0, self._untold, self.state.jobs
        for job_id in list(untold):
            if told == DEFERRED_MAX:
                break
            job, code = jobs.get(job_id), untold.pop(job_id)
            if job is not None and job.status is JobStatus.QUEUED and job.deferred is not code:
                decision.emit(e.JobDeferred(job=job_id, code=code))
                told += 1

    def _note_owners(self) -> bool:
        """Whether others wait than before for what is guaranteed to them, so that all are tried again."""
        self._are_owners_to_note = False
        is_other = self._owners.note(self.state, self._lines)
        if is_other:
            self._lines.free()
        return is_other


def _enter(decision: DecisionBuilder, job: Job, places: Places, over: str) -> bool:
    """Workers of a job that is no gang start or enter."""
    is_first = job.status is JobStatus.QUEUED
    goes_on = decision.start(job.id, job.attempt + 1, places, over) if is_first else decision.enter(job, places)
    return goes_on and not decision.is_full


def _names_of(file: CellFile) -> frozenset[str]:
    return frozenset(tenant.name for tenant in file.tenants)


def _is_shared(file: CellFile) -> bool:
    """Whether several tenants have jobs; those that only stand above others have none."""
    return len(_names_of(file) - {tenant.parent for tenant in file.tenants}) > 1


def _is_waited_for_by_many(state: CellState) -> bool:
    """Whether the next end of a job may let go of many others."""
    waiters = state.dependents
    return len(waiters) > WAITERS_FEW or any(len(jobs) > WAITERS_FEW for jobs in waiters.values())


OfNode = o.Cordon | o.Uncordon | o.Drain | o.PlanMaintenance | o.CancelMaintenance | o.DeclareLost | o.RemoveNode


def _operate_on_node(decision: DecisionBuilder, event: OfNode) -> str | None:
    """What an operator wants of a node. Why that cannot be, or None."""
    match event:
        case o.Cordon() | o.Uncordon() | o.Drain():
            return nodes.operate(decision, event)
        case o.PlanMaintenance() | o.CancelMaintenance():
            return maintenance.operate(decision, event)
        case o.DeclareLost() | o.RemoveNode():
            return removal.operate(decision, event)


def _time_of(event: Event | None) -> int:
    """The cell time that an input tells a stepped clock."""
    match event:
        case JobAdmitted():
            return event.submit_ms
        case JobsAdmitted():
            return max(job.submit_ms for job in event.jobs)
        case NodeEvent():
            return event.at_ms
        case RunsReported():
            return max(word.at_ms for word in event.words)
        case NodesReported():
            return max(report.at_ms for report in event.reports)
        case o.AdvanceTime():
            return event.now_ms
    return 0
