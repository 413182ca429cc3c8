"""What a Delivery commits and reads, whatever its share does between: a commit that fails, a partition that goes and
comes back, a topic that is another one by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import msgspec
import pytest

from fallow.shared.log.inputs import damage, losses
from fallow.shared.log.machine.losses import Loss, LossKind, Place
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import (
    HEADERS_MAX,
    UNREADABLE_HEADER,
    UNREADABLE_TEXT,
    Headers,
    LogTruncated,
    LogUnavailable,
    Outgoing,
    Record,
    RecordTooLarge,
    TopicPartition,
)
from fallow.shared.log.sharing import delivery as delivery_module
from fallow.shared.log.sharing.delivery import Delivery, DeliveryGaveUp, RetryPolicy, places_behind
from fallow.shared.log.sharing.share import Batches, CommitFailed
from tests.contract.eventually import eventually

TP: TopicPartition = ("t", 0)
MAX = 2


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "COMMIT_EVERY_S", 0.01)
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 0.02)


class MemoryShare:
    """One partition of a topic in memory. `own` gives it to this process, or takes it away."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.log, self._broker = MemoryLog(broker), broker
        self.generation = 0
        self.said: Place | None = None
        self.failures = 0
        self._owned = frozenset[TopicPartition]()
        self._at = 0

    def own(self, *, is_ours: bool) -> None:
        self.generation += 1
        self._owned = frozenset([TP] if is_ours else [])
        self._at = self._broker.partition(TP).begin if self.said is None else self.said.next_offset

    def assigned(self) -> frozenset[TopicPartition]:
        return self._owned

    async def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        await asyncio.sleep(0)
        return dict.fromkeys(tps, self.said) if self.said is not None else {}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        assert tp == TP
        self._at = offset

    def hold(self, tp: TopicPartition) -> None:
        assert tp == TP

    def release(self, tp: TopicPartition, offset: int) -> None:
        assert tp == TP
        self._at = offset

    async def poll(self, most: int) -> Batches:
        await asyncio.sleep(0.001)
        if not self._owned:
            return {}
        reader = self.log.reader({TP: self._at})
        await reader.start()
        try:
            records = await reader.poll(most, wait_ms=0)
        finally:
            await reader.stop()
        self._at += len(records)
        return {TP: records} if records else {}

    async def commit(self, places: Mapping[TopicPartition, Place]) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise CommitFailed("no answer")
        self.said = places[TP]


class Site:
    """A delivery at its share, and what came of it."""

    def __init__(self, committed: int | None = None) -> None:
        self.broker = MemoryBroker()
        self.broker.create_topic("t", 1)
        self.share = MemoryShare(self.broker)
        self.share.said = None if committed is None else Place(committed)
        self.seen: list[bytes | None] = []
        self.losses: list[Loss] = []
        self.held: list[Loss] = []
        self.told: dict[TopicPartition, Loss] = {}
        self.delivery = Delivery(
            self.handle, self.share.log, on_loss=self.losses.append, on_held=self.held_by, told=self.told
        )
        self.delivery.join(self.share)
        self.share.own(is_ours=True)

    def held_by(self, loss: Loss) -> None:
        self.held.append(loss)

    async def handle(self, records: list[Record]) -> None:
        self.seen += [record.value for record in records]

    async def publish(self, *values: bytes) -> None:
        await self.share.log.publish([Outgoing("t", value, partition=0) for value in values])

    async def turn(self) -> list[Record]:
        """Take once, and deliver what came."""
        found = await self.delivery.take(MAX)
        records = [record for batch in found.values() for record in batch]
        if records:
            await self.delivery.deliver(records)
        return records

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await self.turn()

    @property
    def next_offset(self) -> int:
        return 0 if self.share.said is None else self.share.said.next_offset


async def test_a_commit_that_fails_is_made_again_though_nothing_more_comes() -> None:
    site = Site()
    site.share.failures = 2
    await site.publish(b"a")
    await site.turn()
    await eventually(lambda: site.next_offset == 1)
    assert site.seen == [b"a"]
    await site.delivery.stop()


async def test_nothing_is_committed_of_a_partition_that_has_gone() -> None:
    site = Site()
    await site.publish(b"a")
    found = await site.delivery.take(MAX)
    await site.delivery.leaving()
    site.share.own(is_ours=False)
    await site.delivery.deliver(found[TP])
    await site.turns(3)
    await site.delivery.stop()
    assert (site.next_offset, site.delivery.batches_taken_away) == (0, 1)


async def test_a_batch_of_an_earlier_share_does_not_take_the_group_back() -> None:
    site = Site()
    await site.publish(b"a", b"b", b"c")
    found = await site.delivery.take(MAX)
    await site.delivery.leaving()
    site.share.said = Place(3)  # another member has had the partition meanwhile
    site.share.own(is_ours=True)
    await site.delivery.deliver(found[TP])
    await site.turns(3)
    await site.delivery.stop()
    assert site.next_offset == 3


