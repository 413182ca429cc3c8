"""What a foreign writer put under the view's keys is told as such, and never is another exception than the port's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.job import jobs
from fallow.cli.node import nodes
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.view.reader import TooManyNamesakes, ViewForeign, ViewReader
from fallow.shared.view.row_text import NoRow, account_rows, job_row, job_text, node_row, node_text, pool_rows
from fallow.shared.view.store import ViewUnavailable
from tests.cluster.worlds.examples import cell, node
from tests.hypothesis_profile import reaches

JOB = job_text(CellState("main"), Job(JobSpec(id="j", tenant="ada"), 7, "", JobStatus.HELD, held_why="so"))
NODE = node_text(cell(node("n1")).nodes["n1"])
READERS = (job_row, node_row, account_rows, pool_rows)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(
    st.text(max_size=40) | anything.map(json.dumps) | st.just("[" * 100_000), st.sampled_from(["", "ada running \n"])
)
def test_a_text_that_is_no_row_is_told_as_such(text: str, head: str) -> None:
    for read in READERS:
        try:
            read(head + text)
        except NoRow:
            continue


@given(st.data(), anything | st.integers(0, 99) | st.sampled_from([None, "", "a", []]))
def test_a_row_with_another_value_in_a_field_is_no_row_or_can_be_shown(data: st.DataObject, other: object) -> None:
    head, _, body = JOB.partition("\n")
    fields = json.loads(body)
    fields[data.draw(st.integers(0, len(fields) - 1))] = other
    is_shown = False
    with contextlib.suppress(NoRow):
        assert jobs._row(job_row(f"{head}\n{json.dumps(fields)}"))
        is_shown = True
    fields = json.loads(NODE)
    fields[data.draw(st.integers(0, len(fields) - 1))] = other
    with contextlib.suppress(NoRow):
        assert nodes._row(node_row(json.dumps(fields)), "")
        is_shown = True
    reaches("a row with another value in a field can be shown", is_shown)


class Answering:
    """The view's functions, which give this answer."""

    def __init__(self, answer: Sequence[Any]) -> None:
        self.answer = answer

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        ["OK", "1", "1", "1", "{", 0],
        ["OK", "1", "1", "1", "ada flying \n[]", 0],
        ["OK", "x", "1", "1", JOB, 0],
        ["OK", "1", None, "1", JOB, 0],
        ["OK", "1", "1", "1", JOB],
    ],
)
async def test_who_reads_such_a_view_is_told_what_to_do(answer: Sequence[Any]) -> None:
    with pytest.raises(ViewForeign, match="holds what Fallow did not write") as told:
        await ViewReader(Answering(answer), "n").job("main", "j")
    assert isinstance(told.value, ViewUnavailable)
    assert "flush Redis: it comes back" in str(told.value)


async def test_a_look_up_that_the_view_left_off_is_no_answer() -> None:
    with pytest.raises(TooManyNamesakes, match="more jobs of cell main are named as elements") as told:
        await ViewReader(Answering(["TOO_MANY"]), "n").names("main", "many")
    assert isinstance(told.value, ViewUnavailable)
