"""Several draws of one load: every policy gets the same ones, and the means can be computed again."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.replay.trace import counted_nodes, read_trace, workload_of
from fallow.shared.events.queue import QueueDiscipline
from fallow.simulate.seeds import drawn
from fallow.simulate.simulate import arrivals_of
from fallow.simulator.trace.run import Arrival
from tests.simulator.trace.made_up import write
from tests.simulator.trace.recompute import figures, table

RUN = CliRunner()
POLICIES = ("strict-fifo", "best-effort-fifo")


def arrivals(path: Path, seed: int = 7) -> tuple[list[Arrival], frozenset[str]]:
    carry = write(path / "carry.csv", 30, seed=8, name="ran")
    trace = read_trace(write(path / "jobs.csv", 100, seed), carry)
    workload = workload_of(trace, counted_nodes(5, 8), QueueDiscipline.STRICT_FIFO, typed=False)
    return arrivals_of(workload), workload.carried


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Any]:
    jobs = write(tmp_path / "jobs.csv", 100, seed=7)
    asked = [part for name in POLICIES for part in ("--policy", name)]
    asked += ["--first-seed", "3", "--seeds", "3", "--out", str(tmp_path / "out"), "--json"]
    done = RUN.invoke(app, ["simulate", "--jobs", str(jobs), "--nodes", "5", *asked])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_figures_are_means_over_the_seeds_with_their_standard_deviation(told: dict[str, Any], policy: str) -> None:
    seeds = told["seeds"][policy]
    waits = [seeds[seed]["wait_ms_mean"] for seed in ("3", "4", "5")]
    assert len(set(waits)) == 3
    assert told["policies"][policy]["wait_ms_mean"] == pytest.approx(fmean(waits), abs=1e-6)
    assert told["spread"][policy]["wait_ms_mean"] == pytest.approx(stdev(waits), abs=1e-6)


@pytest.mark.parametrize("seed", ["3", "4", "5"])
def test_the_figures_of_each_seed_can_be_computed_again_from_its_tables(
    told: dict[str, Any], tmp_path: Path, seed: str
) -> None:
    found = dict(told["seeds"]["strict-fifo"][seed])
    assert found.pop("decisions") > 200
    assert found == figures(tmp_path / "out" / "strict-fifo" / f"seed-{seed}")


@pytest.mark.usefixtures("told")
def test_all_policies_get_the_same_jobs_under_one_seed(tmp_path: Path) -> None:
    one, other = (table(tmp_path / "out" / policy / "seed-4" / "jobs.csv") for policy in POLICIES)
    columns = ("job_id", "tenant", "gpus_milli", "submit_ms")
    assert [[row[name] for name in columns] for row in one] == [[row[name] for name in columns] for row in other]


def test_a_seed_moves_submissions_and_shuffles_what_is_carried_over(tmp_path: Path) -> None:
    given, carried = arrivals(tmp_path)
    found = drawn(given, carried, 1, 60)
    assert [arrival.command.key() in carried for arrival in found] == [True] * 30 + [False] * 100
    assert [arrival.command.job.id for arrival in found[:30]] != [arrival.command.job.id for arrival in given[:30]]
    before = {arrival.command.job.id: arrival for arrival in given}
    by_ms = [abs(arrival.at_ms - before[arrival.command.job.id].at_ms) for arrival in found]
    assert (max(by_ms[:30]), max(by_ms) <= 60_000, max(by_ms) > 40_000) == (0, True, True)
    assert [arrival.command.submit_ms for arrival in found] == [arrival.at_ms for arrival in found]
    assert [arrival.at_ms for arrival in found] == sorted(arrival.at_ms for arrival in found)
    assert {a.command.job.id: a.command.job for a in found} == {a.command.job.id: a.command.job for a in given}


def test_a_seed_always_draws_the_same_and_another_one_something_else(tmp_path: Path) -> None:
    given, carried = arrivals(tmp_path)
    assert drawn(given, carried, 1, 60) == drawn(given, carried, 1, 60)
    assert drawn(given, carried, 1, 60) != drawn(given, carried, 2, 60)
