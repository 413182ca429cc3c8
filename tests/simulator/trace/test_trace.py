"""A trace in virtual time: the starts are those of an independent simulation, and each figure can be computed again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.replay.trace import Trace, counted_nodes, read_trace, workload_of
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.queue import QueueDiscipline
from fallow.simulate.policies import policy_of
from fallow.simulate.simulate import arrivals_of, rejected
from fallow.simulator.trace.run import TraceRun, run_trace
from tests.e2e.worlds.reference_fifo import Wanted, simulate
from tests.simulator.trace.made_up import write
from tests.simulator.trace.recompute import figures

RUN = CliRunner()
FOLDER = os.environ.get("FALLOW_TRACES", "")
NEEDS_TRACES = pytest.mark.skipif(not FOLDER, reason="FALLOW_TRACES names no folder of traces")


def run_of(trace: Trace, nodes: int, discipline: QueueDiscipline = QueueDiscipline.STRICT_FIFO) -> TraceRun:
    workload = workload_of(trace, counted_nodes(nodes, 8), discipline, typed=False)
    return run_trace(workload.cell_file, workload.nodes, arrivals_of(workload), workload.carried)


def starts_of(run: TraceRun) -> dict[str, int]:
    return {job.id: job.attempts[0].start_ms for job in run.measures.books.jobs.values()}


def expected(trace: Trace, nodes: int) -> dict[str, int]:
    carried, jobs = (
        [Wanted(j.id, j.submit_ms, j.workers, j.gpu_milli // GPU, j.duration_ms or 0) for j in part]
        for part in (trace.carried, trace.jobs)
    )
    return simulate(carried, jobs, nodes, 8)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_job_starts_when_an_independent_simulation_starts_it(tmp_path: Path, seed: int) -> None:
    trace = read_trace(write(tmp_path / "jobs.csv", 300, seed))
    run = run_of(trace, 5)
    assert starts_of(run) == expected(trace, 5)
    assert (run.figures.completed, run.figures.wait_ms_mean) != (300, 0.0)


@NEEDS_TRACES
@pytest.mark.parametrize(("jobs", "nodes"), [(5_000, 404), (5_000, 290)])
def test_a_slice_of_a_real_trace_starts_as_an_independent_simulation_starts_it(jobs: int, nodes: int) -> None:
    folder = Path(FOLDER)
    carry = folder / "train_philly_fold14d_carryover.csv.gz"
    trace = read_trace(folder / "train_philly_fold14d_50390.csv.gz", carry, jobs)
    assert starts_of(run_of(trace, nodes)) == expected(trace, nodes)


@pytest.mark.parametrize("policy", ["strict-fifo", "best-effort-fifo+first-fit", "backfill+e-binpack"])
def test_each_figure_can_be_computed_again_from_the_tables(tmp_path: Path, policy: str) -> None:
    jobs = write(tmp_path / "jobs.csv", 200, seed=4)
    asked = ["simulate", "--jobs", str(jobs), "--nodes", "5", "--policy", policy, "--out", str(tmp_path / "out")]
    done = RUN.invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])["policies"][policy]
    assert told.pop("decisions") > 400
    assert told == figures(tmp_path / "out" / policy)


def test_policies_stand_side_by_side(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", 60, seed=5)
    names = ("strict-fifo", "best-effort-fifo")
    asked = [part for name in names for part in ("--policy", name)]
    done = RUN.invoke(app, ["simulate", "--jobs", str(jobs), "--nodes", "5", *asked])
    assert done.exit_code == 0
    assert all(name in done.stdout for name in (*names, "makespan", "wait p95", "jct longest"))


def test_a_job_that_can_never_run_is_counted_as_rejected(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", 60, seed=5)
    run = run_of(read_trace(jobs), 2)
    assert run.figures.rejected > 0
    assert run.figures.submitted == run.figures.completed + run.figures.rejected == 60


def test_the_last_line_tells_how_many_jobs_were_rejected_by_code(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    head = "job_id,tenant,submit_s,gpus,workers,duration_s\n"
    jobs.write_text(f"{head}a,t,0,16,,60\nb,t,0,16,1,60\nc,t,0,1.5,1,60\nd,t,0,800,,60\n", encoding="utf-8")
    asked = ["simulate", "--jobs", str(jobs), "--nodes", "5", "--policy", "strict-fifo", "--policy", "backfill"]
    done = RUN.invoke(app, asked)
    assert done.stdout.splitlines()[-1] == "3 jobs rejected: invalid_field 1, larger_than_pool 2"
    told = json.loads(RUN.invoke(app, [*asked, "--json"]).stdout.splitlines()[-1])
    assert told["rejections"] == {
        policy: {"invalid_field": 1, "larger_than_pool": 2} for policy in ("strict-fifo", "backfill")
    }
    assert told["policies"]["backfill"]["completed"] == 1


@pytest.mark.parametrize(
    ("codes", "of_runs", "told"),
    [
        ({"larger_than_pool": 5}, [1] * 5, "1 job rejected in each of 5 runs: larger_than_pool 1"),
        ({"larger_than_pool": 1}, [1], "1 job rejected in 1 run: larger_than_pool 1"),
        ({"a": 4, "b": 1}, [1, 2, 2], "1 to 2 jobs rejected in each of 3 runs; in all of them: a 4, b 1"),
        ({"a": 1, "b": 1}, [1, 1], "1 job rejected in each of 2 runs; in all of them: a 1, b 1"),
        ({"larger_than_pool": 3}, None, "3 jobs rejected: larger_than_pool 3"),
    ],
)
def test_a_job_that_comes_in_every_run_is_one_job(codes: dict[str, int], of_runs: list[int] | None, told: str) -> None:
    assert rejected(codes, of_runs) == told


def test_quotas_of_a_cell_file_hold(tmp_path: Path) -> None:
    jobs, cell = write(tmp_path / "jobs.csv", 60, seed=5), tmp_path / "cell.yaml"
    tenants = "\n".join(f"  - {{name: team-{n}, quotas: [{{limit: {8 if n else 32}}}]}}" for n in range(3))
    pool = "[{name: gold, gpus: 40, gpus_per_node: 8}]"
    cell.write_text(f"cells:\n  - {{name: cell-a, ordinal: 0, pools: {pool}}}\ntenants:\n{tenants}\n", "utf-8")
    done = RUN.invoke(app, ["simulate", "--jobs", str(jobs), "--nodes", "5", "--cell", str(cell), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])["policies"]["cell-file"]
    assert (told["rejected"] > 0, told["unfinished"]) == (True, 0)


@pytest.mark.parametrize("discipline", ["strict-fifo", "best-effort-fifo"])
def test_without_a_policy_queues_are_as_the_cell_file_has_them(tmp_path: Path, discipline: str) -> None:
    """The last job may pass the second, which waits for all GPUs, unless the queue is strict."""
    jobs, cell = tmp_path / "jobs.csv", tmp_path / "cell.yaml"
    rows = ["job_id,tenant,submit_s,gpus,duration_s", "a,t,0,4,100", "b,t,1,8,100", "c,t,2,4,100"]
    jobs.write_text("\n".join(rows) + "\n", encoding="utf-8")
    pools, queues = "[{name: gold, gpus: 8, gpus_per_node: 8}]", f"[{{name: q, discipline: {discipline}}}]"
    cell.write_text(f"cells: [{{name: c, ordinal: 0, pools: {pools}, queues: {queues}}}]\ntenants: [{{name: t}}]\n")
    asked = ["simulate", "--jobs", str(jobs), "--nodes", "1", "--cell", str(cell), "--json"]
    plain, named = RUN.invoke(app, asked), RUN.invoke(app, [*asked, "--policy", discipline])
    told = [json.loads(done.stdout.splitlines()[-1])["policies"] for done in (plain, named)]
    assert told[0]["cell-file"] == told[1][discipline]


def test_nodes_of_a_pool_that_the_cell_file_does_not_have_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    jobs, cell, nodes = write(tmp_path / "jobs.csv", 2, seed=5), tmp_path / "cell.yaml", tmp_path / "nodes.csv"
    cell.write_text("cells: [{name: cell-a, ordinal: 0, pools: [{name: gold, gpus: 8}]}]\ntenants: [{name: a}]\n")
    nodes.write_text("node_id,gpu_type,gpus,cpus,memory_gib\nn1,a100,8,0,0\n", encoding="utf-8")
    asked = ["simulate", "--jobs", str(jobs), "--nodes", str(nodes), "--cell", str(cell)]
    done = subprocess.run([sys.executable, "-m", "fallow.cli", *asked], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "which is not in the file" in done.stderr


def test_a_policy_that_nobody_knows_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", 2, seed=5)
    done = RUN.invoke(app, ["simulate", "--jobs", str(jobs), "--nodes", "5", "--policy", "fifo+magic"])
    assert done.exit_code == 2
    assert "'fifo' is none of" in done.stderr


def test_a_policy_names_an_order_a_way_to_place_or_both() -> None:
    both = policy_of("best-fit+strict-fifo")
    assert (both.discipline, both.placement) == (QueueDiscipline.STRICT_FIFO, "best-fit")
    assert policy_of("first-fit").discipline is None


def test_the_same_input_gives_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", 150, seed=6)
    for seed in ("1", "2"):
        asked = ["simulate", "--jobs", str(jobs), "--nodes", "5", "--out", str(tmp_path / seed), "--json"]
        asked += ["--policy", "best-effort-fifo", "--policy", "backfill+e-binpack"]
        command = [sys.executable, "-m", "fallow.cli", *asked]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    one, other = tmp_path / "1", tmp_path / "2"
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert len(names) == 9
    assert [(one / name).read_bytes() for name in names] == [(other / name).read_bytes() for name in names]


def test_without_matplotlib_there_are_the_tables_and_one_line_about_the_plots(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", 20, seed=6)
    asked = ["simulate", "--jobs", str(jobs), "--nodes", "5", "--out", str(tmp_path / "out")]
    code = f"import sys; sys.modules['matplotlib'] = None; from fallow.cli.app import app; app({asked})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "no plots: matplotlib is not installed" in done.stderr
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["best-effort-fifo", "summary.json"]
