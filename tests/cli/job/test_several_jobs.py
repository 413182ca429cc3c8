"""Commands on several jobs: each job has its answer, and the exit code is that of the worst."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import typer

from fallow.cli.errors.failures import Exit
from fallow.cli.errors.unanswered import Passes, unanswered
from fallow.cli.job import scale
from fallow.cli.job.outcomes import Outcome, no_answer, tell_each
from fallow.shared.client.port import ClientUnavailable, News
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.reasons import RefuseCode

YES = Outcome("a", "Job a is cancelled.")
NO = Outcome("b", "Job b was over before: it is finished.", Exit.NO)
AWAY = no_answer("c", Passes.ADMISSION, 30)
UNKNOWN = Outcome("d", "no cell knows a job d", Exit.NO, is_from_cell=False)


def code_of(*outcomes: Outcome, as_json: bool = False) -> int:
    try:
        tell_each(iter(outcomes), as_json=as_json)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@pytest.mark.parametrize(
    ("outcomes", "code"), [((YES,), 0), ((YES, AWAY), 3), ((AWAY, NO, YES), 1), ((UNKNOWN, YES), 1)]
)
def test_the_exit_code_is_that_of_the_worst_answer(outcomes: tuple[Outcome, ...], code: int) -> None:
    assert code_of(*outcomes) == code


def test_answers_of_the_cell_are_told_apart_from_the_want_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    code_of(YES, AWAY, NO, UNKNOWN)
    said = capsys.readouterr()
    assert said.out.splitlines() == ["Job a is cancelled.", "Job b was over before: it is finished."]
    assert said.err.splitlines() == [
        f"fallow: {unanswered('c', Passes.ADMISSION, 30)}",
        "fallow: no cell knows a job d",
    ]


def test_programs_get_one_object_or_a_list_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    code_of(YES, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"job": "a", "ok": True, "answer": "Job a is cancelled."}
    code_of(YES, NO, as_json=True)
    both = json.loads(capsys.readouterr().out)
    assert (both["ok"], [(each["job"], each["ok"]) for each in both["jobs"]]) == (False, [("a", True), ("b", False)])


def test_programs_get_what_was_done_before_something_failed(capsys: pytest.CaptureFixture[str]) -> None:
    def until_redis_is_away() -> Iterator[Outcome]:
        yield YES
        raise ClientUnavailable("Redis does not answer")

    with pytest.raises(ClientUnavailable):
        tell_each(until_redis_is_away(), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], [each["job"] for each in found["jobs"]]) == (False, ["a"])


def test_a_hint_is_for_people_and_stands_in_place_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    refused = Outcome("b/x", "A request (hold) about job b/x is refused.", Exit.NO, hint="no job b/x (there is a/x)")
    code_of(refused)
    assert capsys.readouterr() == ("", "fallow: no job b/x (there is a/x)\n")
    code_of(refused, as_json=True)
    assert set(json.loads(capsys.readouterr().out)) == {"job", "ok", "answer"}


def test_a_scale_of_no_job_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    refused = News("main", JobRefused(job="b/x", request="update", code=RefuseCode.UNKNOWN_JOB), at_ms=0)
    assert code_of(scale.told_of("b/x", refused, " (b has no job x; there is a/x)")) == Exit.NO
    assert capsys.readouterr() == ("", "fallow: no job b/x (b has no job x; there is a/x)\n")
    assert code_of(scale.told_of("b/x", refused, "")) == Exit.NO
    assert "the cell knows no such job" in capsys.readouterr().out
