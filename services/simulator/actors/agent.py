"""The agent of one machine in the simulated world: the diary first, then the processes, then the world hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from services.executor.diaries import Diaries
from services.executor.policy.own_node import OwnNode, keeps_boot
from services.executor.policy.records import Said, as_records
from services.executor.policy.turn import Now, Observation, Start, Stop, Turn
from services.executor.policy.worker_environment import gang_of
from services.simulator.follower import Follower
from services.simulator.machine import Machine
from services.simulator.process import Process, Waker
from services.simulator.shells.files import WorldFiles
from shared.log.port import LogUnavailable

LOOK_MS = 350
"""How often it looks without a cause: at reports and the lease."""

SEEN_MS = 60
"""How late an end of a process is seen at most."""

REPORT_EVERY_MS = 1_500
AGAIN_MS = 250
RETRY_FIRST_MS, RETRY_MOST_MS = 50, 1_000


class AgentPart:
    """One node and its agent. It leaves the workers running when it dies: the next one goes on with them."""

    joins_by_itself = False

    def __init__(self, process: Process, machine: Machine) -> None:
        self._process, self._world, self._machine = process, process.world, machine
        machine.attach(process)
        self._waker = Waker(process, self._step)
        self._diaries = Diaries(WorldFiles(process, machine.folder), machine.cell, 1, process.world.grown_bytes)
        self._follower: Follower | None = None
        self._node: OwnNode | None = None
        self._waiting: list[tuple[int, Sequence[Said]]] = []
        self._sending: list[tuple[int, Sequence[Said]]] = []
        self._retry_ms = RETRY_FIRST_MS

    def begin(self) -> None:
        """Fold to the end, then go on with the boot that the log knows, or begin a new one."""
        if self._follower is None:
            self._follower = Follower(self._process, self._machine.cell, self._waker)
        try:
            self._follower.catch_up()
        except LogUnavailable:
            self._process.after(AGAIN_MS, self.begin)
            return
        self._boot(self._follower)
        self._waker.within(1)

    def _boot(self, follower: Follower) -> None:
        machine, state = self._machine, follower.state
        boot, renewed_ms = machine.boot, machine.renewed_ms
        if boot is None or renewed_ms is None or not keeps_boot(state, machine.spec, boot):
            machine.stop_everything()
            boot, renewed_ms = machine.new_boot(), self._process.monotonic_ms
        seq = self._diaries.take(0, self._process.cell_ms)
        self._node = node = OwnNode(
            machine.cell, machine.spec, boot, seq=seq, renewed_ms=renewed_ms, report_every_wall_ms=REPORT_EVERY_MS
        )
        self._keep_lease(node, follower)
        self._carry_out(node, node.begin(state, self._diaries.read(0, state.jobs)[machine.spec.id], self._now()))

    def end(self) -> None:
        """Hear no more."""
        if self._follower is not None:
            self._follower.close()

    def told(self, owned: frozenset[int]) -> None:  # noqa: ARG002 - an agent owns its machine
        """Something has become of a process."""
        self._waker.within(self._world.engine.between(1, SEEN_MS))

    # Turns.

    def _step(self) -> None:
        node, follower = self._node, self._follower
        if node is None or follower is None:
            return
        decisions = follower.poll(500)
        if decisions:
            self._carry_out(node, node.decided(follower.state, decisions, self._now()))
        self._keep_lease(node, follower)
        seen = self._machine.look()
        if seen:
            self._carry_out(node, node.observed(seen, self._now()))
        self._carry_out(node, node.tick(follower.state, self._now()))
        if node.is_replaced and node.agent.is_empty:
            self._process.after(1, lambda: self._world.crash(self._process))
        self._waker.within(LOOK_MS)

    def _carry_out(self, node: OwnNode, turn: Turn) -> None:
        while True:
            if turn.lines:
                assert not self._diaries.write(turn.lines), "one agent at a time has the disk of a machine"
            events = node.still_ours(turn.events)
            if events:
                self._waiting.append((turn.now.monotonic_ms, events))
                self._send(node)
            seen = [found for action in turn.actions if (found := self._act(action)) is not None]
            if not seen:
                return
            turn = node.observed(seen, self._now())

    def _act(self, action: Start | Stop) -> Observation | None:
        if isinstance(action, Stop):
            return self._machine.stop(action)
        assert self._follower is not None, "begun together"
        gang = gang_of(self._follower.state, action.job, action.attempt)
        return self._machine.start(action, has_gang=gang is not None)

    def _keep_lease(self, node: OwnNode, follower: Follower) -> None:
        self._machine.keep_lease(node.agent.renewed_ms, node.lease_until_ms(follower.state))

    # The outbox.

    def _send(self, node: OwnNode) -> None:
        if not self._sending and self._waiting:
            self._sending, self._waiting = self._waiting, []
            self._send_first(node)

    def _send_first(self, node: OwnNode) -> None:
        made_ms, events = self._sending[0]
        ours = node.still_ours(events)
        done = self._world.reply(self._process, partial(self._sent, node, made_ms, ours))
        messages = [self._world.message(record, self._process) for record in as_records(self._machine.cell, ours)]
        self._world.broker.publish(self._process.name, messages, done)

    def _sent(self, node: OwnNode, made_ms: int, events: Sequence[Said], error: LogUnavailable | None) -> None:
        if error is not None:
            batches, self._waiting = [*self._sending, *self._waiting], []
            self._sending = [(made, node.renumber(batch)) for made, batch in batches]
            self._process.after(self._retry_ms, partial(self._send_first, node))
            self._retry_ms = min(2 * self._retry_ms, RETRY_MOST_MS)
            return
        self._retry_ms = RETRY_FIRST_MS
        node.confirmed(events, made_ms)
        self._sending = self._sending[1:]
        if self._sending:
            self._send_first(node)
        else:
            self._send(node)

    def _now(self) -> Now:
        return Now(self._process.cell_ms, self._process.cell_ms, self._process.monotonic_ms)