async def test_what_was_handled_is_committed_before_a_partition_goes() -> None:
    site = Site()
    await site.publish(b"a")
    await site.turn()
    await site.delivery.leaving()
    assert site.next_offset == 1
    await site.delivery.stop()


async def refilled(site: Site, *values: bytes) -> None:
    site.broker.cut(TP, 0)
    await site.publish(*values)


async def test_a_topic_that_is_filled_anew_under_a_living_reader_is_noticed_and_not_read_on() -> None:
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await refilled(site, b"x", b"y")
    await eventually(lambda: _lost(site))
    await site.publish(b"z")
    await site.turns(3)
    await site.delivery.stop()
    assert [(loss.kind, loss.next_offset) for loss in site.losses] == [(LossKind.OTHER_RECORD, 2)]
    assert site.seen == [b"a", b"b"]
    assert site.delivery.held == {TP}


MANY: Headers = (("", b""),) * (HEADERS_MAX + 1)
LOOKS_UNREADABLE: Headers = ((UNREADABLE_HEADER, UNREADABLE_TEXT),)


@pytest.mark.parametrize("headers", [MANY, LOOKS_UNREADABLE], ids=["too many headers", "says itself unreadable"])
async def test_a_topic_that_is_filled_anew_is_noticed_behind_a_record_that_is_only_set_aside(headers: Headers) -> None:
    site = Site()
    await site.publish(b"a")
    await site.share.log.publish([Outgoing("t", b"b", headers=headers, partition=0)])
    await site.turn()
    await eventually(lambda: site.next_offset == 2)
    await site.delivery.stop()
    await refilled(site, b"x", b"y", b"z")
    behind = Site()
    behind.share = site.share
    behind.delivery = Delivery(behind.handle, site.share.log, on_loss=behind.losses.append)
    behind.delivery.join(site.share)
    site.share.own(is_ours=True)
    await behind.turns(3)
    await behind.delivery.stop()
    assert [(loss.kind, loss.next_offset) for loss in behind.losses] == [(LossKind.OTHER_RECORD, 2)]
    assert behind.seen == []


async def test_behind_what_stands_for_a_record_that_kafkas_client_cannot_read_nothing_is_compared() -> None:
    found = Record("t", 0, 1, None, None, LOOKS_UNREADABLE, 0)
    assert places_behind([found]) == {TP: Place(2)}
    assert places_behind([msgspec.structs.replace(found, timestamp_ms=1)])[TP].checksum is not None


async def _lost(site: Site) -> bool:
    await site.turn()
    return bool(site.losses)


async def test_a_partition_that_cannot_be_read_is_held_looked_at_again_and_read_on_without_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(damage, "LOOK_AGAIN_S", 0.02)
    site = Site()
    await site.publish(b"a", b"b", b"c", b"d")
    site.broker.damage(TP, 1, 2)
    await eventually(lambda: _lost(site))
    await site.turns(100)
    (loss,) = site.losses
    assert (loss.kind, loss.next_offset, loss.begin, loss.end) == (LossKind.UNREADABLE, 1, 3, 4)
    assert str(loss) == "t/0 cannot be read at offset 1 (the batch is damaged), from offset 3 on it can be"
    assert (site.seen, set(site.delivery.held), site.next_offset) == ([b"a"], {TP}, 1)
    site.broker.partition(TP).damaged.clear()
    await eventually(lambda: _has_seen(site, 4))
    await eventually(lambda: site.next_offset == 4)
    assert (site.seen, site.delivery.held, len(site.losses)) == ([b"a", b"b", b"c", b"d"], frozenset(), 1)
    await site.delivery.stop()


async def test_a_place_that_cannot_be_read_is_told_once_by_a_process_whatever_share_it_is_given() -> None:
    site = Site()
    await site.publish(b"a", b"b", b"c", b"d")
    site.broker.damage(TP, 1, 2)
    await eventually(lambda: _lost(site))
    await eventually(lambda: site.next_offset == 1)
    for is_ours in (True, False, True):
        held, site.held = site.held, []
        assert held
        site.share.own(is_ours=is_ours)
        await site.turns(20)
        assert (site.delivery.held, bool(site.held)) == (({TP}, True) if is_ours else (frozenset(), False))
        site.held = site.held or held
    again = Delivery(site.handle, site.share.log, on_loss=site.losses.append, told=site.told)
    again.join(site.share)
    for _ in range(20):
        await again.take(MAX)
    assert again.held == {TP}
    assert [loss.next_offset for loss in site.losses] == [1]
    await site.delivery.stop()
    await again.stop()


