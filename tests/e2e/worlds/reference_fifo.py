"""An independent simulation of strict FIFO with best fit by worker: sixty lines that share nothing with Fallow.

`python tests/e2e/worlds/reference_fifo.py JOBS CARRY NODES GPUS_PER_NODE [JOBS_CSV]` prints the mean wait of a trace,
and with the jobs.csv of a replay how many jobs started at another time there.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """A job of a trace."""

    id: str
    submit_ms: int
    workers: int
    gpus: int
    duration_ms: int


def simulate(carried: list[Wanted], jobs: list[Wanted], nodes: int, gpus_per_node: int) -> dict[str, int]:
    """When each job starts. Carried jobs come first, at time 0; then jobs by (time, id). At equal times ends come
    first.
    """
    free, line, ends, starts = [gpus_per_node] * nodes, deque[Wanted](), list[tuple[int, str, list[int], int]](), {}
    coming = deque([*carried, *sorted(jobs, key=lambda job: (job.submit_ms, job.id))])
    while coming or ends:
        if ends and (not coming or ends[0][0] <= coming[0].submit_ms):
            now_ms = ends[0][0]
            while ends and ends[0][0] == now_ms:
                _, _, held, gpus = heappop(ends)
                for node in held:
                    free[node] += gpus
        else:
            now_ms = coming[0].submit_ms
            line.append(coming.popleft())
        while line and (places := place(free, line[0])) is not None:
            job = line.popleft()
            starts[job.id] = now_ms
            heappush(ends, (now_ms + job.duration_ms, job.id, places, job.gpus))
    return starts


def place(free: list[int], job: Wanted) -> list[int] | None:
    """Each worker on the node with the fewest free GPUs that fit it, the first of these; all of them or none."""
    places: list[int] = []
    for _ in range(job.workers):
        fitting = [(gpus, node) for node, gpus in enumerate(free) if gpus >= job.gpus]
        if not fitting:
            for node in places:
                free[node] += job.gpus
            return None
        places.append(min(fitting)[1])
        free[places[-1]] -= job.gpus
    return places


def read(path: Path) -> list[Wanted]:
    """The jobs of a trace, in the order of the file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [
            Wanted(
                row["job_id"],
                int(float(row["submit_s"]) * 1000),
                int(row["workers"]),
                int(float(row["gpus_per_worker"])),
                int(float(row["duration_s"]) * 1000),
            )
            for row in csv.DictReader(file)
        ]


def differences(starts: dict[str, int], jobs_csv: Path) -> tuple[int, list[str]]:
    """How many jobs of a replay were compared, and those that started at another time."""
    with jobs_csv.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["starts_ms"]]
    other = [row["id"] for row in rows if int(row["starts_ms"].split(" ")[0]) != starts[row["id"]]]
    return len(rows), other


ORDERS: dict[str, Callable[[Wanted], tuple[int | str, ...]]] = {
    "id": lambda job: (job.id,),
    "falling size": lambda job: (-job.workers * job.gpus,),
    "falling duration": lambda job: (-job.duration_ms,),
}
"""Other orders in which the carried jobs, all of time 0, could be placed; equals stay in the order of the file."""


def main(jobs_file: str, carry_file: str, nodes: str, gpus_per_node: str, jobs_csv: str | None = None) -> None:
    """Print the figures."""
    carried, jobs = read(Path(carry_file)), read(Path(jobs_file))
    if int(nodes) == 1:  # one node is a pool of GPUs: how they are spread over workers does not matter
        carried, jobs = (
            [Wanted(j.id, j.submit_ms, 1, j.workers * j.gpus, j.duration_ms) for j in k] for k in (carried, jobs)
        )
    starts = simulate(carried, jobs, int(nodes), int(gpus_per_node))
    waits = [starts[job.id] - job.submit_ms for job in jobs]
    sys.stdout.write(f"mean wait {sum(waits) / len(waits) / 1000:.1f} s of {len(waits)} jobs\n")
    if jobs_csv is None:
        for name, order in ORDERS.items():
            starts = simulate(sorted(carried, key=order), jobs, int(nodes), int(gpus_per_node))
            waits = [starts[job.id] - job.submit_ms for job in jobs]
            sys.stdout.write(f"carried jobs placed by {name}: {sum(waits) / len(waits) / 1000:.1f} s\n")
    else:
        compared, other = differences(starts, Path(jobs_csv))
        sys.stdout.write(f"{compared} jobs compared, {len(other)} started at another time {other[:5]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
