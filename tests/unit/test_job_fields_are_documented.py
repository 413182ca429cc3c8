"""docs/jobs.md names every field that a job may have, and no other one."""

from __future__ import annotations

import re
from pathlib import Path

from fallow.shared.events.values import (
    Dependency,
    JobSpec,
    ProcessRun,
    Resources,
    RetryPolicy,
    TopologyRequest,
    VirtualRun,
)

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
PARTS = {
    "resources": (Resources,),
    "topology": (TopologyRequest,),
    "retry": (RetryPolicy,),
    "run": (VirtualRun, ProcessRun),
}


def fields() -> set[str]:
    whole = {name for name in JobSpec.__struct_fields__ if name not in PARTS}
    parts = {f"{part}.{name}" for part, kinds in PARTS.items() for kind in kinds for name in kind.__struct_fields__}
    return whole | parts | {"run.driver"}


def named_first() -> set[str]:
    """What stands in the first column of a table."""
    cells = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_field_stands_in_a_table_and_nothing_else_does() -> None:
    set_by_the_cell = {"array_of", "array_index"}
    assert named_first() == fields() - set_by_the_cell
    assert all(f"`{name}`" in PAGE for name in set_by_the_cell)
    assert all(name in PAGE for name in Dependency.__struct_fields__)
