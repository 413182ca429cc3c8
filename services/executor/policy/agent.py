"""The state machine of one node's agent: it follows the log's desired state and says what became of it.

Level-triggered: every desired state may come again, late or twice, and says all there is to know. What it may never do
is start a run twice, start one that was told to stop, or go on when it is no longer known whether it should.

* A desired state of an earlier version, another boot or a lower attempt is refused (fence).
* Nothing starts before the first full desired state of this boot.
* The runs that are wanted at one time go by their names: the job's, or the job's and the rank where each worker is a
  run of its own. Such a run of a later turn is another one, as that of a later attempt is.
* A run that shares a device with one that is still there waits for it.
* Nothing starts, and nothing that a former agent began is taken up, while `is_heard` is False: an agent that goes on
  for one that fell silent does not know how much of its lease is left, until its own first word has arrived.
* The lease is as long as its report tells, and measured from before that was sent. When it cannot be renewed in time
  the agent stops its own work, so that the log may give the work to others.

The driver is a port: `Start` and `Stop` go out with the turn, observations come back at any time later, in the same
turn or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fallow.services.executor.policy.desired import Action, DesiredRun, RunKey, worker_name
from fallow.services.executor.policy.lease import Lease, lease_allowed_ms
from fallow.services.executor.policy.records import Said, in_parts
from fallow.services.executor.policy.turn import Observation, Start, Stop, Turn
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events import nodes as n
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, RUN_IS_OVER, NodeSpec, ObservedRun, RunStatus, WorkerPlace
from fallow.shared.events.operations import CellPolicy


@dataclass(slots=True)
class AgentRun:
    """A run as its node knows it. `is_begun` from the moment when the driver was told to start it."""

    wanted: DesiredRun
    status: RunStatus = RunStatus.STARTING
    is_begun: bool = False
    exit_code: int | None = None
    infrastructure: bool = False
    text: str = ""

    @property
    def is_live(self) -> bool:
        """Whether something of it may be on the node."""
        return self.is_begun and self.status not in RUN_IS_OVER


class NodeAgent:
    """One boot of one node. `seq` numbers what it says; it goes on from where the node's former agent can have been at
    most.
    """

    __slots__ = (
        "_in_use",
        "back_ms",
        "boot",
        "caught_up_ms",
        "cell",
        "failed_devices",
        "first_seq",
        "has_lapsed",
        "id",
        "is_heard",
        "is_informed",
        "is_numbered",
        "is_settled",
        "lease",
        "leaving",
        "runs",
        "seq",
        "spec",
        "version",
        "waiting",
    )

    def __init__(self, cell: str, spec: NodeSpec, boot: str, *, seq: int, now_ms: int) -> None:
        """`now_ms` is monotonic: a new agent has one lease's time to make itself heard."""
        self.cell, self.spec, self.id, self.boot, self.seq = cell, spec, spec.id, boot, seq
        self.first_seq, self.is_numbered = seq, False
        self.version = 0
        self.is_informed = False
        self.is_heard = True
        self.has_lapsed = False
        self.lease = Lease(now_ms)
        self.back_ms: int | None = None
        self.is_settled = False
        self.caught_up_ms: int | None = None
        self.failed_devices: tuple[int, ...] = ()
        self.runs: dict[str, AgentRun] = {}
        self.leaving: dict[RunKey, AgentRun] = {}
        self.waiting: dict[str, AgentRun] = {}
        self._in_use: dict[int, int] = {}

    def has_said(self, event: Said) -> bool:
        """Whether these are this agent's own words, and not those of one before it in the same boot."""
        return event.boot == self.boot and event.seq > self.first_seq

    # What the log wants.

    def desire_all(self, turn: Turn, boot: str, version: int, wanted: Sequence[DesiredRun]) -> None:
        """Take in a full desired state of the node: what it does not name shall not be there.

        One for another boot starts nothing: its runs were ordered of a node that is gone, and are over here.
        """
        if version < self.version:
            return
        if boot != self.boot:
            for run in wanted:
                if run.name not in self.runs:
                    self.runs[run.name] = AgentRun(run, RunStatus.STOPPED, text="ordered of an earlier boot")
            return
        self.version, self.is_informed = version, True
        named = {run.name: None for run in wanted}
        for name in [name for name in self.runs if name not in named]:
            self._follow(turn, name, None)
        for run in wanted:
            self._follow(turn, run.name, run)

    def desire(self, turn: Turn, version: int, name: str, wanted: DesiredRun | None) -> None:
        """Take in what changed of one run since the full desired state."""
        if self.is_informed and version >= self.version:
            self.version = version
            self._follow(turn, name, wanted)

    def _follow(self, turn: Turn, name: str, wanted: DesiredRun | None) -> None:
        run = self.runs.get(name)
        if run is not None and (wanted is None or _is_later(wanted, run.wanted)):
            self._release(turn, name, run)
            run = None
        if wanted is None or (run is not None and _is_later(run.wanted, wanted)):
            return
        if wanted.action is Action.STOP:
            self._stop(turn, wanted, run)
        elif run is None:
            self.runs[name] = run = AgentRun(wanted)
            self._begin(turn, run)

    def _release(self, turn: Turn, name: str, run: AgentRun) -> None:
        """The log is done with this run. What is still there of it stops, and the log does not wait for its end."""
        del self.runs[name]
        if self.waiting:
            self.waiting.pop(name, None)
        if run.is_begun and run.status not in RUN_IS_OVER:
            self.leaving[run.wanted.key] = run
            self._tell_to_stop(turn, run, 0)

    def _stop(self, turn: Turn, wanted: DesiredRun, run: AgentRun | None) -> None:
        if run is None:
            self.runs[wanted.name] = run = AgentRun(wanted)
        if run.is_live:
            self._tell_to_stop(turn, run, wanted.grace_wall_ms)
        elif run.status not in RUN_IS_OVER:
            # Told to stop before it began: it never will.
            self.waiting.pop(wanted.name, None)
            self._end(turn, run, RunStatus.STOPPED)

    def _tell_to_stop(self, turn: Turn, run: AgentRun, grace_wall_ms: int) -> None:
        if run.status is not RunStatus.STOPPING:
            run.status = RunStatus.STOPPING
            turn.actions.append(self._stop_of(run.wanted, grace_wall_ms))

    def _begin(self, turn: Turn, run: AgentRun) -> None:
        wanted = run.wanted
        if self.has_lapsed or not self.is_heard or wanted.key in self.leaving or not self._take(wanted.places):
            self.waiting[wanted.name] = run
            return
        run.is_begun = True
        turn.lines.append(self._line(turn, run, "started"))
        turn.actions.append(self._start_of(wanted))

    def _start_of(self, wanted: DesiredRun) -> Start:
        return Start(
            self.id, wanted.job, wanted.attempt, wanted.places, wanted.run, wanted.started_ms, wanted.rank, wanted.turn
        )

    def _stop_of(self, wanted: DesiredRun, grace_wall_ms: int) -> Stop:
        return Stop(self.id, wanted.job, wanted.attempt, grace_wall_ms, wanted.rank, wanted.turn)

    # What the driver sees.

    def observe(self, turn: Turn, seen: Observation) -> None:
        """Take in what became of a run. What is not known here, or was over before, is no news."""
        run = self.runs.get(seen.job if seen.rank is None else worker_name(seen.job, seen.rank))
        if run is None or not run.is_begun or run.wanted.attempt != seen.attempt or run.wanted.turn != seen.turn:
            run = self.leaving.get(seen.key)
        if run is None or not run.is_begun or run.status in RUN_IS_OVER:
            return
        if seen.status not in RUN_IS_OVER:
            if run.status is RunStatus.STARTING:
                run.status = RunStatus.RUNNING
                self._say(turn, run)
            return
        run.exit_code, run.infrastructure, run.text = seen.exit_code, seen.infrastructure, seen.text
        self._end(turn, run, seen.status)

    def _end(self, turn: Turn, run: AgentRun, status: RunStatus) -> None:
        run.status = status
        if run.is_begun:
            turn.lines.append(self._line(turn, run, "ended"))
            self._occupy(run.wanted.places, -1)
        if self.leaving and self.leaving.get(run.wanted.key) is run:
            del self.leaving[run.wanted.key]
        else:
            self._say(turn, run)
        if self.waiting:
            self._begin_waiting(turn)

    def _begin_waiting(self, turn: Turn) -> None:
        if self.waiting and not self.has_lapsed:
            waiting, self.waiting = self.waiting, {}
            for run in waiting.values():
                if run.is_begun:
                    self._take_up(turn, run)
                else:
                    self._begin(turn, run)

    # What a former agent of this boot left behind.

    def adopt(self, turn: Turn, wanted: DesiredRun, *, is_new_to_log: bool) -> None:
        """Go on with a run that a former agent began: at once, or when there is a lease, since the log may have given
        the run up.
        `is_new_to_log`: the log has not heard of its start.
        """
        run = AgentRun(wanted, RunStatus.RUNNING, is_begun=True)
        self.runs[wanted.name] = run
        self._occupy(wanted.places, 1)
        if self.has_lapsed:
            self.waiting[wanted.name] = run
        else:
            self._take_up(turn, run)
        if is_new_to_log:
            self._say(turn, run)

    def _take_up(self, turn: Turn, run: AgentRun) -> None:
        """Go on with it, unless it was told to stop before."""
        if run.status is RunStatus.RUNNING:
            turn.lines.append(self._line(turn, run, "adopted"))
            turn.actions.append(self._start_of(run.wanted))

    def leave(self, turn: Turn, left: DesiredRun) -> None:
        """Stop a run that a former agent began and that the log is done with; the log does not wait for its end."""
        run = AgentRun(left, RunStatus.RUNNING, is_begun=True)
        self.leaving[left.key] = run
        self._occupy(left.places, 1)
        self._tell_to_stop(turn, run, 0)

    def recall(self, turn: Turn, wanted: DesiredRun, status: RunStatus) -> None:
        """Know a run again that ended under a former agent, and say so again."""
        run = AgentRun(wanted, status)
        self.runs[wanted.name] = run
        self._say(turn, run)

    # The lease.

    def renew(self, made_ms: int, told_ms: int | None = None) -> None:
        """What was made at `made_ms` (monotonic) has arrived; the node may work for `told_ms` from then on (None: for
        as long as the policy says).
        """
        self.lease.renew(made_ms, told_ms)
        self.is_heard = True

    @property
    def renewed_ms(self) -> int:
        """When the newest word was made of which is known that it arrived (monotonic)."""
        return self.lease.renewed_ms

    def lapse_when_late(self, turn: Turn, allowed_ms: int) -> bool:
        """Stop all work when the lease is over. Whether it is. Before anything was told it is `allowed_ms` long."""
        if turn.now.monotonic_ms <= self.lease.until_ms(allowed_ms):
            return False
        self.back_ms, self.is_settled = None, False
        # One that goes on for another agent begins nothing from the start, but what it took up stops as well.
        if not self.has_lapsed or any(run.is_live and run.status is RunStatus.RUNNING for run in self.runs.values()):
            self.give_up(turn)
        return True

    def is_at_rest(self, now_ms: int, allowed_ms: int) -> bool:
        """Whether it has its lease and nothing waits: then `keep_lease` has nothing to do, and it asks for nothing."""
        return not self.has_lapsed and not self.waiting and now_ms <= self.lease.until_ms(allowed_ms)

    def keep_lease(self, turn: Turn, allowed_ms: int, settle_ms: int = 0, *, is_silent: bool = False) -> None:
        """Keep the lease; and begin what waits when the lease has been renewed for `settle_ms` again and the log was
        then read to its end: it may have given the node up meanwhile, and what is read of it may be old. Where the log
        says by then that the node is silent, its new words lie unread, and it may still be lost for its silence before
        them.
        """
        if self.lapse_when_late(turn, allowed_ms) or not self.is_heard:
            return
        if self.has_lapsed:
            now_ms = turn.now.monotonic_ms
            self.back_ms = now_ms if self.back_ms is None else self.back_ms
            self.is_settled = now_ms - self.back_ms >= settle_ms
            if not self.is_settled or self.caught_up_ms != self.back_ms or is_silent:
                return
            self.has_lapsed, self.back_ms, self.is_settled = False, None, False
        self._begin_waiting(turn)

    @property
    def asks_since_ms(self) -> int | None:
        """Since when (monotonic) it has a lease again and begins nothing until the log has been read to the end that it
        has now; None: it does not wait for that.
        """
        return self.back_ms if self.is_settled and self.caught_up_ms != self.back_ms else None

    def caught_up(self, asked_since_ms: int) -> None:
        """The log has been read to the end that it had when the agent asked. It may have lost its lease once more."""
        if self.back_ms == asked_since_ms:
            self.caught_up_ms = asked_since_ms

    def give_up(self, turn: Turn) -> None:
        """Stop everything that is there, at once, and begin nothing until the lease is renewed."""
        self.has_lapsed = True
        for run in [*self.runs.values()]:
            if run.is_live:
                # A stop that is under way with a longer grace is cut short, too.
                run.status = RunStatus.STOPPING
                turn.actions.append(self._stop_of(run.wanted, 0))

    # What it says.

    def _stamp(self, turn: Turn) -> dict[str, Any]:
        """Who says it, in which boot, under which number and when: what every word of a node begins with."""
        return {
            "cell": self.cell,
            "node": self.id,
            "boot": self.boot,
            "seq": self.next_seq(),
            "at_ms": turn.now.cell_ms,
        }

    def _lives(self, turn: Turn, policy: CellPolicy) -> dict[str, Any]:
        """What every word begins with that renews the lease: it tells how long that is from now on."""
        self.lease.tell(turn.now.monotonic_ms, lease_allowed_ms(policy))
        told = {"node_lease_wall_ms": policy.node_lease_wall_ms, "lease_margin_wall_ms": policy.lease_margin_wall_ms}
        return {**self._stamp(turn), **told}

    def join(self, turn: Turn, policy: CellPolicy) -> None:
        """Offer the node in this boot."""
        turn.events.append(n.NodeJoined(**self._lives(turn, policy), spec=self.spec))

    def come_back(self, turn: Turn, policy: CellPolicy) -> None:
        """Say that the node is here in the same boot, with its runs."""
        first, *others = in_parts(self.observed())
        turn.events.append(n.NodeReturned(**self._lives(turn, policy), observed=first, partial=bool(others)))
        for part in others:
            self._report(turn, policy, part, is_partial=True)

    def report(self, turn: Turn, policy: CellPolicy) -> None:
        """Renew the lease and say everything again that the log has not taken in yet."""
        parts = list(in_parts(self.observed()))
        for part in parts:
            self._report(turn, policy, part, is_partial=len(parts) > 1)

    def _report(self, turn: Turn, policy: CellPolicy, part: tuple[ObservedRun, ...], *, is_partial: bool) -> None:
        turn.events.append(
            n.NodeReport(
                **self._lives(turn, policy),
                observed=part,
                failed_devices=self.failed_devices,
                desired_version=self.version,
                partial=is_partial,
            )
        )

    def observed(self) -> tuple[ObservedRun, ...]:
        """Every run that the log has not yet taken as over, and those that it has while something of them is there."""
        return tuple(
            ObservedRun(
                job=run.wanted.job,
                attempt=run.wanted.attempt,
                status=run.status,
                exit_code=run.exit_code,
                text=run.text,
                rank=run.wanted.rank,
                turn=run.wanted.turn,
            )
            for run in (*self.runs.values(), *self.leaving.values())
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing of any run is on the node."""
        return not self.leaving and not any(run.is_live for run in self.runs.values())

    def number_by(self, said_seq: int, stamped_ms: int) -> bool:
        """The broker stamped a word with this number with this wall time. False: readers may not have taken it, for its
        number came of a wrong clock; whatever is said from now on, this word too, needs a new number (the rules stand
        in shared/events/nodes.py).
        """
        most, least, is_first = n.seq_max(stamped_ms), n.seq_least(stamped_ms), not self.is_numbered
        self.is_numbered = True
        if said_seq > most:
            self.seq, self.first_seq = most, min(self.first_seq, most)
            return False
        self.seq = max(self.seq, least)
        return not is_first or said_seq >= least

    def next_seq(self) -> int:
        """The number of the next thing that it says."""
        self.seq += 1
        return self.seq

    def _say(self, turn: Turn, run: AgentRun) -> None:
        self.seq += 1
        wanted = run.wanted
        word = n.RunStatusUpdate(
            node=self.id,
            boot=self.boot,
            seq=self.seq,
            at_ms=turn.now.cell_ms,
            job=wanted.job,
            attempt=wanted.attempt,
            status=run.status,
            rank=wanted.rank,
            turn=wanted.turn,
        )
        if run.status is RunStatus.FAILED:
            word = replace(word, exit_code=run.exit_code, infrastructure=run.infrastructure, text=run.text)
        turn.events.append(word)

    def _line(self, turn: Turn, run: AgentRun, event: Literal["started", "adopted", "ended"]) -> DiaryLine:
        places = run.wanted.places
        return DiaryLine(
            node=self.id,
            job=run.wanted.job,
            attempt=run.wanted.attempt,
            event=event,
            devices=places[0].devices if len(places) == 1 else tuple(d for place in places for d in place.devices),
            gpu_milli=min(places[0].gpu_milli, GPU) if places else 0,
            status=run.status if event == "ended" else None,
            cell_ms=turn.now.cell_ms,
            wall_ms=turn.now.wall_ms,
            rank=run.wanted.rank,
            turn=run.wanted.turn,
            ordered_ms=run.wanted.started_ms,
        )

    # Its devices.

    def _take(self, places: tuple[WorkerPlace, ...]) -> bool:
        """Occupy these places if there is room for each of them; whether there is."""
        in_use = self._in_use
        for place in places:
            most = GPU - place.gpu_milli if place.gpu_milli < GPU else 0
            for device in place.devices:
                if in_use.get(device, 0) > most:
                    return False
        self._occupy(places, 1)
        return True

    def _occupy(self, places: tuple[WorkerPlace, ...], sign: int) -> None:
        in_use = self._in_use
        for place in places:
            share = sign * min(place.gpu_milli, GPU)
            for device in place.devices:
                in_use[device] = in_use.get(device, 0) + share


def _is_later(wanted: DesiredRun, other: DesiredRun) -> bool:
    """Whether this is a later run under the same name: of a later attempt or turn, or of a later job of the same id."""
    this, that = (wanted.attempt, wanted.turn), (other.attempt, other.turn)
    return this > that or (this == that and wanted.started_ms > other.started_ms)
