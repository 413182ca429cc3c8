"""Diaries on disk, and who may write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.executor.diaries import Diaries
from shared.cluster.diary import DiaryLine
from shared.events.value import replace


def line(node: str = "node-1", job: str = "a") -> DiaryLine:
    return DiaryLine(node=node, job=job, attempt=1, event="started", devices=(0,), gpu_milli=1000, cell_ms=1, wall_ms=2)


EVERY = ("a", "b", "c")


@pytest.fixture
def diaries(tmp_path: Path) -> Diaries:
    made = Diaries(tmp_path, "cell-a", 1)
    made.take(0, wall_ms=5)
    return made


def test_what_was_written_is_read_in_its_order(diaries: Diaries) -> None:
    diaries.write([line(), line("node-2"), line(job="b")])
    diaries.write([line(job="c")])
    assert [read.job for read in diaries.read(0, EVERY)["node-1"]] == ["a", "b", "c"]
    assert diaries.read(0, EVERY)["node-2"] == [line("node-2")]


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
    other = Diaries(tmp_path, "cell-a", 1)
    other.take(0, wall_ms=5)
    assert (diaries.write([line()]), other.write([line(job="b")])) == ([0], [])
    assert [read.job for read in other.read(0, EVERY)["node-1"]] == ["b"]


def test_whoever_lost_the_reign_can_know_it_without_writing(diaries: Diaries, tmp_path: Path) -> None:
    assert diaries.lost() == []
    Diaries(tmp_path, "cell-a", 1).take(0, wall_ms=6)
    assert diaries.lost() == [0]


def test_who_took_no_reign_writes_nothing(tmp_path: Path) -> None:
    assert Diaries(tmp_path, "cell-a", 1).write([line()]) == [0]
    assert not list((tmp_path / "diaries").iterdir())


def test_each_reign_counts_from_above_the_one_before(tmp_path: Path) -> None:
    made = Diaries(tmp_path, "cell-a", 1)
    first, back_in_time, on_another_disk = made.take(0, 1_000_000), made.take(0, 1), made.take(0, 9_000_000)
    assert first == 1_000_000_000
    assert back_in_time == 2_000_000_000
    assert on_another_disk == 9_000_000_000
