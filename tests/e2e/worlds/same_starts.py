"""A replay in lockstep on the running services and a simulation, job by job: the same starts, ends, nodes and devices?

`python -m tests.e2e.worlds.same_starts JOBS NODES [--carry FILE] [--limit N] [--policy NAME]` runs both (with the Kafka
and the Redis that `fallow replay` would choose), prints what differs and how long each took, and ends with 1 if
anything does.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fallow.replay.report.job_history import read_rows

Held = tuple[tuple[str, tuple[int, ...]], ...]
"""The nodes of an attempt in their order, each with its devices."""

Attempt = tuple[int, int | None, Held]
"""When it started and ended, and what it held."""


@dataclass(frozen=True)
class Compared:
    """What came of it: how many jobs there were, which of them fared otherwise, and the seconds that both took."""

    jobs: int
    other: list[str]
    replay_s: float
    simulate_s: float


def compare(folder: Path, asked: list[str], policy: str) -> Compared:
    """Run both with these options, and compare each attempt of each job."""
    replay_s = run("replay", [*asked, "--policy", policy, "--lockstep", "--out", str(folder / "replay")])
    simulate_s = run("simulate", [*asked, "--policy", policy, "--out", str(folder / "simulate")])
    lived, told = replayed(folder / "replay" / "jobs.csv"), simulated(folder / "simulate" / policy)
    other = sorted(job for job in lived.keys() | told.keys() if lived.get(job) != told.get(job))
    return Compared(len(lived), other, replay_s, simulate_s)


def run(command: str, options: list[str]) -> float:
    begin_s = time.monotonic()
    command_line = [sys.executable, "-m", "fallow.cli", command, *options]
    done = subprocess.run(command_line, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return time.monotonic() - begin_s


def replayed(path: Path) -> dict[str, list[Attempt]]:
    return {
        row.id: [(s.start_ms, s.end_ms, tuple((hold.node, hold.devices) for hold in s.holds)) for s in row.stretches]
        for row in read_rows(path)
    }


def simulated(folder: Path) -> dict[str, list[Attempt]]:
    """By job; the workers of an attempt on one node are put together, as a replay tells of them."""
    with (folder / "jobs.csv").open(encoding="utf-8") as file:
        found: dict[str, dict[int, tuple[int, int | None, dict[str, list[int]]]]] = {
            row["job_id"]: {} for row in csv.DictReader(file)
        }
    with (folder / "placements.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            end_ms = int(row["end_ms"]) if row["end_ms"] else None
            attempts = found[row["job_id"]]
            _, _, nodes = attempts.setdefault(int(row["attempt"]), (int(row["start_ms"]), end_ms, {}))
            nodes.setdefault(row["node"], []).extend(map(int, row["devices"].split("+")))
    return {
        job: [(start, end, tuple((node, tuple(sorted(held))) for node, held in nodes.items()))
              for start, end, nodes in attempts.values()]
        for job, attempts in found.items()
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("jobs")
    parser.add_argument("nodes")
    parser.add_argument("--carry")
    parser.add_argument("--limit", default="5000")
    parser.add_argument("--policy", default="best-effort-fifo")
    asked = parser.parse_args()
    options = ["--jobs", asked.jobs, "--nodes", asked.nodes, "--limit", asked.limit]
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), options + (["--carry", asked.carry] if asked.carry else []), asked.policy)
    took = f"replay {found.replay_s:.0f} s, simulation {found.simulate_s:.1f} s"
    sys.stdout.write(f"{found.jobs} jobs, {len(found.other)} fared otherwise {found.other[:5]}; {took}\n")
    return 1 if found.other else 0


if __name__ == "__main__":
    sys.exit(main())
