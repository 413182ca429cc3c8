"""Diaries on disk, and who may write them."""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.cli.verify.verification import forgotten_version, read_diaries
from fallow.services.executor.diaries import SEQ_PER_REIGN, Diaries, Lives
from fallow.services.executor.files import DiskFiles
from fallow.shared.cluster.checks.run_journal import HORIZON_BEGINS, DiaryLine, Orders, RunKey, check_diaries
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.nodes import SEQ_LEAD_WALL_MS, SEQ_PER_MS, NodeReport
from tests.hypothesis_profile import reaches


def line(node: str = "node-1", job: str = "a") -> DiaryLine:
    return DiaryLine(node=node, job=job, attempt=1, event="started", devices=(0,), gpu_milli=1000, cell_ms=1, wall_ms=2)


EVERY = ("a", "b", "c")


@pytest.fixture
def diaries(tmp_path: Path) -> Diaries:
    made = Diaries(DiskFiles(tmp_path), "cell-a", 1)
    made.take(0, wall_ms=5)
    return made


def test_what_was_written_is_read_in_its_order(diaries: Diaries) -> None:
    diaries.write([line(), line("node-2"), line(job="b")])
    diaries.write([line(job="c")])
    assert [read.job for read in diaries.read(0, EVERY)["node-1"]] == ["a", "b", "c"]
    assert diaries.read(0, EVERY)["node-2"] == [line("node-2")]


