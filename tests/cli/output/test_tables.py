"""Tables at any width: no name loses a sign, no row gets tall, and nothing is wider than the screen."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from fallow.cli.cell import metrics_command
from fallow.cli.job import job, jobs
from fallow.cli.job.story import array
from fallow.cli.log import at, dead_letters
from fallow.cli.node import nodes
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import setting
from fallow.cli.output.output import print_table
from fallow.cli.output.table import Lines, fitted
from fallow.cli.queue import queue
from fallow.cli.quota import rows as quota_rows
from fallow.cli.quota import shares, tenants
from fallow.shared.events.operations import CellPolicy
from fallow.shared.near import first_named
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
    "queue": (
        queue.COLUMNS,
        [(JOBS[0], 7_531, 128, 0, AT, "no_free_gpus", AT, f"{NODES[0]}, {NODES[1]} and 14 more, held by {JOBS[1]}")],
        queue.SPARE,
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
    for number, row in enumerate(rows):
        cells = next(re.split(" {2,}", line.strip()) for line in lines if line.startswith(f"  n{number} "))
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


@pytest.mark.parametrize("width", [100, 110, 120, 126])
def test_of_jobs_that_live_and_jobs_that_are_over_each_has_one_line(width: int) -> None:
    """Columns that may be left out go before a row has two lines."""
    name, when = "resnet-imagenet-0001", "2026-11-29 10:15:46Z"
    rows: list[Sequence[object]] = [
        (f"vision/{name}", "finished", *[""] * 6, f"ended {when}"),
        (f"vision/{name}", "queued", 16, 2, "default", 10, 1, when, "no_free_gpus"),
        (f"vision/{name}", "running", 16, 2, "default", 10, "", when, "main-training-0001, main-training-0002"),
    ]
    found = fitted(jobs.COLUMNS, rows, width, jobs.SPARE)
    assert [len(list(found.row(at, width))) for at in range(found.rows)] == [1, 1, 1]


def test_of_jobs_of_several_queues_the_place_goes_before_the_queue() -> None:
    assert jobs.SPARE.index("PLACE") < jobs.SPARE.index("QUEUE")


def test_waits_and_stretches_fit_a_terminal_of_80_columns() -> None:
    headings = ("", ">JOBS", ">MEAN", ">P50", ">P95", ">P99", ">LONGEST")
    row = ("pool training-h100", 12, "1 min 16 s", "1 min 10 s", "13 min 8 s", "13 min 8 s", "13 min 48 s")
    assert fitted(headings, [row], 80, metrics_command.SPARE).width <= 80


LISTED = st.one_of(
    st.builds("gpu-node-rack{}-{:03}".format, st.integers(1, 40), st.integers(0, 999)),
    st.text("abc-01", min_size=1, max_size=40).filter(lambda name: not name.isdecimal()),
)
NAMES = LISTED | st.sampled_from(["long-name-" * 6, "longer-name-" * 8])
JOB_NAMES = st.builds("{}/{}".format, st.sampled_from(["vision", "speech-research"]), NAMES)
REASONS = st.sampled_from(
    [
        "",
        "no_free_gpus; planned for 2026-11-22 13:32:43Z",
        "its tenant is not in the cell file",
        "drained by ada (claimed): new fans",
        "silent 45.0 s, empty, maintenance from 2026-11-29 10:00:00Z to 2026-11-29 14:00:00Z (new fans in rack 12)",
        "gpus = 16: " * 7,
        "JSON is malformed: invalid character (byte 0) in the middle of what should be a text that goes on and on, wh",
        "borrows at most 16 GPUs, lends at most 16 GPUs, takes back from lower priority, lets run for 30 min",
    ]
)
CELLS: dict[str, st.SearchStrategy[object]] = {
    **dict.fromkeys(("JOB", "ELEMENT"), JOB_NAMES),
    **dict.fromkeys(("NODE", "TENANT", "POOL", "PARENT", "QUEUE", "GPU TYPE"), NAMES),
    **dict.fromkeys(("SUBMITTED", "WHEN"), st.just(AT)),
    **dict.fromkeys(("REMARK", "TEXT", "RULES", "WAITS FOR"), REASONS),
    "JOBS": st.lists(LISTED, max_size=4).map(lambda names: first_named(names, 3)),
    "NODES": st.lists(LISTED, max_size=4).map(lambda names: first_named(names, 2)),
    "WHERE OR WHY": REASONS | st.lists(LISTED, max_size=4).map(lambda names: first_named(names, 2)),
    "STATUS": st.sampled_from(["ready", "draining", "running"]),
    "STATE": st.sampled_from(["held", "taken out"]),
    "REASON": st.sampled_from(["larger_than_pool", "not_decodable"]),
    "SERVICE": st.sampled_from(["placement", "admission"]),
    "ORIGIN": st.sampled_from(["fallow.nodes/0 at 1234", "fallow.submissions/11 at 123456"]),
    **dict.fromkeys(("FAILED", "DEVICES"), st.sampled_from(["", "3,5", "0-7"])),
    "REPLAYED": st.sampled_from(["", 1]),
}
LISTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **{name: (headings, spare) for name, (headings, _, spare) in TABLES.items()},
    "jobs of then": (at.JOB_COLUMNS, ()),
    "nodes of then": (at.NODE_COLUMNS, ()),
    "use of then": (at.USE_COLUMNS, ()),
    "elements": (array.COLUMNS, ()),
    "places": (job.PLACE_COLUMNS, ()),
}
LINES_MAX = 6
"""Of a row: the name, the rest, and two columns below of two lines each."""


@given(data=st.data(), name=st.sampled_from(sorted(LISTS)))
def test_at_80_columns_rows_are_low_and_no_word_is_cut(data: st.DataObject, name: str) -> None:
    headings, spare = LISTS[name]
    cells = [CELLS.get(heading, st.sampled_from(["", 8, 128])) for heading in headings]
    rows = data.draw(st.lists(st.tuples(*cells), min_size=1, max_size=4))
    found = fitted(headings, rows, 80, spare)
    reaches("a column stands below its row", bool(found.below))
    reaches("the name stands above its row", found.above is not None)
    shown = {column.heading for column in (*found.columns, *found.below)} | {getattr(found.above, "heading", "")}
    for number, row in enumerate(rows):
        lines = list(found.row(number, 80))
        assert len(lines) <= LINES_MAX, lines
        assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []
        words = " ".join(lines).split()
        told = [str(cell) for cell, heading in zip(row, headings, strict=True) if heading.lstrip(">") in shown]
        assert [word for cell in told for word in cell.split() if word not in words] == []


@given(data=st.data(), name=st.sampled_from(sorted(LISTS)))
def test_no_row_is_taller_where_there_is_more_width(data: st.DataObject, name: str) -> None:
    headings, spare = LISTS[name]
    cells = [CELLS.get(heading, st.sampled_from(["", 8, 128])) for heading in headings]
    rows = data.draw(st.lists(st.tuples(*cells), min_size=1, max_size=4))
    heights = []
    for width in range(60, 201):
        found = fitted(headings, rows, width, spare)
        if found.width <= width:
            heights.append(max(len(list(found.row(at, width))) for at in range(found.rows)))
    reaches("a row has more lines where there is less width", len({*heights}) > 1)
    assert heights == sorted(heights, reverse=True)


KINDS: dict[str, tuple[str, st.SearchStrategy[object]]] = {
    "name": ("NAME", NAMES),
    "text": ("TEXT", REASONS),
    "figure": (">GPUS", st.sampled_from(["", 8, 1_024, "13 min 48 s"])),
    "word": ("STATE", st.sampled_from(["", "held", "taken out"])),
}


@given(
    data=st.data(),
    kinds=st.just(["name", "text"]) | st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6),
)
def test_a_table_of_any_columns_is_printed_at_any_width(data: st.DataObject, kinds: list[str]) -> None:
    headings = [f"{KINDS[kind][0]} {at}" for at, kind in enumerate(kinds)]
    spare = data.draw(st.lists(st.sampled_from([heading.lstrip(">") for heading in headings]), unique=True))
    rows = data.draw(st.lists(st.tuples(*(KINDS[kind][1] for kind in kinds)), min_size=1, max_size=3))
    layouts = set()
    for width in range(20, 201, data.draw(st.integers(1, 20))):
        found = fitted(headings, rows, width, spare)
        lines = [len(list(found.row(at, width))) for at in range(len(rows))]
        assert (found.rows, found.heights(width, Lines())) == (len(rows), lines)
        layouts.add((found.above is not None, bool(found.below)))
    reaches("a name stands above, and words below", (True, True) in layouts)


@pytest.mark.parametrize("width", range(20, 80, 5))
def test_the_settings_of_a_cell_are_shown_at_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [(name, setting(name, value)) for name, value in asdict(CellPolicy()).items()]
    print_table("Policy of cell main at version 3", ("SETTING", "VALUE"), rows)
    words = capsys.readouterr().out.split()
    assert [word for row in rows for text in row for word in text.split() if word not in words] == []


def test_a_node_that_is_drained_for_maintenance_has_three_lines_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    when = "from 2026-11-29 10:00:00Z to 2026-11-29 14:00:00Z"
    closed = ("main-training-0001", "training", "draining", 8, 8, 0, "", "")
    rows = [
        ("main-training-0000", "training", "ready", 8, 0, 8, "", "vision/a", ""),
        (*closed, f"empty, by ada (claimed): new fans, maintenance {when} (new fans in rack 12)"),
    ]
    print_table("2 nodes", nodes.COLUMNS, rows, nodes.SPARE)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  NODE                 POOL       STATUS     GPUS   FREE   IN USE   JOBS",
        "    REMARK",
        " " + "─" * 75,
        "  main-training-0000   training   ready         8      0        8   vision/a",
        "  main-training-0001   training   draining      8      8        0",
        "    empty, by ada (claimed): new fans, maintenance from 2026-11-29 10:00:00Z to",
        "    2026-11-29 14:00:00Z (new fans in rack 12)",
        "",
    ]


@pytest.mark.parametrize("rows", [[], [("a",)]])
def test_a_title_breaks_between_words_where_the_output_is_narrower(
    rows: list[tuple[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    title = "2 dead letters; service, reason, origin and text are claims of their writers"
    print_table(title, ("NAME",), rows)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert title in " ".join(printed.split())


def test_of_a_pipe_whose_width_nobody_tells_the_title_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table("many words " * 30, ("NAME",), [("a",)])
    assert capsys.readouterr().out.splitlines()[0] == "many words " * 30


@pytest.mark.parametrize(("count", "told"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1_000, "1,000 jobs")])
def test_one_is_one(count: int, told: str) -> None:
    assert counted(count, "job") == told
