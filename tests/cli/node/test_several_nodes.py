"""Commands on several nodes: each node has its answer, and the exit code is that of the worst."""

from __future__ import annotations

import json

import pytest
import typer

from fallow.cli.errors.unanswered import Passes, unanswered
from fallow.cli.node.answers import Answers, tell_each
from fallow.shared.client.port import News
from fallow.shared.events import effects as e
from fallow.shared.events.reasons import ProposalCode
from tests.cluster.worlds.examples import node

YES = News("main", node("n1"), version=4)
REFUSED = e.ProposalRefused(proposal="n3", code=ProposalCode.NOT_ALLOWED, text="there is no such node")
NO = News("main", REFUSED, version=5)


def code_of(answers: Answers, *, as_json: bool = False) -> int:
    try:
        hints = {"n3": " (did you mean n1?)"}
        behind = dict.fromkeys(answers, "Stopped there now.")
        tell_each(answers, 8, as_json=as_json, hints=hints, behind=behind, more={"n1": {"jobs": ["a"]}})
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"n1": YES}, 0),
        ({"n1": YES, "n2": None}, 3),
        ({"n1": YES, "n3": NO}, 1),
        ({"n2": None, "n3": NO, "n1": YES}, 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_answer(answers: Answers, code: int) -> None:
    assert code_of(answers) == code


def test_each_node_is_told_and_what_is_said_behind_an_answer_only_where_it_is_yes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code_of({"n1": YES, "n2": None, "n3": NO})
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "Node n1 of pool train (8 GPUs) is ready.",
        "Stopped there now.",
        "n3: there is no such node (did you mean n1?)",
    ]
    assert said.err == f"fallow: {unanswered('n2', Passes.PLACEMENT, 8)}\n"


def test_programs_get_one_object_or_a_list_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    code_of({"n1": YES}, as_json=True)
    one = json.loads(capsys.readouterr().out)
    assert (one["ok"], one["node"], one["version"], one["jobs"]) == (True, "n1", 4, ["a"])
    code_of({"n1": YES, "n3": NO}, as_json=True)
    both = json.loads(capsys.readouterr().out)
    assert (both["ok"], [(each["node"], each["ok"]) for each in both["nodes"]]) == (
        False,
        [("n1", True), ("n3", False)],
    )
