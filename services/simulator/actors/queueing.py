"""Queueing of one cell in the simulated world: follows the log and the admitted jobs, and sends windows."""

from __future__ import annotations

from services.queueing.service import QueueingService
from services.simulator.follower import Follower
from services.simulator.process import Inbox, Process, Waker
from shared.log.port import LogUnavailable

PACE_MS = 20
AGAIN_MS = 250


class QueueingPart:
    """One cell in a queueing process. It folds from the beginning on, and sends while it owns the cell."""

    joins_by_itself = False

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._ordinal = self._world.ordinal(cell)
        self._waker = Waker(process, self._step)
        self._holds = self._is_sending = False
        self._sent_ms = -PACE_MS
        self._follower: Follower | None = None
        self._jobs: Inbox | None = None
        self._service: QueueingService

    def begin(self) -> None:
        """Wait to be told."""

    def end(self) -> None:
        """Hear no more."""
        for reader in (self._follower, self._jobs):
            if reader is not None:
                reader.close()

    def told(self, owned: frozenset[int]) -> None:
        """Begin to follow when the cell comes, and stop sending when it goes."""
        self._holds = self._ordinal in owned
        self._waker.within(1)

    def _begin(self) -> None:
        world, tp = self._world, ("jobs", self._ordinal)
        follower = Follower(self._process, self._cell, self._waker)
        try:
            follower.catch_up()
        except LogUnavailable:
            follower.close()
            self._waker.within(AGAIN_MS)
            return
        self._follower = follower
        self._service = QueueingService(
            follower.state,
            world.file.cell(self._cell),
            writer=f"{self._process.name}-{self._process.incarnation}",
            jobs_source=f"jobs-{self._ordinal}",
            few=world.few,
        )
        self._jobs = Inbox(self._process, self._waker, {tp: self._service.jobs_offset})

    def _step(self) -> None:
        if self._follower is None:
            if self._holds:
                self._begin()
            return
        self._service.take_decisions(self._follower.poll(), self._process.cell_ms)
        self._read_jobs()
        self._service.wake(self._process.cell_ms)
        self._send_if_due()

    def _read_jobs(self) -> None:
        inbox = self._jobs
        assert inbox is not None, "begun together with the follower"
        for tp in inbox.positions:
            if inbox.is_held(tp):
                continue
            for record in self._world.broker.read(tp, inbox.positions[tp]):
                self._service.take_job(record.event(), record.offset + 1)
                inbox.positions[tp] = record.offset + 1

    def _send_if_due(self) -> None:
        now_ms, service = self._process.monotonic_ms, self._service
        if not self._holds or self._is_sending:
            return
        rest_ms = self._sent_ms + PACE_MS - now_ms
        due_ms = service.due_in_ms(now_ms)
        if due_ms == 0 and rest_ms <= 0:
            self._send()
        elif due_ms is not None:
            self._waker.within(max(due_ms, rest_ms, 1))
        cell_ms = service.next_cell_ms()
        if cell_ms is not None:
            self._waker.within(max(1, cell_ms - self._process.cell_ms))

    def _send(self) -> None:
        self._sent_ms, self._is_sending = self._process.monotonic_ms, True
        messages = [
            self._world.message(part, self._process) for part in self._service.window(self._process.monotonic_ms)
        ]
        done = self._world.reply(self._process, self._sent)
        self._world.broker.publish(self._process.name, messages, done)

    def _sent(self, error: LogUnavailable | None) -> None:
        self._is_sending = False
        if error is None:
            self._waker.within(1)
            return
        # What was sent may be lost: a newer window says it again.
        self._process.after(AGAIN_MS, self._send_again)

    def _send_again(self) -> None:
        if not self._is_sending and self._holds:
            self._send()
