"""A day for a cell that runs by the wall's clock."""

from __future__ import annotations

from fallow.replay.generate import DAY_MS, generate
from fallow.replay.time_scaling import squeezed
from fallow.shared.events.fields.values import VirtualRun
from fallow.shared.events.submissions import CancelJob, SubmitJob

DAY = generate(count=300, nodes=32, seed=1)
TEN_MINUTES = squeezed(DAY, factor=144, prefix="x")


def behind_x(job: str) -> str:
    tenant, own = job.split("/")
    return f"{tenant}/x-{own}"


def test_a_squeezed_day_has_the_same_jobs_under_names_of_its_own() -> None:
    assert [timed.command.key() for timed in TEN_MINUTES.commands] == [behind_x(t.command.key()) for t in DAY.commands]
    assert TEN_MINUTES.jobs == DAY.jobs


def test_a_squeezed_day_ends_when_it_should() -> None:
    assert max(timed.at_ms for timed in TEN_MINUTES.commands) == DAY_MS // 144


def test_runs_are_as_much_shorter_as_the_day_is() -> None:
    pairs = [(t.command, s.command) for t, s in zip(DAY.commands, TEN_MINUTES.commands, strict=True)]
    runs = [
        (before.job.run.duration_ms, after.job.run.duration_ms)
        for before, after in pairs
        if isinstance(before, SubmitJob)
        and isinstance(after, SubmitJob)
        and isinstance(before.job.run, VirtualRun)
        and isinstance(after.job.run, VirtualRun)
    ]
    assert len(runs) == 300
    assert [pair for pair in runs if pair[0] is not None and pair[1] != pair[0] // 144] == []


def test_the_jobs_that_end_by_a_cancel_are_still_cancelled() -> None:
    cancelled = {timed.command.key() for timed in TEN_MINUTES.commands if isinstance(timed.command, CancelJob)}
    assert cancelled >= TEN_MINUTES.endless
    assert len(TEN_MINUTES.endless) == len(DAY.endless)
