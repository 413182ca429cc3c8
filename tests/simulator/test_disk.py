"""What a simulated disk knows of the lines that a loss of power took."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.simulator.storage.disk import Disk
from fallow.simulator.world import World
from tests.hypothesis_profile import reaches

NODE = "machine"


def line(attempt: int) -> bytes:
    return (
        msgspec.json.encode(DiaryLine(node=NODE, job="job", attempt=attempt, event="started", cell_ms=0, wall_ms=0))
        + b"\n"
    )


@given(kept=st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=3), min_size=1, max_size=5))
def test_of_every_line_it_is_known_whether_the_node_has_it_still(kept: list[list[int]]) -> None:
    """Power is lost several times in a row, and takes a part of what the file ends with, also a part of a line."""
    disk = Disk(World(1, random.Random(1), faults=(), keep_items=frozenset()))
    text = b""
    for attempt, sizes in enumerate(kept, 1):
        text = text[: text.rfind(b"\n") + 1]  # a half line is cut before more is written
        disk.wrote("agent", line(attempt))
        text += line(attempt)
        for size in sizes:
            disk.forgot(NODE, text[size:])
            text = text[:size]
    reaches("some lines are gone and some are there", len({entry.is_gone for entry in disk.diaries[NODE]}) > 1)
    there = [entry.line.attempt for entry in disk.diaries[NODE] if not entry.is_gone]
    assert there == [
        msgspec.json.decode(each)["attempt"] for each in text.splitlines(keepends=True) if each.endswith(b"\n")
    ]
