"""What the jobs of a simulated trace tell of their run times."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.cli.errors.failures import Exit
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, Resources, VirtualRun
from fallow.shared.events.submissions import SubmitJob
from fallow.simulate.estimates import estimates_of, run_time_ms
from fallow.simulator.trace.run import Arrival
from tests.simulator.trace.made_up import write

RUN = CliRunner()
RUN_MS = 600_000


def arrival(number: int, **more: Any) -> Arrival:
    run = VirtualRun(duration_ms=RUN_MS)
    spec = JobSpec(id=f"job-{number}", tenant="ada", resources=Resources(gpu_milli=1_000), run=run)
    return Arrival(number, SubmitJob(job=replace(spec, **more), submit_ms=number))


ARRIVALS = [arrival(number) for number in range(2_000)]


def told(estimates: str, seed: int = 0) -> list[int]:
    found = [each.command.job.estimate_run_ms for each in estimates_of(estimates).on(ARRIVALS, seed)]
    assert None not in found
    return [ms for ms in found if ms is not None]


def test_exact_estimates_are_the_run_times() -> None:
    assert told("exact") == [RUN_MS] * len(ARRIVALS)


def test_limits_are_drawn_evenly_from_the_run_time_up_and_stop_no_job() -> None:
    found = told("limits:3")
    assert RUN_MS <= min(found) < 1.01 * RUN_MS
    assert 2.99 * RUN_MS < max(found) <= 3 * RUN_MS
    assert fmean(found) == pytest.approx(2 * RUN_MS, rel=0.03)
    assert {each.command.job.max_run_ms for each in estimates_of("limits:3").on(ARRIVALS, 0)} == {None}


def test_noise_is_log_normal_around_the_run_time() -> None:
    errors = [log(ms / RUN_MS) for ms in told("noise:0.5")]
    assert fmean(errors) == pytest.approx(0, abs=0.05)
    assert stdev(errors) == pytest.approx(0.5, rel=0.05)


def test_none_and_learned_take_away_what_jobs_tell() -> None:
    tells = [arrival(0, estimate_run_ms=5, max_run_ms=7)]
    for kind in ("none", "learned"):
        (silent,) = estimates_of(kind).on(tells, 0)
        assert (silent.command.job.estimate_run_ms, silent.command.job.max_run_ms) == (None, None)


def test_a_job_that_fails_early_or_never_ends_is_told_as_that() -> None:
    early = arrival(0, run=VirtualRun(duration_ms=RUN_MS, fail_at_ms=90)).command.job
    endless = arrival(0, run=VirtualRun()).command.job
    assert (run_time_ms(early), run_time_ms(endless)) == (90, None)


def test_an_estimate_goes_by_the_seed_and_the_job_alone() -> None:
    assert told("noise:1.0") == told("noise:1.0")
    assert told("noise:1.0") != told("noise:1.0", seed=1)
    assert [each.command.job.estimate_run_ms for each in estimates_of("noise:1.0").on(ARRIVALS[7:9], 0)] == (
        told("noise:1.0")[7:9]
    )


def simulated(tmp_path: Path, *more: str) -> dict[str, Any]:
    jobs = write(tmp_path / "jobs.csv", 200, seed=7)
    words = ("--nodes", "6", "--policy", "best-effort-fifo+lifetime", "--policy", "best-effort-fifo+best-fit")
    done = RUN.invoke(app, ["simulate", "--jobs", str(jobs), *words, *more, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["policies"]
    return found


def test_policies_that_go_by_estimates_come_to_other_figures_and_all_others_do_not(tmp_path: Path) -> None:
    without, exact = simulated(tmp_path, "--estimates", "none"), simulated(tmp_path, "--estimates", "exact")
    same, other = (found["best-effort-fifo+best-fit"] for found in (without, exact))
    assert {name for name in same if same[name] != other[name]} == {"declared_error_p50", "declared_error_p90"}
    assert other["declared_error_p90"] == 1
    assert exact["best-effort-fifo+lifetime"]["gfr_loaded"] < without["best-effort-fifo+lifetime"]["gfr_loaded"]


def test_what_is_learned_is_another_thing_than_nothing_and_its_error_is_told(tmp_path: Path) -> None:
    without, learned = simulated(tmp_path, "--estimates", "none"), simulated(tmp_path, "--estimates", "learned")
    told = learned["best-effort-fifo+lifetime"]
    assert told["learned_error_p50"] >= 1
    assert told["declared_error_p50"] is None
    assert without["best-effort-fifo+lifetime"]["learned_error_p50"] is None
    assert told["gfr_loaded"] != without["best-effort-fifo+lifetime"]["gfr_loaded"]


def test_the_same_estimates_give_the_same_figures(tmp_path: Path) -> None:
    assert simulated(tmp_path, "--estimates", "noise:1") == simulated(tmp_path, "--estimates", "noise:1")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (
            "oracle",
            "it must be one of exact, limits:FACTOR (such as limits:3), noise:SIGMA (such as noise:1.0), learned, none",
        ),
        ("learned:2", "it must be one of exact,"),
        ("", "it must be one of exact,"),
        ("exact:1", "it must be one of exact,"),
        ("limits", "it must be one of exact,"),
        ("limits:0.9", "FACTOR must be a number from 1 to 1000"),
        ("limits:inf", "FACTOR must be a number from 1 to 1000"),
        ("noise:nan", "SIGMA must be a number from 0 to 10"),
        ("noise:-1", "SIGMA must be a number from 0 to 10"),
        ("noise:much", "SIGMA must be a number from 0 to 10"),
        ("noise:1_0", "SIGMA must be a number from 0 to 10"),
    ],
)
def test_other_estimates_are_refused_with_the_option_the_value_and_the_rule(
    tmp_path: Path, value: str, rule: str
) -> None:
    jobs = write(tmp_path / "jobs.csv", 2, seed=7)
    done = RUN.invoke(app, ["simulate", "--jobs", str(jobs), "--nodes", "4", "--estimates", value])
    assert done.exit_code == Exit.USAGE
    assert f"--estimates = {value!r}: {rule}" in done.stderr
