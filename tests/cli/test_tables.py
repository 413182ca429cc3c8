"""Tables at any width: rows do not break inside a name, and names that differ look different."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.cell import metrics_command
from fallow.cli.job import jobs
from fallow.cli.log import dead_letters
from fallow.cli.node import nodes
from fallow.cli.output.counts import counted
from fallow.cli.output.output import print_table
from fallow.cli.output.table import fitted, shortened
from fallow.cli.quota import rows as quota_rows
from fallow.cli.quota import shares, tenants
from tests.hypothesis_profile import reaches

JOBS = [f"team-vision-resnet152-imagenet-run-{number:04}" for number in (1, 2, 11)]
NODES = [f"gpu-node-rack{rack}-training-eu-{number:03}" for rack in (12, 13) for number in (1, 2)]
assert {len(job) for job in JOBS} == {39}
assert {len(node) for node in NODES} == {31}

AT = "2026-11-22 13:32:43.490Z"
JOB_ROWS = [
    (JOBS[0], "vision-research", "running", 128, 16, "default", 0, "", AT, f"{NODES[0]}, {NODES[1]} and 14 more"),
    (JOBS[1], "vision-research", "queued", 8, 1, "default", 0, 1, AT, "no_free_gpus"),
    (JOBS[2], "vision-research", "finished", 8, 1, "default", 0, "", AT, f"ended {AT}"),
]
NODE_ROWS = [
    (node, "training", "ready", 8, 0, 8, failed, job, remark)
    for node, failed, job, remark in zip(
        NODES, ("", "3,5", "", ""), (*JOBS, ""), ("silent 45.0 s", "", "", "fans"), strict=True
    )
]
TABLES: dict[str, tuple[tuple[str, ...], list[Any], tuple[str, ...]]] = {
    "jobs": (jobs.COLUMNS, JOB_ROWS, jobs.SPARE),
    "nodes": (nodes.COLUMNS, NODE_ROWS, nodes.SPARE),
    "quotas": (
        quota_rows.COLUMNS,
        [("  vision-research", "nvidia-h100-80gb", *["1024"] * 7, "borrows nothing, lends at most 16 GPUs")],
        quota_rows.SPARE,
    ),
    "tenants": (tenants.COLUMNS, [("vision-research", 12, 3, "gpu", 48, 128, "none", 0)], tenants.SPARE),
    "shares": (
        shares.COLUMNS,
        [("vision-research", "all", "12.50", 3, 900, 16, "nvidia-h100", 1, 8, 8.1)],
        shares.SPARE,
    ),
    "dead letters": (
        dead_letters.COLUMNS,
        [(77_012, AT, "placement", "larger_than_pool", "fallow.nodes/0 at 1234", 2_000, "gpus = 16: " * 7, "")],
        dead_letters.SPARE,
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("columns", [80, 100, 160])
def test_no_line_is_wider_than_the_screen_and_no_name_breaks(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    headings, rows, spare = TABLES[name]
    print_table(f"{len(rows)} of them", headings, rows, spare)
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if not line.startswith("not shown")]
    assert [line for line in table if len(line) > columns] == []
    found = fitted(headings, rows, columns, spare)
    assert [column.heading for column in found.columns if sum(column.heading in line for line in table) != 1] == []
    first = found.columns[0]
    assert len(set(first.cells)) == len({row[0] for row in rows})
    for cell in first.cells:
        assert sum(cell.strip() in line for line in table) == 1, (cell, lines)


def test_a_table_that_fits_is_left_as_it_is() -> None:
    headings, rows, spare = TABLES["jobs"]
    found = fitted(headings, rows, 400, spare)
    assert found.left_out == ()
    assert [column.heading for column in found.columns] == [heading.removeprefix(">") for heading in headings]


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table("3 jobs", *TABLES["jobs"])
    assert "not shown for lack of width: " in capsys.readouterr().out


def test_a_table_without_rows_is_one_line_that_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for headings, _, spare in TABLES.values():
        print_table("Quotas of cell main at version 3", headings, [], spare)
        assert capsys.readouterr().out == "Quotas of cell main at version 3: none\n"
        print_table("0 jobs of cell main at version 3", headings, iter(()), spare)
        assert capsys.readouterr().out == "0 jobs of cell main at version 3\n"


WAITS = ["1 min 23 s", "13 min 48 s", "3 min 8 s", "12.0 s", "3.3 h", "1,234", "0.25 GPU"]


@given(
    rows=st.lists(st.lists(st.sampled_from(WAITS), min_size=6, max_size=6), min_size=1, max_size=4),
    columns=st.integers(40, 60) | st.integers(40, 100),
    spare=st.sampled_from([(), metrics_command.SPARE]),
)
def test_no_figure_loses_its_end(rows: list[list[str]], columns: int, spare: tuple[str, ...]) -> None:
    headings = ("", ">JOBS", ">MEAN", ">P50", ">P95", ">P99", ">LONGEST")
    named, printed = [(f"n{at}", *row) for at, row in enumerate(rows)], io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setenv("COLUMNS", str(columns))
        print_table("waits", headings, named, spare)
    lines = printed.getvalue().splitlines()
    shown = [f">{column.heading}" for column in fitted(headings, named, columns, spare).columns]
    reaches("a column is left out, so that all figures are whole", len(shown) <= len(rows[0]))
    for at, row in enumerate(rows):
        cells = next(re.split(" {2,}", line.strip()) for line in lines if line.startswith(f"  n{at} "))
        assert cells[1:] == [cell for cell, heading in zip(row, headings[1:], strict=True) if heading in shown]


def test_a_list_of_jobs_has_one_line_a_row_at_120_columns() -> None:
    """Words that may be left out are not broken over two lines."""
    nodes = "main-training-0001, main-training-0002"
    when = "2026-11-25 09:52:01Z"
    rows: list[Sequence[object]] = [("hello", "vision", "cancelled", *[""] * 6, f"ended {when}")]
    rows += [(f"many.{n}", "vision", "running", 16, 2, "default", 0, n or "", when, nodes) for n in range(4)]
    found = fitted(jobs.COLUMNS, rows, 120, jobs.SPARE)
    assert found.width <= 120
    assert [column.heading for column in found.columns if column.breaks] == []


def test_of_jobs_of_several_queues_the_place_goes_before_the_queue() -> None:
    assert jobs.SPARE.index("PLACE") < jobs.SPARE.index("QUEUE")


def test_waits_and_stretches_fit_a_terminal_of_80_columns() -> None:
    headings = ("", ">JOBS", ">MEAN", ">P50", ">P95", ">P99", ">LONGEST")
    row = ("pool training-h100", 12, "1 min 16 s", "1 min 10 s", "13 min 8 s", "13 min 8 s", "13 min 48 s")
    assert fitted(headings, [row], 80, metrics_command.SPARE).width <= 80


@given(names=st.lists(st.text("ab-01", min_size=1, max_size=40), min_size=1, max_size=8), width=st.integers(4, 40))
def test_short_names_differ_where_the_names_do(names: list[str], width: int) -> None:
    found = shortened(names, width)
    are_shorter = found is not None and len(found) > 1 and any(name != short for name, short in found.items())
    reaches("several names are shortened, and differ", are_shorter)
    if found is not None:
        assert max(map(len, found.values())) <= width
        assert len(set(found.values())) == len(set(names))
    if max(map(len, names)) <= width:
        assert found == {name: name for name in names}


@pytest.mark.parametrize(("count", "told"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1_000, "1,000 jobs")])
def test_one_is_one(count: int, told: str) -> None:
    assert counted(count, "job") == told
