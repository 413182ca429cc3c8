"""The virtual nodes of `fallow up`."""

from __future__ import annotations

from pathlib import Path

from fallow.local.up import marks_of, write_nodes
from fallow.services.executor.nodes_file import load_nodes
from fallow.shared.runtime.files.cell_file import load_cell_file

TOP = Path(__file__).parents[3]


def test_the_virtual_nodes_of_up_hold_jobs_that_ask_for_cpus_and_memory(tmp_path: Path) -> None:
    nodes = load_nodes(write_nodes(load_cell_file(TOP / "deploy/cell.yaml"), 8, tmp_path))["main"]
    assert len(nodes) == 8
    assert {(node.gpus, node.cpu_milli, node.memory_mib) for node in nodes} == {(8, 96_000, 1_048_576)}


def test_where_no_service_runs_no_line_has_a_mark() -> None:
    assert marks_of([]) == {}
    assert marks_of(["placement", "admission"]) == {"placement": "placement | ", "admission": "admission | "}
