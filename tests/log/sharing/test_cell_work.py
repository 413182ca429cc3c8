"""One cell of a process whose log is damaged, or on which the work fails, and the other one beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fallow.services.executor.app.wiring import execute
from fallow.services.executor.settings import ExecutorSettings
from fallow.services.loaning.app.cell import CellProposer, LoaningMetrics
from fallow.services.loaning.settings import LoaningSettings
from fallow.services.metrics.app.wiring import measure
from fallow.services.metrics.settings import MetricsSettings
from fallow.services.placement.app.writer import main as placement
from fallow.services.placement.settings import PlacementSettings
from fallow.services.projector.app.cell import CellProjector
from fallow.services.projector.app.metrics import ProjectorMetrics
from fallow.services.projector.settings import ProjectorSettings
from fallow.services.queueing.app.cell import CellPlanner, QueueingMetrics
from fallow.services.queueing.app.snapshots import Keeper, SnapshotMetrics
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.fold.fold import BehindForged, DamagedLog, OtherRelease
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import PolicySet
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import CellPolicy, PreemptionMode
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.writer import UnwritableDecision
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogTruncated
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.sharing.cell_work import FENCING, work_apart
from fallow.shared.log.sharing.owned_cells import work_on_owned_cells
from fallow.shared.log.snapshots import NoUsableSnapshot, OtherReleasesSnapshots
from fallow.shared.runtime.errors.endings import ENDINGS, FENCED
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from fallow.shared.view.lupa_view import LuaFunctions
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import node
from tests.log.worlds.earlier_release import first_decision

SICK, WELL = "cell-a", "cell-b"
LAYOUT = Layout("t", {SICK: 0, WELL: 1})
TEXT = """
cells:
  - {name: cell-a, ordinal: 0, pools: [{name: pool-a, gpus: 64}]}
  - {name: cell-b, ordinal: 1, pools: [{name: pool-b, gpus: 64}]}
tenants: [{name: acme}]
"""
FILE = parse_cell_file(TEXT, "cell")
TOPICS = ("cells", "decisions", "snapshots", "jobs", "queue", "nodes", "proposals", "operations", "executor-slots")


YIELDING = PolicySet(policy=CellPolicy(preemption=PreemptionMode.ALL))
"""Else loaning reads the log without a look into it."""


class Cells:
    """Two cells on one log, whose decisions a test writes."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        for topic in TOPICS:
            self.broker.create_topic(f"t.{topic}", 2)
        self._chains = {SICK: CHAIN_START, WELL: CHAIN_START}
        self._versions = {SICK: 0, WELL: 0}

    @property
    def log(self) -> MemoryLog:
        return MemoryLog(self.broker)

    def decide(self, cell: str) -> None:
        self._versions[cell] += 1
        effects = (YIELDING,) if self._versions[cell] == 1 else ()
        decision = Decision(cell=cell, version=self._versions[cell], epoch=0, at_ms=0, inputs={}, effects=effects)
        self._chains[cell] = next_chain(self._chains[cell], encode(decision))
        self._write(decision, self._chains[cell])

    def damage(self, cell: str) -> None:
        """A record of the next version but one, as where records are lost."""
        self._write(Decision(cell=cell, version=10**6, epoch=0, at_ms=0, inputs={}, effects=()), "0" * 32)

    def write_as_an_earlier_release(self) -> None:
        """A first decision of the sick cell as the release wrote it that named jobs by their ids alone."""
        self.broker.write(first_decision(LAYOUT))

    def join(self, cell: str) -> None:
        """A node joins the cell."""
        joined = NodeJoined(cell=cell, node="n", boot="b", seq=1, spec=NodeSpec(id="n", pool="pool-a", gpus=8))
        self.broker.write(LAYOUT.outgoing(joined, id="1", source="test", wall_ms=0))

    def _write(self, decision: Decision, chain: str) -> None:
        more = ((CHAIN_HEADER, chain.encode()),)
        self.broker.write(LAYOUT.outgoing(decision, id="1", source="test", wall_ms=0, more=more))


Start = Callable[[MemoryLog], tuple[Context[Any], Awaitable[None]]]


def a_queueing(log: MemoryLog) -> tuple[Context[Any], Awaitable[None]]:
    context = make_context("queueing", QueueingSettings(namespace="t"))
    metrics, of_snapshots = QueueingMetrics(context.registry), SnapshotMetrics(context.registry)

    async def work(tenure: Tenure) -> None:
        keeping = partial(Keeper, context, log, LAYOUT, of_snapshots, tenure, None)
        await CellPlanner(context, log, LAYOUT, FILE, tenure, metrics, keeping).run()

    return context, work_on_owned_cells(context, log, LAYOUT, "queueing", work)


def a_loaning(log: MemoryLog) -> tuple[Context[Any], Awaitable[None]]:
    context = make_context("loaning", LoaningSettings(namespace="t"))
    metrics = LoaningMetrics(context.registry)

    async def work(tenure: Tenure) -> None:
        await CellProposer(context, log, LAYOUT, FILE, tenure, metrics).run()

    return context, work_on_owned_cells(context, log, LAYOUT, "loaning", work)


