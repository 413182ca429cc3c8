"""A command without an answer names the services that it passes, and for how long it was waited for."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import typer

from fallow.cli.access import in_turn
from fallow.cli.errors.unanswered import Passes, unanswered
from fallow.cli.job import cancel, hold
from fallow.cli.job.outcomes import Outcome
from fallow.cli.job.submit import Found, Until, _end
from fallow.cli.node.answers import outcome
from fallow.cli.node.operate import tell_answer
from fallow.shared.client.answers import Progress
from fallow.shared.events import operations
from fallow.shared.events.base import Command
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import HoldJob, Operation
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob

BY_ADMISSION = (
    "no answer about h3 after 8 s; the request stays queued. Check that admission and placement are ready (`/readyz`)."
)
BY_PLACEMENT = "no answer about h3 after 8 s; the request stays queued. Check that placement is ready (`/readyz`)."


def test_the_line_names_each_service_that_has_to_read_the_command() -> None:
    assert unanswered("h3", Passes.ADMISSION, 8) == BY_ADMISSION
    assert unanswered("h3", Passes.PLACEMENT, 8) == BY_PLACEMENT


def test_what_tenants_wish_passes_admission_and_what_operators_order_does_not() -> None:
    """Two topics: admission reads the one, and placement the other."""
    orders: list[type[Command]] = [
        kind for kind in vars(operations).values() if isinstance(kind, type) and issubclass(kind, Operation)
    ]
    assert {kind.topic for kind in (SubmitJob, CancelJob, UpdateJob)} == {"submissions"}
    assert {kind.topic for kind in orders if kind is not Operation} == {"operations"}


def test_submit_and_cancel_name_admission(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        _end(Found(["ada/h3"], Progress.of_specs([JobSpec(id="h3", tenant="ada")])), Until.STARTED, 8)
    assert capsys.readouterr().err == f"fallow: {BY_ADMISSION.replace('h3', 'ada/h3')}\n"
    assert cancel.told_of("h3", [], 8).answer == BY_ADMISSION


def test_holds_and_commands_on_nodes_and_policies_name_placement_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert hold.told_of(HoldJob(cell="main", job="h3"), hold.Held(()), 8).answer == BY_PLACEMENT
    assert outcome("h3", None, 8)["answer"] == BY_PLACEMENT
    with pytest.raises(typer.Exit):
        tell_answer({"policy": "h3"}, None, 8, as_json=False)
    assert capsys.readouterr().err == f"fallow: {BY_PLACEMENT}\n"


def test_what_comes_one_by_one_is_told_one_by_one_and_let_go_of_in_the_end() -> None:
    said: list[str] = []

    async def found() -> AsyncGenerator[Outcome, None]:
        try:
            for job in ("a", "b", "c"):
                said.append(f"look for {job}")
                yield Outcome(job, job)
        finally:
            said.append("let go")

    told = in_turn(found())
    assert [next(told).job, next(told).job, *said] == ["a", "b", "look for a", "look for b"]
    told.close()  # type: ignore[attr-defined]  # a generator
    assert said[2:] == ["let go"]
    assert [each.job for each in in_turn(found())] == ["a", "b", "c"]


def test_an_error_on_the_way_is_raised_where_it_is_told() -> None:
    async def found() -> AsyncGenerator[Outcome, None]:
        yield Outcome("a", "a")
        raise LookupError

    told = in_turn(found())
    assert next(told).job == "a"
    with pytest.raises(LookupError):
        next(told)
