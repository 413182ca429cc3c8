"""`fallow bench kant` on a handful of jobs, and the load that it makes by itself."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fallow.bench.kant.cluster import CLASSES, LOAD, WEEK_MS, cluster, week
from fallow.bench.kant.figures import gains
from fallow.bench.kant.kant import WAYS
from fallow.bench.kant.traces import KALOS
from fallow.cli.app import app
from fallow.replay.workload import Workload
from fallow.shared.events.fields.values import GPU, VirtualRun
from fallow.simulate.simulate import arrivals_of
from tests.simulator.trace.recompute import ratios, table

RUN = CliRunner()
HEAD = "job_id,tenant,submit_s,gpus,workers,gpus_per_worker,gpu_type,duration_s,kind\n"
JOBS = "".join(f"job-{n},,{n * 600},{8 * n},{n},8,,3600,training\n" for n in range(1, 60))
SMALL = "".join(f"one-{n},,{n * 600},1,1,1,,90000,training\n" for n in range(1, 60))


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    (tmp_path / KALOS).write_bytes(gzip.compress((HEAD + JOBS + SMALL).encode()))
    return tmp_path


@pytest.fixture
def told(traces: Path, tmp_path: Path) -> dict[str, Any]:
    asked = ["bench", "kant", "--trace", "kalos", "--traces", str(traces), "--out", str(tmp_path / "out"), "--json"]
    done = RUN.invoke(app, asked)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def generated() -> Workload:
    return week(seed=1)


def test_each_policy_has_an_object_and_its_figures_come_from_its_tables(told: dict[str, Any], tmp_path: Path) -> None:
    assert [(run["trace"], run["policy"]) for run in told["runs"]] == [("kalos", way.name) for way in WAYS]
    for run in told["runs"]:
        folder = tmp_path / "out" / "kalos" / run["policy"]
        gpus = {row["node_id"]: GPU * int(row["gpus"]) for row in table(folder / "nodes.csv")}
        again = ratios(table(folder / "placements.csv"), gpus, run["to_ms"])
        assert (run["gar_mean"], run["gfr_mean"]) == pytest.approx(again, abs=2e-6)
        assert run["completed"] == run["jobs"] == 118


def test_waits_and_stretches_are_told_by_job_size(told: dict[str, Any]) -> None:
    run = told["runs"][0]
    assert {name: size["count"] for name, size in run["jwtd"].items()} == {
        "1": 59, "5-8": 1, "9-16": 1, "17-32": 2, "33-64": 4, "65-128": 8, "129-256": 16, "257-512": 27,
    }  # fmt: skip
    assert run["jtted"]["257-512"]["mean"] >= 1
    assert run["jtted_model"] == "ring"


def test_spread_fragments_more_nodes_than_e_binpack(told: dict[str, Any]) -> None:
    against = {(gain["discipline"], gain["against"]): gain for gain in told["gains"]}
    gain = against["best-effort-fifo", "spread"]
    assert gain["gfr_from"] > 2 * gain["gfr_to"] > 0


@pytest.mark.usefixtures("told")
def test_plots_are_small_and_name_no_day(tmp_path: Path) -> None:
    plots = sorted((tmp_path / "out").glob("*.svg"))
    assert [path.name for path in plots] == ["kalos-course.svg", "kalos-jtted.svg", "kalos-waits.svg"]
    assert all(path.stat().st_size < 100_000 for path in plots)
    assert not any("dc:date" in path.read_text("utf-8") for path in plots)


def test_without_traces_what_needs_them_is_left_out_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FALLOW_TRACES", raising=False)
    done = RUN.invoke(app, ["bench", "kant", "--trace", "kalos", "--json"])
    assert done.exit_code == 0
    assert "kalos: left out, for neither --traces nor FALLOW_TRACES names a folder" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["skipped"] == ["kalos"]


def test_a_gain_is_how_much_more_e_binpack_has_than_another_way_under_the_same_order() -> None:
    ratios_of = {"e-binpack": (0.99, 0.98, 0.01), "spread": (0.90, 0.98, 0.08)}
    runs = [
        {"trace": "t", "policy": f"{order}+{place}", "gar_median": gar, "sor_median": sor, "gfr_mean": gfr,
         "wait_ms_mean": 0.0, "jtted": {"1": {"mean": 1.0}, "2-4": {"mean": 1.0 + gfr}}}
        for order in ("backfill", "strict-fifo")
        for place, (gar, sor, gfr) in ratios_of.items()
    ]  # fmt: skip
    found = gains(runs)
    assert [(gain["discipline"], gain["against"]) for gain in found] == [
        ("backfill", "spread"),
        ("strict-fifo", "spread"),
    ]
    assert (found[0]["gar_median_gain_pct"], found[0]["sor_median_gain_pct"]) == (10.0, 0.0)
    assert (found[0]["gfr_from"], found[0]["gfr_to"], found[0]["wait_mean_gain_pct"]) == (0.08, 0.01, None)
    assert (found[0]["jtted_better"], found[0]["jtted_worse"]) == (["2-4"], [])


def test_the_generated_week_wants_a_little_more_than_there_is(generated: Workload) -> None:
    jobs = [arrival.command.job for arrival in arrivals_of(generated)]
    runs = [(job.gpus_milli, job.run) for job in jobs]
    wanted_ms = sum(milli * (run.duration_ms or 0) for milli, run in runs if isinstance(run, VirtualRun))
    assert wanted_ms / (GPU * generated.gpus * WEEK_MS) == pytest.approx(LOAD, abs=0.03)
    assert generated.gpus == 8_000


def test_the_generated_week_has_jobs_of_all_sizes_as_often_as_it_says(generated: Workload) -> None:
    sizes = Counter(arrival.command.job.gpus_milli // GPU for arrival in arrivals_of(generated))
    jobs, of_all = sum(sizes.values()), sum(each.jobs for each in CLASSES)
    assert {size: count / jobs for size, count in sorted(sizes.items())} == {
        each.gpus: pytest.approx(each.jobs / of_all, abs=0.02) for each in CLASSES
    }


def test_a_seed_always_makes_the_same_week(generated: Workload) -> None:
    assert week(seed=1) == generated
    assert week(seed=2).commands != generated.commands


def test_leaf_groups_have_32_nodes() -> None:
    leaves = Counter(node.position.leaf for node in cluster())
    assert (len(leaves), sorted(set(leaves.values()))) == (32, [8, 32])


def test_policies_and_estimates_may_be_named(traces: Path) -> None:
    words = ["--policy", "best-effort-fifo+lifetime", "--estimates", "exact", "--json"]
    done = RUN.invoke(app, ["bench", "kant", "--trace", "kalos", "--traces", str(traces), *words])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert ([run["policy"] for run in found["runs"]], found["estimates"]) == (["best-effort-fifo+lifetime"], "exact")


@pytest.mark.parametrize("name", ["lifetime", "backfill", "best-effort-fifo+fair-share+lifetime"])
def test_a_policy_without_an_order_of_queues_or_a_way_to_place_is_refused(name: str) -> None:
    done = RUN.invoke(app, ["bench", "kant", "--policy", name])
    assert done.exit_code == 2
    assert f"--policy = {name!r}: must be an order of queues and a way to place" in done.stderr
