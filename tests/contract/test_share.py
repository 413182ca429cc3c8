"""What every share of a topic must do for a Delivery, held against the one of the fault worlds and the one on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from fallow.shared.log.machine.losses import Loss, LossKind
from fallow.shared.log.port import LogUnavailable, Record
from fallow.shared.log.sharing.delivery import Delivery
from tests.contract.eventually import eventually
from tests.contract.worlds.share_worlds import KafkaShares, ShareWorld, SimulatedShares


@pytest_asyncio.fixture(params=["simulated", pytest.param("kafka", marks=pytest.mark.real_kafka)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[ShareWorld]:
    if request.param == "simulated":
        simulated = SimulatedShares()
        yield simulated
        await simulated.close()
        return
    kafka = KafkaShares(request.getfixturevalue("kafka"))
    await kafka.start()
    yield kafka
    await kafka.close()


class Member:
    """One member of the group: what it was handed, and what it lost. Each call first raises one of `errors`."""

    def __init__(self) -> None:
        self.seen: list[bytes | None] = []
        self.losses: list[Loss] = []
        self.errors: list[Exception] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.has_entered = asyncio.Event()
        self.delivery: Delivery

    async def handle(self, records: list[Record]) -> None:
        self.has_entered.set()
        await self.may_go_on.wait()
        if self.errors:
            raise self.errors.pop()
        self.seen += [record.value for record in records]


@asynccontextmanager
async def member_of(world: ShareWorld, member: Member | None = None) -> AsyncIterator[Member]:
    member = member or Member()
    member.delivery, subscription = world.member(member.handle, member.losses.append)
    await subscription.start()
    try:
        yield member
    finally:
        await subscription.stop()


async def has_committed(world: ShareWorld, offset: int) -> None:
    async def is_so() -> bool:
        return await world.committed() == offset

    await eventually(is_so)


async def handled(world: ShareWorld, *values: bytes) -> None:
    """A member handles and commits these, and leaves."""
    await world.publish(*values)
    async with member_of(world) as member:
        await eventually(lambda: len(member.seen) == len(values))
        await has_committed(world, len(values))


async def test_a_group_begins_at_the_beginning_and_commits_what_was_handled(world: ShareWorld) -> None:
    await world.publish(b"a", b"b")
    async with member_of(world) as member:
        await has_committed(world, 2)
        await world.publish(b"c")
        await has_committed(world, 3)
    assert member.seen == [b"a", b"b", b"c"]
    assert len(member.delivery.assigned) in (0, 3)  # it has left


async def test_the_next_member_goes_on_where_the_last_one_has_committed(world: ShareWorld) -> None:
    await handled(world, b"a", b"b")
    await world.publish(b"c")
    async with member_of(world) as second:
        await has_committed(world, 3)
    assert second.seen == [b"c"]


async def test_what_fails_is_tried_again_and_committed_when_it_is_done(world: ShareWorld) -> None:
    member = Member()
    member.errors = [ValueError("twice"), ValueError("once")]
    await world.publish(b"a")
    async with member_of(world, member):
        await has_committed(world, 1)
    assert (member.seen, member.delivery.retries) == ([b"a"], 2)


async def test_what_is_not_handled_is_not_committed_and_left_to_the_next_member(world: ShareWorld) -> None:
    first = Member()
    first.errors = [LogUnavailable("away")] * 1_000
    await world.publish(b"a", b"b")
    async with member_of(world, first):
        await eventually(lambda: first.delivery.retries > 2)
        assert await world.committed() is None
    async with member_of(world) as second:
        await has_committed(world, 2)
    assert (first.seen, second.seen) == ([], [b"a", b"b"])


async def test_what_is_given_up_is_not_committed(world: ShareWorld) -> None:
    member = Member()
    member.errors = [ValueError("never")] * 1_000
    await world.publish(b"a")
    async with member_of(world, member):
        async with asyncio.timeout(10):
            reason = await member.delivery.given_up()
    assert "ValueError('never')" in str(reason)
    assert await world.committed() is None


async def test_a_second_member_gets_a_share_in_the_middle_of_a_batch_and_nothing_is_lost(world: ShareWorld) -> None:
    first = Member()
    first.may_go_on.clear()
    await world.publish(b"a", b"b", b"c")
    async with member_of(world, first):
        await first.has_entered.wait()
        async with member_of(world) as second:
            await eventually(lambda: bool(second.delivery.assigned))
            first.may_go_on.set()
            await has_committed(world, 3)
            assert not first.delivery.assigned & second.delivery.assigned
    assert set(first.seen + second.seen) == {b"a", b"b", b"c"}


async def test_a_topic_that_ends_before_the_commit_is_not_read(world: ShareWorld) -> None:
    await handled(world, b"a", b"b", b"c")
    await world.refill(b"x")
    async with member_of(world) as member:
        await eventually(lambda: bool(member.losses))
        await world.publish(b"y", b"z", b"behind")
    assert [(loss.kind, loss.next_offset, loss.end) for loss in member.losses] == [(LossKind.BEYOND_END, 3, 1)]
    assert (member.seen, await world.committed()) == ([], 3)


@pytest.mark.parametrize("values", [(b"x", b"y", b"z"), (b"a", b"b", b"c")], ids=["other bytes", "the same bytes"])
async def test_a_topic_that_was_filled_again_beyond_the_commit_is_not_read(
    world: ShareWorld, values: tuple[bytes, ...]
) -> None:
    """A job that is submitted again is another submission: only the broker's stamp tells them apart."""
    await handled(world, b"a", b"b", b"c")
    await world.refill(*values, b"behind")
    async with member_of(world) as member:
        await eventually(lambda: bool(member.losses))
        await world.publish(b"more")
        await asyncio.sleep(0.3)
    assert [(loss.kind, loss.next_offset, loss.end) for loss in member.losses] == [(LossKind.OTHER_RECORD, 3, 4)]
    assert (member.seen, await world.committed()) == ([], 3)


async def test_a_topic_whose_records_were_restored_with_their_stamps_is_read_on(world: ShareWorld) -> None:
    await handled(world, b"a", b"b", b"c")
    await world.restore()
    await world.publish(b"d")
    async with member_of(world) as member:
        await has_committed(world, 4)
    assert (member.seen, member.losses) == ([b"d"], [])


async def test_what_was_deleted_unread_is_told_once_and_reading_goes_on(world: ShareWorld) -> None:
    await handled(world, b"a", b"b")
    await world.publish(b"c", b"d", b"e")
    await world.delete_before(4)
    async with member_of(world) as member:
        await has_committed(world, 5)
    assert member.seen == [b"e"]
    assert [(loss.kind, loss.next_offset, loss.begin) for loss in member.losses] == [(LossKind.DELETED_UNREAD, 2, 4)]
