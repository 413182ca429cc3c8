"""The port of the log onto the simulated broker: what a process of production reads, writes and owns in the world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fallow.shared.events.base import replace as shorter
from fallow.shared.events.codec.encoding import TYPE_HEADER, decode, encode
from fallow.shared.events.decisions import CHAIN_HEADER
from fallow.shared.events.snapshots import SnapshotChunk
from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.log.port import (
    RECORD_BYTES_MAX,
    AppendAnswer,
    Appended,
    AppendRefused,
    AppendUnknown,
    LogRefused,
    LogTruncated,
    LogUnavailable,
    Member,
    Outgoing,
    Record,
    RecordTooLarge,
    TopicPartition,
    refusal,
)
from fallow.simulator.history.record import EPOCH_MS
from fallow.simulator.shells.member import WorldMember
from fallow.simulator.storage.broker import Broker, Message
from fallow.simulator.trouble.faults import Fault

T = TypeVar("T")

Shaped = Callable[[Message], Sequence[Message]]
"""The records that the release of this process writes in the place of one."""


class Dead(Exception):
    """The process is dead: none of its actions reaches the world."""


class WorldLog:
    """One process's handle onto the broker. `close` is called when the process dies: from then on all is refused."""

    def __init__(
        self, broker: Broker, who: str, namespace: str, *, members: Members, shaped: Shaped | None = None
    ) -> None:
        self.broker, self.who, self._shaped, self._members = broker, who, shaped, members
        self._prefix = f"{namespace}." if namespace else ""
        self.is_closed = False

    def close(self) -> None:
        """The process is dead."""
        self.is_closed = True

    def reach(self) -> None:
        """Raises LogUnavailable while the broker is away, and Dead for a process that is."""
        if self.is_closed:
            raise Dead(self.who)
        if not self.broker.is_reached(self.who):
            raise LogUnavailable("the broker is away")

    async def start(self) -> None:
        """As the port says."""
        await self.answered(lambda: None)

    async def stop(self) -> None:
        """Nothing is held."""

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        """As the port says: any part of them may be there when the answer is an error."""
        if self.is_closed:
            raise Dead(self.who)
        if not messages:
            return None
        for message in messages:
            await self._accepted(message)
        records = [self.message(message) for message in messages]
        if self._shaped is not None:
            records = [shaped for record in records for shaped in self._shaped(record)]
        records = [left for record in records for left in self._torn(record)]
        told: asyncio.Future[LogUnavailable | None] = asyncio.get_running_loop().create_future()
        self.broker.publish(self.who, records, partial(self._tell, told))
        error = await told
        if error is not None:
            raise error
        for record in records:
            self._took(record)
        return EPOCH_MS + self.broker.engine.now_ms

    async def append(self, message: Outgoing) -> AppendAnswer:
        """As the port says."""
        if self.is_closed:
            raise Dead(self.who)
        try:
            await self._accepted(message)
            record = self.message(message)
        except LogRefused as error:
            return AppendRefused(error.code, str(error))
        except LogUnavailable as error:
            return AppendUnknown(str(error))
        told: asyncio.Future[Appended | AppendUnknown] = asyncio.get_running_loop().create_future()
        self.broker.append(self.who, record, partial(self._tell, told))
        answer = await told
        if isinstance(answer, Appended):
            self._took(record)
        return answer

    async def begin_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the port says."""
        return await self.answered(lambda: {tp: self.broker.begin(self.reached(tp)) for tp in tps})

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the port says."""
        return await self.answered(lambda: {tp: self.broker.end(self.reached(tp)) for tp in tps})

    async def written_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the port says. No transaction is ever open."""
        return await self.end_offsets(tps)

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says. Every offset holds a record."""
        found = await self.answered(lambda: {tp: self._at(tp, offset - 1) for tp, offset in offsets.items()})
        return {tp: record for tp, record in found.items() if record is not None}

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """As the port says."""
        return (await self.last_before({tp: offset})).get(tp)

    async def first_from(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says."""
        begins = self.broker.begin
        found = await self.answered(
            lambda: {tp: self._at(tp, max(offset, begins(self.reached(tp)))) for tp, offset in offsets.items()}
        )
        return {tp: record for tp, record in found.items() if record is not None}

    async def first_since(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """As the port says."""
        return await self.answered(lambda: self.broker.first_since(self.reached(tp), timestamp_ms - EPOCH_MS))

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        await self.answered(lambda: self.broker.delete_before(self.reached(tp), offset))

    async def partitions(self, topic: str) -> int:
        """As the port says."""
        return (await self.partition_counts([topic]))[topic]

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """As the port says."""
        there = self.broker.topics
        return await self.answered(lambda: {topic: there.get(topic.removeprefix(self._prefix), 0) for topic in topics})

    async def topic_record_bytes_max(self, topic: str) -> int | None:
        """As the port says."""
        name = topic.removeprefix(self._prefix)
        return await self.answered(lambda: self.broker.topic_record_bytes_max(name))

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> WorldReader:
        """As the port says. A patient reader hears of news after its delay."""
        return WorldReader(self, positions, patient_ms)

    def member(self, group: str, topic: str) -> Member:  # noqa: ARG002 - each group has one
        """As the port says. The group's name without its namespace is the service's."""
        return self._members(group.removeprefix(self._prefix))

    # Inside.

    async def answered(self, ask: Callable[[], T]) -> T:
        """What the broker says, which takes a while. Raises LogUnavailable."""
        engine = self.broker.engine
        self.reach()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        engine.after(engine.between(1, 2), partial(self._tell, told, None))
        await told
        self.reach()
        return ask()

    async def _accepted(self, message: Outgoing) -> None:
        """Raises LogRefused where the broker takes no such record."""
        topic, denied = message.topic.removeprefix(self._prefix), self.broker.denied
        code = self.broker.refusal(self.who, topic)
        if code is not None:
            await self.answered(lambda: None)
            if denied is not None:
                denied.refused(self.who, (topic, self._partition(message)))
            raise refusal(code, f"a record for {message.topic} is refused ({code})")

    def _took(self, record: Message) -> None:
        if self.broker.denied is not None:
            self.broker.denied.took(self.who, (record.topic, record.partition))

    def _torn(self, record: Message) -> list[Message]:
        """What becomes of a record of a snapshot: nothing, less than it was, or the same behind what follows it."""
        broker, engine = self.broker, self.broker.engine
        if record.topic != "snapshots" or not broker.faults.happens(Fault.SNAPSHOT, f"{record.key} of {self.who}"):
            return [record]
        how, chunk = engine.between(0, 3), decode(record.type, record.value)
        if how == 3 and record.value:  # noqa: PLR2004 - a bit is turned round
            return [replace(record, value=_flipped(record.value, engine.chance.randrange(0, len(record.value))))]
        if how == 0 and isinstance(chunk, SnapshotChunk):
            return [replace(record, value=encode(shorter(chunk, rows=chunk.rows[:-1])))]
        if how == 1:
            engine.after(engine.between(10, 500), lambda: broker.land_silently(record))
        return []

    def _at(self, tp: TopicPartition, offset: int) -> Record | None:
        at = self.reached(tp)
        is_there = self.broker.begin(at) <= offset < self.broker.end(at)
        return self.broker.log[at][offset].record(tp[0]) if is_there else None

    def _tell(self, told: asyncio.Future[T], answer: T) -> None:
        if not (self.is_closed or told.done()):
            told.set_result(answer)

    def local(self, tp: TopicPartition) -> TopicPartition:
        """The partition as the broker knows it. Raises LogUnavailable for one that is not there."""
        topic = tp[0].removeprefix(self._prefix)
        partitions = self.broker.topics.get(topic, 0)
        if not 0 <= tp[1] < partitions:
            raise LogUnavailable(f"{tp[0]} has no partition {tp[1]}, only {partitions}")
        return topic, tp[1]

    def reached(self, tp: TopicPartition) -> TopicPartition:
        """The broker's partition of this topic, if it answers this process. Raises LogUnavailable."""
        at = self.local(tp)
        if not self.broker.network.reaches(self.who, at):
            raise LogUnavailable(f"{tp[0]}/{tp[1]} does not answer")
        return at

    def message(self, message: Outgoing) -> Message:
        """A record as the broker takes it. Raises RecordTooLarge, LogUnavailable."""
        headers = sum(len(name.encode()) + len(value) for name, value in message.headers)
        size, name = len(message.key or b"") + len(message.value or b"") + headers, message.topic
        most = self.broker.bytes_max.get(name.removeprefix(self._prefix), RECORD_BYTES_MAX)
        if size > most and self.broker.is_too_large(name.removeprefix(self._prefix), size):
            raise RecordTooLarge(f"record for {name}: {size} bytes, at most {most}")
        topic, partition = self.local((message.topic, self._partition(message)))
        texts = dict(message.headers)
        return Message(
            topic,
            partition,
            (message.key or b"").decode("utf-8", "backslashreplace"),
            texts.get(TYPE_HEADER, b"").decode("utf-8", "backslashreplace"),
            None,
            message.value,
            texts.get(CHAIN_HEADER, b"").decode("utf-8", "backslashreplace"),
            message,
        )

    def _partition(self, message: Outgoing) -> int:
        if message.partition is not None:
            return message.partition
        partitions = self.broker.topics.get(message.topic.removeprefix(self._prefix), 0)
        return partition_of(message.key, partitions) if message.key is not None and partitions else 0


def _flipped(value: bytes, place: int) -> bytes:
    return value[:place] + bytes((value[place] ^ 0x80,)) + value[place + 1 :]


Members = Callable[[str], WorldMember]
"""A membership of this process in the group of this name."""


class WorldReader:
    """Reads partitions. News come at once or late; the later ones of a partition never before the earlier ones."""

    def __init__(self, log: WorldLog, positions: Mapping[TopicPartition, int], patient_ms: int) -> None:
        self._log, self._patient_ms = log, patient_ms
        self._positions = dict(positions)
        self._known: dict[TopicPartition, int] = {}
        self._held_ms: dict[TopicPartition, int] = {}
        self._turn = 0
        self._wake: Callable[[], None] | None = None

    async def start(self) -> None:
        """As the port says."""
        await self._log.start()
        self._local = {tp: self._log.reached(tp) for tp in self._positions}
        self._known = {tp: self._log.broker.end(at) for tp, at in self._local.items()}

    async def stop(self) -> None:
        """Nothing is held."""

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        if tp not in self._positions:
            raise KeyError(f"{tp[0]}/{tp[1]} is not read here")
        self._positions[tp] = offset

    def positions(self) -> dict[TopicPartition, int]:
        """A copy."""
        return dict(self._positions)

    def wake(self) -> None:
        """A poll that waits for news waits no longer."""
        if self._wake is not None:
            self._wake()

    async def poll(self, max_records: int = 500, wait_ms: int = 100) -> list[Record]:
        """As the port says."""
        if self._log.is_closed:
            raise Dead(self._log.who)
        records = self._take(max_records)
        if not records and wait_ms > 0:
            await self._news(wait_ms)
            records = self._take(max_records)
        return records

    async def _news(self, wait_ms: int) -> None:
        """Until there may be something, or for so long."""
        broker, loop = self._log.broker, asyncio.get_running_loop()
        engine, waiter = broker.engine, loop.create_future()
        until_ms = engine.now_ms + wait_ms

        def wake() -> None:
            if not (waiter.done() or self._log.is_closed):
                waiter.set_result(None)

        def landed(tp: TopicPartition) -> None:
            due_ms = self._due_ms(tp)
            if due_ms < until_ms:
                engine.at(max(due_ms, engine.now_ms + engine.between(1, 6)), wake)

        watched = [(at, partial(landed, tp)) for tp, at in self._local.items()]
        for at, action in watched:
            broker.watch(at, action)
        for held_ms in (*self._held_ms.values(), *map(self._lagging_until_ms, self._local)):
            if engine.now_ms < held_ms < until_ms:
                engine.at(held_ms, wake)
        timer = loop.call_later(wait_ms / 1000, wake)
        self._wake = wake
        try:
            await waiter
        finally:
            self._wake = None
            timer.cancel()
            for at, action in watched:
                broker.unwatch(at, action)

    def _due_ms(self, tp: TopicPartition) -> int:
        """When what stands in this partition is to be seen here: it may be on its way for long."""
        broker, at = self._log.broker, self._local[tp]
        now_ms, end = broker.engine.now_ms, len(broker.log.get(at, ()))
        if end > self._known.get(tp, 0):
            self._known[tp] = end
            held_ms = self._held_ms.get(tp, 0)
            if self._patient_ms and held_ms <= now_ms:
                self._held_ms[tp] = held_ms = now_ms + self._patient_ms
            if broker.faults.happens(Fault.DELAY, f"{at[0]} to {self._log.who}"):
                self._held_ms[tp] = max(held_ms, now_ms + broker.engine.between(50, 2_500))
        return max(self._held_ms.get(tp, 0), self._lagging_until_ms(tp))

    def _lagging_until_ms(self, tp: TopicPartition) -> int:
        """When the next record of a partition comes that lags behind; 0 for one that does not."""
        broker, at = self._log.broker, self._local[tp]
        if not broker.network.has_lags:
            return 0
        lag_ms = broker.network.lag_ms(self._log.who, at)
        logged = broker.log.get(at, ()) if lag_ms else ()
        return logged[self._positions[tp]].at_ms + lag_ms if self._positions[tp] < len(logged) else 0

    def _take(self, max_records: int) -> list[Record]:
        if not self._log.broker.is_reached(self._log.who):
            return []
        order = list(self._local)
        if len(order) > 1:
            self._turn = (self._turn + 1) % len(order)
            order = order[self._turn :] + order[: self._turn]
        taken: list[Record] = []
        for tp in order:
            room = max_records - len(taken)
            if room <= 0:
                break
            try:
                taken += self._read(tp, room)
            except LogTruncated:
                if not taken:
                    raise
                break  # what was taken from the others comes first; the next poll raises
        return taken

    def _read(self, tp: TopicPartition, room: int) -> list[Record]:
        broker, at, position = self._log.broker, self._local[tp], self._positions[tp]
        end = len(broker.log.get(at, ()))
        if position == end or not broker.network.reaches(self._log.who, at):
            return []
        if position < end and self._due_ms(tp) > broker.engine.now_ms:
            return []
        try:
            found = broker.read(at, position, room)
        except LogTruncated as error:
            raise LogTruncated(tp, asked=error.asked, begin=error.begin, end=error.end) from None
        lag_ms = broker.network.lag_ms(self._log.who, at) if broker.network.has_lags else 0
        if lag_ms:
            found = [logged for logged in found if logged.at_ms + lag_ms <= broker.engine.now_ms]
        self._positions[tp] = position + len(found)
        return [logged.record(tp[0]) for logged in found]
