"""A replay in lockstep waits for nothing but the scheduler: its starts are those of an independent simulation."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.worlds.reference_fifo import differences, read, simulate

pytestmark = pytest.mark.real_kafka

COLUMNS = (
    "job_id",
    "tenant",
    "submit_s",
    "gpus",
    "workers",
    "gpus_per_worker",
    "gpu_type",
    "duration_s",
    "kind",
    "status",
)


def write_trace(path: Path, count: int, seed: int) -> None:
    chance, submit_s = random.Random(seed), 0
    with gzip.open(path, "wt", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for number in range(count):
            submit_s += chance.choice((0, 0, 20, 60, 300))
            workers, gpus = chance.choice(((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 4), (4, 8)))
            duration_s = chance.choice((30, 120, 600, 1800))
            rows.writerow(
                (
                    f"job-{number:03}",
                    f"team-{number % 3}",
                    submit_s,
                    workers * gpus,
                    workers,
                    gpus,
                    "",
                    duration_s,
                    "training",
                    "",
                )
            )


def test_every_job_starts_when_an_independent_simulation_starts_it(kafka: str, redis_url: str, tmp_path: Path) -> None:
    write_trace(tmp_path / "jobs.csv.gz", 120, seed=11)
    command = [sys.executable, "-m", "fallow.cli", "replay", "--jobs", str(tmp_path / "jobs.csv.gz"), "--nodes", "5"]
    command += ["--policy", "strict-fifo", "--lockstep", "--out", str(tmp_path / "out"), "--json"]
    environment = {**os.environ, "FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    jobs = read(tmp_path / "jobs.csv.gz")
    starts = simulate([], jobs, 5, 8)
    assert differences(starts, tmp_path / "out" / "jobs.csv") == (120, [])
    waits = [starts[job.id] - job.submit_ms for job in jobs]
    assert figures["wait_ms_mean"] == pytest.approx(sum(waits) / len(waits), abs=0.1)
    assert max(waits) > 0
    assert (figures["completed"], figures["lost"], figures["double_allocations"], figures["verify_ok"]) == (
        120,
        0,
        0,
        True,
    )
