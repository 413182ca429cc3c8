"""Nodes of as many GPUs as one may have, and of one more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.services.executor.nodes_file import NodesFileError, load_nodes
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import nodes as n
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.fields.values import DEVICES_MAX, NodeSpec
from fallow.shared.log.machine.snapshot import cut
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from fallow.shared.view.row_text import node_row, node_text
from tests.cluster.worlds.examples import cell, node

TOO_MANY = DEVICES_MAX + 1


def widest() -> CellState:
    """One node, all of whose devices are held, and have failed."""
    state = cell(node("n1", gpus=DEVICES_MAX))
    found = state.nodes["n1"]
    found.held = found.failed = found.all_devices
    return state


def test_the_widest_node_is_kept_in_snapshots_and_in_the_view() -> None:
    state = widest()
    assert [*cut(state, "snapshot")]
    assert digest_of(state_from(rows_of(state))) == digest_of(state)
    assert node_row(node_text(state.nodes["n1"])).gpus_failed == tuple(range(DEVICES_MAX))


def test_its_masks_have_fewer_digits_than_python_reads() -> None:
    assert len(str((1 << DEVICES_MAX) - 1)) < sys.int_info.default_max_str_digits


def test_a_wider_one_is_refused_at_its_first_word() -> None:
    spec = NodeSpec(id="n1", pool="train", gpus=TOO_MANY)
    joined = n.NodeJoined(cell="cell-a", node="n1", boot="b", seq=0, spec=spec)
    refused = decode(joined.type, encode(joined))
    assert isinstance(refused, Undecodable)
    assert (refused.field, refused.value) == ("spec.gpus", str(TOO_MANY))
    assert str(DEVICES_MAX) in refused.rule


def test_a_wider_one_is_refused_in_a_list_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "nodes.jsonl"
    path.write_text(f'{{"cell": "a", "node": {{"id": "n1", "pool": "p", "gpus": {TOO_MANY}}}}}\n')
    with pytest.raises(NodesFileError) as refused:
        load_nodes(path)
    rule = f"must be at most {DEVICES_MAX}"
    assert str(refused.value) == f"{path}: line 1: node.gpus = {TOO_MANY}: {rule}"


def test_a_wider_one_is_refused_in_a_cell_file() -> None:
    pool = f"{{name: p, gpus: 100000, gpus_per_node: {TOO_MANY}}}"
    text = f"cells: [{{name: a, ordinal: 0, pools: [{pool}]}}]\ntenants: [{{name: t}}]\n"
    with pytest.raises(CellFileError) as refused:
        parse_cell_file(text, "cell.yaml")
    assert f"gpus_per_node = {TOO_MANY}: " in str(refused.value)
    assert str(DEVICES_MAX) in str(refused.value)


@pytest.mark.parametrize("gpus", [str(TOO_MANY), "9" * 5_000])
def test_a_wider_one_is_refused_by_the_agent(tmp_path: Path, gpus: str) -> None:
    path = tmp_path / "cell.yaml"
    pool = "{name: p, gpus: 8, driver: process}"
    path.write_text(f"cells: [{{name: a, ordinal: 0, pools: [{pool}]}}]\ntenants: [{{name: t}}]\n")
    command = ["--cell-file", str(path), "agent", "--node", "n1", "--pool", "p", "--gpus", gpus]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 2
    assert f"must be a number up to {DEVICES_MAX}, or auto" in answer.output


def test_an_index_over_more_nodes_than_can_be_printed_is_told_by_name() -> None:
    state = cell(node("n1"))
    pool = state.pools["train"]
    pool.by_free = {**pool.by_free, 1: 1 << 20_000}
    (offence,) = check_state(state)
    assert offence.text == "pool train: by_free not as a recount gives it"
