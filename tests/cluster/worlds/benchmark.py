"""How fast a log folds and how much memory its state takes: `python -m tests.cluster.worlds.benchmark` (a minute on one
core).

The log is made here and read from its bytes, as a reader gets it; what is timed is the fold alone, in CPU time. 80 % of
the jobs want one GPU, 15 % a node of 8, 5 % a gang of 2 to 8 nodes. At the end the state must keep every invariant.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from resource import getpagesize
from statistics import median
from sys import stdout
from time import process_time
from typing import Any

from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.finished_jobs import SEGMENT_JOBS
from fallow.shared.cluster.fold.fold import extend
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, Resources, VirtualRun, WorkerPlace
from fallow.shared.events.operations import CellPolicy
from fallow.shared.runtime.collector import tune_collector

CELL = "cell-a"
GPUS = 8
JOBS_PER_RECORD = 100
TENANTS = 40


@dataclass
class Site:
    """Where there is room: a fifth of the nodes is for jobs of one GPU, the others are given whole."""

    devices: list[tuple[str, int]] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def add(self, number: int) -> e.NodeChanged:
        """One more node."""
        name = f"node-{number:05}.site-a.example"
        if number % 5:
            self.nodes.append(name)
        else:
            self.devices += [(name, device) for device in range(GPUS)]
        spec = NodeSpec(id=name, pool="train", gpu_type="h100", gpus=GPUS, cpu_milli=128_000, memory_mib=1_000_000)
        return e.NodeChanged(spec=spec, boot=f"boot-{number:05}", status=NodeStatus.READY)

    def take(self, spec: JobSpec) -> tuple[WorkerPlace, ...]:
        """Places for a job, or none."""
        wants, is_small = spec.resources, spec.resources.gpu_milli == 1000
        if len(self.devices if is_small else self.nodes) < spec.workers:
            return ()
        return tuple(
            WorkerPlace(
                rank=rank,
                node=node,
                devices=devices,
                gpu_milli=wants.gpu_milli,
                cpu_milli=wants.cpu_milli,
                memory_mib=wants.memory_mib,
            )
            for rank in range(spec.workers)
            for node, devices in [self.next(is_small)]
        )

    def next(self, is_small: bool) -> tuple[str, tuple[int, ...]]:
        """One device, or one node."""
        if is_small:
            node, device = self.devices.pop()
            return node, (device,)
        return self.nodes.pop(), tuple(range(GPUS))

    def give(self, places: tuple[WorkerPlace, ...]) -> None:
        """Places are free again."""
        for place in places:
            if len(place.devices) == 1:
                self.devices.insert(0, (place.node, place.devices[0]))
            else:
                self.nodes.insert(0, place.node)


def job(number: int) -> e.JobEnqueued:
    """A job of the mix."""
    kind = number % 20
    gpus, workers = (1, 1) if kind < 16 else (8, 1) if kind < 19 else (8, 2 + number // 20 % 7)
    spec = JobSpec(
        id=f"run-{number:08}-{number * 7919 % 65536:04x}",
        tenant=f"team-{number % TENANTS}",
        queue=f"queue-{number % 4}",
        pools=("train",),
        workers=workers,
        resources=Resources(gpu_milli=gpus * 1000, cpu_milli=gpus * 4000, memory_mib=gpus * 32_768),
        run=VirtualRun(duration_ms=1_000 + number % 60_000),
        estimate_run_ms=1_000 + number % 60_000,
    )
    return e.JobEnqueued(spec=spec, submit_ms=1_000_000 + number, digest=f"{number * 2654435761 % 2**128:032x}")


class Cell:
    """A cell that folds what is written for it, and the seconds that each kind of effect took."""

    def __init__(self) -> None:
        self.state, self.site = CellState(CELL), Site()
        self.spent_s: dict[str, float] = {}
        self.effects: dict[str, int] = {}

    def fold(self, effects: Any) -> None:
        """Fold one record with effects of one kind."""
        made = tuple(effects)
        if not made:
            return
        kind, state = type(made[0]).__name__, self.state
        value = encode(Decision(cell=CELL, version=state.version + 1, epoch=0, at_ms=state.at_ms + 20, effects=made))
        decision = decode(Decision.type, value)
        assert isinstance(decision, Decision)
        begin_s = process_time()
        extend(state, decision, state.chain)
        self.spent_s[kind] = self.spent_s.get(kind, 0.0) + process_time() - begin_s
        self.effects[kind] = self.effects.get(kind, 0) + len(made)

    def start(self, ids: list[str]) -> list[str]:
        """Start those of these jobs for which there is room; they run."""
        starts = [
            e.JobStarted(job=job_id, attempt=1, workers=places)
            for job_id in ids
            if (places := self.site.take(self.state.jobs[job_id].spec))
        ]
        self.fold(starts)
        self.fold(e.JobRunning(job=effect.job, attempt=1) for effect in starts)
        return [effect.job for effect in starts]

    def finish(self, ids: list[str]) -> None:
        """These end."""
        for job_id in ids:
            self.site.give(self.state.jobs[job_id].workers)
        self.fold(e.JobFinished(job=job_id, attempt=1) for job_id in ids)

    def enqueue(self, first: int, count: int) -> list[str]:
        """So many jobs more."""
        jobs = [job(number) for number in range(first, first + count)]
        self.fold(jobs)
        return [effect.spec.id for effect in jobs]


def cell_of(nodes: int) -> Cell:
    """An idle cell."""
    cell = Cell()
    for numbers in batches(nodes):
        cell.fold(cell.site.add(number) for number in numbers)
    return cell


def batches(count: int) -> Iterator[range]:
    """The numbers up to `count`, a record's worth at a time."""
    return (range(first, min(first + JOBS_PER_RECORD, count)) for first in range(0, count, JOBS_PER_RECORD))


