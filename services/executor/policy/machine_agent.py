"""The one node on which this process runs: what the log wants of it, what its processes do, what it says.

A node's boot outlives its agent: a restarted agent goes on with the processes that it finds. It does not outlive the
machine, nor a change of what the node offers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from zlib import crc32

from fallow.services.executor.policy.agent import NodeAgent
from fallow.services.executor.policy.desired import Action, DesiredRun, DesiredStates, desired_of, touched
from fallow.services.executor.policy.journal_recovery import closed, end_told, ended_runs, is_of, open_runs
from fallow.services.executor.policy.lease import (
    Lease,
    is_silent,
    lease_allowed_ms,
    report_every_ms,
    settle_ms,
    told_ms,
)
from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.turn import Now, Observation, Turn
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeSpec, NodeStatus, RunStatus, VirtualRun, WorkerPlace
from fallow.shared.events.nodes import LivingNode


def keeps_boot(state: CellState, spec: NodeSpec, boot: str) -> bool:
    """Whether the log knows this node in this boot and as what it is: then its runs may be gone on with."""
    node = state.nodes.get(spec.id)
    return node is not None and node.boot == boot and node.spec == spec


class OwnNode:
    """One node in one boot. Its shell carries out each turn: lines first, then actions, then events."""

    def __init__(
        self, cell: str, spec: NodeSpec, boot: str, *, seq: int, lease: Lease, report_every_wall_ms: int = 10_000
    ) -> None:
        """`lease` is that of this boot, as far as is known."""
        self.cell = cell
        self.agent = NodeAgent(cell, spec, boot, seq=seq, now_ms=lease.renewed_ms)
        self.agent.lease = lease
        self.is_replaced = False
        self._wanted = DesiredStates()
        self._is_known = False
        self._report_every_ms, self._report_due_ms = report_every_wall_ms, 0

    def begin(self, state: CellState, diary: Sequence[DiaryLine], now: Now) -> Turn:
        """Join in a new boot, in which nothing runs; or come back with what the diary tells of."""
        turn, agent = Turn(now), self.agent
        # An agent that was dead for long has no lease: it must not begin what was ordered long ago, nor as soon as it
        # has one again, since the node may have been given up before.
        agent.is_heard = now.monotonic_ms <= self.lease_until_ms(state)
        agent.has_lapsed = not agent.is_heard
        node, wanted = state.nodes.get(agent.id), self._wanted.own(state, agent.id)
        if node is not None and node.boot == agent.boot:
            self._come_back(turn, state, node, diary)
        else:
            turn.lines.extend(closed(line, now) for line in open_runs(diary).values())
            if node is not None:
                agent.desire_all(turn, node.boot, state.version, wanted)
            agent.join(turn, state.policy)
        self._plan_report(state, now)
        return turn

    def _come_back(self, turn: Turn, state: CellState, node: Node, diary: Sequence[DiaryLine]) -> None:
        agent, said = self.agent, Turn(turn.now)
        wanted = desired_of(state, agent.id)
        still_open, ends = open_runs(diary), ended_runs(diary)
        kept = {run.key: run for run in wanted}
        for key, line in still_open.items():
            if key not in kept or not is_of(line, kept[key]):
                agent.leave(said, _left(line))
        for run in wanted:
            key, in_log = run.key, state.jobs[run.job].runs.get(run.said_as or agent.id)
            if key in ends and is_of(ends[key], run):
                agent.recall(said, run, end_told(ends[key]))
            elif is_of(still_open.get(key), run):
                agent.adopt(said, run, is_new_to_log=in_log is RunStatus.STARTING)
            elif in_log is RunStatus.RUNNING:
                # The log saw it run and the node knows nothing of it: it is gone, and not to be begun once more.
                agent.recall(said, run, RunStatus.STOPPED)
        agent.come_back(turn, state.policy)
        # What it says of single runs comes behind the word that the node is back.
        turn.lines.extend(said.lines)
        turn.actions.extend(said.actions)
        turn.events.extend(self._renumbered(event) for event in said.events)
        self._follow(turn, state, node)

    # The log.

    def decided(self, state: CellState, decisions: Sequence[Decision], now: Now) -> Turn:
        """Follow these decisions; their effects are in the state."""
        turn, agent = Turn(now), self.agent
        agent.lapse_when_late(turn, lease_allowed_ms(state.policy))
        changed, moved = touched(decisions)
        if agent.id in changed:
            self._follow(turn, state, state.nodes.get(agent.id))
        for _, name, run in self._wanted.changes(state, moved):
            node = state.nodes.get(agent.id)
            if node is None:
                continue
            if node.boot == agent.boot:
                agent.desire(turn, state.version, name, run)
            else:
                agent.desire_all(turn, node.boot, state.version, desired_of(state, agent.id))
        if state.independent_jobs:
            here = {run.wanted.job: run.wanted.attempt for run in agent.runs.values() if run.is_live}
            turn.worlds += [
                (job_id, here[job_id]) for job_id in moved if job_id in state.independent_jobs and job_id in here
            ]
        return turn

    def _follow(self, turn: Turn, state: CellState, node: Node | None) -> None:
        if node is None:
            # The log has forgotten the node: nothing is wanted of it until it has joined again.
            self._is_known = False
            self.agent.give_up(turn)
            self._report_due_ms = 0
        elif node.boot == self.agent.boot:
            self._is_known = True
            if node.status is NodeStatus.LOST:
                # The log has given the node up, and with it all of its runs.
                self.agent.give_up(turn)
            self.agent.desire_all(turn, node.boot, state.version, desired_of(state, node.id))
        elif self._is_known:
            # Another agent speaks for this node now.
            self.is_replaced = True
            self.agent.give_up(turn)

    # The processes.

    def observed(self, seen: Iterable[Observation], now: Now) -> Turn:
        """Take in what became of runs."""
        turn = Turn(now)
        for observation in seen:
            self.agent.observe(turn, observation)
            if self.agent.is_empty:
                self._report_due_ms = 0  # a node that was lost may have work again now
        return turn

    # Time.

    def tick(self, state: CellState, now: Now) -> Turn:
        """What happens by itself: reports, and the end of a lease."""
        turn = Turn(now)
        if self.is_replaced:
            return turn
        if now.monotonic_ms >= self._report_due_ms:
            node = state.nodes.get(self.agent.id)
            if node is not None and node.boot == self.agent.boot:
                self.agent.report(turn, state.policy)
            else:
                self.agent.join(turn, state.policy)
            self._plan_report(state, now)
        allowed_ms, again_ms = lease_allowed_ms(state.policy), settle_ms(state.policy)
        self.agent.keep_lease(turn, allowed_ms, again_ms, is_silent=is_silent(state, self.agent.id))
        return turn

    @property
    def asks_since_ms(self) -> int | None:
        """Since when the node has a lease again and begins nothing until the log is read to its end; None: it does."""
        return self.agent.asks_since_ms

    def caught_up(self, asked_since_ms: int) -> None:
        """The log has been read to the end that it had when the node asked."""
        self.agent.caught_up(asked_since_ms)

    def _plan_report(self, state: CellState, now: Now) -> None:
        every_ms = report_every_ms(state.policy, self._report_every_ms)
        # Spread over a tenth of the interval, by the node's name and the time, so that nodes do not march in step.
        spread_ms = crc32(f"{self.agent.id}/{now.monotonic_ms}".encode()) % max(1, every_ms // 10)
        self._report_due_ms = now.monotonic_ms + every_ms - spread_ms

    def runs_by_status(self) -> dict[tuple[str, RunStatus], int]:
        """How many runs are in which state, for people."""
        return Counter((self.cell, run.status) for run in self.agent.runs.values())

    def lease_until_ms(self, state: CellState) -> int:
        """The monotonic time until which its processes may work."""
        return self.agent.lease.until_ms(lease_allowed_ms(state.policy))

    # What it says, on its way to the log.

    def confirmed(self, events: Iterable[Said], made_ms: int) -> None:
        """These events, made at `made_ms` (monotonic), are in the log: reports among them have renewed the lease."""
        told = [event for event in events if isinstance(event, LivingNode)]
        if told:
            self.agent.renew(made_ms, told_ms(told[-1]))

    def stamped(self, events: Iterable[Said], stamped_ms: int) -> bool:
        """The broker stamped these events with this wall time. False: some are to be said again, with new numbers, and
        all that waits behind them needs new ones.
        """
        are_taken = [self.agent.number_by(event.seq, stamped_ms) for event in events]
        return all(are_taken)

    def still_ours(self, events: Iterable[Said]) -> list[Said]:
        """Those of these events that may still be said: none where another agent speaks for the node."""
        return [] if self.is_replaced else list(events)

    def renumber(self, events: Iterable[Said]) -> list[Said]:
        """These events to be said once more, with new numbers, since some of them may have arrived."""
        return [self._renumbered(event) for event in self.still_ours(events)]

    def _renumbered(self, event: Said) -> Said:
        return replace(event, seq=self.agent.next_seq())


def _left(line: DiaryLine) -> DesiredRun:
    """What a diary knows of a run that the log is done with: enough to stop it and to keep its devices until then."""
    places = tuple(
        WorkerPlace(rank=number, node=line.node, devices=(device,), gpu_milli=line.gpu_milli)
        for number, device in enumerate(line.devices)
    )
    ordered_ms = line.cell_ms if line.ordered_ms is None else line.ordered_ms
    begun = (line.job, line.attempt, Action.STOP, places, VirtualRun(), ordered_ms)
    return DesiredRun(*begun, rank=line.rank, turn=line.turn)
