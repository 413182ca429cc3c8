"""Admission reads no further while placement is behind, and waits for no placement that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from fallow.services.admission.app.answering import Admission
from fallow.services.admission.app.keeping_pace import LOOK_AGAIN_MS, jobs_read_to
from fallow.services.admission.policy.backpressure import AWAY_MS, Backpressure
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.codec.encoding import TYPE_HEADER, ce_headers, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import ReloadCell
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.memory.reader import MemoryReader
from fallow.shared.log.opening import layout_for
from fallow.shared.log.port import LogUnavailable, Outgoing, Reader, Record, TopicPartition
from fallow.shared.runtime.files.cell_file import load_cell_file, parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually
from tests.hypothesis_profile import reaches
from tests.signing import NEXT, STRANGERS, WRITERS, believing, public, signed, signed_text

LAYOUT = Layout("t", {"main": 0, "other": 1})
MAX_MS = 2_000
FILE = parse_cell_file(
    """
cells:
  - {name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}
tenants: [{name: vision}]
""",
    "cell",
)
TWO_CELLS = parse_cell_file(
    """
cells:
  - {name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}
  - {name: other, ordinal: 1, pools: [{name: spare, gpus: 8}]}
tenants: [{name: vision}]
""",
    "cell",
)


class SteppedHost(Host):
    """Its monotonic time is what the test says."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class BlindLog(MemoryLog):
    """It can be told not to say where topics end."""

    is_blind = False

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.is_blind:
            raise LogUnavailable("no answer")
        return await super().end_offsets(tps)


class HidingLog(BlindLog):
    """It can be told not to say where topics begin, which only who looks whose a cell's log is wants to know."""

    hides, looks = False, 0

    async def begin_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.looks += ("t.decisions", 0) in tps
        if self.hides:
            raise LogUnavailable("no answer")
        return await super().begin_offsets(tps)


class SlowReader(MemoryReader):
    """As of a broker that hands out one batch at a time, however small. After `come` decisions none comes."""

    come = 1_000

    async def poll(self, max_records: int = 500, wait_ms: int = 100) -> list[Record]:
        if self.come <= 0:
            return []
        self.come -= 1
        return await super().poll(min(1, max_records), wait_ms)


class SlowLog(BlindLog):
    """Its readers are slow."""

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:
        self.last_reader = SlowReader(self._broker, positions)
        return self.last_reader


class Cell:
    """Admission before a log in memory, in which the test plays the placement of cell main."""

    def __init__(
        self,
        file: CellFile = FILE,
        kind: type[BlindLog] = BlindLog,
        layout: Layout = LAYOUT,
        path: Path | None = None,
    ) -> None:
        """`path`: where the cell file stands, whose keys admission goes by."""
        self.broker = MemoryBroker()
        for topic in ("jobs", "decisions", "snapshots", "dead-letters"):
            self.broker.create_topic(f"t.{topic}", 2)
        self.log = kind(self.broker)
        self.host = SteppedHost()
        self._path = path
        self.context = self.context_anew()
        if path is not None:
            file = load_cell_file(path)
            layout = layout_for(self.context, file)
        self.admission = Admission(self.context, self.log, layout, file)
        self._jobs, self._version = 0, 0

    def context_anew(self) -> Context[AdmissionSettings]:
        """As of a process of its own."""
        settings = AdmissionSettings(namespace="t", jobs_behind_wall_ms=MAX_MS)
        if self._path is not None:
            settings = settings.model_copy(update={"cell_file": self._path})
        return replace(make_context("admission", settings), host=self.host)

    async def submit(self, pool: str = "training") -> asyncio.Task[None]:
        """The batch of one job, on its way; what can happen at once has happened."""
        self._jobs += 1
        event = SubmitJob(job=JobSpec(id=f"job-{self._jobs}", tenant="vision", pools=(pool,)))
        headers = ce_headers(event, id="1", source="test", wall_ms=0)
        record = Record("t.submissions", 0, self._jobs, b"k", encode(event), headers, 1_000)
        task = asyncio.create_task(self.admission.handle([record]))
        await asyncio.sleep(0.05)
        return task

    async def passes_on(self, pool: str = "training") -> None:
        """Admission passes one more job on, and waits for no cell."""
        held = await self.submit(pool)
        async with asyncio.timeout(5):
            await held

    async def placement_reads(self, next_offset: int | None, cell: str = "main") -> None:
        """The cell decides, and has read its jobs so far; None: by a decision that took none of them."""
        self._version += 1
        number = LAYOUT.ordinals[cell]
        inputs = {f"nodes-{number}": self._version} if next_offset is None else {f"jobs-{number}": next_offset}
        decision = Decision(cell=cell, version=self._version, epoch=1, inputs=inputs, at_ms=0)
        await self.log.publish([LAYOUT.outgoing(decision, id=str(self._version), source="test", wall_ms=0)])

    def passes(self, wait_ms: int) -> None:
        """So much time goes by."""
        self.host.now_ms += wait_ms

    @property
    def readiness(self) -> bytes:
        """What the process says of itself."""
        return self.context.health.answer("/readyz")[2]

    @property
    def passed_on(self) -> int:
        """How many jobs placement can read."""
        return len(self.broker.partition(("t.jobs", 0)).records)


