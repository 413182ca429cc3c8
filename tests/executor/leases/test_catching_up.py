"""Nodes that have their lease again wait until the log is read, whatever becomes of the log meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fallow.services.executor.app import catching_up
from fallow.services.executor.app.catching_up import CatchingUp
from fallow.services.executor.policy.slots import Slots
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import NodeChanged
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import CELL, Writer, node

LAYOUT = Layout("test", {CELL: 0})
TP = LAYOUT.tp("decisions", CELL)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "LOOK_AGAIN_MS", 20)
    monkeypatch.setattr(catching_up, "TOLD_AFTER_MS", 40)


@dataclass
class Site:
    """A log of decisions, and one that has read so many of them."""

    broker: MemoryBroker = field(default_factory=MemoryBroker)
    writer: Writer = field(default_factory=Writer)
    chain: str = CHAIN_START
    context: Context[ServiceSettings] = field(default_factory=lambda: make_context("executor", ServiceSettings()))

    def __post_init__(self) -> None:
        for name in ("decisions", "snapshots"):
            self.broker.create_topic(f"test.{name}", 1)
        self.log = MemoryLog(self.broker)
        self.follower = Follower(self.log, LAYOUT, CELL)
        self.catching_up = CatchingUp(self.context, self.log, TP, CELL)

    def decide(self, count: int) -> None:
        for number in range(count):
            status = NodeStatus.READY if number % 2 else NodeStatus.CORDONED
            self.append(self.writer.decide(NodeChanged(spec=node(1), boot="boot-1", status=status)))

    def append(self, decision: Decision) -> None:
        self.chain = next_chain(self.chain, encode(decision))
        more = ((CHAIN_HEADER, self.chain.encode()),)
        self.broker.write(LAYOUT.outgoing(decision, id=str(decision.version), source="w", wall_ms=0, more=more))

    async def read(self, most: int) -> None:
        await self.follower.poll(wait_ms=0, max_records=most)
        self.catching_up.has_read()

    @property
    def notes(self) -> str:
        return self.context.health.answer("/readyz")[2].decode()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.decide(10)
    await site.follower.start()
    await site.read(5)
    yield site
    await site.follower.stop()


async def test_the_wait_ends_when_the_log_is_read_to_the_end_that_it_had(site: Site) -> None:
    waiting = asyncio.create_task(site.catching_up.wait(site.follower))
    await asyncio.sleep(0.05)
    await site.read(4)
    site.decide(5)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await site.read(1)
    await asyncio.wait_for(waiting, 5)


async def test_what_the_log_has_lost_behind_what_is_read_is_not_waited_for(site: Site) -> None:
    waiting = asyncio.create_task(site.catching_up.wait(site.follower))
    await asyncio.sleep(0.05)
    site.broker.cut(TP, 7)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await site.read(5)
    await asyncio.wait_for(waiting, 5)


async def test_a_wait_that_takes_long_is_told_to_people_until_it_is_over(site: Site) -> None:
    waiting = asyncio.create_task(site.catching_up.wait(site.follower))
    await eventually(lambda: "test.decisions/0 is read to offset 5, and must be to 10" in site.notes)
    await site.read(5)
    await asyncio.wait_for(waiting, 5)
    assert "begin nothing" not in site.notes


def test_a_slot_is_taken_over_though_the_log_has_lost_what_it_waited_for() -> None:
    slots = Slots()
    slots.assign(frozenset({0, 1}), [0, 1])
    slots.come([0, 1], end=10)
    assert slots.to_claim(7, 0) == []
    slots.cut(7)
    assert slots.to_claim(7, 0) == [0, 1]
    slots.claimed(0, 100, end=9)
    assert slots.to_adopt(7) == {}
    slots.cut(7)
    assert slots.to_adopt(7) == {0: 100}