def life(nodes: int, jobs: int) -> Cell:
    """Jobs arrive, start, run and finish."""
    cell, alive = cell_of(nodes), list[str]()
    tune_collector()
    for numbers in batches(jobs):
        alive += cell.start(cell.enqueue(numbers.start, len(numbers)))
        while len(alive) > nodes // 4:
            cell.finish(alive[:JOBS_PER_RECORD])
            del alive[:JOBS_PER_RECORD]
    assert check_state(cell.state) == []
    return cell


def speed(nodes: int, jobs: int, rounds: int) -> None:
    """Effects per second, the median of several lives."""
    lives = [life(nodes, jobs) for _ in range(rounds)]
    effects = lives[0].effects
    for kind, count in effects.items():
        say(f"{kind}: {median(cell.spent_s[kind] for cell in lives) / count * 1e6:.2f} us each, {count} of them")
    whole_s = median(sum(cell.spent_s.values()) for cell in lives)
    say(f"all: {sum(effects.values()) / whole_s:,.0f} effects/s, {whole_s / sum(effects.values()) * 1e6:.2f} us each")


def memory(nodes: int, jobs: int, remembered: int) -> None:
    """Resident bytes of a large cell, of its snapshot being read, and of what is remembered."""
    empty = resident()
    cell = cell_of(nodes)
    for numbers in batches(jobs):
        cell.start(cell.enqueue(numbers.start, len(numbers)))
    full = resident()
    live = len(cell.state.jobs)
    say(f"{nodes} nodes and {live} live jobs: {(full - empty) / 1e6:.0f} MB, {(full - empty) / live:.0f} bytes a job")
    cell.fold([e.PolicySet(policy=CellPolicy(finished_jobs_max=remembered))])
    end(cell, jobs, remembered)
    bound = resident()
    say(f"{remembered} jobs remembered: {(bound - full) / 1e6:.0f} MB, {(bound - full) / remembered:.0f} bytes each")
    end(cell, jobs + remembered, remembered + SEGMENT_JOBS)
    bound = resident()
    end(cell, jobs + 2 * remembered + SEGMENT_JOBS, remembered // 2)
    say(f"later, while as many are forgotten as end: {(resident() - bound) / (remembered // 2):+.0f} bytes a job")
    assert len(cell.state.finished) == remembered
    assert check_state(cell.state) == []
    snapshot(cell.state)


def end(cell: Cell, first: int, count: int) -> None:
    """So many jobs come, and are cancelled at once."""
    for numbers in batches(count):
        ids = cell.enqueue(first + numbers.start, len(numbers))
        cell.fold(e.JobCancelled(job=job_id) for job_id in ids)


def snapshot(state: CellState) -> None:
    """The CPU time of a snapshot's rows, there and back."""
    begin_s = process_time()
    rows = list(rows_of(state))
    written_s, begin_s = process_time() - begin_s, process_time()
    gc.disable()
    restored = state_from(rows)
    gc.enable()
    read_s = process_time() - begin_s
    size = sum(map(len, rows))
    say(f"snapshot: {size / 1e6:.1f} MB, written in {written_s:.2f} s, read in {read_s:.2f} s")
    assert digest_of(restored) == digest_of(state)


def resident() -> int:
    """This process's resident bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize()


def say(line: str) -> None:
    """One line of the result."""
    stdout.write(line + "\n")
    stdout.flush()


def main() -> None:
    """Print figures, one a line."""
    parser = argparse.ArgumentParser(description="Speed and memory of the fold.")
    parser.add_argument("what", nargs="?", choices=("all", "speed", "memory"), default="all")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--jobs", type=int, default=150_000, help="jobs that live at once, for memory")
    parser.add_argument("--lives", type=int, default=20_000, help="jobs that come and go, for speed")
    parser.add_argument("--remembered", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.what != "memory":
        speed(asked.nodes, asked.lives, asked.rounds)
    if asked.what != "speed":
        memory(asked.nodes, asked.jobs, asked.remembered)


if __name__ == "__main__":
    main()