async def behind(file: CellFile = FILE) -> Cell:
    """Placement has read the first of two jobs, and then nothing for almost as long as is allowed."""
    cell = Cell(file)
    await cell.admission.pace.begin()
    await cell.passes_on()
    await cell.placement_reads(1)
    await cell.passes_on()
    await cell.admission.pace.look()
    cell.passes(MAX_MS - 1)
    await cell.admission.pace.look()
    await cell.passes_on()
    assert cell.passed_on == 3
    return cell


async def too_far_behind(file: CellFile = FILE) -> Cell:
    """A cell like `behind` gives, a moment later."""
    cell = await behind(file)
    cell.passes(1)
    await cell.admission.pace.look()
    return cell


async def test_what_placement_has_no_time_for_stays_in_the_submissions() -> None:
    cell = await too_far_behind()
    held = await cell.submit()
    assert (held.done(), cell.passed_on) == (False, 3)
    assert b"reads no submissions until placement has caught up: behind in main by 2000 ms" in cell.readiness
    await cell.placement_reads(3)
    await cell.admission.pace.look()
    async with asyncio.timeout(5):
        await held
    assert cell.passed_on == 4
    assert b"reads no submissions" not in cell.readiness


async def test_a_decision_that_no_key_of_the_cell_proves_says_nothing_of_how_far_placement_is() -> None:
    layout = believing(LAYOUT, public(WRITERS), cell="main")
    cell = Cell(layout=layout)
    await cell.admission.pace.begin()
    await cell.passes_on()
    for version in (0, 1):
        of_an_impostor = Decision(cell="main", version=1, epoch=1, inputs={"jobs-0": 0}, at_ms=0)
        value = encode(of_an_impostor).replace(b'"version":1', b'"version":%d' % version)
        await cell.log.publish([with_fields(signed(LAYOUT, [of_an_impostor], STRANGERS)[0], value=value)])
    await cell.admission.pace.look()
    cell.passes(MAX_MS)
    await cell.admission.pace.look()
    await cell.passes_on()
    assert cell.passed_on == 2


def write(path: Path, *keys: str) -> None:
    path.write_text(signed_text(*keys))


@pytest.fixture
def signed_path(tmp_path: Path) -> Path:
    path = tmp_path / "cell.yaml"
    write(path, public(WRITERS))
    return path


async def reads_all_jobs(cell: Cell, key: SigningKey | None) -> None:
    """Placement decides with this key, and has read all jobs; then admission looks."""
    read = Decision(cell="main", version=1, epoch=1, inputs={"jobs-0": cell.passed_on}, at_ms=0)
    await cell.log.publish(signed(LAYOUT, [read], key))
    cell.passes(1)
    await cell.admission.pace.look()