def a_projector(log: MemoryLog) -> tuple[Context[Any], Awaitable[None]]:
    context = make_context("projector", ProjectorSettings(namespace="t"))
    metrics, functions = ProjectorMetrics(context.registry), LuaFunctions()

    async def work(tenure: Tenure) -> None:
        await CellProjector(context, log, LAYOUT, functions, metrics, tenure).run()

    return context, work_on_owned_cells(context, log, LAYOUT, "projector", work)


def some_metrics(log: MemoryLog) -> tuple[Context[Any], Awaitable[None]]:
    context = make_context("metrics", MetricsSettings(namespace="t"))
    return context, measure(context, log, LAYOUT)


@pytest.fixture
def a_placement(tmp_path: Path) -> Start:
    file = tmp_path / "cell.yaml"
    file.write_text(TEXT, encoding="utf-8")

    def start(log: MemoryLog) -> tuple[Context[Any], Awaitable[None]]:
        async def opening(_context: Context[Any], _file: CellFile) -> MemoryLog:
            return log

        context = make_context("placement", PlacementSettings(namespace="t", cell_file=file))
        return context, placement(context, opening)

    return start


@pytest.fixture
def an_executor(tmp_path: Path) -> Start:
    def start(log: MemoryLog) -> tuple[Context[Any], Awaitable[None]]:
        context = make_context("executor", ExecutorSettings(namespace="t", data_dir=tmp_path, nodes_file=tmp_path))
        nodes = {SICK: (node(1),), WELL: (node(2),)}
        return context, execute(context, log, FILE, nodes)

    return start


@pytest.fixture(params=["placement", "queueing", "loaning", "projector", "metrics", "executor"])
def start(request: pytest.FixtureRequest, a_placement: Start, an_executor: Start) -> Start:
    starts: dict[str, Start] = {
        "placement": a_placement,
        "queueing": a_queueing,
        "loaning": a_loaning,
        "projector": a_projector,
        "metrics": some_metrics,
        "executor": an_executor,
    }
    return starts[request.param]


@pytest.mark.parametrize("is_damaged_at_first", [False, True])
async def test_a_damaged_cell_is_fenced_with_its_place_and_the_other_cell_goes_on(
    start: Start, is_damaged_at_first: bool
) -> None:
    cells = Cells()
    cells.decide(SICK)
    if is_damaged_at_first:
        cells.damage(SICK)
    context, work = start(cells.log)
    running = asyncio.ensure_future(work)
    if not is_damaged_at_first:
        await eventually(lambda: {SICK, WELL} <= context.health.progress.version.keys())
        cells.damage(SICK)
        cells.join(SICK)  # a writer at rest reads its own log only when it has something to write
    await eventually(lambda: SICK in context.health.fences)
    status, _, body = context.health.answer("/readyz")
    told = json.loads(body)
    assert (status, told["cells"][SICK]["ready"]) == (503, False)
    assert (told["cells"][SICK]["topic"], told["cells"][SICK]["partition"]) == ("t.decisions", 0)
    assert "version 1000000 follows" in told["cells"][SICK]["reason"]
    assert told["cells"][SICK]["offset"] >= 1
    assert context.registry.get_sample_value("fallow_cell_fenced", {"cell": SICK}) == 1
    before = context.health.progress.version.get(WELL, 0)
    if context.service != "placement":
        cells.decide(WELL)  # placement itself writes there
    await eventually(lambda: context.health.progress.version.get(WELL, 0) >= max(1, before))
    assert context.health.answer(f"/readyz/{WELL}")[0] == 200
    assert context.health.answer(f"/readyz/{SICK}")[0] == 503
    assert not running.done()
    context.stopping.set()
    await asyncio.wait_for(running, 10)


