"""Admission in the simulated world: shares the submissions, answers a batch, and commits when its answers are there."""

from __future__ import annotations

from functools import partial

from services.admission.policy.records import Answered, as_records
from services.admission.service import AdmissionService
from services.simulator.broker import Message
from services.simulator.history.record import Logged
from services.simulator.process import Inbox, Process, Waker
from shared.events.base import Event
from shared.events.encoding import Undecodable
from shared.events.operations import ReloadCell
from shared.log.dead_letters import dead_letter
from shared.log.machine.consumer import Bad, Dead, DeadLetterLimit, Taken, Tally, take_batch
from shared.log.port import LogUnavailable, Record

SERVICE = "admission"
BATCH_RECORDS = 20
AGAIN_MS = 100


def raw_record(logged: Logged) -> Record:
    """A record as the shells of production have it."""
    headers = (("ce_type", logged.type.encode()),)
    return Record(
        logged.topic, logged.partition, logged.offset, logged.key.encode(), logged.value, headers, logged.at_ms
    )


def letter_of(dead: Dead, service: str) -> Message:
    """The dead letter of one record."""
    letter = dead_letter(dead, service=service, namespace="sim")
    reason = f"{dead.record.topic}/{dead.record.partition}/{dead.record.offset} {dead.reason}"
    return Message("dead-letters", 0, reason, "", None, letter.value)


class AdmissionPart:
    """One admission process. The group's committed offsets are kept by the world."""

    joins_by_itself = False

    def __init__(self, process: Process) -> None:
        self._process, self._world = process, process.world
        self._service = AdmissionService(self._world.file)
        self._limit, self._tally = DeadLetterLimit(), Tally()
        self._waker = Waker(process, self._step)
        self._inbox: Inbox | None = None
        self._operations: Inbox | None = None
        self._is_sending = False
        self._generation = 0

    def begin(self) -> None:
        """Stand at the end of the operations."""
        log = self._world.broker.log
        tps = [("operations", cell.ordinal) for cell in self._world.file.cells]
        self._operations = Inbox(self._process, self._waker, {tp: len(log.get(tp, ())) for tp in tps})

    def end(self) -> None:
        """Hear no more."""
        for inbox in (self._inbox, self._operations):
            if inbox is not None:
                inbox.close()

    def told(self, owned: frozenset[int]) -> None:
        """Read these partitions from the committed offsets; what is under way for others is lost to us."""
        if self._inbox is not None:
            self._inbox.close()
        committed = self._world.committed
        positions = {("submissions", p): committed.get((SERVICE, p), 0) for p in sorted(owned)}
        self._inbox = Inbox(self._process, self._waker, positions)
        self._generation += 1

    def _step(self) -> None:
        self._follow_operations()
        inbox = self._inbox
        if inbox is None or self._is_sending:
            return
        found: list[Logged] = []
        for tp, offset in inbox.positions.items():
            if not inbox.is_held(tp):
                found += self._world.broker.read(tp, offset, BATCH_RECORDS - len(found))
        if found:
            self._answer_all(found)

    def _answer_all(self, found: list[Logged]) -> None:
        taken = take_batch([raw_record(logged) for logged in found], self._answer, self._limit, self._tally)
        answered = [Answered(handled.item, len(handled.record.value or b""), "") for handled in taken.handled]
        messages = [self._world.message(answer, self._process) for answer, _ in as_records(answered)]
        messages += [letter_of(dead, SERVICE) for dead in taken.dead]
        self._is_sending, generation = True, self._generation
        process = self._process
        done = self._world.reply(process, partial(self._sent, taken=taken, generation=generation))
        self._world.broker.publish(process.name, messages, done)

    def _sent(self, error: LogUnavailable | None, taken: Taken[Event], generation: int) -> None:
        self._is_sending = False
        if error is not None:
            self._waker.within(AGAIN_MS)
            return
        self._tally = taken.tally
        for (_, partition), offset in taken.next_offsets.items():
            if self._world.groups.owns(self._process, partition):
                known = self._world.committed.get((SERVICE, partition), 0)
                self._world.committed[SERVICE, partition] = max(known, offset)
            if generation == self._generation and self._inbox is not None:
                self._inbox.positions["submissions", partition] = offset
        self._waker.within(1)

    def _answer(self, record: Record) -> Event | Bad:
        type_ = (record.headers[0][1] or b"").decode()
        answer = self._service.answer(type_, record.value, None, self._process.cell_ms)
        return Bad(answer.reason, str(answer)) if isinstance(answer, Undecodable) else answer

    def _follow_operations(self) -> None:
        inbox = self._operations
        if inbox is None:
            return
        for tp in inbox.positions:
            records = self._world.broker.read(tp, inbox.positions[tp])
            inbox.positions[tp] += len(records)
            if any(isinstance(record.event(), ReloadCell) for record in records):
                self._service.reload(self._world.file)
