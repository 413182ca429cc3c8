"""`fallow replay` on a real Kafka: a trace so small that every figure can be computed by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallow.replay.report.figures import figures_of
from fallow.replay.report.job_history import read_rows

HEAD = "job_id,tenant,submit_s,gpus,workers,gpus_per_worker,gpu_type,duration_s,kind,status\n"
CARRY = HEAD + "c,t1,0,4,1,4,,100,training,carryover\n"
# Of 8 GPUs the carried job holds 4 until 100 s. `none` asks for no GPU and `huge` for more than there are.
JOBS = (
    HEAD
    + "a,t1,0,4,2,2,,50,training,\n"
    + "b,t1,10,8,1,8,,20,training,\n"
    + "d,T/2,20,1,1,1,,10,training,\n"
    + "none,t1,30,0,1,0,,10,training,\n"
    + "huge,t1,40,9,1,9,,10,training,\n"
)

Replay = Callable[..., dict[str, Any]]


@pytest.fixture
def replay(kafka: str, redis_url: str, tmp_path: Path) -> Replay:
    (tmp_path / "jobs.csv").write_text(JOBS, encoding="utf-8")
    (tmp_path / "carry.csv").write_text(CARRY, encoding="utf-8")
    files = [
        "--jobs",
        str(tmp_path / "jobs.csv"),
        "--carry",
        str(tmp_path / "carry.csv"),
        "--out",
        str(tmp_path / "out"),
    ]

    def run(*options: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "fallow.cli", "replay", *files, "--nodes", "1", "--json", *options]
        environment = {**os.environ, "FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    return run


def starts_of(path: Path) -> dict[str, list[int]]:
    return {row.id: [stretch.start_ms for stretch in row.stretches] for row in read_rows(path)}


def test_in_lockstep_every_wait_is_the_schedulers_alone(replay: Replay, tmp_path: Path) -> None:
    told = replay("--lockstep", "--policy", "strict-fifo")
    counts = {
        key: told[key] for key in ("submitted", "completed", "rejected", "lost", "double_allocations", "verify_ok")
    }
    assert counts == {
        "submitted": 6,
        "completed": 4,
        "rejected": 2,
        "lost": 0,
        "double_allocations": 0,
        "verify_ok": True,
    }
    assert starts_of(tmp_path / "out" / "jobs.csv") == {
        "c": [0],
        "a": [0],
        "b": [100_000],
        "d": [120_000],
        "none": [],
        "huge": [],
    }
    assert (told["wait_ms_mean"], told["wait_ms_p50"], told["wait_ms_p99"]) == (63_333.3, 90_000, 100_000)
    # 8 GPUs for 50 s, 4 for 50 s, 8 for 20 s and 1 for 10 s, of 8 for 130 s; in part allocated for 60 s of them.
    assert (told["gar_mean"], told["gfr_mean"]) == (0.7404, 0.4615)


def test_best_effort_lets_a_small_job_pass_one_that_does_not_fit(replay: Replay, tmp_path: Path) -> None:
    told = replay("--lockstep", "--policy", "best-effort-fifo")
    starts = starts_of(tmp_path / "out" / "jobs.csv")
    assert (starts["b"], starts["d"], told["wait_ms_mean"]) == ([100_000], [50_000], 40_000.0)


def test_the_files_of_a_paced_replay_give_its_figures_again(replay: Replay, tmp_path: Path) -> None:
    told = replay("--speed", "50")
    rows = list(read_rows(tmp_path / "out" / "jobs.csv"))
    again = figures_of(rows, {"node-00001": 8}).as_dict()
    assert {key: told[key] for key in again} == again
    assert told == json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert list((tmp_path / "out" / "diaries").glob("*.jsonl"))
