"""Tables of CSV that are made to fill the memory of their reader."""

from __future__ import annotations

import csv
import io
import tracemalloc
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.runtime.files.table import COLUMNS_MAX, LINE_CHARS_MAX, Table, WrongTable
from tests.hypothesis_profile import reaches

CELLS = st.lists(st.text(st.sampled_from('a,"\n é'), max_size=4), min_size=1, max_size=4)


@given(st.lists(CELLS, min_size=1, max_size=5))
def test_what_was_written_is_read_or_has_a_cell_too_many(rows: list[list[str]]) -> None:
    columns, *rest = [[f"c{at}" for at in range(len(rows[0]))], *rows[1:]]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([columns, *rest])
    text.seek(0)
    is_wide = any(len(row) > len(columns) for row in rest)
    reaches("a row has a cell more than there are columns", is_wide)
    if is_wide:
        with pytest.raises(WrongTable, match=r"^line \d+: cell \d+ = '"):
            list(Table(text))
    else:
        assert [list(row.values()) for row in Table(text)] == rest


class Endless(io.StringIO):
    """A table that has no end: these lines, and then the last of them again and again."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines = chain(lines, repeat(lines[-1], 1_000))
        self.given = 0

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # as TextIOBase has it
        found = next(self._lines)[:size]
        self.given += len(found)
        return found


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("a,b\n", "x," * LINE_CHARS_MAX), f"a line has more than {LINE_CHARS_MAX} characters"),
        (("a,b\n", '"\n', '",' + "," * 100_000 + '"\n'), f"a row has more than {LINE_CHARS_MAX} characters"),
        (('a,"\n', '",' + "," * 100_000 + '"\n'), f"a row has more than {LINE_CHARS_MAX} characters"),
        (("," * COLUMNS_MAX + "\n", "x\n"), f"has more than {COLUMNS_MAX} columns"),
        (("a,b\n", "," * 500_000 + "\n"), "line 2: cell 3 = '': the table has 2 columns"),
    ],
    ids=["a line", "a row in quotes", "columns in quotes", "columns", "cells"],
)
def test_a_table_without_end_is_refused_while_little_of_it_is_held(lines: tuple[str, ...], told: str) -> None:
    file = Endless(*lines)
    tracemalloc.start()
    try:
        with pytest.raises(WrongTable) as refused:
            list(Table(file))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(refused.value) == told
    assert file.given < 2 * LINE_CHARS_MAX
    assert most < 40 * LINE_CHARS_MAX


@pytest.mark.parametrize("row", ["x\n", '"x\n"\n'], ids=["in one line", "in two lines"])
def test_what_one_row_may_have_a_table_may_have_many_times(row: str) -> None:
    rows = 2 * LINE_CHARS_MAX // len(row)
    assert sum(1 for _ in Table(io.StringIO("a\n" + row * rows))) == rows


@pytest.mark.parametrize(
    ("text", "row"), [("a,,,b\n1,2\n", {"a": "1", "": "2"}), ("a,b,,\n1,2\n", {"a": "1", "b": "2"})]
)
def test_several_columns_may_have_no_name(text: str, row: dict[str, str]) -> None:
    assert list(Table(io.StringIO(text))) == [row]
    with pytest.raises(WrongTable, match=r"^two columns are named 'a'$"):
        Table(io.StringIO("a,,,a\n"))


def test_a_table_of_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.shared.runtime.files.table.ROWS_MAX", 10)
    assert len(list(Table(io.StringIO("a\n" + "x\n" * 10)))) == 10
    with pytest.raises(WrongTable, match=r"^has more than 10 rows$"):
        list(Table(io.StringIO("a\n" + "x\n" * 11)))
