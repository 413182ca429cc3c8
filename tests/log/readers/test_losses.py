"""A reader at rest looks now and then whether the log still holds what was read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.log.follower import Follower
from fallow.shared.log.inputs import losses
from fallow.shared.log.inputs.losses import PLACES_MAX, PlaceWatch, losses_of
from fallow.shared.log.machine.losses import Loss, LossKind, Place, fences
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogTruncated, Outgoing, Record, TopicPartition
from fallow.shared.log.reading import input_checksum
from tests.histories import CELL, History, outgoing
from tests.hypothesis_profile import reaches
from tests.log.worlds.snapshot_world import TOPICS, layout_of

LAYOUT = layout_of("fallow")
TP = LAYOUT.tp("decisions", CELL)


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 0.02)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    return broker


async def publish(broker: MemoryBroker, seed: int, decisions: int) -> None:
    await MemoryLog(broker).publish(outgoing(LAYOUT, History(seed).decisions(decisions)))


async def following(broker: MemoryBroker) -> Follower:
    follower = Follower(MemoryLog(broker), LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    return follower


async def polled(follower: Follower, seconds: float = 0.3) -> None:
    """Poll as one does who has nothing else to do, for so long."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:
        await follower.poll(wait_ms=5)


async def test_a_log_that_stays_as_it_is_is_no_loss(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    follower = await following(broker)
    await polled(follower)
    broker.delete_before(TP, 10)
    await polled(follower)
    assert follower.next_offset == 10
    await follower.stop()


async def test_a_log_that_was_filled_anew_to_the_same_end_is_noticed_at_rest(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    follower = await following(broker)
    broker.cut(TP, 0)
    await publish(broker, 32, 10)
    with pytest.raises(DamagedLog, match="another record at offset 9"):
        await polled(follower)
    await follower.stop()


async def test_a_writer_notices_it_too_though_it_only_wrote(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    follower = await following(broker)
    await follower.rest()
    last = outgoing(LAYOUT, History(31).decisions(10))[-1]
    follower.wrote(last)
    follower.look()
    await asyncio.sleep(0.05)
    broker.cut(TP, 0)
    await publish(broker, 32, 10)

    async def looked() -> None:
        for _ in range(20):
            follower.look()
            await asyncio.sleep(0.01)

    with pytest.raises(DamagedLog, match="another record at offset 9"):
        await looked()
    await follower.stop()


async def test_a_log_that_ends_before_is_noticed_by_a_writer_at_rest(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    follower = await following(broker)
    await follower.rest()
    broker.cut(TP, 4)

    async def looked() -> None:
        for _ in range(20):
            follower.look()
            await asyncio.sleep(0.01)

    with pytest.raises(LogTruncated):
        await looked()
    await follower.stop()


async def test_a_log_that_is_away_is_no_loss(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    follower = await following(broker)
    broker.is_away = True
    await polled(follower, 0.1)
    broker.is_away = False
    await MemoryLog(broker).publish(outgoing(LAYOUT, History(31).decisions(11))[10:])
    await polled(follower, 0.1)
    assert follower.next_offset == 11, "it reads on"
    await follower.stop()


def place_behind(broker: MemoryBroker, next_offset: int) -> Place:
    return Place(next_offset, input_checksum(broker.partition(TP).records[next_offset - 1]))


async def found_by(watch: PlaceWatch) -> list[LossKind]:
    found: list[LossKind] = []
    for _ in range(20):
        found += [loss.kind for loss in watch.lost()]
        await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("reads", [1, 2, 3])
async def test_the_first_look_is_at_the_first_place_however_often_the_topic_was_read_on_since(
    broker: MemoryBroker, reads: int
) -> None:
    """The topic was cut and filled anew right behind the place with which the reader began."""
    await publish(broker, 31, 10)
    watch = PlaceWatch(MemoryLog(broker))
    watch.read(TP, place_behind(broker, 10))
    broker.cut(TP, 0)
    await publish(broker, 32, 10 + reads)
    for more in range(1, reads + 1):
        watch.read(TP, place_behind(broker, 10 + more))
    assert await found_by(watch) == [LossKind.OTHER_RECORD], "each loss is told once"
    await watch.stop()


@settings(deadline=None)
@given(
    before=st.lists(st.sampled_from(["read", "look", "failed look"]), max_size=6),
    cut=st.integers(0, 4),
    after=st.lists(st.sampled_from(["read", "failed look"]), max_size=4),
)
@example(before=["read", "failed look"], cut=1, after=["read"])
@example(before=["read", "look"], cut=1, after=["read", "failed look", "read"])
def test_a_cut_below_a_place_at_which_a_look_was_due_is_found_though_looks_fail(
    before: list[str], cut: int, after: list[str]
) -> None:
    """Whether the reader has read on in what came instead or not."""

    async def looked_and_found() -> tuple[int, list[Loss]]:
        broker = MemoryBroker()
        broker.create_topic(TP[0], TP[1] + 1)
        watch, looked, is_whole = PlaceWatch(MemoryLog(broker)), 0, True

        def read() -> int:
            broker.write(Outgoing(TP[0], b"one", partition=TP[1]))
            end = broker.partition(TP).end
            watch.read(TP, place_behind(broker, end))
            return end

        looked = newest = read()
        for step in [*before, "cut", *after, "look"]:
            if step == "cut":
                broker.cut(TP, min(cut, newest))
                for _ in range(10):
                    broker.write(Outgoing(TP[0], b"another", partition=TP[1]))
            elif step == "read":
                is_whole = is_whole and broker.partition(TP).end == newest
                newest = read()
            else:
                broker.is_away = step == "failed look"
                found = await watch.last_look()
                broker.is_away = False
                looked = newest if is_whole else looked
        return looked, found

    looked, found = asyncio.run(looked_and_found())
    reaches("a cut is found", found)
    assert bool(found) == (cut < looked)
    assert all(cut < loss.next_offset <= looked for loss in found)


async def test_a_partition_that_is_begun_anew_during_a_look_is_looked_at_from_there(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    watch = PlaceWatch(MemoryLog(broker))
    watch.read(TP, Place(10, checksum=1))
    await asyncio.sleep(0.03)
    while not watch.is_looking:
        assert watch.lost() == []
        await asyncio.sleep(0.01)
    watch.forget(TP)
    watch.read(TP, place_behind(broker, 5))
    assert await found_by(watch) == [], "what was found is of the place that was forgotten"
    broker.cut(TP, 0)
    await publish(broker, 32, 10)
    assert set(await found_by(watch)) == {LossKind.OTHER_RECORD}
    await watch.stop()


async def test_of_more_places_than_are_kept_the_oldest_are_forgotten(broker: MemoryBroker) -> None:
    watch = PlaceWatch(MemoryLog(broker))
    places = [Place(number, number) for number in range(1, PLACES_MAX + 3)]
    watch.read(TP, places[-1])
    watch.read_earlier(TP, tuple(places[:-1]))
    assert watch.uncompared() == {TP: tuple(places[-PLACES_MAX:])}


async def test_what_was_read_and_is_deleted_by_its_age_is_no_loss(broker: MemoryBroker) -> None:
    """Also of a reader that stands where it was and has not read on: placement does, and queueing reads ahead of it."""
    await publish(broker, 31, 10)
    watch = PlaceWatch(MemoryLog(broker))
    watch.read(TP, place_behind(broker, 5))
    broker.delete_before(TP, 8)
    assert await found_by(watch) == []
    await watch.stop()


class Aging(MemoryLog):
    """What is asked for is deleted by its age right before the answer."""

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        for tp, offset in offsets.items():
            self._broker.delete_before(tp, offset)
        return await super().last_before(offsets)


async def test_a_record_that_is_deleted_by_its_age_during_the_look_is_no_loss(broker: MemoryBroker) -> None:
    await publish(broker, 31, 10)
    log = Aging(broker)
    assert await losses_of(log, {TP: place_behind(broker, 7)}) == {}
    assert broker.partition(TP).begin == 7, "it was"


@pytest.mark.parametrize("name", ["jobs", "proposals", "operations"])
def test_an_input_that_says_a_thing_once_is_fenced_where_records_were_deleted_unread(name: str) -> None:
    assert fences(name, Loss(LossKind.DELETED_UNREAD, (name, 0), 1, 2, 3))
    assert not fences("nodes", Loss(LossKind.DELETED_UNREAD, ("nodes", 0), 1, 2, 3))
