"""Snapshots beside the plans: when one is written, by which process, and that neither hinders the other."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fallow.services.queueing.app import main
from fallow.services.queueing.app.snapshots import Pace
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision
from fallow.shared.events.effects import JobEnqueued, ReservationSet
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.log.follower import Follower
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing
from fallow.shared.log.sharing.cell_work import work_apart
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ClockKind
from tests.contract.eventually import eventually
from tests.queueing.queueing_world import LAYOUT, TEXT, Cell, HandHost, NotingHost, RefusingLog, starts_planned
from tests.signing import NEXT, WRITERS, believing, public, signed

T = TypeVar("T")

SNAPSHOTS, SNAPSHOTS_TP = "t.snapshots", ("t.snapshots", 0)


class StuckLog(RefusingLog):
    """A log that answers nothing to what is written to one topic, until the gate opens, or fails by an error."""

    def __init__(self, broker: MemoryBroker, topic: str, error: Exception | None = None) -> None:
        super().__init__(broker)
        self.topic, self.error = topic, error
        self.gate, self.is_reached = asyncio.Event(), False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Raises the error."""
        if any(message.topic == self.topic for message in messages):
            self.is_reached = True
            if self.error is not None:
                raise self.error
            await self.gate.wait()
        await super().publish(messages)


class HostWithoutPlans(NotingHost):
    """A host on which each plan meets a defect."""

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        if kind.startswith("plan of"):
            raise KeyError("a defect of the planner")
        return await super().beside(work, kind, may_be_long=may_be_long)


async def folded(cell: Cell) -> CellState:
    """The cell's state at the end of its log."""
    follower = Follower(MemoryLog(cell.broker), LAYOUT, "main", snapshots=False)
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    return follower.state


async def is_kept(cell: Cell) -> bool:
    """Whether the newest snapshot is of the newest state."""
    state = await cell.snapshot()
    return state is not None and digest_of(state) == digest_of(await folded(cell))


async def test_a_snapshot_is_written_whenever_enough_has_changed_and_plans_go_on() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=3) as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        for job in ("b", "c"):
            cell.enqueue(job)
        await eventually(lambda: is_kept(cell))
        for job in ("d", "e", "f"):
            cell.enqueue(job)
        await eventually(lambda: is_kept(cell))
        await eventually(lambda: cell.newest() == [("default", 6, ("a", "b", "c", "d", "e", "f"))])
        assert context.registry.get_sample_value("fallow_snapshot_version", {"cell": "main"}) == 6
    assert "snapshots of main" in cell.host.beside_the_loop


async def test_while_a_snapshot_is_written_plans_are_made_and_planned_starts_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.services.queueing.app.cell.CONFIRMED_WALL_MS", 100)
    cell = Cell()
    cell.log = log = StuckLog(cell.broker, SNAPSHOTS)
    cell.fill("a", "b")
    cell.decide(ReservationSet(job="a", start_ms=cell.host.wall_ms() + 60_000))
    cut = digest_of(await folded(cell))
    async with cell.planned(snapshot_versions=1):
        await eventually(lambda: log.is_reached)
        planned = len(starts_planned(cell))
        cell.enqueue("c")
        await eventually(lambda: cell.newest() == [("default", 3, ("a", "b", "c"))])
        await eventually(lambda: len(starts_planned(cell)) >= planned + 3)
        assert await cell.snapshot() is None
        log.gate.set()
        await eventually(lambda: is_snapshot_of(cell, cut))


async def is_snapshot_of(cell: Cell, digest: str) -> bool:
    catalogue = await read_catalogue(MemoryLog(cell.broker), LAYOUT, "main")
    return any(manifest.digest == digest and catalogue.is_whole(manifest) for manifest in catalogue.manifests.values())


@pytest.mark.parametrize("error", [LogUnavailable("no broker"), KeyError("a defect of snapshots")], ids=["away", "bug"])
async def test_a_snapshot_that_fails_stops_no_plan_and_the_process_is_not_ready_until_one_is_written(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("fallow.services.queueing.app.snapshots.UNWRITTEN_FIRST_S", 0.05)
    cell = Cell()
    cell.log = log = StuckLog(cell.broker, SNAPSHOTS, error)
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: "snapshots are not written" in (context.health.waiting_for or ""))
        cell.enqueue("b")
        await eventually(lambda: cell.newest() == [("default", 2, ("a", "b"))])
        assert context.registry.get_sample_value("fallow_snapshot_failures_total", {"cell": "main"})
        log.error = None
        log.gate.set()
        await eventually(lambda: is_kept(cell))
        await eventually(lambda: context.health.waiting_for is None)


