"""Programs read the same names whatever is said: a record leaves out what is as by default, so each kind of value is
printed here with nothing said but what must be, and as people read it, too.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.job import job as one_job
from fallow.cli.job.jobs import as_object as of_rows
from fallow.cli.job.story import reason
from fallow.cli.log import at, why
from fallow.cli.log.log import as_object, decision_lines
from fallow.cli.output.output import print_json
from fallow.cli.quota import rows as of_quotas
from fallow.cli.quota import shares
from fallow.services.placement.explain.explain import Ahead, WhyNot
from fallow.shared.client.port import News
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import Effect
from fallow.shared.events.jobs import JobRejected
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import JobRow, NodeRow, TenantRow
from tests.hypothesis_profile import reaches, shared_among
from tests.strategies import EFFECTS, MENDED, of_type, unchanged

EMPTY = Decision(cell="main", version=7, epoch=1, at_ms=1)
READ = Decision(cell="main", version=7, epoch=1, at_ms=1, inputs={"jobs-0": 12, "nodes-0": 3})
STATE = CellState("main")
CAPTURED = pytest.CaptureFixture[str]


def barest(cls: type[Any]) -> st.SearchStrategy[Any]:
    """A `cls` of which only those fields are given that have no default."""
    hints = get_type_hints(cls, include_extras=True)
    needed = {field.name: of_type(hints[field.name]) for field in msgspec.structs.fields(cls) if field.required}
    return st.fixed_dictionaries(needed).map(MENDED.get(cls, unchanged)).map(lambda given: cls(**given))


def read_back(body: Any, capsys: CAPTURED) -> Any:
    """The object, as a program reads it."""
    capsys.readouterr()
    print_json(body)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("decision", [EMPTY, READ], ids=["nothing read", "inputs read"])
def test_a_decision_without_effects_has_a_list_of_none_for_programs(decision: Decision, capsys: CAPTURED) -> None:
    shown = read_back(as_object(decision), capsys)
    assert (shown["version"], shown["effects"], shown["sentences"]) == (7, [], [])
    assert shown["inputs"] == dict(decision.inputs)


@pytest.mark.parametrize(
    ("decision", "told"),
    [(EMPTY, "Nothing changed."), (READ, "Nothing changed; inputs were read: jobs-0 to 12, nodes-0 to 3.")],
    ids=["nothing read", "inputs read"],
)
def test_a_decision_without_effects_tells_people_that_nothing_changed(decision: Decision, told: str) -> None:
    assert list(decision_lines(decision)) == ["version 7, day 0 00:00:00.001, epoch 1", f"    {told}"]


@shared_among(len(EFFECTS))
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.__name__)
@given(data=st.data())
def test_an_effect_that_says_no_more_than_it_must_is_told_in_every_form(
    effect: type[Effect], data: st.DataObject
) -> None:
    event = data.draw(barest(effect))
    may_be_left_out = {field.name for field in msgspec.structs.fields(effect) if not field.required}
    if may_be_left_out:
        reaches("a record leaves out all that has a default", may_be_left_out.isdisjoint(json.loads(encode(event))))
    decision = Decision(cell="main", version=7, epoch=1, at_ms=1, effects=(event,))
    shown, told = as_object(decision), list(decision_lines(decision))
    assert set(shown) == set(as_object(EMPTY))
    assert [line.strip() for line in told[1:]] == [text.strip() for text in shown["sentences"]]
    story = one_job.as_object("a", one_job.Told("main", news=[News("main", event, version=7, at_ms=1)]))
    assert story["story"][0]["effect"]["kind"] == shown["effects"][0]["kind"] == effect.__name__
    json.dumps([shown, story])


@given(event=barest(JobRejected))
def test_a_rejection_that_says_no_more_than_it_must_is_told(event: JobRejected) -> None:
    reaches(
        "a rejection says less than it may", len(json.loads(encode(event))) < len(msgspec.structs.fields(JobRejected))
    )
    told = one_job.as_object("a", one_job.Told("main", rejected=[(1, event)]))
    assert told["rejected"][0]["sentence"]
    json.dumps(told)


@pytest.mark.parametrize("row", [JobRow, NodeRow, TenantRow], ids=lambda row: row.__name__)
@given(data=st.data())
def test_a_row_has_all_its_names_with_nothing_in_it(row: type[Any], data: st.DataObject) -> None:
    bare = data.draw(st.builds(row))
    reaches("a row has nothing in a column", not all(getattr(bare, field.name) for field in fields(row)))
    shown = of_rows("main", Read((bare,), 1, 0, 0), "rows")["rows"][0]
    assert set(shown) == {field.name for field in fields(row)} | ({"job"} if row is JobRow else set())
    json.dumps(shown)


def test_an_empty_cell_and_an_empty_story_are_told(capsys: CAPTURED) -> None:
    no_reason = WhyNot("a", None, (), (), (), Ahead("default", 0, 0, ()), None)
    objects = [
        at.as_object(STATE),
        why.as_object("main", why.Why("a")),
        one_job.as_object("a", one_job.Told("main")),
        reason.as_object(no_reason),
        of_quotas.as_object(STATE),
        shares.as_object(STATE, []),
    ]
    assert [set(read_back(each, capsys)) for each in objects] == [set(each) for each in objects]
