"""A simulated Kafka: partitions of records, and appends whose answers may be lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.log.port import (
    TOPIC_BYTES,
    Appended,
    AppendUnknown,
    LogTruncated,
    LogUnavailable,
    Outgoing,
    Refusal,
)
from fallow.simulator.engine import Action, Engine
from fallow.simulator.history.record import EPOCH_MS, Flipped, Logged, LostTail, TopicPartition
from fallow.simulator.network import BROKER, Network
from fallow.simulator.trouble.faults import Fault, Faults

if TYPE_CHECKING:
    from fallow.simulator.trouble.denied import Denied

TIMEOUT_MS = 400
"""So long a producer waits for an answer before it is told that there is none."""

OFTEN_REPEATED = ("submissions", "jobs", "nodes", "operations")
"""Topics whose records a producer may write twice; `decisions` has an idempotent one."""

FLIPPED = ("submissions", "jobs", "nodes", "proposals", "operations")
"""Inputs of which records are damaged, one here and there."""


@dataclass(frozen=True, slots=True)
class Message:
    """One record to be written: an event, or bytes with a type (None: a tombstone)."""

    topic: str
    partition: int
    key: str
    type: str
    event: Event | None = None
    value: bytes | None = None
    chain: str = ""
    sent: Outgoing | None = None
    """What a process of production handed to its log."""
    is_forged: bool = False


def message_of(event: Event, partition: int) -> Message:
    """An event for a partition."""
    return Message(event.topic, partition, event.key(), event.type, event)


class Broker:
    """All topics. What has landed is read by everybody in the same order."""

    def __init__(self, engine: Engine, faults: Faults, *, as_bytes: bool) -> None:
        self.engine, self.faults, self._as_bytes = engine, faults, as_bytes
        self.topics: dict[str, int] = {}
        """How many partitions each topic has."""
        self.refuses: dict[str, Refusal] = {}
        """Topics that take no record, and why."""
        self.denied: Denied | None = None
        """Whose records topics refuse for a while, in a world where they do."""
        self._begins: dict[TopicPartition, int] = {}
        self.log: dict[TopicPartition, list[Logged]] = {}
        self.lost_tails: list[LostTail] = []
        self.lost_inputs: list[LostTail] = []
        self.flipped: list[Flipped] = []
        self.flips_next: TopicPartition | None = None
        self.bytes_max: dict[str, int] = {}
        """The largest record of a topic, where it is less than the usual one."""
        self.away_until_ms = 0
        self._cut_off_ms: dict[str, int] = {}
        self.network = Network(engine, self._wake_all)
        self.late = 0
        self._watchers: dict[TopicPartition, list[Action]] = {}

    @property
    def is_away(self) -> bool:
        """Whether no client gets an answer now."""
        return self.engine.now_ms < self.away_until_ms

    def go_away(self, for_ms: int) -> None:
        """Answer no client for so long. Afterwards every client looks what there is."""
        self.away_until_ms = max(self.away_until_ms, self.engine.now_ms + for_ms)
        self.engine.at(self.away_until_ms, self._wake_all)

    def _wake_all(self) -> None:
        for actions in [*self._watchers.values()]:
            for action in [*actions]:
                action()

    def cut_off(self, who: str, for_ms: int) -> None:
        """Let nothing through that this one would write, for so long."""
        self._cut_off_ms[who] = self.engine.now_ms + for_ms

    def is_reached(self, who: str) -> bool:
        """Whether this one gets answers now."""
        return not self.is_away and self.network.reaches(who, BROKER)

    def _hears(self, who: str, messages: Sequence[Message]) -> bool:
        if not self.is_reached(who) or self._cut_off_ms.get(who, 0) > self.engine.now_ms:
            return False
        return all(self.network.reaches(who, (message.topic, message.partition)) for message in messages)

    def watch(self, tp: TopicPartition, action: Action) -> None:
        """Do this whenever a record lands there."""
        self._watchers.setdefault(tp, []).append(action)

    def unwatch(self, tp: TopicPartition, action: Action) -> None:
        """No longer."""
        self._watchers[tp].remove(action)

    def begin(self, tp: TopicPartition) -> int:
        """The first offset that can still be read. Raises LogUnavailable."""
        if self.is_away:
            raise LogUnavailable("the broker is away")
        return self._begins.get(tp, 0)

    def first_since(self, tp: TopicPartition, at_ms: int) -> int | None:
        """The first offset that landed then or later; None when there is none."""
        logged = self.log.get(tp, [])
        found = bisect_left(logged, at_ms, lo=self._begins.get(tp, 0), key=lambda record: record.at_ms)
        return found if found < len(logged) else None

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Hide what stands below `offset` from all readers, as retention does."""
        self._begins[tp] = max(self._begins.get(tp, 0), min(offset, len(self.log.get(tp, ()))))

    def end(self, tp: TopicPartition) -> int:
        """The offset that the next record will get. Raises LogUnavailable."""
        if self.is_away:
            raise LogUnavailable("the broker is away")
        return len(self.log.get(tp, ()))

    def read(self, tp: TopicPartition, offset: int, most: int = 500) -> Sequence[Logged]:
        """What is there from this offset on; nothing while the broker is away. Raises LogTruncated."""
        if self.is_away:
            return ()
        logged, begin = self.log.get(tp, []), self._begins.get(tp, 0)
        if not begin <= offset <= len(logged):
            raise LogTruncated(tp, asked=offset, begin=begin, end=len(logged))
        return logged[offset : offset + most]

    def land(self, message: Message) -> int:
        """The record is in the log, at the offset that is returned."""
        tp = (message.topic, message.partition)
        logged = self.log.setdefault(tp, [])
        record = Logged(
            message.topic,
            message.partition,
            len(logged),
            self.engine.now_ms,
            message.key,
            message.type,
            message.chain,
            message.event,
            message.value,
            message.sent,
            is_forged=message.is_forged,
            _is_decoded_once=not self._as_bytes,
        )
        if self._as_bytes and message.event is not None:
            record._value, record._event = record.value, None  # noqa: SLF001 - the log alone makes records
        self._damage(record)
        logged.append(record)
        for action in self._watchers.get(tp, ()):
            action()
        return record.offset

    def _damage(self, record: Logged) -> None:
        """Turn a bit round, now and then: what stands there then is no text."""
        at = (record.topic, record.partition)
        is_decision = at == self.flips_next
        value = record.value if record.topic in FLIPPED or is_decision else None
        if not value or not (is_decision or self.faults.happens(Fault.FLIPPED, f"a record of {at[0]}/{at[1]}")):
            return
        if is_decision:
            self.flips_next, self.faults.is_active = None, False
            self.harmed(at)
        whole = replace(record)
        place = self.engine.chance.randrange(0, len(value))
        record.damage(value[:place] + bytes((value[place] ^ 0x80,)) + value[place + 1 :])
        self.flipped.append(Flipped(whole, record.value or b""))

    def topic_record_bytes_max(self, topic: str) -> int:
        """What the topic takes now: when the faults are over, all records that a log sends."""
        return self.bytes_max.get(topic, TOPIC_BYTES) if self.faults.is_active else TOPIC_BYTES

    def is_too_large(self, topic: str, size: int) -> bool:
        """A record of so many bytes is above what its topic takes: whether it is refused, which is written down. A
        setting that is too low is a fault, which a person mends when all of them are over.
        """
        if topic not in self.bytes_max:
            return True
        return self.faults.is_active and self.faults.inject(Fault.OVERSIZED, f"{size} bytes for {topic}")

    def refusal(self, who: str, topic: str) -> Refusal | None:
        """Why the topic takes no record of this one, whatever it holds; None where it does."""
        return self.refuses.get(topic) or (self.denied.refusal(who, topic) if self.denied is not None else None)

    def lose_input(self, tp: TopicPartition, offset: int) -> None:
        """Forget the records of an input from this offset on, though they were acknowledged."""
        logged = self.log[tp]
        self.lost_inputs.append(LostTail(self.engine.now_ms, tp[0], tp[1], offset, tuple(logged[offset:])))
        del logged[offset:]
        for action in list(self._watchers.get(tp, ())):
            action()

    def lose_tail(self, tp: TopicPartition, count: int) -> None:
        """Forget the last records, though they were acknowledged."""
        logged = self.log[tp]
        offset = len(logged) - count
        self.lost_tails.append(LostTail(self.engine.now_ms, tp[0], tp[1], offset, tuple(logged[offset:])))
        del logged[offset:]
        for action in list(self._watchers.get(tp, ())):
            action()  # a fetch that waits behind the new end is answered that there is no such offset

    def harmed(self, tp: TopicPartition) -> None:
        """From here on the log is not what its writer wrote, though nothing of it is lost."""
        self.lost_tails.append(LostTail(self.engine.now_ms, tp[0], tp[1], len(self.log[tp]), ()))

    # Producers.

    def append(self, who: str, message: Message, answer: Callable[[Appended | AppendUnknown], None]) -> None:
        """Write one record; the answer comes later, or says that nothing is known."""
        faults, engine = self.faults, self.engine
        if not self._hears(who, (message,)) or faults.happens(Fault.REFUSED, f"append of {who} to {message.topic}"):
            engine.after(TIMEOUT_MS, lambda: answer(AppendUnknown("refused")))
            return
        if faults.happens(Fault.LATE, f"append of {who} to {message.topic}"):
            self.late += 1
            engine.after(TIMEOUT_MS + engine.between(0, 1_500), lambda: self._land_late(message))
            engine.after(TIMEOUT_MS, lambda: answer(AppendUnknown("late")))
            return
        is_lost = faults.happens(Fault.ACK_LOST, f"append of {who} to {message.topic}")

        def land() -> None:
            offset, stamped_ms = self.land(message), EPOCH_MS + engine.now_ms
            if is_lost:
                engine.after(TIMEOUT_MS, lambda: answer(AppendUnknown("no answer")))
            else:
                engine.after(engine.between(0, 2), lambda: answer(Appended(offset, stamped_ms)))

        engine.after(engine.between(1, 4), land)

    def _land_late(self, message: Message) -> None:
        self.late -= 1
        self.land(message)

    def land_silently(self, message: Message) -> None:
        """The record is in the log, and no answer says so."""
        self.land(message)

    def publish(self, who: str, messages: Sequence[Message], answer: Callable[[LogUnavailable | None], None]) -> None:
        """Write all in their order. The answer is None once all are acknowledged; else any of them may be there."""
        faults, engine = self.faults, self.engine
        count, is_lost = len(messages), False
        if not self._hears(who, messages):
            count, is_lost = 0, True
        elif faults.happens(Fault.REFUSED, f"publish of {who}"):
            count, is_lost = engine.between(0, len(messages)), True
        elif faults.happens(Fault.ACK_LOST, f"publish of {who}"):
            is_lost = True

        def land() -> None:
            for message in messages[:count]:
                self.land(message)
                if message.topic in OFTEN_REPEATED and faults.happens(Fault.DUPLICATE, f"a record of {message.topic}"):
                    engine.after(engine.between(0, 800), partial(self.land_silently, message))
            error = LogUnavailable("no answer") if is_lost else None
            engine.after(TIMEOUT_MS if is_lost else engine.between(0, 2), lambda: answer(error))

        engine.after(engine.between(1, 4), land)


def is_decision(record: Logged) -> bool:
    """Whether the record says that it is a decision."""
    return record.type == Decision.type