class Synced(DiskFiles):
    """Files that tell what was made certain, and how long it was then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.certain: list[tuple[str, int]] = []

    async def sync(self, name: str, file: int) -> None:
        size_bytes = self.size_bytes(file)
        await super().sync(name, file)
        self.certain.append((name.partition("/")[0], size_bytes))


async def test_what_was_written_is_made_certain_once_and_the_reign_before_it(tmp_path: Path) -> None:
    files = Synced(tmp_path)
    diaries = Diaries(files, "cell-a", 1)
    diaries.take(0, wall_ms=5)
    diaries.write([line()])
    size_bytes = len(encode(line())) + 1
    await diaries.sync()
    await diaries.sync()
    assert files.certain == [("reigns", 20), ("diaries", size_bytes)]
    diaries.write([line(job="b")])
    await diaries.sync()
    assert files.certain[2:] == [("diaries", 2 * size_bytes)]


async def test_a_diary_that_is_let_go_of_while_it_is_made_certain_stays_closed(tmp_path: Path) -> None:
    diaries = Diaries(DiskFiles(tmp_path), "cell-a", 1)
    diaries.take(0, wall_ms=5)
    diaries.write([line()])
    syncing = asyncio.create_task(diaries.sync())
    await asyncio.sleep(0)
    diaries.let_go(0)
    await syncing
    assert diaries.write([line()]) == [0]


@pytest.mark.parametrize("left", [b"", b"\0" * 20])
def test_a_reign_that_a_loss_of_power_took_counts_from_the_clock(tmp_path: Path, left: bytes) -> None:
    files = DiskFiles(tmp_path)
    before = Diaries(files, "cell-a", 1).take(0, wall_ms=5_000)
    files.write_begin(files.open("reigns/cell-a-0-of-1"), b"\0" * 20)
    (tmp_path / "reigns" / "cell-a-0-of-1").write_bytes(left)
    assert Diaries(files, "cell-a", 1).take(0, wall_ms=6_000) > before - SEQ_PER_REIGN


def test_ended_runs_of_jobs_that_are_over_are_left_out(diaries: Diaries) -> None:
    over, open_still, awaited = line(job="over"), line(job="open"), line(job="awaited")
    diaries.write([over, open_still, awaited, *(replace(run, event="ended") for run in (over, awaited))])
    found = diaries.read(0, ["awaited"])["node-1"]
    assert [(read.job, read.event) for read in found] == [
        ("open", "started"),
        ("awaited", "started"),
        ("awaited", "ended"),
    ]


def test_a_node_that_wrote_nothing_has_an_empty_diary(diaries: Diaries) -> None:
    assert diaries.read(0, EVERY)["node-9"] == []


def test_a_line_that_a_crash_tore_is_cut_off(diaries: Diaries, tmp_path: Path) -> None:
    diaries.write([line()])
    path = tmp_path / "diaries" / "cell-a-0-of-1.jsonl"
    path.write_bytes(path.read_bytes() + b'{"node":"node-1","jo')
    assert diaries.read(0, EVERY)["node-1"] == [line()]
    diaries.write([line(job="b")])
    assert [read.job for read in diaries.read(0, EVERY)["node-1"]] == ["a", "b"]


def test_whoever_took_the_reign_last_writes_alone(diaries: Diaries, tmp_path: Path) -> None:
    other = Diaries(DiskFiles(tmp_path), "cell-a", 1)
    other.take(0, wall_ms=5)
    assert (diaries.write([line()]), other.write([line(job="b")])) == ([0], [])
    assert [read.job for read in other.read(0, EVERY)["node-1"]] == ["b"]


def test_whoever_lost_the_reign_can_know_it_without_writing(diaries: Diaries, tmp_path: Path) -> None:
    assert diaries.lost() == []
    Diaries(DiskFiles(tmp_path), "cell-a", 1).take(0, wall_ms=6)
    assert diaries.lost() == [0]


def test_who_took_no_reign_writes_nothing(tmp_path: Path) -> None:
    assert Diaries(DiskFiles(tmp_path), "cell-a", 1).write([line()]) == [0]
    assert not list(tmp_path.iterdir())


def test_each_reign_counts_from_above_the_one_before(tmp_path: Path) -> None:
    made = Diaries(DiskFiles(tmp_path), "cell-a", 1)
    first, back_in_time, on_another_disk = made.take(0, 1_000_000), made.take(0, 1), made.take(0, 9_000_000)
    assert first == (1_000_000 + SEQ_LEAD_WALL_MS) * SEQ_PER_MS
    assert back_in_time == first + SEQ_PER_REIGN
    assert on_another_disk == (9_000_000 + SEQ_LEAD_WALL_MS) * SEQ_PER_MS


def run_lines(job: str, node: str = "node-1", *, is_over: bool = True) -> list[DiaryLine]:
    begun = line(node, job)
    return [begun, replace(begun, event="ended", status=RunStatus.FINISHED)] if is_over else [begun]


def grown_diaries(folder: Path, grown_bytes: int = 1) -> Diaries:
    made = Diaries(DiskFiles(folder), "cell-a", 1, grown_bytes)
    made.take(0, wall_ms=5)
    return made


def text_of(folder: Path) -> bytes:
    return (folder / "diaries" / "cell-a-0-of-1.jsonl").read_bytes()


def lives(*jobs: str, version: int = 7, nodes: tuple[str, ...] = ("node-1",)) -> Lives:
    return Lives(version, jobs, nodes)


def test_what_is_over_for_good_is_forgotten_and_the_rest_is_kept_whole(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path)
    diaries.write([*run_lines("over"), *run_lines("awaited"), *run_lines("open", is_over=False)])
    assert diaries.grown() == [0]
    assert diaries.forget(0, lives("awaited"))
    assert diaries.read(0, EVERY)["node-1"] == [*run_lines("open", is_over=False)]
    assert diaries.read(0, ["awaited"])["node-1"] == [*run_lines("awaited"), *run_lines("open", is_over=False)]
    assert b"over" not in text_of(tmp_path)
    assert text_of(tmp_path).startswith(HORIZON_BEGINS)


def test_the_newest_lines_stay_for_a_while_with_all_of_their_runs(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path, 4 * len(encode(run_lines("new")[1])) + 8)
    old, new = run_lines("old"), run_lines("new")
    diaries.write([*new[:1], *old, *new[1:]])
    assert diaries.forget(0, lives())
    assert diaries.read(0, ["old", "new"])["node-1"] == new


def test_an_open_run_of_a_node_that_was_removed_is_forgotten_with_its_job(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path)
    diaries.write([*run_lines("job", "node-9", is_over=False), *run_lines("job", is_over=False), line(job="last")])
    assert diaries.forget(0, lives())
    assert {node: len(lines) for node, lines in diaries.read(0, EVERY).items()} == {"node-1": 2}


def test_what_is_written_behind_a_shortening_is_in_the_new_file(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path)
    diaries.write(run_lines("over"))
    assert diaries.forget(0, lives())
    assert diaries.write([line(job="next")]) == []
    assert [read.job for read in Diaries(DiskFiles(tmp_path), "cell-a", 1).read(0, EVERY)["node-1"]] == ["next"]
    assert diaries.forget(0, lives("next", version=9))
    assert text_of(tmp_path).count(HORIZON_BEGINS) == 1
    assert b'"forgotten_version":9' in text_of(tmp_path)


def test_whoever_lost_the_reign_shortens_nothing(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path)
    diaries.write(run_lines("over"))
    Diaries(DiskFiles(tmp_path), "cell-a", 1).take(0, wall_ms=6)
    before = text_of(tmp_path)
    assert not diaries.forget(0, lives())
    assert text_of(tmp_path) == before
    assert not Diaries(DiskFiles(tmp_path), "cell-a", 1).forget(0, lives())


def test_a_shortening_that_a_crash_tore_harms_nothing(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path)
    diaries.write([*run_lines("over"), line(job="open")])
    torn = tmp_path / "diaries" / "cell-a-0-of-1.jsonl.new"
    torn.write_bytes(b'{"forgotten_version":3,"cell":"cell-a"}\n{"node":"nod')
    again = grown_diaries(tmp_path)
    assert [read.job for read in again.read(0, EVERY)["node-1"]] == ["open"]
    assert list(read_diaries(tmp_path)) == [*run_lines("over"), line(job="open")]
    assert again.forget(0, lives())
    assert not torn.exists()


def test_a_diary_of_what_lives_alone_is_not_shortened_again_and_again(tmp_path: Path) -> None:
    diaries = grown_diaries(tmp_path)
    diaries.write([line(job=f"job-{number}") for number in range(50)])
    assert diaries.forget(0, lives())
    assert diaries.grown() == []


move = st.tuples(st.sampled_from(["begin", "end", "settle", "forget", "restart"]), st.integers(0, 11))
life = st.integers(0, 11).map(lambda number: [("begin", number), ("end", number), ("settle", number)])
steps = st.lists(life | move.map(lambda each: [each]), max_size=40).map(lambda parts: [*chain.from_iterable(parts)])


@settings(deadline=None)
@given(steps, st.just(1) | st.integers(1, 3_000))
def test_whatever_is_forgotten_an_executor_and_the_judge_find_what_they_need(
    moves: list[tuple[str, int]], grown_bytes: int
) -> None:
    """Runs begin, end, and are over in the log; the diary is shortened, and its writer replaced, at any time."""
    with TemporaryDirectory() as folder:
        diaries, told, orders = grown_diaries(Path(folder), grown_bytes), list[DiaryLine](), Orders()
        live, running = dict[str, None](), dict[str, DiaryLine]()
        for version, (move, number) in enumerate(moves, start=1):
            job = f"job-{number}"
            if move == "begin" and all(line.job != job for line in told):
                live[job], running[job] = None, line(f"node-{number % 3}", job)
                orders.versions[of(running[job])] = version
                orders.started[of(running[job])], orders.running[job, 1, 0] = {0: 1}, None
                told.append(running[job])
                diaries.write(told[-1:])
            elif move == "end" and job in running:
                told.append(replace(running.pop(job), event="ended"))
                diaries.write(told[-1:])
            elif move == "settle" and job not in running:
                live.pop(job, None)
            elif move == "restart":
                diaries.let_go(0)
                diaries = grown_diaries(Path(folder), grown_bytes)
            elif move == "forget":
                before = diaries.read(0, live)
                assert diaries.forget(0, Lives(version, live, ("node-0", "node-1", "node-2")))
                assert diaries.read(0, live) == before
        diaries.let_go(0)
        kept = list(read_diaries(Path(folder)))
        whole = {of(line): None for line in kept}
        reaches("some lines are forgotten, and others kept", 0 < len(kept) < len(told))
        assert kept == [line for line in told if of(line) in whole]
        assert all(of(line) in whole for line in running.values())
        assert check_diaries(orders, kept, forgotten_version(Path(folder), "cell-a")) == []


def of(line: DiaryLine) -> RunKey:
    return (line.node, line.job, line.attempt, line.rank, line.turn, 0)


def test_a_clock_that_was_once_far_ahead_leaves_numbers_enough(tmp_path: Path) -> None:
    right_ms, year_2300_ms = 1_795_000_000_000, 10_413_792_000_000
    made = Diaries(DiskFiles(tmp_path), "cell-a", 1)
    taken = [made.take(0, right_ms), made.take(0, year_2300_ms), made.take(0, right_ms + 1)]
    assert taken == sorted(taken), "what was said before is older than what is said behind it"
    assert max(taken) <= LARGEST_INTEGER // 2, "every number can be written"


def test_a_reign_whose_numbers_no_record_can_hold_is_passed_over(tmp_path: Path) -> None:
    files, right_ms = DiskFiles(tmp_path), 1_795_000_000_000
    files.write_begin(files.open("reigns/cell-a-0-of-1"), b"%020d" % (LARGEST_INTEGER + 1))
    seq = Diaries(files, "cell-a", 1).take(0, right_ms)
    report = NodeReport(cell="cell-a", node="n1", boot="b", seq=seq + 1)
    assert decode(NodeReport.type, encode(report)) == report


def test_a_reign_begins_above_the_ones_before_it_and_ahead_of_the_clock_once_that_has_gone_on(diaries: Diaries) -> None:
    taken = [diaries.take(0, wall_ms=1_000_000) for _ in range(50)]
    assert taken == sorted(set(taken))
    assert diaries.take(0, wall_ms=2_000_000) == (2_000_000 + SEQ_LEAD_WALL_MS) * SEQ_PER_MS