async def test_it_is_told_again_once_it_could_be_read_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "LOOK_AGAIN_S", 0.02)
    site = Site()
    await site.publish(b"a", b"b")
    site.broker.damage(TP, 0, 0)
    await eventually(lambda: _lost(site))
    site.broker.partition(TP).damaged.clear()
    await eventually(lambda: _has_seen(site, 2))
    assert site.told == {}
    await site.delivery.stop()


async def _has_seen(site: Site, count: int) -> bool:
    await site.turn()
    return len(site.seen) == count


async def test_a_person_passes_over_what_cannot_be_read_by_the_offset_of_the_group() -> None:
    site = Site()
    await site.publish(b"a", b"b", b"c", b"d")
    site.broker.damage(TP, 1, 2)
    await eventually(lambda: _lost(site))
    await site.turns(3)
    site.share.said = Place(3)
    site.share.own(is_ours=True)
    await site.turns(3)
    assert (site.seen, site.delivery.held) == ([b"a", b"d"], frozenset())
    await site.delivery.stop()


async def test_a_loss_is_told_once_for_as_long_as_the_partition_stays() -> None:
    site = Site(committed=7)
    await site.publish(b"a")
    await site.turns(2)
    site.share.own(is_ours=True)
    await site.turns(2)
    assert len(site.losses) == 1
    await site.delivery.stop()


async def test_a_loss_is_told_again_when_the_partition_was_away_and_comes_back() -> None:
    site = Site(committed=7)
    await site.publish(b"a")
    await site.turns(2)
    for is_ours in (False, True):
        site.share.own(is_ours=is_ours)
        await site.turns(2)
    assert [loss.kind for loss in site.losses] == [LossKind.BEYOND_END] * 2
    await site.delivery.stop()


async def test_a_partition_that_is_whole_in_a_later_share_is_read_again() -> None:
    site = Site(committed=7)
    await site.publish(b"a")
    await site.turns(2)
    assert site.delivery.held == {TP}
    site.share.said = Place(0)  # a person has set it
    site.share.own(is_ours=True)
    await site.turns(2)
    assert (site.seen, site.delivery.held) == ([b"a"], frozenset())
    await site.delivery.stop()


async def test_a_position_that_is_not_in_the_log_any_more_is_told_in_the_middle_of_a_share() -> None:
    site = Site()
    await site.publish(*(b"%d" % number for number in range(6)))
    await site.turn()
    site.broker.delete_before(TP, 4)
    with pytest.raises(LogTruncated):
        await site.share.poll(MAX)
    await site.turns(3)
    await site.delivery.stop()
    assert site.seen == [b"0", b"1", b"4", b"5"]
    assert [(loss.kind, loss.next_offset, loss.begin) for loss in site.losses] == [(LossKind.DELETED_UNREAD, 2, 4)]


async def test_what_was_deleted_before_the_group_had_committed_anything_is_told() -> None:
    site = Site()
    await site.publish(*(b"%d" % number for number in range(6)))
    site.broker.delete_before(TP, 4)
    site.share.own(is_ours=True)
    await site.turns(3)
    await site.delivery.stop()
    assert site.seen == [b"4", b"5"]
    assert [(loss.kind, loss.next_offset, loss.begin) for loss in site.losses] == [(LossKind.DELETED_UNREAD, 0, 4)]


async def test_a_topic_that_is_filled_anew_right_behind_the_look_of_a_new_share_is_noticed() -> None:
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await eventually(lambda: site.next_offset == 2)
    site.share.own(is_ours=True)
    await site.delivery._has_looked()
    site.broker.cut(TP, 0)
    await site.publish(b"x", b"y", b"z")
    await site.turns(100)
    assert [loss.kind for loss in site.losses] == [LossKind.OTHER_RECORD]
    await site.delivery.stop()


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_loss_behind_which_the_group_has_read_on_holds_the_partition_for_every_later_owner(
    failures: int,
) -> None:
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await eventually(lambda: site.next_offset == 2)
    before = site.share.said
    await refilled(site, b"x", b"y", b"z")
    await site.turn()
    await eventually(lambda: site.next_offset == 3)
    site.share.failures = failures
    await eventually(lambda: _lost(site))
    await eventually(lambda: site.share.said == before)
    await site.delivery.stop()

    later = Site()
    later.share, later.broker = site.share, site.broker
    later.delivery = Delivery(later.handle, site.share.log, on_loss=later.losses.append)
    later.delivery.join(site.share)
    site.share.own(is_ours=True)
    await site.publish(b"c")
    await later.turns(3)
    assert [(loss.kind, loss.next_offset) for loss in later.losses] == [(LossKind.OTHER_RECORD, 2)]
    assert later.delivery.held == {TP}
    assert not later.seen
    await later.delivery.stop()