async def test_an_admission_that_runs_while_a_key_is_added_knows_how_far_the_writer_with_it_is(
    signed_path: Path,
) -> None:
    cell = Cell(path=signed_path)
    await cell.admission.pace.begin()
    await cell.passes_on("train")
    await reads_all_jobs(cell, WRITERS)
    write(signed_path, public(WRITERS), public(NEXT))
    await cell.passes_on("train")
    await reads_all_jobs(cell, NEXT)
    cell.passes(MAX_MS + 1)
    await cell.admission.pace.look()
    assert behind_s(cell) == 0


async def test_an_admission_that_runs_while_its_cell_gets_its_first_keys_believes_no_other_from_its_reload_on(
    signed_path: Path,
) -> None:
    write(signed_path)
    cell = Cell(path=signed_path)
    await cell.admission.pace.begin()
    await cell.passes_on("train")
    await reads_all_jobs(cell, None)
    write(signed_path, public(WRITERS))
    await cell.passes_on("train")
    await reload(cell)
    await reads_all_jobs(cell, STRANGERS)
    cell.passes(MAX_MS - 1)
    await cell.admission.pace.look()
    assert behind_s(cell) > 0


async def reload(cell: Cell) -> None:
    """An operator has the cell file read again, and admission has done so."""
    cell.broker.create_topic("t.operations", 1)
    cell.admission._operations = await cell.admission._stand_at_operations()
    following = asyncio.create_task(cell.admission.follow_operations())
    order = ReloadCell(cell="main", by="operator")
    await cell.log.publish([LAYOUT.outgoing(order, id="reload", source="test", wall_ms=0)])
    counted = cell.context.telemetry.reloads.labels("in_force")
    await eventually(lambda: counted._value.get() == 1 or following.done())
    await asyncio.sleep(0.2)  # it counts before it goes by the file
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def behind_s(cell: Cell) -> float:
    """For how long placement was seen to be behind."""
    found = cell.context.registry.get_sample_value("fallow_admission_behind_seconds", {"cell": "main"})
    assert found is not None
    return found


