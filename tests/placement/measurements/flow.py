"""What placement costs a job, without Kafka: `python -m tests.placement.measurements.flow`.

Jobs of a mix arrive at a steady rate, start, run and end, in virtual time: 80 % have one GPU, 15 % eight, and 5 % are
gangs of two to eight nodes. What is timed is each side's own work from the bytes that it reads to the bytes that it
writes; nothing of making the inputs up, and nothing of Kafka's client. With `--rate 20000` more arrive than can start.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from random import Random
from sys import stdout
from time import process_time

from fallow.services.placement.service import Input, PlacementService
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import TYPE_HEADER, encode
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.events.fields.values import JobSpec, Resources, RunStatus
from fallow.shared.events.nodes import RunsReported, RunStatusUpdate
from fallow.shared.log.machine.writer import Draft, Writer
from fallow.shared.log.port import Record
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.collector import tune_collector
from tests.placement.measurements.benchmark import FILE, cell_of
from tests.placement.worlds.world import CELL, DIGEST, admitted


class Side:
    """One process: what it spent, and its profile if it has one."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self.spent_s = 0.0
        self._profile = profile

    @contextmanager
    def working(self) -> Iterator[None]:
        """What happens inside is this side's."""
        begin_s = process_time()
        if self._profile is not None:
            self._profile.enable()
        yield
        if self._profile is not None:
            self._profile.disable()
        self.spent_s += process_time() - begin_s


class Topic:
    """A topic of one partition, of which the newest records are kept for the next reader."""

    def __init__(self, name: str) -> None:
        self.name, self.next_offset = name, 0

    def record(self, event: Event, chain: str = "", value: bytes | None = None) -> Record:
        """The event as it stands in the log."""
        headers = ((TYPE_HEADER, event.type.encode()), *(((CHAIN_HEADER, chain.encode()),) if chain else ()))
        value = encode(event) if value is None else value
        self.next_offset += 1
        return Record(self.name, 0, self.next_offset - 1, None, value, headers, 0)


class Flow:
    """A cell under a steady flow of jobs."""

    def __init__(self, nodes: int, step_ms: int, run_ms: int, profile: cProfile.Profile | None = None) -> None:
        self.service = PlacementService(cell_of(nodes), FILE, writer="placement-1")
        self.writer = Writer(self.service.state)
        self.placement_side = Side(profile)
        self.step_ms, self.run_ms = step_ms, run_ms
        self.now_ms = self.made = self.started = self.finished = self.words = self.records = self.most = 0
        self.random = Random(1)
        self.topics = {name: Topic(name) for name in ("jobs", "nodes", "decisions")}
        self.fresh: list[e.JobStarted] = []
        self.ends: list[tuple[int, str, int, tuple[str, ...]]] = []

    def spec(self) -> JobSpec:
        """One job of the mix."""
        self.made += 1
        kind = self.random.random()
        gpus, workers = (1, 1) if kind < 0.8 else (8, 1) if kind < 0.95 else (8, self.random.randint(2, 8))
        job = f"flow-{self.made:08}"
        resources = Resources(gpu_milli=1000 * gpus)
        return JobSpec(id=job, tenant="ada", workers=workers, pools=("train",), resources=resources)

    def step(self, arrivals: int) -> None:
        """So many milliseconds: what nodes say, what arrives, one look of placement."""
        self.now_ms += self.step_ms
        said = self.said()
        jobs = [self.topics["jobs"].record(admitted(self.spec(), self.now_ms, DIGEST)) for _ in range(arrivals)]
        self.place([*jobs, *said])

    def said(self) -> list[Record]:
        """The words of all nodes: what was told to start has started, and what has run for long enough is over."""
        words = []
        for start in self.fresh:
            nodes = tuple(dict.fromkeys(place.node for place in start.workers))
            words += [self.word(node, start.job, start.attempt, RunStatus.RUNNING) for node in nodes]
            ends_ms = self.now_ms + self.random.randint(self.run_ms // 2, self.run_ms * 3 // 2)
            heappush(self.ends, (ends_ms, start.job, start.attempt, nodes))
        self.fresh = []
        while self.ends and self.ends[0][0] <= self.now_ms:
            _, job, attempt, nodes = heappop(self.ends)
            words += [self.word(node, job, attempt, RunStatus.FINISHED) for node in nodes]
        groups = [tuple(words[at : at + 500]) for at in range(0, len(words), 500)]
        return [self.topics["nodes"].record(RunsReported(cell=CELL, words=group)) for group in groups]

    def word(self, node: str, job: str, attempt: int, status: RunStatus) -> RunStatusUpdate:
        """What one node says of one run."""
        self.words += 1
        return RunStatusUpdate(
            node=node, boot="boot-1", seq=self.words, at_ms=self.now_ms, job=job, attempt=attempt, status=status
        )

    def place(self, records: list[Record]) -> list[Record]:
        """Placement's work: the records of decisions that it writes."""
        made = []
        with self.placement_side.working():
            self.service.take([self.input(record) for record in records])
        goes_on = True
        while goes_on:
            with self.placement_side.working():
                self.writer.begin()
                tried = self.service.decide(self.now_ms, self.now_ms)
                if tried is None:
                    self.writer.abandon()
                    break
                draft = self.writer.draft(tried.effects, tried.inputs, tried.at_ms, None, tried.specs_read)
                assert isinstance(draft, Draft), draft
                assert self.writer.appended(self.writer.state.offset + 1)
                self.service.accepted(tried)
                self.service.note(draft.decision.effects, self.now_ms)
            made.append(self.topics["decisions"].record(draft.decision, draft.chain, draft.value))
            self.remember(draft.decision)
            goes_on = tried.has_more
        self.records += len(made)
        self.most = max(self.most, len(made))
        return made

    @staticmethod
    def input(record: Record) -> Input:
        """What placement's shell makes of a record."""
        event = event_of(record)
        assert isinstance(event, Event)
        return Input(f"{record.topic}-0", record.offset + 1, event, len(record.value or b""), record)

    def remember(self, decision: Decision) -> None:
        """What the nodes need to know of it."""
        for effect in decision.effects:
            if isinstance(effect, e.JobStarted):
                self.started += 1
                self.fresh.append(effect)
            elif isinstance(effect, e.JobFinished):
                self.finished += 1

    def figures(self) -> dict[str, float]:
        """Microseconds of processor time a job that started, and what became of the jobs."""
        return {
            "placement_us": round(self.placement_side.spent_s / self.started * 1e6, 1),
            "offered": self.made,
            "started": self.started,
            "waiting": self.service.state.waiting,
            "records": self.records,
            "records_at_once": self.most,
        }


def main() -> None:
    """A run, or its profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=5_000, help="jobs a second")
    parser.add_argument("--seconds", type=int, default=6, help="of virtual time")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--step-ms", type=int, default=20, help="how often placement looks")
    parser.add_argument("--run-ms", type=int, default=1_600, help="how long a run takes on average")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    profile = cProfile.Profile() if given.profile else None
    flow = Flow(given.nodes, given.step_ms, given.run_ms, profile)
    tune_collector()
    for _ in range(given.seconds * 1_000 // given.step_ms):
        flow.step(given.rate * given.step_ms // 1_000)
    stdout.write(f"{json.dumps(flow.figures())}\n")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