async def test_a_cell_of_another_release_is_fenced_and_nothing_is_written_there(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = Cells()
    cells.write_as_an_earlier_release()
    cells.join(SICK)
    context, work = start(cells.log)
    running = asyncio.ensure_future(work)
    await eventually(lambda: SICK in context.health.fences)
    fence = context.health.fences[SICK]
    assert (fence.topic, fence.partition, fence.offset) == ("t.decisions", 0, 0)
    assert "is of another release, this one reads fallow.decision." in fence.reason
    assert "(got fallow.decision.v1)" in fence.reason
    assert [cells.broker.partition((f"t.{topic}", 0)).end for topic in ("decisions", "snapshots", "queue")] == [1, 0, 0]
    context.stopping.set()
    await asyncio.wait_for(running, 10)
    [told] = [line for line in capsys.readouterr().out.splitlines() if "operator action needed" in line]
    assert "the log is another release's: docs/operations.md" in told
    assert "log repair" not in told  # it touches no such log


async def test_a_cell_whose_decisions_cannot_be_read_is_fenced_with_its_place_and_the_other_cell_goes_on(
    start: Start,
) -> None:
    cells = Cells()
    for cell in (SICK, SICK, SICK, WELL):
        cells.decide(cell)
    cells.broker.damage(LAYOUT.tp("decisions", SICK), 1)
    context, work = start(cells.log)
    running = asyncio.ensure_future(work)
    await eventually(lambda: SICK in context.health.fences)
    fence = context.health.fences[SICK]
    assert (fence.topic, fence.partition, fence.offset) == ("t.decisions", 0, 1)
    assert "t.decisions/0 cannot be read at offset 1 (" in fence.reason
    await eventually(lambda: context.health.progress.version.get(WELL, 0) >= 1)
    assert context.health.answer(f"/readyz/{WELL}")[0] == 200
    assert context.registry.get_sample_value("fallow_cell_failures_total", {"cell": SICK}) in {None, 0}
    context.stopping.set()
    await asyncio.wait_for(running, 10)


async def test_work_that_fails_begins_anew_and_says_so_meanwhile() -> None:
    context, tries = make_context("any", ServiceSettings()), 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise AssertionError("a rule of ours is broken")
        await context.stopping.wait()

    running = asyncio.create_task(work_apart(context, LAYOUT, SICK, work))
    await eventually(lambda: "a rule of ours is broken" in (context.health.waiting_for or ""))
    await eventually(lambda: tries == 2)
    await eventually(lambda: "a rule of ours" not in (context.health.waiting_for or ""))
    assert context.registry.get_sample_value("fallow_cell_failures_total", {"cell": SICK}) == 1
    context.stopping.set()
    await running


async def test_records_that_were_cleaned_away_unread_are_no_damage() -> None:
    context, tries = make_context("any", ServiceSettings()), 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LogTruncated(("t.decisions", 0), asked=3, begin=10, end=20)
        await context.stopping.wait()

    running = asyncio.create_task(work_apart(context, LAYOUT, SICK, work))
    await eventually(lambda: tries == 2)
    assert context.health.fences == {}
    context.stopping.set()
    await running


async def test_a_lost_tail_fences_for_as_long_as_the_process_lives() -> None:
    context, tries = make_context("any", ServiceSettings()), 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        raise LogTruncated(("t.decisions", 0), asked=30, begin=10, end=20)

    running = asyncio.create_task(work_apart(context, LAYOUT, SICK, work))
    await eventually(lambda: SICK in context.health.fences)
    again = asyncio.create_task(work_apart(context, LAYOUT, SICK, work))
    await asyncio.sleep(0.05)
    assert (tries, running.done(), again.done()) == (1, False, False)
    context.stopping.set()
    await asyncio.gather(running, again)


async def test_an_error_that_concerns_the_whole_process_is_not_kept_from_it() -> None:
    class WrongTopics(Exception):
        pass

    async def work() -> None:
        raise WrongTopics("t.jobs is missing")

    with pytest.raises(WrongTopics):
        await work_apart(make_context("any", ServiceSettings()), LAYOUT, SICK, work)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (DamagedLog("offset 3: records are missing"), "begin with `fallow log repair`"),
        (BehindForged("offset 3: records are missing"), "start the process again with the cell file in force"),
        (OtherRelease("offset 3: a record cannot be read"), "the log is another release's"),
        (NoUsableSnapshot("there is no whole snapshot"), "begin with `fallow log repair`"),
        (OtherReleasesSnapshots("there is no whole snapshot that this release reads"), "the log is another release's"),
    ],
)
async def test_who_finds_a_cell_fenced_is_told_what_helps(
    capsys: pytest.CaptureFixture[str], error: Exception, advice: str
) -> None:
    async def work() -> None:
        raise ExceptionGroup("of several tasks", [error])

    context = make_context("any", ServiceSettings())
    running = asyncio.create_task(work_apart(context, LAYOUT, SICK, work))
    await eventually(lambda: SICK in context.health.fences)
    context.stopping.set()
    await running
    [told] = [line for line in capsys.readouterr().out.splitlines() if "operator action needed" in line]
    assert f"fenced: operator action needed, {advice}" in told


async def test_a_decision_that_no_record_can_hold_fences_its_cell_alone() -> None:
    context = make_context("placement", PlacementSettings(namespace="t"))

    async def sick() -> None:
        raise UnwritableDecision("a decision that comes from no input cannot be written")

    async def well() -> None:
        await context.stopping.wait()

    running = [
        asyncio.create_task(work_apart(context, LAYOUT, cell, work)) for cell, work in ((SICK, sick), (WELL, well))
    ]
    await eventually(lambda: SICK in context.health.fences)
    assert [task.done() for task in running] == [False, False]
    assert list(context.health.fences) == [SICK]
    context.stopping.set()
    await asyncio.gather(*running)


def test_every_error_for_which_a_process_would_end_as_fenced_fences_one_cell() -> None:
    fencing = {kind.__name__ for kind in FENCING}
    assert {name for name, ending in ENDINGS.items() if ending.exit_code == FENCED} <= fencing