async def test_decisions_that_come_late_make_no_placement_slow() -> None:
    cell = Cell(kind=SlowLog)
    await cell.admission.pace.begin()
    for number in range(1, 20):
        await cell.passes_on()
        await cell.placement_reads(number)
        await cell.placement_reads(None)
        await cell.admission.pace.look()
        cell.passes(MAX_MS // 2)
    assert cell.passed_on == 19


async def test_placement_is_not_waited_for_where_its_decisions_have_not_all_come() -> None:
    cell = Cell(kind=SlowLog)
    assert isinstance(cell.log, SlowLog)
    await cell.admission.pace.begin()
    cell.log.last_reader.come = 1
    for number in range(1, 9):
        await cell.passes_on()
        await cell.placement_reads(number)
        await cell.admission.pace.look()
        cell.passes(MAX_MS // 2)
    cell.log.last_reader.come = 100
    await cell.passes_on()
    await cell.admission.pace.look()
    cell.passes(MAX_MS)
    await cell.admission.pace.look()
    assert not (await cell.submit()).done()  # all has come, and says that the last job is not read


async def with_damage() -> tuple[Cell, HidingLog]:
    """The log of the cell is damaged, placement has read none of its one job, and it is time to look whose log it is
    now.
    """
    cell = Cell(kind=HidingLog)
    assert isinstance(cell.log, HidingLog)
    cell.broker.write(Outgoing("t.decisions", b"{}", b"k", ((TYPE_HEADER, Decision.type.encode()),), 0))
    cell.broker.delete_before(("t.decisions", 0), 1)
    await cell.admission.pace.begin()
    assert await cell.admission.pace.others() is None
    await cell.passes_on()
    await cell.placement_reads(0)
    await cell.admission.pace.look()
    cell.passes(LOOK_AGAIN_MS)
    cell.log.looks = 0
    return cell, cell.log


async def test_while_kafka_does_not_tell_whose_a_damaged_log_is_it_is_measured_how_far_placement_is_behind() -> None:
    cell, log = await with_damage()
    log.hides = True
    await cell.admission.pace.look()
    assert (log.looks, behind_s(cell)) == (1, LOOK_AGAIN_MS / 1_000)


async def test_who_was_not_told_whose_a_damaged_log_is_asks_again_once_in_a_while() -> None:
    cell, log = await with_damage()
    log.hides = True
    asked = []
    for _ in range(6):
        await cell.admission.pace.look()
        asked.append(log.looks)
        cell.passes(LOOK_AGAIN_MS // 2)
    assert asked == [1, 1, 2, 2, 3, 3]


async def test_who_was_told_whose_a_damaged_log_is_asks_no_more_while_nothing_is_decided() -> None:
    cell, log = await with_damage()
    for _ in range(3):
        await cell.admission.pace.look()
        cell.passes(LOOK_AGAIN_MS)
    assert log.looks == 1


async def test_nothing_is_passed_on_to_a_cell_whose_log_was_made_anew_before_kafka_tells_whose_it_is() -> None:
    cell = Cell(kind=HidingLog)
    assert isinstance(cell.log, HidingLog)
    await cell.placement_reads(0)
    await cell.admission.pace.begin()
    await cell.passes_on()
    cell.broker.cut(("t.decisions", 0), 0)
    cell.log.hides = True
    for _ in range(2):
        await cell.admission.pace.look()
        with pytest.raises(LogUnavailable, match="another release"):
            await cell.passes_on()
        cell.passes(LOOK_AGAIN_MS)
    cell.log.hides = False
    await cell.admission.pace.look()
    await cell.passes_on()
    assert cell.passed_on == 2


async def test_no_cell_is_held_up_by_another_one_of_its_file_that_is_behind() -> None:
    cell = await too_far_behind(TWO_CELLS)
    await cell.passes_on()
    assert cell.passed_on == 4
    assert b"reads no submissions" not in cell.readiness


async def both_behind() -> Cell:
    """Two cells whose placements have read the first of three jobs each, and then nothing for too long."""
    cell = Cell(TWO_CELLS)
    await cell.admission.pace.begin()
    for pool in ("training", "spare") * 3:
        await cell.passes_on(pool)
    await cell.placement_reads(1, "main")
    await cell.placement_reads(1, "other")
    await cell.admission.pace.look()
    cell.passes(MAX_MS)
    await cell.admission.pace.look()
    return cell


async def test_where_all_cells_of_a_file_are_behind_all_are_waited_for() -> None:
    cell = await both_behind()
    held = await cell.submit()
    assert not held.done()
    assert b"behind in main by 2000 ms, other by 2000 ms" in cell.readiness
    await cell.placement_reads(3, "other")
    await cell.admission.pace.look()
    async with asyncio.timeout(5):
        await held


@pytest.mark.parametrize("away", ["main", "other"])
async def test_of_two_cells_the_one_that_is_away_is_waited_for_by_none(away: str) -> None:
    """Each cell has read on at its own time, of which only its own decisions tell."""
    cell = await both_behind()
    cell.passes(AWAY_MS - MAX_MS - 1)
    await cell.placement_reads(2, "other" if away == "main" else "main")
    await cell.admission.pace.look()
    held = await cell.submit()
    assert not held.done()
    cell.passes(1)
    async with asyncio.timeout(5):
        await held


async def test_to_look_again_at_a_placement_that_is_away_does_not_bring_it_back() -> None:
    cell = await too_far_behind()
    for _ in range(4):
        cell.passes(AWAY_MS // 4)
        await cell.admission.pace.look()
    await cell.passes_on()
    for _ in range(4):
        cell.passes(AWAY_MS // 2)
        await cell.admission.pace.look()
        await cell.passes_on()


async def test_a_decision_that_took_no_jobs_says_nothing_of_how_far_they_are_read() -> None:
    cell = await behind()
    await cell.placement_reads(3)
    for _ in range(3):
        await cell.placement_reads(None)
    cell.passes(10 * MAX_MS)
    await cell.admission.pace.look()
    await cell.passes_on()
    assert cell.passed_on == 4


async def test_a_placement_that_reads_nothing_at_all_is_away_and_is_not_waited_for() -> None:
    cell = await too_far_behind()
    held = await cell.submit()
    cell.passes(AWAY_MS)
    async with asyncio.timeout(5):
        await held
    assert cell.passed_on == 4
    await cell.placement_reads(2)  # it is there again, and still far behind
    await cell.admission.pace.look()
    assert not (await cell.submit()).done()


async def test_a_process_that_is_to_stop_waits_no_longer() -> None:
    cell = await too_far_behind()
    held = await cell.submit()
    cell.context.stopping.set()
    async with asyncio.timeout(5):
        await held
    assert cell.passed_on == 4


async def test_where_the_log_does_not_say_how_far_it_reaches_nobody_is_waited_for_long() -> None:
    cell = await too_far_behind()
    cell.log.is_blind = True
    await cell.placement_reads(3)
    await cell.admission.pace.look()
    held = await cell.submit()
    cell.passes(AWAY_MS)
    async with asyncio.timeout(5):
        await held
    assert cell.passed_on == 4


async def test_admission_begins_with_a_backlog_of_which_it_knows_nothing() -> None:
    cell = Cell()
    for _ in range(3):
        await cell.passes_on()
    await cell.placement_reads(0)
    again = Admission(cell.context_anew(), cell.log, LAYOUT, FILE)
    await again.pace.begin()
    await again.pace.look()
    cell.admission = again
    await cell.passes_on()
    assert cell.passed_on == 4


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"[" * 100_000, b'{"inputs":{"jobs-0":"3"}}', b'{"inputs":{"jobs-0":-', b"\xff", b'{"in\xf3":{}}'],
)
async def test_what_is_no_decision_says_nothing_and_stops_nobody(value: bytes) -> None:
    cell = await behind()
    await cell.placement_reads(3)
    await cell.log.publish([Outgoing("t.decisions", key=b"main", value=value, headers=(), partition=0)])
    cell.passes(10 * MAX_MS)
    await cell.admission.pace.look()
    await cell.passes_on()
    assert cell.passed_on == 4


@given(st.integers(0, 60), st.integers(0, 60), st.binary(max_size=4))
def test_a_damaged_decision_is_read_or_passed_over(begin: int, end: int, other: bytes) -> None:
    value = b'{"cell":"main","inputs":{"jobs-0":3,"nodes-0":7},"at_ms":10000008086}'
    read_to = jobs_read_to(value[:begin] + other + value[end:], 0)
    reaches("a damaged decision is read all the same", read_to is not None)
    assert read_to is None or isinstance(read_to, int)


async def test_after_a_lost_tail_of_the_decisions_nobody_is_waited_for_until_placement_decides_again() -> None:
    cell = await too_far_behind()
    cell.broker.cut(("t.decisions", 0), 0)
    await cell.admission.pace.look()
    await cell.passes_on()
    cell.passes(10 * MAX_MS)
    await cell.placement_reads(4)
    await cell.admission.pace.look()
    await cell.passes_on()
    assert cell.passed_on == 5


def test_no_cell_is_waited_for_while_nothing_is_known_of_another_one() -> None:
    waiting = Backpressure(MAX_MS, cells=2)
    waiting.saw("main", 0, MAX_MS, 0)
    assert waiting.slow(0) == {}
    waiting.saw("other", 0, MAX_MS - 1, 0)
    assert waiting.slow(0) == {}
    waiting.saw("other", 0, MAX_MS, 0)
    assert waiting.slow(0) == {"main": MAX_MS, "other": MAX_MS}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4_000), st.integers(0, 3_000)), max_size=30))
def test_a_cell_is_waited_for_just_while_it_is_far_behind_and_reads_on(
    looks: list[tuple[int, int, int]],
) -> None:
    waiting, now_ms, moved_ms, last = Backpressure(MAX_MS), 0, 0, -1
    ways = set[bool]()
    for next_offset, behind_ms, pause_ms in looks:
        waiting.saw("main", next_offset, behind_ms, now_ms)
        moved_ms, last = (moved_ms if next_offset == last else now_ms), next_offset
        now_ms += pause_ms
        is_slow = behind_ms >= MAX_MS and now_ms - moved_ms < AWAY_MS
        ways.add(is_slow)
        assert waiting.slow(now_ms) == ({"main": behind_ms} if is_slow else {})
    reaches("a cell is waited for at one time, and not at another one", len(ways) > 1)
