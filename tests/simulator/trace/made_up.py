"""A small made-up trace, with queues that fill and empty again."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

COLUMNS = ("job_id", "tenant", "submit_s", "gpus", "workers", "gpus_per_worker", "gpu_type", "duration_s", "kind")
SIZES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 4), (4, 8))


def write(path: Path, count: int, seed: int, name: str = "job") -> Path:
    chance, submit_s = Random(seed), 0
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for number in range(count):
            submit_s += chance.choice((0, 0, 20, 60, 300))
            workers, gpus = chance.choice(SIZES)
            duration_s = chance.choice((30, 120, 600, 1800))
            named = (f"{name}-{number:04}", f"team-{number % 3}", submit_s)
            rows.writerow((*named, workers * gpus, workers, gpus, "", duration_s, "training"))
    return path