async def test_plans_that_kafka_does_not_take_stop_no_snapshot() -> None:
    cell = Cell()
    cell.log = StuckLog(cell.broker, "t.queue", LogUnavailable("no right to write"))
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1):
        await eventually(lambda: is_kept(cell))
        assert cell.plans() == []


async def test_a_defect_of_the_planner_stops_no_snapshot() -> None:
    cell = Cell()
    cell.host = HostWithoutPlans()
    cell.enqueue("a")
    context = make_context("queueing", QueueingSettings(namespace="t", snapshot_versions=1))
    context = dataclasses.replace(context, host=cell.host)
    running = asyncio.create_task(work_apart(context, LAYOUT, "main", lambda: cell.planner(context).run()))
    await eventually(lambda: is_kept(cell))
    context.stopping.set()
    await asyncio.wait_for(running, 10)
    assert cell.plans() == []


async def test_a_cell_that_is_lost_while_its_snapshot_is_written_gets_none_until_it_is_back() -> None:
    cell = Cell()
    cell.log = log = StuckLog(cell.broker, SNAPSHOTS)
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: log.is_reached)
        cell.tenure.change(holds=False)
        log.gate.set()
        cell.enqueue("b")
        await eventually(lambda: context.health.progress.version.get("main") == 2)
        assert await cell.snapshot() is None
        cell.tenure.change(holds=True)
        await eventually(lambda: is_kept(cell))


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_an_orderly_stop_writes_what_has_changed_since_the_last_snapshot(*, is_cancelled: bool) -> None:
    cell = Cell()
    cell.enqueue("a", "b")
    async with cell.planned() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        assert await cell.snapshot() is None, "none was due"
        context.stopping.set()
        if not is_cancelled:
            await eventually(lambda: is_kept(cell))
    assert await is_kept(cell)


async def test_a_process_that_was_told_to_stop_lets_the_snapshot_at_hand_come_to_its_end() -> None:
    cell = Cell()
    cell.log = log = StuckLog(cell.broker, SNAPSHOTS)
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: log.is_reached)
        cell.enqueue("b")
        await eventually(lambda: context.health.progress.version.get("main") == 2)
        context.stopping.set()
        asyncio.get_running_loop().call_later(0.1, log.gate.set)
    assert await is_kept(cell)


@pytest.mark.parametrize(("settings", "is_stopping"), [({"clock": ClockKind.STEPPED}, True), ({}, False)])
async def test_no_last_snapshot_where_the_clock_is_stepped_or_the_cell_only_goes(
    settings: dict[str, Any], *, is_stopping: bool
) -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(**settings) as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        if is_stopping:
            context.stopping.set()
    assert await cell.snapshot() is None


async def test_a_cell_that_was_lost_to_another_process_is_not_written() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell))
        cell.tenure.change(holds=False)
        end = cell.broker.partition(SNAPSHOTS_TP).end
        cell.enqueue("b")
        await eventually(lambda: context.health.progress.version.get("main") == 2)
        context.stopping.set()
    assert cell.broker.partition(SNAPSHOTS_TP).end == end


@pytest.mark.parametrize("since", [0, 2])
async def test_a_standby_writes_no_second_snapshot_of_what_the_process_before_it_has_written(since: int) -> None:
    cell = Cell()
    cell.tenure.holds = False
    cell.enqueue("a")
    async with cell.planned() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        cell.enqueue("b")
        state, log = await folded(cell), MemoryLog(cell.broker)
        await write_snapshot(log, LAYOUT, state, await read_catalogue(log, LAYOUT, "main"), writer="other", wall_ms=0)
        before = cell.broker.partition(SNAPSHOTS_TP).end
        for number in range(since):
            cell.enqueue(f"since-{number}")
        await eventually(lambda: context.health.progress.version.get("main") == 2 + since)
        cell.tenure.change(holds=True)
        context.stopping.set()
    assert (cell.broker.partition(SNAPSHOTS_TP).end > before) == (since > 0)


