"""What is kept of each run under `--out`: its jobs and ticks, from which its figures follow, and the figures, so that a
series which is run again goes on where it was.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from fallow.bench.aryl.figures import Row
from fallow.bench.aryl.world.run import Run
from fallow.bench.aryl.world.world import Outcome, TickRow
from fallow.cli.arguments.paths import file_in
from fallow.replay.trace import MS_PER_S

JOB_COLUMNS = (
    "job_id", "is_counted", "submit_s", "workers", "gpus_each", "run_s", "is_fungible", "is_elastic",
    "is_heterogeneous", "start_s", "end_s", "wait_s", "preemptions", "lost_gpu_s", "resizes",
)  # fmt: skip


def digest_of(files: Iterable[Path], *words: object) -> str:
    """Names what a run was made from: the bytes of its files, and these words."""
    found = sha256()
    for path in files:
        found.update(sha256(path.read_bytes()).digest())
    found.update(json.dumps([str(word) for word in words]).encode())
    return found.hexdigest()


def kept_row(folder: Path, digest: str) -> Row | None:
    """The figures of a run of the same files by the same code, if they were kept."""
    path = folder / "row.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["row"] if found.get("made_from") == digest else None


def keep(folder: Path, digest: str, row: Row, outcome: Outcome | None) -> None:
    """Write all of a run; the figures last, so that they stand for the rest. A bound has nothing but its figures."""
    if outcome is not None:
        _write(folder, "jobs.csv", JOB_COLUMNS, map(_job, outcome.runs))
        _write(folder, "ticks.csv", TickRow._fields, outcome.ticks)
    with file_in(folder, "row.json") as part:
        part.write_text(json.dumps({"made_from": digest, "row": row}, indent=1) + "\n", encoding="utf-8")


def _write(folder: Path, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file_in(folder, name) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _job(run: Run) -> tuple[object, ...]:
    job = run.job
    flags = (int(job.is_fungible), int(job.is_elastic), int(job.is_heterogeneous))
    times = (_s(run.start_ms), _s(run.end_ms), _s(run.waited_ms))
    head = (job.id, int(job.is_counted), _s(job.submit_ms), job.workers, job.gpus_each, _s(job.base_ms))
    return (*head, *flags, *times, run.preemptions, _s(run.lost_gpu_ms), run.resizes)


def _s(value_ms: int | None) -> str:
    return "" if value_ms is None else f"{value_ms / MS_PER_S:.3f}"
