"""The nodes of one cell that one executor process looks after: decisions, time and ownership in; diary lines and events
out.

A node belongs to a slot, a slot to one process at a time. A process that takes a slot over learns from the log what its
nodes shall do, and from their diaries what they were doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from zlib import crc32

from fallow.services.executor.policy.agent import NodeAgent
from fallow.services.executor.policy.boot import boot_number, next_boot
from fallow.services.executor.policy.desired import DesiredStates, desired_of, touched
from fallow.services.executor.policy.journal_recovery import closed, end_told, ended_runs, is_of, open_runs
from fallow.services.executor.policy.lease import is_silent, lease_allowed_ms, report_every_ms, settle_ms, told_ms
from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.turn import Now, Start, Turn
from fallow.services.executor.policy.virtual import VirtualDriver
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeSpec, NodeStatus, RunStatus
from fallow.shared.events.nodes import LivingNode

LEASE_CHECK_MS = 1_000
"""How often (monotonic) every node's lease is looked at."""

Diary = Callable[[str], Sequence[DiaryLine]]
"""Reads one node's diary."""


def slot_of(node_id: str, slots: int) -> int:
    """The slot to which a node belongs, for good."""
    return crc32(node_id.encode()) % slots


class ExecutorService:
    """One cell's nodes in one process. `says_by_itself` False (stepped clock): no reports, no leases."""

    def __init__(
        self,
        cell: str,
        nodes: Iterable[NodeSpec],
        slots: int,
        *,
        report_every_wall_ms: int = 10_000,
        says_by_itself: bool = True,
    ) -> None:
        self.cell, self.slots = cell, slots
        self.agents: dict[str, NodeAgent] = {}
        self._report_every_ms, self._says_by_itself = report_every_wall_ms, says_by_itself
        self._specs: dict[int, list[NodeSpec]] = {}
        for spec in sorted(nodes, key=lambda spec: spec.id):
            self._specs.setdefault(slot_of(spec.id, slots), []).append(spec)
        self._wanted = DesiredStates()
        self._driver = VirtualDriver()
        self._reports: list[tuple[int, str]] = []
        self._report_due_ms: dict[str, int] = {}
        self._leases_seen_ms = 0
        self.asking: dict[str, int] = {}
        """The nodes that have a lease again, each since when: they begin nothing until the log is read to its end."""

    # Ownership.

    def slots_with_nodes(self) -> list[int]:
        """The slots to which this cell's nodes belong."""
        return sorted(self._specs)

    def take_over(self, slot: int, state: CellState, seq: int, diary: Diary, now: Now) -> Turn:
        """Look after the slot's nodes from now on. `seq` is above whatever a former owner's agents can have used."""
        turn = Turn(now)
        for spec in self._specs.get(slot, ()):
            node = state.nodes.get(spec.id)
            if node is None or node.status is NodeStatus.LOST or node.spec != spec:
                self._boot(turn, state, spec, seq, diary(spec.id))
            else:
                self._adopt(turn, state, node, seq, diary(spec.id))
            self._drive(turn)
            self._plan_report(spec.id, now.monotonic_ms + crc32(spec.id.encode()) % self._report_every_ms)
        self._end_runs(turn)
        return turn

    def lose(self, slots: Iterable[int]) -> None:
        """Another process looks after these slots now: forget their nodes, at once and without a word."""
        lost = {spec.id: None for slot in slots for spec in self._specs.get(slot, ())}
        for node_id in lost:
            self.agents.pop(node_id, None)
            self._report_due_ms.pop(node_id, None)
        self._wanted.disown(lost)
        self._driver.forget(lost)

    def _boot(self, turn: Turn, state: CellState, spec: NodeSpec, seq: int, diary: Sequence[DiaryLine]) -> None:
        """Begin a new boot. What an earlier one left is gone, and its diary says so before anything new begins."""
        node = state.nodes.get(spec.id)
        boot = next_boot(node.boot if node is not None else None)
        agent = NodeAgent(self.cell, spec, boot, seq=seq, now_ms=turn.now.monotonic_ms)
        self.agents[spec.id] = agent
        turn.lines.extend(closed(line, turn.now) for line in open_runs(diary).values())
        wanted = self._wanted.own(state, spec.id)
        if node is not None:
            agent.desire_all(turn, node.boot, state.version, wanted)
        agent.join(turn, state.policy)

    def _adopt(self, turn: Turn, state: CellState, node: Node, seq: int, diary: Sequence[DiaryLine]) -> None:
        """Go on with a boot that the log knows, with the runs that its diary tells of."""
        agent = NodeAgent(self.cell, node.spec, node.boot, seq=seq, now_ms=turn.now.monotonic_ms)
        # What goes on for a silent agent begins nothing and takes nothing up until it was heard, and had time to read
        # what was decided before that: the log may have given the node up.
        agent.is_heard = not self._says_by_itself
        agent.has_lapsed = self._says_by_itself
        self.agents[node.id] = agent
        wanted = self._wanted.own(state, node.id)
        still_open, ends = open_runs(diary), ended_runs(diary)
        kept = {run.key: run for run in wanted}
        gone = [line for key, line in still_open.items() if key not in kept or not is_of(line, kept[key])]
        turn.lines.extend(closed(line, turn.now) for line in gone)
        said = Turn(turn.now)
        for run in wanted:
            key, in_log = run.key, state.jobs[run.job].runs.get(run.said_as or node.id)
            if key in ends and is_of(ends[key], run):
                agent.recall(said, run, end_told(ends[key]))
            elif is_of(still_open.get(key), run) or in_log is RunStatus.RUNNING:
                agent.adopt(said, run, is_new_to_log=in_log is RunStatus.STARTING)
        agent.come_back(turn, state.policy)
        # What it says of single runs comes behind the word that the node is back.
        turn.lines.extend(said.lines)
        turn.actions.extend(said.actions)
        turn.events.extend(_renumbered(agent, event) for event in said.events)
        agent.desire_all(turn, node.boot, state.version, wanted)

    # The log and the clocks.

    def decided(self, state: CellState, decisions: Sequence[Decision], now: Now) -> Turn:
        """Follow these decisions; their effects are in the state."""
        turn = Turn(now)
        if self._says_by_itself and now.monotonic_ms - self._leases_seen_ms >= LEASE_CHECK_MS:
            # Who stood still for long has no lease any more: it must not begin what was ordered long ago.
            allowed_ms = lease_allowed_ms(state.policy)
            for late in self.agents.values():
                late.lapse_when_late(turn, allowed_ms)
        changed, moved = touched(decisions)
        self._follow_nodes(turn, state, changed)
        agents, nodes, version = self.agents, state.nodes, state.version
        for node_id, name, run in self._wanted.changes(state, moved):
            agent = agents.get(node_id)
            node = nodes.get(node_id)
            if agent is None or node is None:
                continue
            if node.boot == agent.boot:
                agent.desire(turn, version, name, run)
            else:
                agent.desire_all(turn, node.boot, version, desired_of(state, node_id))
        self._drive(turn)
        self._end_runs(turn)
        return turn

    def _follow_nodes(self, turn: Turn, state: CellState, node_ids: Sequence[str]) -> None:
        for node_id in node_ids:
            agent = self.agents.get(node_id)
            if agent is None:
                continue
            node = state.nodes.get(node_id)
            if node is None:
                # The log has forgotten the node, and wants nothing of it: it joins when its next report is due.
                agent.desire_all(turn, agent.boot, state.version, [])
                continue
            if node.boot == agent.boot and node.status is NodeStatus.LOST:
                self._boot_again(turn, state, agent)
            elif node.boot == agent.boot:
                agent.desire_all(turn, node.boot, state.version, desired_of(state, node_id))
            elif boot_number(node.boot) > boot_number(agent.boot) and node.seq > agent.seq:
                # A later owner of its slot has booted the node anew: this agent speaks for a boot that is gone.
                self._forget(node_id)
            elif boot_number(node.boot) > boot_number(agent.boot):
                # A former owner has, when it was none any more. Only this process can speak for the node now.
                self._boot_again(turn, state, agent)

    def _boot_again(self, turn: Turn, state: CellState, agent: NodeAgent) -> None:
        """The log has given the node up, and with it all of its runs: nothing of them is taken up again."""
        agent.give_up(turn)
        self._drive(turn)
        turn.events = [event for event in turn.events if event.node != agent.id]
        self._wanted.disown([agent.id])
        self._boot(turn, state, agent.spec, agent.seq, ())
        self.agents[agent.id].is_numbered = agent.is_numbered

    def _forget(self, node_id: str) -> None:
        del self.agents[node_id]
        self._wanted.disown([node_id])
        self._driver.forget({node_id: None})

    def tick(self, state: CellState, now: Now) -> Turn:
        """What happens by itself: runs end by cell time; reports and leases go by monotonic time."""
        turn = Turn(now)
        self._end_runs(turn)
        if self._says_by_itself:
            self._report(turn, state)
            self._keep_leases(turn, state)
            self._drive(turn)
        return turn

    def next_due_ms(self) -> int | None:
        """The cell time at which the next run ends by itself."""
        return self._driver.next_due_ms()

    # Reports and leases.

    def next_look_ms(self) -> int | None:
        """The monotonic time at which a report is due or the leases are to be looked at; None without nodes."""
        if not self._says_by_itself or not self.agents:
            return None
        leases_ms = self._leases_seen_ms + LEASE_CHECK_MS
        return min(leases_ms, self._reports[0][0]) if self._reports else leases_ms

    def confirmed(self, events: Iterable[Said], made_ms: int) -> None:
        """These events, made at `made_ms` (monotonic), are in the log: reports among them have renewed their leases."""
        for event in events:
            if isinstance(event, LivingNode):
                agent = self.agents.get(event.node)
                if agent is not None and agent.boot == event.boot:
                    if not agent.is_heard:
                        self._leases_seen_ms = made_ms - LEASE_CHECK_MS  # what waits for this begins with the next tick
                    agent.renew(made_ms, told_ms(event))

    def stamped(self, events: Iterable[Said], stamped_ms: int) -> bool:
        """The broker stamped these events with this wall time. False: some are to be said again, with new numbers, and
        all that waits behind them needs new ones.
        """
        agent_of, are_taken = self.agents.get, True
        for event in events:
            agent = agent_of(event.node)
            if agent is not None and not agent.number_by(event.seq, stamped_ms):
                are_taken = False
        return are_taken

    def still_ours(self, events: Iterable[Said]) -> list[Said]:
        """Those of these events that this process may still say: what its nodes have said in their present boot, since
        it has taken them over. What was said before that may stand in no diary: another process had the slot meanwhile.
        """
        agent_of = self.agents.get
        return [event for event in events if (agent := agent_of(event.node)) is not None and agent.has_said(event)]

    def renumber(self, events: Iterable[Said]) -> list[Said]:
        """These events to be said once more, with new numbers, since some of them may have arrived; without those of
        lost nodes.
        """
        return [_renumbered(self.agents[event.node], event) for event in self.still_ours(events)]

    def report_every_ms(self, state: CellState) -> int:
        """The time between two reports of a node: as set, or less where leases are short."""
        return report_every_ms(state.policy, self._report_every_ms)

    def _report(self, turn: Turn, state: CellState) -> None:
        every_ms = self.report_every_ms(state)
        while self._reports and self._reports[0][0] <= turn.now.monotonic_ms:
            due_ms, node_id = heappop(self._reports)
            agent = self.agents.get(node_id)
            if agent is None or self._report_due_ms.get(node_id) != due_ms:
                continue  # lost, or lost and taken over again since this was planned
            node = state.nodes.get(node_id)
            if node is not None and node.boot == agent.boot:
                agent.report(turn, state.policy)
            else:
                agent.join(turn, state.policy)
            # Spread over a tenth of the interval, by the node's name and the time, so that nodes do not march in step.
            spread_ms = crc32(f"{node_id}/{due_ms}".encode()) % max(1, every_ms // 10)
            self._plan_report(node_id, turn.now.monotonic_ms + every_ms - spread_ms)

    def _plan_report(self, node_id: str, due_ms: int) -> None:
        if self._says_by_itself:
            self._report_due_ms[node_id] = due_ms
            heappush(self._reports, (due_ms, node_id))

    def _keep_leases(self, turn: Turn, state: CellState) -> None:
        if turn.now.monotonic_ms - self._leases_seen_ms < LEASE_CHECK_MS:
            return
        self._leases_seen_ms = turn.now.monotonic_ms
        allowed_ms, again_ms = lease_allowed_ms(state.policy), settle_ms(state.policy)
        now_ms, asking = turn.now.monotonic_ms, dict[str, int]()
        for agent in self.agents.values():
            if agent.is_at_rest(now_ms, allowed_ms):  # nearly every one, of thousands
                continue
            agent.keep_lease(turn, allowed_ms, again_ms, is_silent=is_silent(state, agent.id))
            since_ms = agent.asks_since_ms
            if since_ms is not None:
                asking[agent.id] = since_ms
        self.asking = asking

    def caught_up(self, asked: Mapping[str, int]) -> None:
        """The log has been read to the end that it had when these nodes asked."""
        for node_id, since_ms in asked.items():
            agent = self.agents.get(node_id)
            if agent is not None:
                agent.caught_up(since_ms)
        self._leases_seen_ms -= LEASE_CHECK_MS  # what waits for this begins with the next tick

    # The driver.

    def _drive(self, turn: Turn) -> None:
        """Let the driver act until no agent has anything to ask of it."""
        driver, agents = self._driver, self.agents
        for order in turn.actions:  # which grows meanwhile
            seen = driver.start(order) if type(order) is Start else driver.stop(order)  # type: ignore[arg-type]
            agent = agents.get(seen.node)
            if agent is not None:
                agent.observe(turn, seen)
        turn.actions.clear()

    def _end_runs(self, turn: Turn) -> None:
        """End what is over by now, and what began and is over already."""
        while ended := self._driver.ended(turn.now.cell_ms):
            for seen in ended:
                agent = self.agents.get(seen.node)
                if agent is not None:
                    agent.observe(turn, seen)
            self._drive(turn)

    def runs_by_status(self) -> dict[RunStatus, int]:
        """How many runs are in which state, for people."""
        return Counter(run.status for agent in self.agents.values() for run in agent.runs.values())


def _renumbered(agent: NodeAgent, event: Said) -> Said:
    return replace(event, seq=agent.next_seq())