@pytest.mark.parametrize("embedded", [False, True])
async def test_the_embedded_broker_gets_no_snapshots(tmp_path: Path, *, embedded: bool) -> None:
    cell = Cell()
    cell.broker.create_topic("t.cells", 1)
    cell.enqueue("a")
    file = tmp_path / "cell.yaml"
    file.write_text(TEXT, encoding="utf-8")

    async def opening(_context: Context[Any], _file: CellFile) -> MemoryLog:
        return cell.log

    settings = QueueingSettings(namespace="t", cell_file=file, embedded=embedded, snapshot_versions=1)
    context = make_context("queueing", settings)
    running = asyncio.create_task(main(context, opening))
    await eventually(lambda: cell.newest() == [("default", 1, ("a",))])
    context.stopping.set()
    await asyncio.wait_for(running, 10)
    assert (await cell.snapshot() is None) == embedded


def test_a_snapshot_is_due_by_count_or_by_time_and_never_without_a_change() -> None:
    pace = Pace(versions=10, wall_ms=1_000, version=5, at_ms=0)
    assert not pace.is_due(5, 10**9)
    assert not pace.is_due(6, 999)
    assert pace.is_due(6, 1_000)
    assert pace.is_due(15, 0)
    assert not Pace(versions=10, wall_ms=None, version=5, at_ms=0).is_due(6, 10**9)


def test_a_long_snapshot_is_followed_by_a_long_rest() -> None:
    pace = Pace(versions=10, wall_ms=1_000, version=5, at_ms=0)
    pace.written(20, begin_ms=5_000, now_ms=8_000)
    assert not pace.is_due(2_000, 8_000 + 59_999)
    assert pace.is_due(2_000, 8_000 + 60_000)


def one_decision_and_a_forged_one() -> tuple[Outgoing, Outgoing]:
    """The first decision of a cell, and the second by another key."""
    jobs = [JobEnqueued(spec=JobSpec(id=job, tenant="vision"), submit_ms=0, digest="0" * 32) for job in "ab"]
    decisions = [
        Decision(cell="main", version=number, epoch=1, at_ms=number, effects=(job,))
        for number, job in enumerate(jobs, start=1)
    ]
    first, _ = signed(LAYOUT, decisions, WRITERS)
    _, of_another_key = signed(LAYOUT, decisions, NEXT)
    return first, of_another_key


async def place_kept(cell: Cell) -> tuple[int, int] | None:
    """The version and the offset of the newest snapshot."""
    state = await cell.snapshot()
    return None if state is None else (state.version, state.offset)


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_snapshot_is_of_the_place_before_the_records_that_no_key_proves(*, is_stopped: bool) -> None:
    """Perhaps only a key is missing here: who has it begins with that snapshot and misses nothing."""
    cell = Cell(believing(LAYOUT, public(WRITERS), cell="main"))
    first, of_another_key = one_decision_and_a_forged_one()
    for record in (first, of_another_key, first):
        cell.broker.write(record)
    async with cell.planned(snapshot_versions=100 if is_stopped else 1) as context:
        await eventually(lambda: context.health.progress.cursors.get("t.decisions/0") == 3)
        if is_stopped:
            context.stopping.set()
        await eventually(lambda: is_at(cell, 1, 0))
    reader = Follower(MemoryLog(cell.broker), believing(LAYOUT, public(WRITERS), public(NEXT), cell="main"), "main")
    await reader.start()
    assert reader.state.version == 1
    await reader.catch_up()
    assert sorted(reader.state.jobs) == ["a", "b"]
    await reader.stop()


async def is_at(cell: Cell, version: int, offset: int) -> bool:
    return await place_kept(cell) == (version, offset)


async def test_forged_records_behind_each_decision_keep_no_snapshot_from_being_written() -> None:
    cell, chain = Cell(believing(LAYOUT, public(WRITERS), cell="main")), CHAIN_START
    cell.host = HandHost()
    async with cell.planned(snapshot_versions=5) as context:
        for version in range(1, 21):
            [record], [forged] = (
                signed(LAYOUT, [Decision(cell="main", version=number, epoch=1, at_ms=version)], key, chain)
                for number, key in ((version, WRITERS), (version, NEXT))
            )
            chain = dict(record.headers)[CHAIN_HEADER].decode()
            cell.broker.write(record)
            cell.broker.write(forged)
            await eventually(lambda at=version: context.health.progress.version.get("main") == at)  # type: ignore[misc]
            if version % 5 == 0:
                await eventually(lambda at=version: written(context) == at // 5)  # type: ignore[misc]
                assert await place_kept(cell) == (version, 2 * version - 2)
        assert context.health.waiting_for is None


def written(context: Context[QueueingSettings]) -> float:
    """How many snapshots were written."""
    return context.registry.get_sample_value("fallow_snapshots_total", {"cell": "main"}) or 0
