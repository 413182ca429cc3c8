"""The port of a shared topic onto the world's group, its broker and its committed offsets, and what FastStream does
there: it takes batches and hands them over, one after the other.

A share comes as it does from Kafka: all that was owned is let go of first, and what was handled of it may still be
committed; then the new share is read from the committed offsets. The word of a loss may come late, so that two
processes handle the same records for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain

from fallow.shared.log.machine.losses import Place
from fallow.shared.log.port import LogUnavailable, Record, TopicPartition
from fallow.shared.log.sharing.delivery import Delivery, DeliveryGaveUp
from fallow.shared.log.sharing.share import Batches, CommitFailed
from fallow.simulator.process import Process
from fallow.simulator.shells.log import Dead, WorldLog, WorldReader
from fallow.simulator.shells.member import WorldMember
from fallow.simulator.storage.broker import TIMEOUT_MS
from fallow.simulator.trouble.faults import Fault

POLL_WAIT_MS = 3_000
"""A bound of what news, and the word of a new share, cut short."""

AGAIN_S = 0.1


class WorldShare:
    """What the process believes to own of these topics, of each the same partitions. `own` is called when the group's
    word arrives.
    """

    def __init__(self, process: Process, log: WorldLog, topics: Sequence[str], delivery: Delivery) -> None:
        self._process, self._log, self._topics, self._delivery = process, log, tuple(topics), delivery
        self.generation = 0
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._news = asyncio.Event()
        self._sought: dict[TopicPartition, int] = {}
        self._held: frozenset[TopicPartition] = frozenset()
        self._reader: WorldReader | None = None
        self._rearranging: asyncio.Task[None] | None = None

    def own(self, partitions: frozenset[int]) -> None:
        """The group's newest word."""
        self._wanted = frozenset((topic, partition) for topic in self._topics for partition in partitions)
        if self._rearranging is None or self._rearranging.done():
            self._rearranging = asyncio.get_running_loop().create_task(self._rearrange(), name="rebalance")

    async def _rearrange(self) -> None:
        wanted: frozenset[TopicPartition] | None = None
        while wanted != self._wanted:
            wanted = self._wanted
            if self._assigned:
                await self._delivery.leaving()
            self._assigned, self._sought, self._held = wanted, {}, frozenset()
            self.generation += 1
            self._let_go_of_reader()

    def _let_go_of_reader(self) -> None:
        reader, self._reader = self._reader, None
        self._news.set()
        if reader is not None:
            reader.wake()

    # The port.

    def assigned(self) -> frozenset[TopicPartition]:
        """As the port says."""
        return self._assigned

    async def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        """As the port says."""
        local = {self._log.local(tp): tp for tp in sorted(tps)}
        commits = self._process.world.commits
        found = await self._log.answered(lambda: commits.begin(self._process, local))
        return {local[tp]: place for tp, place in found.items()}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        if tp in self._assigned:
            self._sought[tp] = offset
            if self._reader is not None:
                self._reader.seek(tp, offset)

    def hold(self, tp: TopicPartition) -> None:
        """As the port says."""
        if tp in self._assigned:
            self._held |= {tp}
            if self._reader is not None:
                self._sought = {**self._sought, **self._reader.positions()}
                self._let_go_of_reader()

    def release(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        if tp in self._assigned:
            self._held -= {tp}
            if self._reader is not None:
                self._sought = {**self._sought, **self._reader.positions()}
                self._let_go_of_reader()
            self._sought = {**self._sought, tp: offset}

    async def poll(self, most: int) -> Batches:
        """As the port says."""
        self._news.clear()
        generation, reader = self.generation, self._reader or await self._opened()
        records = [] if reader is None else await reader.poll(most, POLL_WAIT_MS)
        if reader is None or self._is_rearranging():
            await self._wait()
        # What a fetch has brought of a share that is past is not handed out.
        return _by_partition(records) if self.generation == generation else {}

    def _is_rearranging(self) -> bool:
        return self._rearranging is not None and not self._rearranging.done()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(POLL_WAIT_MS / 1000):
                await self._news.wait()
        except TimeoutError:
            return

    async def _opened(self) -> WorldReader | None:
        """A reader of what is owned and not held, at the committed offsets; None where nothing is to be read now."""
        generation, tps = self.generation, sorted(self._assigned - self._held)
        if not tps:
            return None
        try:
            places = await self.committed(tps)
            begins = await self._log.begin_offsets(tps)
            at = {tp: places[tp].next_offset if tp in places else begins[tp] for tp in tps}
            reader = self._log.reader({**at, **{tp: self._sought[tp] for tp in tps if tp in self._sought}})
            await reader.start()
        except LogUnavailable:
            await asyncio.sleep(AGAIN_S)
            self._news.set()
            return None
        if self.generation != generation or self._held & set(tps):
            self._news.set()
            return None
        self._reader = reader
        return reader

    async def commit(self, places: Mapping[TopicPartition, Place]) -> None:
        """As the port says: it may be refused, come late, or be answered by nothing."""
        log, process = self._log, self._process
        if log.is_closed:
            raise Dead(process.name)
        engine, faults, what = log.broker.engine, log.broker.faults, f"commit of {process.name}"
        life = process.life
        said = {log.local(tp): place for tp, place in places.items()}
        told: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        answer = partial(self._tell, told)
        is_refused = not log.broker.is_reached(process.name) or faults.happens(Fault.REFUSED, what)
        is_lost = not is_refused and faults.happens(Fault.ACK_LOST, what)
        late_ms = engine.between(0, 1_500) if not is_refused and faults.happens(Fault.LATE, what) else 0

        def land() -> None:
            is_taken = process.world.commits.commit(process.group, life, said)
            if is_lost:
                engine.after(TIMEOUT_MS, lambda: answer("no answer"))
            else:
                engine.after(engine.between(0, 2), lambda: answer(None if is_taken else "another one has begun there"))

        if is_refused:
            engine.after(TIMEOUT_MS, lambda: answer("no answer"))
        else:
            engine.after(late_ms + engine.between(1, 4), land)
        error = await told
        if error is not None:
            raise CommitFailed(error)

    def _tell(self, told: asyncio.Future[str | None], answer: str | None) -> None:
        if not (self._log.is_closed or told.done()):
            told.set_result(answer)


def _by_partition(records: Sequence[Record]) -> Batches:
    found: dict[TopicPartition, list[Record]] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), []).append(record)
    return found


