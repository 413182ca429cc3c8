"""`fallow bench aryl` on a small trace: its rows, its tables, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from typer.testing import CliRunner

from fallow.bench.aryl.demand import read_demand
from fallow.bench.aryl.scenarios import Scenario, drawn, trace_runs
from fallow.cli.app import app
from fallow.cli.errors.failures import Exit
from fallow.replay.trace import read_trace
from fallow.replay.workload import WorkloadError

RUN = CliRunner()
HEAD = "job_id,tenant,submit_s,gpus,workers,gpus_per_worker,gpu_type,duration_s,kind,status\n"
JOBS = "".join(
    f"j-{n},t,{n * 97},{gpus},{workers},{gpus // workers},,{300 + 137 * (n * n % 41)},training,\n"
    for n in range(400)
    for gpus, workers in [((1, 1), (1, 1), (4, 1), (8, 1), (16, 2))[n * 7 % 5]]
)
CARRY = "c-0,t,0,8,1,8,,9000,training,carryover\nc-1,t,0,4,1,4,,800,training,carryover\n"
DEMAND = "t_s,flat,busy\n" + "".join(f"{300 * n},0.5,{0.42 + 0.5 * (n % 60) / 60:.4f}\n" for n in range(144))
KEYS = (
    "policy", "scenario", "nodes", "placed", "seed", "information", "queue_s_mean", "queue_s_p50", "queue_s_p95",
    "total_wait_s_mean", "longest_wait_h", "jct_s_mean", "jct_s_p50", "jct_s_p95", "slowdown_mean", "preempted_pct",
    "gpu_h_lost", "train_use", "overall_use", "on_loan_use", "collateral", "bound_share", "seconds",
)  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "jobs.csv").write_text(HEAD + JOBS, encoding="utf-8")
    (tmp_path / "carry.csv.gz").write_bytes(gzip.compress((HEAD + CARRY).encode()))
    (tmp_path / "demand.csv").write_text(DEMAND, encoding="utf-8")
    named = {"jobs": "jobs.csv", "carry": "carry.csv.gz", "demand": "demand.csv"}
    words = [word for name, file in named.items() for word in (f"--{name}", str(tmp_path / file))]
    return ["bench", "aryl", *words[:-1], f"{words[-1]}:busy", "--nodes", "20"]


def rows_of(asked: list[str]) -> list[dict[str, Any]]:
    done = RUN.invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["rows"]
    return rows


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_each_scheme_has_a_row_with_all_keys_and_the_bounds_are_not_passed(files: list[str]) -> None:
    rows = rows_of(files)
    named = [row["policy"] for row in rows]
    assert named == ["fifo", "sjf", "srpt", "lyra", "random", "scf", "bound-base", "bound-largest"]
    assert all(tuple(row) == KEYS for row in rows)
    by_name = {row["policy"]: row for row in rows}
    assert by_name["bound-largest"]["jct_s_mean"] <= min(row["jct_s_mean"] for row in rows)
    assert (by_name["fifo"]["bound_share"], by_name["bound-largest"]["bound_share"]) == (0.0, 1.0)
    assert by_name["lyra"]["jct_s_mean"] < by_name["sjf"]["jct_s_mean"] < by_name["fifo"]["jct_s_mean"]
    assert {row["information"] for row in rows if row["policy"] == "fifo"} == {"none"}


@pytest.mark.parametrize(
    ("scenario", "policies"),
    [
        ("loaning", ["fifo", "sjf", "srpt", "lyra", "opportunistic", "random", "scf"]),
        ("scaling", ["fifo", "sjf", "srpt", "lyra", "gandiva", "afs", "pollux"]),
        ("advanced", ["fifo", "sjf", "srpt", "lyra"]),
        ("heterogeneous", ["fifo", "sjf", "srpt", "lyra"]),
        ("ideal", ["fifo", "sjf", "srpt", "lyra"]),
    ],
)
def test_every_scenario_runs(files: list[str], scenario: str, policies: list[str]) -> None:
    rows = rows_of([*files, "--scenario", scenario])
    assert [row["policy"] for row in rows] == [*policies, "bound-base", "bound-largest"]
    assert all(row["train_use"] is None or 0 < row["train_use"] <= 1 for row in rows)
    assert all(row["on_loan_use"] is None or 0 <= row["on_loan_use"] <= 1 for row in rows)
    lends = [row["policy"] for row in rows if row["on_loan_use"] is not None]
    assert lends == (
        [] if scenario == "scaling" else [name for name in policies if name not in ("fifo", "sjf", "srpt")]
    )


def test_the_figures_follow_from_the_tables_that_are_written(files: list[str], tmp_path: Path) -> None:
    rows = rows_of([*files, "--policy", "lyra", "--policy", "fifo", "--seeds", "2", "--out", str(tmp_path / "out")])
    assert [(row["policy"], row["seed"]) for row in rows] == [("lyra", 0), ("fifo", 0), ("lyra", 1), ("fifo", 1)]
    for row in rows:
        folder = tmp_path / "out" / f"{row['policy']}-basic-20-pooled-{row['seed']}"
        jobs = [job for job in table(folder / "jobs.csv") if job["is_counted"] == "1"]
        assert len(jobs) == 400
        jcts = [float(job["end_s"]) - float(job["submit_s"]) for job in jobs]
        assert row["queue_s_mean"] == pytest.approx(
            fmean(float(job["start_s"]) - float(job["submit_s"]) for job in jobs), abs=1e-3
        )
        assert row["total_wait_s_mean"] == pytest.approx(fmean(float(job["wait_s"]) for job in jobs), abs=1e-3)
        assert row["jct_s_mean"] == pytest.approx(fmean(jcts), abs=1e-3)
        slowdowns = [max(1, jct / max(float(job["run_s"]), 10)) for jct, job in zip(jcts, jobs, strict=True)]
        assert row["slowdown_mean"] == pytest.approx(fmean(slowdowns), abs=1e-3)
        assert row["preempted_pct"] == pytest.approx(100 * sum(int(job["preemptions"]) for job in jobs) / 400, abs=1e-3)
        ticks = [tick for tick in table(folder / "ticks.csv") if int(tick["at_ms"]) < 144 * 300_000]
        lent = 8 * sum(int(tick["lent"]) for tick in ticks)
        on_loan = sum(int(tick["lent_busy_gpus"]) for tick in ticks) / lent if lent else None
        assert row["on_loan_use"] == (None if on_loan is None else pytest.approx(on_loan, abs=1e-4))


def test_without_loans_and_growth_the_use_is_the_work_of_the_jobs(files: list[str], tmp_path: Path) -> None:
    """As far as it was done within the period; 20 servers of 8 beside 520 that are busy as the file says."""
    (row,) = rows_of([*files, "--policy", "sjf", "--out", str(tmp_path / "out")])
    period_s = 144 * 300
    jobs = table(tmp_path / "out" / "sjf-basic-20-pooled-0" / "jobs.csv")
    held = sum(
        int(job["workers"])
        * int(job["gpus_each"])
        * (min(float(job["end_s"]), period_s) - min(float(job["start_s"]), period_s))
        for job in jobs
    )
    assert row["train_use"] == pytest.approx(held / (160 * period_s), abs=1e-4)
    busy = fmean(float(line.split(",")[2]) for line in DEMAND.splitlines()[1:]) * 4160
    assert row["overall_use"] == pytest.approx((held / period_s + busy) / (160 + 4160), abs=1e-4)


def test_a_series_goes_on_from_what_was_kept(files: list[str], tmp_path: Path) -> None:
    asked = [*files, "--policy", "lyra", "--out", str(tmp_path / "out")]
    (row,) = rows_of(asked)
    file = tmp_path / "out" / "lyra-basic-20-pooled-0" / "row.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "row": {**row, "seconds": 12345.0}}))
    assert rows_of(asked)[0]["seconds"] == 12345.0
    (tmp_path / "jobs.csv").write_text(HEAD + JOBS.replace("j-7,t,679", "j-7,t,680"), encoding="utf-8")
    assert rows_of(asked)[0]["seconds"] != 12345.0, "other files give another run"


def test_the_same_seed_gives_the_same_row_and_another_one_other_draws(files: list[str]) -> None:
    one, other, again = (
        rows_of([*files, "--policy", "random", "--scenario", "loaning", "--first-seed", seed])[0] for seed in "454"
    )
    assert {**one, "seconds": 0} == {**again, "seconds": 0}
    assert one["jct_s_mean"] != other["jct_s_mean"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--placed", "--policy", "srpt"], "--policy = 'srpt': none of them is for basic with --placed"),
        (["--scenario", "scaling", "--policy", "scf"], "--policy = 'scf': none of them is for scaling"),
        (["--nodes", "1"], "job j-2: 16 GPUs: 1 servers have 8"),
    ],
)
def test_what_cannot_run_is_told_in_one_line(files: list[str], words: list[str], told: str) -> None:
    asked = [word for word in files if word not in ("--nodes", "20")] if "--nodes" in words else files
    done = RUN.invoke(app, [*asked, *words])
    assert done.exit_code == Exit.USAGE
    assert told in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("t_s,busy\n0,0.5\n", "must have at least two samples"),
        ("t_s,busy\n0,0.5\n300,1.2\n", "demand.csv line 3: busy = '1.2': must be from 0 to 1"),
        ("t_s,busy\n0,0.5\n300,-0.1\n", "demand.csv line 3: busy = '-0.1': must be from 0 to 1"),
        ("t_s,busy\n0,0.5\n300,0.5\n500,0.5\n", "demand.csv line 4: t_s = '500': must count up from 0 in equal steps"),
        ("t_s,busy\n0,0.5\n0,0.5\n", "demand.csv line 3: t_s = '0': must count up from 0 in equal steps"),
        ("t_s,busy\n0,much\n", "demand.csv line 2: busy = 'much': must be a number"),
        ("t_s,other\n0,0.5\n", "column busy is missing"),
    ],
)
def test_a_demand_that_cannot_be_used_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "demand.csv").write_text(text, encoding="utf-8")
    with pytest.raises(WorkloadError, match=rule):
        read_demand(tmp_path / "demand.csv", "busy")


FOLDER = os.environ.get("FALLOW_TRACES", "")


@pytest.mark.skipif(not FOLDER, reason="FALLOW_TRACES names no folder of traces")
@pytest.mark.parametrize("seed", range(3))
def test_the_draws_on_the_fold_have_the_shares_of_the_paper(seed: int) -> None:
    trace = read_trace(Path(FOLDER) / "train_philly_fold14d_50390.csv.gz")
    runs = drawn(trace_runs(trace.jobs, ()), Scenario.ADVANCED, seed)
    work = sum(run.gpu_ms for run in runs)
    elastic = [run for run in runs if run.is_elastic]
    assert len(elastic) == 2520
    assert sum(run.gpu_ms for run in elastic) / work == pytest.approx(0.36, abs=0.001)
    assert sum(run.gpu_ms for run in runs if run.is_fungible) / work == pytest.approx(0.21, abs=0.01)
    others = sum(run.gpu_ms for run in runs if not run.is_fungible)
    assert sum(run.gpu_ms for run in runs if run.is_heterogeneous) / others == pytest.approx(0.10, abs=0.01)
    assert not any(run.is_fungible and run.is_heterogeneous for run in runs)


@pytest.mark.skipif(not FOLDER, reason="FALLOW_TRACES names no folder of traces")
def test_fifo_and_sjf_on_the_fold_are_those_of_an_independent_replay() -> None:
    """Mean queue 3,126 s and JCT 18,818 s (FIFO), 279 s and 15,971 s (SJF), on one pool of 404 servers."""
    files = {"--jobs": "train_philly_fold14d_50390.csv.gz", "--carry": "train_philly_fold14d_carryover.csv.gz"}
    words = [word for name, file in files.items() for word in (name, f"{FOLDER}/{file}")]
    demand = ["--demand", f"{FOLDER}/infer_demand_14d_5min.csv.gz:lyra_like_o365_busy"]
    fifo, sjf = rows_of(["bench", "aryl", *words, *demand, "--policy", "fifo", "--policy", "sjf"])
    assert (fifo["queue_s_mean"], fifo["jct_s_mean"]) == pytest.approx((3_126, 18_818), rel=0.001)
    assert (sjf["queue_s_mean"], sjf["jct_s_mean"]) == pytest.approx((279, 15_971), rel=0.005)
    assert fifo["seconds"] < 20


def test_a_file_without_a_job_is_refused_in_one_line(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD, encoding="utf-8")
    carry = files.index("--carry")
    done = RUN.invoke(app, [*files[:carry], *files[carry + 2 :]])
    assert (done.exit_code, done.stderr.count("\n")) == (Exit.USAGE, 1), done.output
    assert f"{tmp_path / 'jobs.csv'}: has no job to run" in done.stderr
