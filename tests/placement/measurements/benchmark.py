"""How long pure placement takes, without Kafka: `python -m tests.placement.measurements.benchmark` (a minute on one
core).

`life`: jobs of one GPU arrive, start, run and finish, some in each cycle; what is timed is all that the writer does for
them, with the encoding of its records, and nothing of making up or reading the inputs. `gangs`: places found and taken.
`walk`: one walk along jobs that do not fit.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from sys import stdout
from time import process_time

from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import schedule_queues
from fallow.services.placement.search.gang import place_gang
from fallow.services.placement.service import Input, PlacementService
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeSpec, NodeStatus
from fallow.shared.events.nodes import NodeEvent
from fallow.shared.events.reasons import PendingReason
from fallow.shared.log.machine.writer import Draft, Writer
from fallow.shared.runtime.collector import tune_collector
from tests.placement.worlds.world import CELL, DIGEST, admitted, finished, spec_of, started

FILE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=1_000_000),)),),
    tenants=(Tenant(name="ada"),),
)


def cell_of(nodes: int) -> CellState:
    """A cell with so many idle nodes of 8."""
    state = CellState(CELL)
    for number in range(nodes):
        spec = NodeSpec(id=f"node-{number:06}", pool="train", gpus=8)
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    return state


class Life:
    """Jobs come and go in a cell."""

    def __init__(self, nodes: int, per_cycle: int, running: int) -> None:
        self.service = PlacementService(cell_of(nodes), FILE, writer="placement-1")
        self.writer = Writer(self.service.state)
        self.per_cycle, self.running = per_cycle, running
        self.read: dict[str, int] = {}
        self.jobs = 0
        self.spent_s = 0.0
        self.bytes = 0
        self.alive: list[str] = []
        self.fresh: list[str] = []

    def input(self, name: str, event: Event) -> Input:
        """The event as the shell hands it over: decoded from its bytes."""
        if isinstance(event, NodeEvent):
            event = replace(event, seq=self.read.get(name, 0))
        value = encode(event)
        read = decode(event.type, value)
        assert isinstance(read, Event)
        self.read[name] = self.read.get(name, 0) + 1
        return Input(f"{name}-0", self.read[name], read, len(value))

    def cycle(self) -> None:
        """New jobs, the starts of the last cycle, the ends of the oldest."""
        names = [f"job-{self.jobs + number:07}" for number in range(self.per_cycle)]
        self.jobs += len(names)
        inputs = [self.input("jobs", admitted(spec_of(name), digest=DIGEST)) for name in names]
        inputs += [self.input("nodes", started(name, self.node_of(name))) for name in self.fresh]
        self.alive += self.fresh
        while len(self.alive) > self.running:
            inputs.append(self.input("nodes", finished(self.alive[0], self.node_of(self.alive[0]))))
            del self.alive[0]
        begin_s = process_time()
        self.decide(inputs)
        self.spent_s += process_time() - begin_s
        self.fresh = names

    def node_of(self, job: str) -> str:
        """Where a job of one worker is."""
        return self.service.state.jobs[job].workers[0].node

    def decide(self, inputs: list[Input]) -> None:
        """What the shell does with them, less the log."""
        self.service.take(inputs)
        goes_on = True
        while goes_on:
            self.writer.begin()
            tried = self.service.decide(0, 0)
            if tried is None:
                self.writer.abandon()
                return
            draft = self.writer.draft(tried.effects, tried.inputs, tried.at_ms)
            assert isinstance(draft, Draft), draft
            self.bytes += len(draft.value)
            assert self.writer.appended(self.writer.state.offset + 1)
            self.service.accepted(tried)
            self.service.note(draft.decision.effects, 0)
            goes_on = tried.has_more


def life(nodes: int, jobs: int, per_cycle: int) -> str:
    """Microseconds a job, from its admission to its end."""
    world = Life(nodes, per_cycle, running=min(jobs // 4, nodes * 4))
    tune_collector()
    while world.jobs < jobs:
        world.cycle()
    assert len(world.service.state.jobs) >= world.running, "jobs that arrive start"
    per_job = f"{world.spent_s / world.jobs * 1e6:.1f} us a job, {world.bytes / world.jobs:.0f} bytes"
    return f"life: {nodes} nodes, {jobs} jobs, {per_cycle} a cycle: {per_job}"


def gangs(nodes: int, workers: int, count: int) -> str:
    """Workers placed in a second, in gangs of one-GPU workers."""
    state = cell_of(nodes)
    specs = [spec_of(f"gang-{number:06}", workers=workers) for number in range(count)]
    for spec in specs:
        apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)
    begin_s = process_time()
    for spec in specs:
        found = place_gang(state, spec)
        assert not isinstance(found, PendingReason)
        apply(state, e.JobStarted(job=spec.id, attempt=1, workers=found), 0)
    spent_s = process_time() - begin_s
    return f"gangs: {nodes} nodes, {count} of {workers} workers: {workers * count / spent_s:,.0f} workers/s"


def walk(classes: int, jobs_of_each: int) -> str:
    """Milliseconds for one walk in which nothing fits."""
    state = cell_of(10)
    jobs = [
        spec_of(f"job-{kind}-{number}", workers=81 + kind) for kind in range(classes) for number in range(jobs_of_each)
    ]
    for spec in jobs:
        apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)
    lines = Lines((Queue(name="default"),))
    lines.follow(state, (), 0)
    times = []
    for _ in range(10):
        lines.free()
        lines.open_due(state)
        begin_s = process_time()
        found = schedule_queues(state, lines, 0, lambda *_: True)
        times.append(process_time() - begin_s)
        assert not found.starts
    return f"walk: {len(jobs)} jobs of {classes} classes that do not fit: {min(times) * 1000:.2f} ms"


def main() -> None:
    """All of it, or a profile of a part."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--jobs", type=int, default=100_000)
    arguments.add_argument("--profile", action="store_true", help="show where the time of `life` goes")
    given = arguments.parse_args()
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(life, 5_000, given.jobs, 50)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return
    for line in (
        life(5_000, given.jobs, 50),
        *(gangs(nodes, workers, count) for nodes in (1_000, 100_000) for workers, count in ((8, 600), (512, 8))),
        walk(10, 256),
    ):
        stdout.write(f"{line}\n")
        stdout.flush()


if __name__ == "__main__":
    main()