class WorldSubscription:
    """Takes and delivers, as FastStream's loop does."""

    def __init__(self, process: Process, log: WorldLog, share: WorldShare, delivery: Delivery, most: int) -> None:
        self._process, self._log, self.share, self._delivery, self._max = process, log, share, delivery, most
        self._member = WorldMember(process, process.group)
        self._loop: asyncio.Task[None] | None = None
        delivery.join(share)

    async def start(self) -> None:
        """As the port says."""
        await self._log.start()
        await self._member.start()
        self._loop = asyncio.get_running_loop().create_task(self._run(), name="deliver")
        self._loop.add_done_callback(self._ended)

    async def stop(self) -> None:
        """As the port says."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.cancel()
        await self._delivery.stop()
        await self._member.stop()

    async def _run(self) -> None:
        delivery = self._delivery
        while True:
            found = await delivery.take(self._max)
            records = list(chain.from_iterable(found.values()))
            if records:
                try:
                    await delivery.deliver(records)
                except DeliveryGaveUp:
                    return

    def _ended(self, loop: asyncio.Task[None]) -> None:
        error = None if loop.cancelled() else loop.exception()
        if error is not None:
            self._process.failed(error)


class Sharing:
    """What a process shares of its topics with its replicas: a handle onto the broker of its own, as FastStream has."""

    def __init__(self, process: Process, namespace: str, most: int) -> None:
        self._process, self._max = process, most
        self._log = WorldLog(process.world.broker, process.name, namespace, members=partial(WorldMember, process))
        self._newest: WorldSubscription | None = None

    def subscription(self, topics: Sequence[str], group: str, delivery: Delivery) -> WorldSubscription:
        """The newest one counts."""
        assert group.endswith(f".{self._process.group}"), f"{self._process.name} is not of the group {group}"
        share = WorldShare(self._process, self._log, topics, delivery)
        self._newest = WorldSubscription(self._process, self._log, share, delivery, self._max)
        return self._newest

    def told(self, owned: frozenset[int]) -> None:
        """The group's word arrives."""
        if self._newest is not None:
            self._newest.share.own(owned)

    def close(self) -> None:
        """The process is dead."""
        self._log.close()
