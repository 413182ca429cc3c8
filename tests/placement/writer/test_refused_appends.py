"""What becomes of a cell whose writer may not write: few tries, a reason that people read, and another writer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from fallow.services.placement.app.ownership import Ownership
from fallow.services.placement.app.setbacks import REFUSED_MAX, UNANSWERED_MAX, CannotWrite, Setbacks
from fallow.services.placement.app.watch.size_watch import ASK_EVERY_MS, SizeWatch
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import JobEnqueued
from fallow.shared.events.fields.values import JobSpec, NodeSpec, ProcessRun
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.nodes import NodeJoined, NodeReport
from fallow.shared.events.operations import CellPolicy, SetPolicy
from fallow.shared.log.admin.topics import parse_topics
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.opening import TOPICS_FILE
from fallow.shared.log.port import (
    TOPIC_BYTES,
    Appended,
    AppendRefused,
    AppendUnknown,
    LogRefused,
    Outgoing,
    Refusal,
    TopicPartition,
)
from fallow.shared.log.reading import event_of
from fallow.shared.runtime import clocks
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.tasks.backoff import BackOff
from tests.contract.eventually import eventually
from tests.placement.worlds.writers import CELL, LAYOUT, PlacementProcess, RefusedLog, SmallTopic, cluster

DECISIONS = LAYOUT.topic("decisions")


@pytest.fixture
def broker() -> MemoryBroker:
    return cluster()


async def test_a_writer_whose_appends_are_refused_says_so_and_gives_the_cell_up_after_a_few(
    broker: MemoryBroker,
) -> None:
    log = RefusedLog(broker, "decisions")
    process = PlacementProcess(log, "one")
    await process.start()
    await eventually(lambda: process.metric("fallow_cell_given_up_total") == 1, within_s=15)
    assert log.tries[DECISIONS] == REFUSED_MAX
    assert "no right to write t.decisions" in process.health
    await asyncio.sleep(0.5)
    assert log.tries[DECISIONS] == REFUSED_MAX, "while it declines the cell it writes nothing"
    await process.stop()


class Elsewhere(Ownership):
    """A cell that was given up is another member's from then on, which writes nothing."""

    def take_again(self, ordinal: int) -> None:
        """The group does not give it back."""


class LaterHost(Host):
    """A machine on which so much time has passed at once."""

    later_ms = 0

    def monotonic_ms(self) -> int:
        return clocks.monotonic_ms() + self.later_ms


async def test_a_cell_that_was_given_up_stays_not_ready_until_a_record_of_it_is_written(broker: MemoryBroker) -> None:
    host = LaterHost()
    process = PlacementProcess(RefusedLog(broker, "decisions"), "one", host, Elsewhere)
    await process.start()
    await eventually(lambda: "released the cell" in process.health, within_s=15)
    host.later_ms = 3_600_000
    process.writer.wake()
    await asyncio.sleep(0.2)
    assert "released the cell" in process.health, "its time is over, and no process writes the cell"
    await process.stop()


class AllButTheNewest(MemoryLog):
    """While a transaction is open there, everything in topic `decisions` can be read but the newest record."""

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        held = {tp: each for tp in tps if (each := self._broker.partition(tp)).held_from is not None}
        return {**await super().end_offsets(tps), **{tp: each.written_end - 1 for tp, each in held.items()}}