async def test_what_was_not_compared_yet_is_compared_when_the_group_rearranges_itself_meanwhile() -> None:
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await refilled(site, b"x", b"y", b"z")
    await site.turn()
    await eventually(lambda: site.next_offset == 3)
    site.share.own(is_ours=True)
    await eventually(lambda: _lost(site))
    assert [(loss.kind, loss.next_offset) for loss in site.losses] == [(LossKind.OTHER_RECORD, 2)]
    await site.delivery.stop()


async def test_a_loss_that_could_not_be_committed_holds_the_partition_when_the_group_rearranges_itself_meanwhile() -> (
    None
):
    """What the group has committed does not show it."""
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await eventually(lambda: site.next_offset == 2)
    before = site.share.said
    await refilled(site, b"x", b"y", b"z")
    await site.turn()
    await eventually(lambda: site.next_offset == 3)
    site.share.failures = 1_000_000
    await eventually(lambda: _lost(site))
    site.share.own(is_ours=True)
    await site.publish(b"c")
    await site.turns(3)
    assert site.delivery.held == {TP}
    assert site.seen == [b"a", b"b", b"z"]
    site.share.failures = 0
    await eventually(lambda: site.share.said == before)
    await site.delivery.stop()


async def test_what_was_handled_and_not_committed_is_no_place_that_a_new_share_compares() -> None:
    """It is handled again, be it another record by then."""
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await eventually(lambda: site.next_offset == 2)
    site.share.failures = 1_000_000
    await site.publish(b"c")
    await site.turn()
    site.broker.cut(TP, 2)
    site.share.own(is_ours=True)
    await site.publish(b"x")
    for _ in range(20):
        await site.turn()
        await asyncio.sleep(0.005)
    assert not site.losses
    assert site.seen == [b"a", b"b", b"c", b"x"]
    site.share.failures = 0
    await site.delivery.stop()


async def test_what_is_handled_of_a_partition_that_is_held_does_not_take_the_group_past_the_loss() -> None:
    """The batch was read before the loss was found."""
    site = Site()
    await site.publish(b"a", b"b")
    await site.turn()
    await eventually(lambda: site.next_offset == 2)
    await refilled(site, b"x", b"y", b"z")
    found = await site.delivery.take(MAX)
    await eventually(lambda: _lost(site))
    await site.delivery.deliver(found[TP])
    await site.delivery.stop()
    assert site.next_offset == 2


async def test_places_that_were_asked_for_of_an_earlier_share_are_no_loss_of_this_one() -> None:
    """While they are asked for, a person sets the group's place and the partitions are given out again."""
    site = Site(committed=7)
    await site.publish(b"a")
    asked = site.share.committed

    async def committed(tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        places = await asked(tps)
        if site.share.said == Place(7):
            site.share.said = Place(0)
            site.share.own(is_ours=True)
        return places

    site.share.committed = committed  # type: ignore[method-assign]
    await site.turns(4)
    await site.delivery.stop()
    assert (site.losses, site.delivery.held, site.seen) == ([], frozenset(), [b"a"])


async def test_a_commit_that_fails_does_not_take_back_what_was_handled_meanwhile() -> None:
    site = Site()
    fails, commit = asyncio.Event(), site.share.commit

    async def first_fails(places: Mapping[TopicPartition, Place]) -> None:
        if not fails.is_set():
            await fails.wait()
            raise CommitFailed("no answer")
        await commit(places)

    site.share.commit = first_fails  # type: ignore[method-assign]
    for value in (b"a", b"b"):
        await site.publish(value)
        await site.turn()
        await asyncio.sleep(0)
    fails.set()
    await eventually(lambda: site.next_offset == 2)
    assert site.seen == [b"a", b"b"]
    await site.delivery.stop()


@pytest.mark.parametrize("error", [LogUnavailable("away"), RecordTooLarge("1 byte too many"), ValueError("odd")])
async def test_a_batch_waits_for_a_log_that_is_away_or_refuses_its_answers_and_is_given_up_for_other_errors(
    error: Exception,
) -> None:
    """The first two go on long after the time in which a failing batch is given up."""
    site, tries = Site(), list[int]()

    async def failing(records: list[Record]) -> None:
        tries.append(len(records))
        if len(tries) <= 20 or isinstance(error, ValueError):
            raise error

    site.delivery = Delivery(failing, site.share.log, retry=RetryPolicy(10, 10, 50))
    site.delivery.join(site.share)
    await site.publish(b"a")
    if isinstance(error, ValueError):
        with pytest.raises(DeliveryGaveUp, match="odd"):
            await asyncio.wait_for(site.turn(), 10)
        assert site.delivery.batches == 0
    else:
        await site.turn()
        assert (len(tries), site.delivery.batches) == (21, 1)
    await site.delivery.stop()
