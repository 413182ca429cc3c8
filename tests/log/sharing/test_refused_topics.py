"""A topic to which a process has no right keeps no other topic of its share waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from fallow.shared.log.machine.losses import Loss, Place
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogRefused, LogUnavailable, Outgoing, Record, Refusal, TopicPartition
from fallow.shared.log.sharing import delivery as delivery_module
from fallow.shared.log.sharing.delivery import Delivery
from fallow.shared.log.sharing.share import Batches

TOPICS = ("own", "plain", "third")
TPS = [(topic, partition) for topic in TOPICS for partition in range(2)]


class GuardedLog(MemoryLog):
    """One that tells nothing of some topics, and of none while it is away."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.refused: set[str] = set()
        self.is_away, self.questions = False, 0

    def guard(self, tps: Collection[TopicPartition]) -> None:
        self.questions += 1
        if self.is_away:
            raise LogUnavailable("no answer")
        if any(topic in self.refused for topic, _ in tps):
            raise LogRefused(Refusal.NOT_ALLOWED, "TopicAuthorizationFailedError")

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.guard(tps)
        return await super().end_offsets(tps)


class SharedTopics:
    """All partitions of these topics, as the share of one process. `guards_places`: the group, too, tells nothing of
    what is refused.
    """

    def __init__(self, log: GuardedLog, *, guards_places: bool) -> None:
        self.log, self._guards_places = log, guards_places
        self.generation = 1
        self.said: dict[TopicPartition, Place] = {}
        self.at = dict.fromkeys(TPS, 0)
        self.paused: set[TopicPartition] = set()

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(TPS)

    def share_anew(self) -> None:
        self.generation += 1
        self.paused = set()
        self.at = {tp: self.said[tp].next_offset if tp in self.said else 0 for tp in TPS}

    async def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        await asyncio.sleep(0)
        if self._guards_places:
            self.log.guard(tps)
        return {tp: self.said[tp] for tp in tps if tp in self.said}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.at[tp] = offset

    def hold(self, tp: TopicPartition) -> None:
        self.paused.add(tp)
        self.at[tp] = 0  # as a consumer that does not know where the group has come

    def release(self, tp: TopicPartition, offset: int) -> None:
        self.paused.discard(tp)
        self.at[tp] = offset

    async def poll(self, most: int) -> Batches:
        await asyncio.sleep(0)
        found: dict[TopicPartition, list[Record]] = {}
        for tp in TPS:
            reader = self.log.reader({tp: self.at[tp]})
            await reader.start()
            records = [] if tp in self.paused else await reader.poll(most, wait_ms=0)
            await reader.stop()
            self.at[tp] += len(records)
            if records:
                found[tp] = records
        return found

    async def commit(self, places: Mapping[TopicPartition, Place]) -> None:
        await asyncio.sleep(0)
        self.said |= places


class Site:
    """A delivery at its share, and the values that came, by topic."""

    def __init__(self, *, guards_places: bool) -> None:
        broker = MemoryBroker()
        for topic in TOPICS:
            broker.create_topic(topic, 2)
        self.log = GuardedLog(broker)
        self.share = SharedTopics(self.log, guards_places=guards_places)
        self.seen: dict[str, list[bytes | None]] = {topic: [] for topic in TOPICS}
        self.losses: list[Loss] = []
        self.said: list[str] = []
        self.delivery = Delivery(self.handle, self.log, on_loss=self.losses.append, warn=self.said.append)
        self.delivery.join(self.share)

    async def handle(self, records: list[Record]) -> None:
        for record in records:
            self.seen[record.topic].append(record.value)

    async def publish(self, value: bytes) -> None:
        """One record to each topic."""
        await self.log.publish([Outgoing(topic, value, partition=1) for topic in TOPICS])

    async def turns(self, count: int = 3) -> None:
        for _ in range(count):
            found = await self.delivery.take(10)
            for records in found.values():
                await self.delivery.deliver(records)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "COMMIT_EVERY_S", 0.0)
    monkeypatch.setattr(delivery_module, "ASK_AGAIN_S", 0.0)
    monkeypatch.setattr(delivery_module, "LOOK_AGAIN_S", 0.0)


@pytest.mark.parametrize("guards_places", [False, True])
async def test_a_topic_that_is_refused_waits_alone_and_goes_on_where_the_group_was(guards_places: bool) -> None:
    site = Site(guards_places=guards_places)
    await site.publish(b"a")
    await site.turns()
    await asyncio.sleep(0.01)  # the commit is a task of its own
    site.log.refused.add("own")
    await site.publish(b"b")
    site.share.share_anew()
    await site.turns()
    assert site.seen == {"own": [b"a"], "plain": [b"a", b"b"], "third": [b"a", b"b"]}
    assert site.delivery.held == {("own", 0), ("own", 1)}
    assert list(site.delivery.refused) == ["own"]
    assert [line for line in site.said if line.startswith("own is not read")] == [site.said[0]]
    site.log.refused.clear()
    await site.turns()
    assert site.seen == {topic: [b"a", b"b"] for topic in TOPICS}
    assert (site.delivery.held, dict(site.delivery.refused), site.losses) == (frozenset(), {}, [])
    await site.delivery.stop()


async def test_a_topic_that_was_refused_and_has_lost_records_meanwhile_is_held_for_these() -> None:
    site = Site(guards_places=True)
    site.share.said = {("own", 1): Place(7)}
    site.log.refused.add("own")
    await site.publish(b"a")
    await site.turns()
    assert site.losses == []
    site.log.refused.clear()
    await site.turns()
    assert [loss.tp for loss in site.losses] == [("own", 1)]
    assert site.delivery.held == {("own", 1)}
    assert site.seen == {"own": [], "plain": [b"a"], "third": [b"a"]}
    await site.delivery.stop()


async def test_all_wait_while_the_log_is_away_and_none_is_asked_for_by_itself() -> None:
    site = Site(guards_places=True)
    await site.publish(b"a")
    site.log.is_away = True
    await site.turns(3)
    assert site.log.questions == 3
    assert (site.seen["plain"], dict(site.delivery.refused)) == ([], {})
    site.log.is_away = False
    await site.turns()
    assert site.seen == {topic: [b"a"] for topic in TOPICS}
    await site.delivery.stop()


async def test_a_right_that_goes_to_another_topic_changes_which_one_waits() -> None:
    site = Site(guards_places=True)
    site.log.refused = {"own", "third"}
    await site.publish(b"a")
    await site.turns()
    assert site.seen == {"own": [], "plain": [b"a"], "third": []}
    site.log.refused = {"own"}
    await site.turns()
    assert site.seen == {"own": [], "plain": [b"a"], "third": [b"a"]}
    assert list(site.delivery.refused) == ["own"]
    await site.delivery.stop()
