"""Whatever stands in place of any part of a good file, the file is read, or each mistake is one line about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.cli.job.files.file import JobFileError, read_jobs
from fallow.cli.quota.wish import read_quotas
from fallow.services.executor.nodes_file import NodesFileError, load_nodes
from fallow.shared.log.admin.access_rules import AccessFileError, parse_access
from fallow.shared.log.admin.topics import TopicsFileError, parse_topics
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from fallow.shared.runtime.files.yaml_text import read_yaml
from tests.fuzz.entries_of_services import FULL_JOB
from tests.hypothesis_profile import reaches

TOP = Path(__file__).parents[3]
Place = tuple[str | int, ...]


def shipped(file: str) -> Any:
    return read_yaml((TOP / "deploy" / file).read_text(encoding="utf-8"))


CELL, TOPICS, ACCESS = shipped("cell.yaml"), shipped("kafka/topics.yaml"), shipped("kafka/access.yaml")
CELL_FILE = parse_cell_file(json.dumps(CELL), "cell")
WAITING = {**FULL_JOB, "after": [{"job": "other", "when": "any"}], "array": 4, "not_before_ms": 0}
QUOTA = {"tenant": "vision", "gpu_type": "gpu", "guaranteed": 1, "limit": 8, "parent": "search", "reclaim": "any"}
NODE = {"id": "n1", "pool": "training", "gpus": 8, "labels": {"rack": "r1"}, "taints": ["spot"]}
LINE = {"cell": "main", "node": NODE}


@dataclass(frozen=True)
class Kind:
    """A file that people write: a good one, how it is read, how its mistakes begin, and as what they are raised."""

    good: Any
    read: Callable[[str, Path], object]
    begins: str
    error: type[Exception] = typer.Exit
    is_yaml: bool = True


def in_file(text: str, file: Path) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


KINDS = {
    "cell": Kind(CELL, lambda text, _: parse_cell_file(text, "file"), "file: line ", CellFileError),
    "job": Kind(WAITING, lambda text, _: read_jobs(text, "file"), "file: ", JobFileError),
    "jobs": Kind({"jobs": [WAITING]}, lambda text, _: read_jobs(text, "file"), "file: ", JobFileError),
    "topics": Kind(TOPICS, lambda text, _: parse_topics(text), "topics file: ", TopicsFileError),
    "access": Kind(ACCESS, lambda text, _: parse_access(text, TOPICS["topics"]), "access file: ", AccessFileError),
    "quotas": Kind({"quotas": [QUOTA]}, lambda text, at: read_quotas(in_file(text, at), CELL_FILE), "fallow: /"),
    "nodes": Kind(LINE, lambda text, at: load_nodes(in_file(text, at)), "/", NodesFileError, is_yaml=False),
}


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where each part of a value stands; of a list the first and the last."""
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        if isinstance(value, dict) or key in {0, len(value) - 1}:
            yield from places(part, (*at, key))


def put(value: Any, at: Place, new: Any) -> Any:
    if not at:
        return new
    changed = value.copy()
    changed[at[0]] = put(value[at[0]], at[1:], new)
    return changed


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=300) | st.sampled_from(["", "9" * 300, "2020-01-01", "1:30"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=8), parts, max_size=3),
    max_leaves=5,
)
PLACES = [(name, at) for name, kind in KINDS.items() for at in places(kind.good)]
WORDS_OF_PYTHON = ("None", "True", "False", "pydantic", "Traceback", "constrained", "literal[", "dict", "tuple")


def told(kind: Kind, text: str, file: Path) -> list[str]:
    """The lines that are told of the file; none where it is read."""
    with redirect_stderr(StringIO()) as said:
        try:
            kind.read(text, file)
        except typer.Exit:
            return said.getvalue().splitlines()
        except kind.error as error:
            return str(error).splitlines()
    return []


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_good_files_are_read(name: str, kind: Kind, tmp_path: Path) -> None:
    assert not told(kind, json.dumps(kind.good), tmp_path / name)


@example(("nodes", ("node", "labels")), {"\x1e\x1f": None})
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_in_place_of_any_part_is_read_or_told_in_lines_about_that_part(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str, Place], new: Any
) -> None:
    (name, at), file = place, tmp_path_factory.getbasetemp() / "any-value"
    kind = KINDS[name]
    content = put(kind.good, at, new)
    text = yaml.safe_dump(content, allow_unicode=False) if kind.is_yaml else json.dumps(content)
    said = told(kind, text, file)
    reaches("a file with a mistake", said)
    for line in said:
        assert line.startswith(kind.begins)
        assert line.isprintable()
        assert len(line) < 900
    about = [str(part) for part in at if isinstance(part, str)] or [""]
    about += ["job "] if at in {("jobs",), ("jobs", 0)} else []  # a job of a list is told by its number
    shown = [*about, str(new)[:20]]
    assert said in ([], ["file: holds no job"]) or any(each in line for each in shown for line in said)
    values = json.dumps(content)
    for word in WORDS_OF_PYTHON:
        assert word in values or not any(word in line for line in said)
