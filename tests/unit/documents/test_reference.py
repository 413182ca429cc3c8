"""The reference pages are what the code says, and say what each field means."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.reference.fields import UNITS, WITHOUT_UNIT, rows_of, unit_of
from fallow.reference.pages import COLUMNS, PAGES, texts
from fallow.replay import trace

TOP = Path(__file__).parents[3]
FOLDER = TOP / "docs" / "reference"
CLASSES = sorted({cls for page in PAGES.values() for cls in page.tables.values()}, key=lambda cls: cls.__name__)
ROWS = [(f"{cls.__name__}.{row.field}", row) for cls in CLASSES for row in rows_of(cls)]
COLUMN_ROWS = [(f"{title}: {column.name}", column) for title, columns in COLUMNS.items() for column in columns]


@pytest.mark.parametrize("name", texts())
def test_each_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == texts()[name], "run: python -m fallow.reference"


def test_no_other_page_stands_among_them() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(texts())


def test_the_command_writes_the_same_pages_where_it_is_told_whatever_the_hash_seed(tmp_path: Path) -> None:
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(TOP)}
    subprocess.run([sys.executable, "-m", "fallow.reference", str(tmp_path)], check=True, cwd=TOP, env=environment)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == texts()


def test_every_field_and_column_has_a_sentence() -> None:
    meanings = {name: row.meaning for name, row in ROWS} | {name: column.meaning for name, column in COLUMN_ROWS}
    assert [name for name, meaning in meanings.items() if not re.fullmatch(r"[A-Z`].*\.", meaning)] == []


def test_every_number_has_a_unit_or_is_one_that_counts_nothing() -> None:
    numbers = [(name, row) for name, row in ROWS if "integer" in row.type]
    assert numbers
    assert [name for name, row in numbers if bool(row.unit) == (row.field in WITHOUT_UNIT)] == []


def test_every_unit_is_used() -> None:
    named = {end for end in UNITS if not end.startswith("_")}
    assert named <= {row.field for _, row in ROWS}
    assert (unit_of("start_timeout_wall_ms"), unit_of("backoff_ms"), unit_of("per_s")) == (
        "ms of wall time",
        "ms",
        "jobs a second",
    )


def test_every_class_that_a_page_names_has_its_table() -> None:
    """Making the page fails for a class without one; this shows that a link of each kind is there."""
    assert "| `resources` | [resources](#resources) |" in texts()["job-fields.md"]
    assert "| `pools` | list of [cells.pools](#cellspools) |" in texts()["cell-fields.md"]


def test_the_tables_of_columns_name_what_the_reader_of_traces_asks_for() -> None:
    source = Path(trace.__file__).read_text(encoding="utf-8")
    asked = set(re.findall(r'row(?:\.get\(|\[|, )"(\w+)"', source))
    assert asked == {column.name for columns in COLUMNS.values() for column in columns}
