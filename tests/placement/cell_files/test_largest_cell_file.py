"""A cell file of as many characters as the log holds goes everywhere; with one more it gets nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from fallow.replay.trace import counted_nodes
from fallow.replay.workload import WorkloadError, cell_file_for
from fallow.shared.cluster.fold.rows import digest_of, state_from
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.file_in_force import from_effect
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.effects import CELL_FILE_CHARACTERS_MAX, CellFileSet
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.log.machine.snapshot import cut, whole_rows
from fallow.shared.log.port import RECORD_BYTES_MAX
from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file
from fallow.shared.view.row_text import job_row, job_text
from tests.cli.usage.test_commands import call
from tests.placement.worlds.world import CELL, World, admitted, spec_of

BEFORE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=8),)),), tenants=(Tenant(name="ada"),)
)
_TENANT = ',{"name":""}'


def with_tenants(characters: int) -> CellFile:
    """A file of so many characters, nearly all of them in the names of tenants."""
    left = characters - len(BEFORE.content()) - len(_name(0)) - len(_TENANT)
    count, rest = divmod(left, len(_TENANT) + len(_name(0)))
    names = [*map(_name, range(count)), f"{_name(count)}{'x' * rest}"]
    return CellFile(cells=BEFORE.cells, tenants=(*BEFORE.tenants, *(Tenant(name=name) for name in names)))


def with_signs(characters: int, sign: str) -> CellFile:
    """One that says these signs over and over: each of them is two characters of JSON, and four in a record."""
    bare = len(CellFile(cells=BEFORE.cells, tenants=BEFORE.tenants, retention_hours={"": 1}).content())
    count, rest = divmod(characters - bare, 2)
    hours = {sign * count + "x" * rest: 1}
    return CellFile(cells=BEFORE.cells, tenants=BEFORE.tenants, retention_hours=hours)


def _name(number: int) -> str:
    return f"tenant-{number:05}"


def as_yaml(file: CellFile, path: Path) -> Path:
    """The file as a person may write it: JSON is YAML."""
    path.write_text(f"# a comment counts for nothing\n{file.content()}\n", encoding="utf-8")
    return path


LARGEST = {
    "many tenants": with_tenants(CELL_FILE_CHARACTERS_MAX),
    "quotes": with_signs(CELL_FILE_CHARACTERS_MAX, '"'),
    "backslashes": with_signs(CELL_FILE_CHARACTERS_MAX, "\\"),
}


@pytest.mark.parametrize("file", LARGEST.values(), ids=LARGEST)
def test_the_largest_file_is_put_in_force_and_kept_in_snapshots(file: CellFile) -> None:
    assert len(file.content()) == CELL_FILE_CHARACTERS_MAX
    world = World(BEFORE)
    world.tell(*(admitted(spec_of(f"job-{number}")) for number in range(50)))
    world.service.reload(file)
    (effect,) = [each for each in world.rest() if isinstance(each, CellFileSet)]
    assert from_effect(effect) == file
    assert world.state.cell_file == world.twin.cell_file == effect
    assert max(len(each.value or b"") for each in world.log) < RECORD_BYTES_MAX
    chunks = [*cut(world.state, "snapshot")]
    assert max(len(encode(chunk)) for chunk in chunks) < RECORD_BYTES_MAX
    rows = whole_rows(piece for chunk in chunks for piece in chunk.rows)
    assert digest_of(state_from(rows)) == digest_of(world.state)
    assert job_row(job_text(world.state, world.state.jobs["job-0"])).id == "job-0"
    world.file = file
    world.restart()
    assert world.state.cell_file == effect


def test_a_cell_begins_with_the_largest_file() -> None:
    world = World(with_tenants(CELL_FILE_CHARACTERS_MAX))
    world.rest()
    assert world.state.cell_file is not None


def test_one_character_more_is_refused_wherever_a_file_is_read(tmp_path: Path) -> None:
    largest = with_tenants(CELL_FILE_CHARACTERS_MAX)
    path = as_yaml(largest, tmp_path / "cell.yaml")
    assert load_cell_file(path) == largest
    assert call("cell", "check", str(path)).returncode == 0
    path.write_text(path.read_text(encoding="utf-8").replace('"ada"', '"adam"'), encoding="utf-8")
    figures = "the file has 200001 characters (as JSON, without comments and defaults): the log holds at most 200000"
    with pytest.raises(CellFileError) as refused:
        load_cell_file(path)
    assert str(refused.value) == f"{path}: line 2: {figures}"
    for command in ("check", "reload"):
        done = call("cell", command, str(path), FALLOW_KAFKA="127.0.0.1:1")
        assert (done.returncode, done.stderr) == (2, f"fallow: {path}: line 2: {figures}\n")
    with pytest.raises(ValidationError, match="the file has 200001 characters"):
        with_tenants(CELL_FILE_CHARACTERS_MAX + 1)


def test_a_trace_of_too_many_tenants_is_refused() -> None:
    tenants = [_name(number) for number in range(10_000)]
    with pytest.raises(WorkloadError, match="the log holds at most 200000"):
        cell_file_for(counted_nodes(1, 8), tenants, QueueDiscipline.BEST_EFFORT_FIFO)