@pytest.mark.parametrize("log", [MemoryLog, AllButTheNewest])
async def test_a_writer_waits_while_its_record_stands_behind_the_open_transaction_of_a_stranger(
    broker: MemoryBroker, log: type[MemoryLog], capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = LAYOUT.tp("decisions", CELL)
    process = PlacementProcess(log(broker), "one")
    await process.start()
    await eventually(lambda: process.metric("fallow_is_writer") == 1, within_s=15)
    broker.hold(decisions, 1)
    begin = broker.partition(decisions).written_end
    admitted = JobAdmitted(cell=CELL, spec=JobSpec(id="job-1", tenant="vision"), submit_ms=0, digest="0" * 32)
    await MemoryLog(broker).publish([LAYOUT.outgoing(admitted, id="job-1", source="test", wall_ms=0)])
    await eventually(lambda: "a transaction is open there" in process.health, within_s=15)
    assert broker.partition(decisions).written_end == begin + 2, "the stranger's record, and one decision"
    broker.hold(decisions, 0)
    await eventually(lambda: process.health == "", within_s=15)
    said = capsys.readouterr().out
    assert (said.count("append without success"), said.count("the log takes decisions again")) == (1, 1)
    records = broker.partition(decisions).records
    effects = [effect for each in records if isinstance(found := event_of(each), Decision) for effect in found.effects]
    assert [effect.spec.id for effect in effects if isinstance(effect, JobEnqueued)] == ["job-1"]
    await process.stop()


async def test_the_standby_takes_over_from_a_writer_that_is_refused(broker: MemoryBroker) -> None:
    refused = PlacementProcess(RefusedLog(broker, "decisions"), "refused")
    await refused.start()
    await eventually(lambda: "no right" in refused.health)
    standby = PlacementProcess(MemoryLog(broker), "standby")
    await standby.start()
    await eventually(lambda: standby.metric("fallow_is_writer") == 1, within_s=15)
    assert (standby.health, refused.metric("fallow_is_writer")) == ("", 0)
    await refused.stop()
    await standby.stop()


async def test_a_writer_that_cannot_set_a_record_aside_does_not_take_the_cell_over_again_and_again(
    broker: MemoryBroker,
) -> None:
    broker.write(Outgoing(LAYOUT.topic("nodes"), b"nonsense", partition=0))
    log = RefusedLog(broker, "dead-letters")
    process = PlacementProcess(log, "one")
    await process.start()
    await eventually(lambda: process.metric("fallow_cell_given_up_total") == 1, within_s=15)
    assert log.tries[DECISIONS] == REFUSED_MAX, "each try begins with one WriterStarted"
    assert "no right to write t.dead-letters" in process.health
    await process.stop()


async def test_a_writer_that_may_write_again_goes_on_and_is_ready(broker: MemoryBroker) -> None:
    log = RefusedLog(broker, "decisions")
    process = PlacementProcess(log, "one")
    await process.start()
    await eventually(lambda: "no right" in process.health)
    log.refused.clear()
    await eventually(lambda: process.metric("fallow_is_writer") == 1)
    await eventually(lambda: CELL not in process.health and "no right" not in process.health)
    assert process.metric("fallow_cell_given_up_total") == 0
    await process.stop()


class NodeIsBackBehindTheRefusal(MemoryLog):
    """The one record that tells of a silent node is refused; before the next try the node reports again."""

    refused = 0

    async def append(self, message: Outgoing) -> Appended | AppendUnknown | AppendRefused:
        if self.refused or message.topic != DECISIONS or b"NodeSilent" not in (message.value or b""):
            return await super().append(message)
        self.refused += 1
        reports(self._broker)
        return AppendRefused(Refusal.NOT_ALLOWED, "no right to write t.decisions")


LEASE: dict[str, Any] = {"node_lease_wall_ms": 1_000, "lease_margin_wall_ms": 300}


def reports(broker: MemoryBroker) -> None:
    report = NodeReport(cell=CELL, node="n1", boot="b1", seq=time.time_ns() // 1_000, **LEASE)
    broker.write(LAYOUT.outgoing(report, id="x", source="t", wall_ms=0))


async def test_a_writer_that_was_refused_is_ready_again_where_nothing_is_left_to_be_written() -> None:
    broker = cluster(lambda: time.time_ns() // 1_000_000)
    log = NodeIsBackBehindTheRefusal(broker)
    process = PlacementProcess(log, "one")
    await process.start()
    await eventually(lambda: process.metric("fallow_is_writer") == 1, within_s=15)
    policy = SetPolicy(cell=CELL, by="o", policy=CellPolicy(**LEASE), fields=tuple(LEASE))
    spec = NodeSpec(id="n1", pool="training", gpus=8)
    joined = NodeJoined(cell=CELL, node="n1", boot="b1", seq=time.time_ns() // 1_000, spec=spec, **LEASE)
    for event in (policy, joined):
        broker.write(LAYOUT.outgoing(event, id="x", source="t", wall_ms=0))
    await eventually(lambda: log.refused == 1, within_s=15)

    def is_ready_while_the_node_reports() -> bool:
        reports(broker)
        return process.health == ""

    await eventually(is_ready_while_the_node_reports)
    await process.stop()


def test_a_lost_answer_is_no_setback_to_speak_of_and_many_in_a_row_are() -> None:
    setbacks, unknown = Setbacks(BackOff(0.1), BackOff(30.0)), AppendUnknown("no answer")
    setbacks.failed(unknown)
    assert not setbacks.is_serious
    for _ in range(UNANSWERED_MAX - 2):
        setbacks.failed(unknown)
    assert setbacks.is_serious
    with pytest.raises(CannotWrite, match="no answer"):
        setbacks.failed(unknown)


def test_each_failure_in_a_row_is_followed_by_a_longer_pause_and_a_success_ends_the_row() -> None:
    setbacks, refused = Setbacks(BackOff(0.1), BackOff(30.0)), AppendRefused(Refusal.NOT_ALLOWED, "no right")
    pauses = [setbacks.failed(refused) for _ in range(REFUSED_MAX - 1)]
    assert pauses[-1] > pauses[0] * 2
    setbacks.succeeded()
    assert setbacks.failed(refused) < pauses[-1]


def test_a_refused_append_is_remembered_until_one_is_taken_whatever_else_is_refused_meanwhile() -> None:
    """Where nothing is left to be written, the next refusal is else the first of a row again."""
    setbacks = Setbacks(BackOff(0.1), BackOff(30.0))
    setbacks.failed(AppendRefused(Refusal.NOT_ALLOWED, "no right to write"))
    setbacks.failed(LogRefused(Refusal.NOT_ALLOWED, "no right to read"))
    assert setbacks.is_append_refused
    setbacks.append_taken()
    setbacks.failed(LogRefused(Refusal.NOT_ALLOWED, "no right to read"))
    assert not setbacks.is_append_refused


def small_topic(broker: MemoryBroker) -> PlacementProcess:
    """Of a writer that has nine jobs to take in which fit into topic `decisions` one by one, and one that does not."""
    for number, words in [*((number, 1) for number in range(9)), (9, 6)]:
        run = ProcessRun(argv=("x" * 2_000,) * words)
        job = JobAdmitted(
            cell=CELL, spec=JobSpec(id=f"job-{number}", tenant="vision", run=run), submit_ms=0, digest="0" * 32
        )
        broker.write(LAYOUT.outgoing(job, id="x", source="t", wall_ms=0))
    return PlacementProcess(SmallTopic(broker), "placement-1")


def set_aside(broker: MemoryBroker) -> int:
    return broker.partition((LAYOUT.topic("dead-letters"), 0)).end


async def test_a_record_that_its_topic_does_not_take_is_made_anew_with_less_and_waits_for_the_setting_of_the_topic(
    broker: MemoryBroker,
) -> None:
    """No accepted job is set aside for a setting of the broker."""
    process = small_topic(broker)
    await process.start()
    try:
        await eventually(lambda: len(enqueued(broker)) == 9)
        await eventually(lambda: "max.message.bytes is 10000 and has to be 1048576" in process.health)
        assert DECISIONS in process.health
        del broker.takes_bytes[DECISIONS]
        await eventually(lambda: len(enqueued(broker)) == 10, within_s=15)
        await eventually(lambda: process.health == "")
        assert (set_aside(broker), process.metric("fallow_cell_given_up_total")) == (0, 0)
    finally:
        await process.stop()


async def test_a_cell_whose_next_decision_its_topic_does_not_take_is_given_up_and_loses_no_job(
    broker: MemoryBroker,
) -> None:
    process = small_topic(broker)
    await process.start()
    try:
        await eventually(lambda: process.metric("fallow_cell_given_up_total") == 1, within_s=15)
        assert "max.message.bytes is 10000 and has to be 1048576" in process.health
        assert (len(enqueued(broker)), set_aside(broker)) == (9, 0)
    finally:
        await process.stop()


async def test_a_topic_that_takes_all_again_is_noticed_without_a_record_of_that_size(broker: MemoryBroker) -> None:
    process, watch = small_topic(broker), LaterHost()
    sizes = SizeWatch(replace(process.context, host=watch), MemoryLog(broker), LAYOUT, CELL)
    await sizes.refused(22_000)
    await sizes.look()
    assert "max.message.bytes is 10000" in process.health
    watch.later_ms += ASK_EVERY_MS
    await sizes.look()
    assert "max.message.bytes is 10000" in process.health
    broker.takes_bytes[DECISIONS] = 500_000
    watch.later_ms += ASK_EVERY_MS
    await sizes.look()
    sizes.took(21_999)
    assert "max.message.bytes is 10000" in process.health, "a larger record may still be refused"
    del broker.takes_bytes[DECISIONS]
    broker.is_away = True
    watch.later_ms += ASK_EVERY_MS
    await sizes.look()
    broker.is_away = False
    watch.later_ms += ASK_EVERY_MS
    await sizes.look()
    assert "max.message.bytes" not in process.health


def test_the_size_that_is_asked_for_is_the_one_with_which_the_topic_is_made() -> None:
    assert parse_topics(TOPICS_FILE.read_text(encoding="utf-8")).topics["decisions"].record_bytes_max == TOPIC_BYTES


def enqueued(broker: MemoryBroker) -> list[str]:
    events = [event_of(record) for record in broker.partition((DECISIONS, 0)).records]
    effects = [effect for event in events if isinstance(event, Decision) for effect in event.effects]
    return [effect.spec.id for effect in effects if isinstance(effect, JobEnqueued)]
