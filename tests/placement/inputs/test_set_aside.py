"""A flood of records that placement cannot read: set aside together, and before the cursor passes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from fallow.services.placement.app.cell_writer import CellWriter
from fallow.services.placement.app.metrics import PlacementMetrics
from fallow.services.placement.app.ownership import Ownership
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.codec.encoding import TYPE_HEADER, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import CellPolicy, Cordon, Quota, ReloadCell, SetPolicy, SetQuota
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.events.submissions import CancelJob
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing
from fallow.shared.log.reading import event_of, header
from fallow.shared.runtime import clocks
from fallow.shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually
from tests.placement.worlds.world import CELL, FILE, admitted, cancel, joined, report, spec_of, update

TOPICS = ("cells", "decisions", "jobs", "queue", "nodes", "proposals", "operations", "dead-letters", "snapshots")
FLOOD = 1_500
LAYOUT = Layout("fallow", {CELL: 0})


class CountingLog(MemoryLog):
    """Tells how many messages came with each call of `publish`; some of the first calls fail, half done."""

    def __init__(self, broker: MemoryBroker, *, fails: int = 0) -> None:
        super().__init__(broker)
        self.published: list[int] = []
        self._fails = fails

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.published.append(len(messages))
        if self._fails:
            self._fails -= 1
            await super().publish(messages[: len(messages) // 2])
            raise LogUnavailable("half of it was acknowledged")
        await super().publish(messages)


@pytest.fixture
def broker() -> MemoryBroker:
    return with_topics()


def with_topics(stamps: Callable[[], int] | None = None) -> MemoryBroker:
    """A broker whose records are stamped by this clock; without one they have no stamp."""
    made = MemoryBroker(stamps)
    for topic in TOPICS:
        made.create_topic(LAYOUT.topic(topic), 1)
    return made


async def written(broker: MemoryBroker, log: CountingLog, *, letters: int = 0) -> Context[PlacementSettings]:
    """A writer runs until the one good job, which stands behind the flood, is in the log, and at least so many records
    are set aside. The context in which it ran.
    """
    settings = PlacementSettings(namespace="fallow", instance="placement-1")
    context = make_context("placement", settings)
    member = log.member(LAYOUT.group("placement"), LAYOUT.topic("cells"))
    await member.start()
    owned = Ownership(member)
    await owned.changed()
    writer = CellWriter(context, log, FILE, FILE.cell(CELL), owned, PlacementMetrics(context.registry))
    running = asyncio.create_task(writer.run())
    dead = broker.partition((LAYOUT.topic("dead-letters"), 0)).records
    await eventually(lambda: ("JobEnqueued" in effects(broker) and len(dead) >= letters) or running.done(), within_s=20)
    context.stopping.set()
    await running
    await member.stop()
    return context


def effects(broker: MemoryBroker) -> list[str]:
    events = [event_of(record) for record in broker.partition(LAYOUT.tp("decisions", CELL)).records]
    return [effect.kind for event in events if isinstance(event, Decision) for effect in event.effects]


def flood(broker: MemoryBroker, topic: str) -> None:
    for number in range(FLOOD):
        broker.write(Outgoing(LAYOUT.topic(topic), b"%d is no event" % number, b"key", partition=0))


def offsets_set_aside(broker: MemoryBroker) -> list[int]:
    letters = broker.partition((LAYOUT.topic("dead-letters"), 0)).records
    return sorted(int(header(letter, "origin_offset")) for letter in letters)


async def set_aside_together(broker: MemoryBroker) -> None:
    """A good job comes behind a flood of bad records: all of these are set aside, in few calls."""
    broker.write(LAYOUT.outgoing(admitted(spec_of("good")), id="1", source="test", wall_ms=0))
    log = CountingLog(broker)
    await written(broker, log)
    assert offsets_set_aside(broker) == list(range(FLOOD))
    assert len(log.published) <= 5


async def test_bad_records_are_set_aside_many_at_a_time(broker: MemoryBroker) -> None:
    flood(broker, "jobs")
    await set_aside_together(broker)


async def test_words_of_nodes_that_nobody_knows_are_set_aside_many_at_a_time(broker: MemoryBroker) -> None:
    for number in range(FLOOD):
        stray = joined(f"stray-{number}", pool="no-such-pool")
        broker.write(LAYOUT.outgoing(stray, id="1", source="test", wall_ms=0))
    await set_aside_together(broker)


@pytest.mark.parametrize(
    ("stamps", "seq", "reason"),
    [
        (clocks.wall_ms, LARGEST_INTEGER, DeadLetterReason.SEQUENCE_TOO_FAR),
        (clocks.wall_ms, 1, DeadLetterReason.UNKNOWN_NODE),
        (None, LARGEST_INTEGER, DeadLetterReason.UNKNOWN_NODE),
    ],
)
async def test_the_number_of_a_word_is_held_against_the_stamp_of_its_record_where_it_has_one(
    stamps: Callable[[], int] | None, seq: int, reason: DeadLetterReason
) -> None:
    broker = with_topics(stamps)
    broker.write(LAYOUT.outgoing(replace(report("stray"), seq=seq), id="1", source="test", wall_ms=0))
    broker.write(LAYOUT.outgoing(admitted(spec_of("good")), id="1", source="test", wall_ms=0))
    await written(broker, CountingLog(broker), letters=1)
    letters = broker.partition((LAYOUT.topic("dead-letters"), 0)).records
    assert [header(letter, "reason") for letter in letters] == [reason]


async def test_letters_that_fail_half_way_are_repeated_before_the_cursor_passes(broker: MemoryBroker) -> None:
    flood(broker, "jobs")
    broker.write(LAYOUT.outgoing(admitted(spec_of("good")), id="1", source="test", wall_ms=0))
    await written(broker, CountingLog(broker, fails=2))
    assert dict.fromkeys(offsets_set_aside(broker)) == dict.fromkeys(range(FLOOD))


async def test_what_stands_in_the_topic_of_others_is_set_aside_and_not_obeyed(broker: MemoryBroker) -> None:
    wrong = {
        "nodes": (
            SetPolicy(cell=CELL, policy=CellPolicy(max_pending_jobs=7), fields=("max_pending_jobs",)),
            SetQuota(cell=CELL, quotas=(Quota(tenant="ada", gpu_type="gpu", limit_milli=0),)),
            admitted(spec_of("x", tenant="nobody")),
            cancel("job"),
            update("job", priority=1),
            CancelJob(job="job", tenant="ada"),
        ),
        "proposals": (Cordon(cell=CELL, node="node-1"), joined("node-1")),
    }
    for topic, events in wrong.items():
        for event in events:
            headers = ((TYPE_HEADER, event.type.encode()),)
            broker.write(Outgoing(LAYOUT.topic(topic), encode(event), b"key", headers, 0))
    broker.write(LAYOUT.outgoing(admitted(spec_of("job")), id="job", source="test", wall_ms=0))
    await written(broker, CountingLog(broker), letters=8)

    letters = broker.partition((LAYOUT.topic("dead-letters"), 0)).records
    assert [header(letter, "reason") for letter in letters] == ["unknown_type"] * 8
    assert effects(broker).count("JobEnqueued") == 1
    assert not {"PolicySet", "QuotaSet", "NodeChanged", "ProposalRefused"} & set(effects(broker))
    assert not {"JobCancelled", "JobStopping", "JobUpdated", "JobRefused"} & set(effects(broker))


async def test_a_flood_of_orders_to_reload_is_carried_out_once_for_all_that_came_together(broker: MemoryBroker) -> None:
    for number in range(FLOOD):
        broker.write(LAYOUT.outgoing(ReloadCell(cell=CELL), id=str(number), source="test", wall_ms=0))
    broker.write(Outgoing(LAYOUT.topic("operations"), b"the last is no event", b"key", partition=0))
    broker.write(LAYOUT.outgoing(admitted(spec_of("good")), id="good", source="test", wall_ms=0))
    context = await written(broker, CountingLog(broker), letters=1)
    samples = [sample for metric in context.telemetry.reloads.collect() for sample in metric.samples]
    assert 1 <= sum(sample.value for sample in samples if sample.name.endswith("_total")) <= 10
