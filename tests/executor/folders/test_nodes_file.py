"""The file that lists the virtual nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fallow.services.executor.nodes_file import NodesFileError, load_nodes


def test_nodes_are_read_by_cell(tmp_path: Path) -> None:
    path = tmp_path / "nodes.jsonl"
    path.write_text(
        '{"cell": "a", "node": {"id": "n1", "pool": "p", "gpus": 8}}\n\n'
        '{"cell": "b", "node": {"id": "n2", "pool": "p", "gpus": 4}}\n'
    )
    assert {cell: [spec.id for spec in specs] for cell, specs in load_nodes(path).items()} == {"a": ["n1"], "b": ["n2"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"cell": "a"}', "line 1: node: is missing"),
        (
            '{"cell": "a", "node": {"id": "n1", "pool": "p", "gpus": "8"}}',
            "line 1: node.gpus = '8': must be a whole number",
        ),
        ('{"cell": "a", "node": {"id": "n1", "pool": "p", "gpus": 8}, "x": 1}', "line 1: x = 1: unknown field"),
        ("nonsense", "line 1: the line: is no JSON"),
        ('{"cell":"a","node":{"id":"n","pool":"p","gpus":8}}\n' * 2, "line 2: node.id = 'n': stands in line 1 already"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "nodes.jsonl"
    path.write_text(text)
    with pytest.raises(NodesFileError) as error:
        load_nodes(path)
    assert message in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodesFileError, match="cannot be read"):
        load_nodes(tmp_path / "none.jsonl")


def test_a_device_or_a_pipe_is_no_nodes_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(NodesFileError) as refused:
            load_nodes(path)
        assert str(refused.value) == f"{path}: cannot be read: must be a regular file"
