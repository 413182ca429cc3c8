"""The three loads of `fallow bench kant`: two that were measured, and one that is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fallow.bench.kant.cluster import DAY_MS, cluster, week
from fallow.replay.trace import Trace, TraceJob, read_trace, workload_of
from fallow.replay.workload import Workload, WorkloadError
from fallow.shared.events.queue import QueueDiscipline

FOLD, CARRY = "train_philly_fold14d_50390.csv.gz", "train_philly_fold14d_carryover.csv.gz"
KALOS = "train_kalos_llm_completed.csv.gz"
PHILLY_NODES, KALOS_NODES = 404, 302
KALOS_DAYS = 9
FILES = {"philly": (FOLD, CARRY), "kalos": (KALOS,)}
NAMES = ("philly", "kalos", "generated")


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs and nodes. Figures over time count from `from_ms`, when the cluster has filled, to the last submission."""

    name: str
    told: str
    workload: Workload
    from_ms: int


def loads(names: tuple[str, ...], traces: Path | None, seed: int) -> Iterator[Load]:
    """Those of these names, one after the other: they are large. Raises WorkloadError."""
    for name in names:
        if name == "generated":
            yield Load(name, "a generated week on 1,000 nodes of 8", week(seed), DAY_MS)
        elif traces is not None:
            yield _philly(traces) if name == "philly" else _kalos(traces)


def names_of(asked: list[str] | None) -> tuple[str, ...]:
    """The loads that were asked for, all if none was. Raises WorkloadError."""
    for name in asked or ():
        if name not in NAMES:
            raise WorkloadError(f"--trace {name}: must be one of {', '.join(NAMES)}")
    return tuple(dict.fromkeys(asked or NAMES))


def folder_of(text: str | None, names: tuple[str, ...]) -> Path | None:
    """The folder of traces; None where none is named. Raises WorkloadError where it lacks one for these loads."""
    if not text:
        return None
    folder = Path(text)
    for name in (file for load in names for file in FILES.get(load, ())):
        if not (folder / name).is_file():
            raise WorkloadError(f"--traces {text}: there is no {name}")
    return folder


def _philly(folder: Path) -> Load:
    trace = read_trace(folder / FOLD, folder / CARRY)
    return Load("philly", f"14 days of Philly on {PHILLY_NODES} nodes of 8", _on(trace, PHILLY_NODES), 0)


def _kalos(folder: Path) -> Load:
    """On nodes as many as Kalos has. Its LLM jobs that ended well want 9 % of that in 90 days: these are folded onto
    each other, as those of Philly are in its fold, so that 88 % are wanted.
    """
    fold_ms = KALOS_DAYS * DAY_MS
    jobs = [replace(job, submit_ms=job.submit_ms % fold_ms) for job in read_trace(folder / KALOS).jobs]
    trace = Trace(tuple(sorted(jobs, key=_by_time)))
    told = f"90 days of Kalos' LLM jobs, folded onto {KALOS_DAYS} days, on {KALOS_NODES} nodes of 8"
    return Load("kalos", told, _on(trace, KALOS_NODES), 0)


def _by_time(job: TraceJob) -> tuple[int, str]:
    return job.submit_ms, job.id


def _on(trace: Trace, nodes: int) -> Workload:
    return workload_of(trace, cluster(nodes), QueueDiscipline.BEST_EFFORT_FIFO, typed=False)
