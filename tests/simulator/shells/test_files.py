"""Files of a disk in the world answer as real ones do; and a process may die in the middle of what it writes."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.services.executor.diaries import Diaries
from fallow.services.executor.files import DiskFiles, Files
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events.codec.encoding import encode
from fallow.simulator.process import Died, Process
from fallow.simulator.shells.files import WorldFiles
from fallow.simulator.shells.log import Dead
from fallow.simulator.trouble.faults import Fault
from fallow.simulator.world import World
from tests.hypothesis_profile import reaches

EVERY = ("a", "b")


def line(job: str) -> DiaryLine:
    return DiaryLine(
        node="node-1", job=job, attempt=1, event="started", devices=(0,), gpu_milli=1, cell_ms=1, wall_ms=2
    )


def process(*, torn: bool = False) -> Process:
    world = World(1, random.Random(1))
    world.faults.rates[Fault.TORN] = 1.0 if torn else 0.0
    world.faults.is_active = True
    found = next(process for process in world.processes if process.name == "executor-0")
    found.start()
    return found


NAMES = st.sampled_from(["diaries/a", "diaries/b"])
TEXTS = st.sampled_from([encode(line(job)) + b"\n" for job in EVERY] + [b""])
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, TEXTS),
        st.tuples(st.just("reopen"), NAMES, st.just(b"")),
        st.tuples(st.just("replace"), NAMES, TEXTS),
        st.tuples(st.just("cut"), NAMES, TEXTS),
        st.tuples(st.just("claim"), NAMES, st.sampled_from([b"1", b"22"])),
    ),
    max_size=12,
)


def told(files: Files, acts: list[tuple[str, str, bytes]]) -> list[object]:
    """What these acts show of the files."""
    opened = {name: files.open(name, to_append=True) for name in ("diaries/a", "diaries/b")}
    found: list[object] = []
    for act, name, text in acts:
        if act == "append":
            files.append(opened[name], text)
        elif act == "reopen":
            files.close(opened[name])
            opened[name] = files.open(name, to_append=True)
        elif act == "replace":
            files.replace(name, text)
        elif act == "cut":
            files.cut(name, min(len(text), len(files.read(name))))
        else:
            claim = files.open(f"reigns/{name[-1]}")
            with files.locked(claim):
                files.write_begin(claim, text)
            found.append(files.read_begin(claim, 32))
            files.close(claim)
        found += [files.read(name), files.size_bytes(opened[name])]
    return found


@cache
def living() -> Process:
    return process()


@settings(deadline=None)
@given(ACTS)
def test_a_disk_of_the_world_answers_as_a_real_one(acts: list[tuple[str, str, bytes]]) -> None:
    with TemporaryDirectory() as folder:
        real = told(DiskFiles(Path(folder)), acts)
    reaches("the same file is written several times", len(acts) > len({name for _, name, _ in acts}))
    assert told(WorldFiles(living(), {}), acts) == real


def test_a_file_that_is_not_there_reads_as_empty(tmp_path: Path) -> None:
    assert DiskFiles(tmp_path).read("diaries/x") == WorldFiles(process(), {}).read("diaries/x") == b""


def test_a_process_may_die_in_the_middle_of_a_line_and_the_next_one_cuts_it_off() -> None:
    hit, after = process(torn=True), process()
    cell = next(iter(after.world.nodes))
    diaries = Diaries(WorldFiles(hit, after.world.disk.folder), cell, 1)
    diaries.take(0, wall_ms=1)
    with pytest.raises(Died):
        diaries.write([line("a")])
    assert not hit.is_up
    (torn,) = (text.text for name, text in after.world.disk.folder.items() if name.startswith("diaries"))
    assert (encode(line("a")) + b"\n").startswith(bytes(torn))
    other = Diaries(WorldFiles(after, after.world.disk.folder), cell, 1)
    other.take(0, wall_ms=1)
    assert other.read(0, EVERY)["node-1"] == []
    other.write([line("b")])
    assert other.read(0, EVERY)["node-1"] == [line("b")]


def test_a_dead_process_reaches_no_disk() -> None:
    files = WorldFiles(process(), {})
    opened = files.open("diaries/a", to_append=True)
    files.end()
    with pytest.raises(Dead):
        files.append(opened, b"late")
    with pytest.raises(Dead):
        files.replace("diaries/a", b"late")
