"""`fallow bench place`: how fast placement decides, alone in one process, by its processor time.

A start is decided, applied to the state and counted; an answer "no" comes with its reason and the numbers behind it.
Each figure is the median of several runs on one state, which is put back in between; the indices are there before the
first. A cell in which a node comes or goes makes them anew: what a run costs then is a figure of its own. Each mix has
a process of its own: what the mixes before it leave in memory moves figures by several per cent.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from statistics import median
from time import process_time
from typing import NamedTuple

from fallow.bench.figure import Figure
from fallow.bench.load.networked_cell import Network, enqueue, gang, lines_of, occupy
from fallow.bench.load.processor_time import ProcessorTime
from fallow.bench.place_mixes import IN_LEAF, LEAF, Mix, mixes
from fallow.replay.workload import CELL
from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.explain.shortfall import shortfall
from fallow.services.placement.owners.owners import Owners, has_owners
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import CycleResult, schedule_queues
from fallow.services.placement.search.gang import Places, place_gang
from fallow.shared.cluster.fold.apply import APPLY, apply
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import NOTHING_KEPT
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import JobStarted, NodeChanged
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus, WorkerPlace
from fallow.shared.events.reasons import PendingReason
from fallow.shared.log.machine.writer import readable
from fallow.shared.runtime.collector import tune_collector

RUNS, COLD_RUNS = 7, 3
SIZES = (1_000, 10_000, 100_000)
BLOCK_OF_RACKS = Network(2_500, gpus=9, leaf=16, spine=16)
RACKS_OF_TWO = Network(512, leaf=2, spine=8, superspine=8)


class Speed(NamedTuple):
    """The workers of one mix that are started in a second, and those behind a node that has come."""

    per_s: int
    after_a_node_came: int


def place() -> Figure:
    """Run it: some minutes on one core."""
    watch = ProcessorTime({"place": os.getpid()})
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        names = [mix.name for mix in mixes()]
        speeds = dict(zip(names, pool.imap(_speed_by_size, names), strict=True))
    per_s = {name: {nodes: each.per_s for nodes, each in found.items()} for name, found in speeds.items()}
    cold = {name: {nodes: each.after_a_node_came for nodes, each in found.items()} for name, found in speeds.items()}
    with _collector_as_in_services():
        lowest = {name: min(of_sizes.values()) for name, of_sizes in per_s.items()}
        body: dict[str, object] = {"mixes": lowest, "mixes_by_nodes": per_s}
        body |= {"after_a_node_came": {name: min(of_sizes.values()) for name, of_sizes in cold.items()}}
        body |= {"after_a_node_came_by_nodes": cold}
        body |= {f"workers_per_s_{nodes}": count for nodes, count in per_s["friendly"].items()}
        body |= {f"choosy_per_s_{nodes}": count for nodes, count in per_s["labels"].items()}
        body |= {
            "tas_2304_ms": _ms(BLOCK_OF_RACKS.cell(), gang("gang", 1, 2_304, LEAF), _is_one_block),
            "tas_144_ms": _ms(BLOCK_OF_RACKS.cell(), gang("gang", 1, 144, IN_LEAF), _is_one_rack),
            "gang_512_ms": _ms(RACKS_OF_TWO.cell(), gang("gang", 2, 512, LEAF), _is_one_zone),
            **_huge(),
            "no_500_ms": _no_ms(500),
            "no_5000_ms": _no_ms(5_000),
            "fill_4000_s": round(_fill_s(500, walk_and_start), 4),
            "baseline": round(_fill_s(500, first_fit_by_a_loop), 4),
        }
    return Figure("place", _lines(body, lowest), body, watch.used())


def _speed_by_size(name: str) -> dict[int, Speed]:
    """How fast one mix is started, by the size of the cell."""
    (mix,) = [each for each in mixes() if each.name == name]
    with _collector_as_in_services():
        return {nodes: speed_of(mix, nodes) for nodes in SIZES}


def _lines(body: dict[str, object], lowest: dict[str, int]) -> list[str]:
    worst = min(lowest, key=lowest.__getitem__)
    return [
        f"workers placed and started a second, on 1,000 to 100,000 nodes: at least {lowest[worst]:,} (mix {worst})",
        "the lowest of each mix: " + _by_name(lowest),
        "the same when a node has just come, and all indices are made anew: " + _by_name(body["after_a_node_came"]),
        "the friendly mix, with quotas, wishes and reasons: "
        + ", ".join(f"{body[f'workers_per_s_{n}']:,} on {n:,} nodes" for n in SIZES),
        "jobs that rule out one zone of eight, where one node of 20 has a taint: "
        + ", ".join(f"{body[f'choosy_per_s_{n}']:,} on {n:,} nodes" for n in SIZES),
        f"2,304 workers, rack preferred: one block in {body['tas_2304_ms']} ms; 144, required: {body['tas_144_ms']} ms",
        f"512 workers on 512 nodes, rack preferred: {body['gang_512_ms']} ms",
        (
            f"10,000 on 1,250 nodes of the longest names: {body['gang_10000_ms']} ms; with start and record "
            f"{body['decision_10000_ms']} ms, {body['record_10000_bytes']:,} bytes"
        ),
        f'"no", with its numbers: {body["no_500_ms"]} ms on 500 nodes, {body["no_5000_ms"]} ms on 5,000',
        f"4,000 jobs of one GPU on 500 nodes: {body['fill_4000_s']} s; first fit by a naive loop: {body['baseline']} s",
    ]


def _by_name(counts: object) -> str:
    assert isinstance(counts, dict)
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


@contextmanager
def _collector_as_in_services() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    tune_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def _seconds(state: CellState, work: Callable[[Lines], object], runs: int = RUNS) -> float:
    """The median of several runs, each of which is undone; one before them makes the indices. The lines of
    who waits are there before each, as in a service. What a run changed of nodes is counted in it, and what was put
    back behind it.
    """
    return median([_seconds_once(state, work) for _ in range(runs + 1)][1:])


def _seconds_once(state: CellState, work: Callable[[Lines], object]) -> float:
    """One such run, as the indices are now."""
    mark, lines = state.checkpoint(), lines_of(state)
    begin_s = process_time()
    work(lines)
    _count(state)
    spent_s = process_time() - begin_s
    state.rollback(mark)
    state.tree.kept = NOTHING_KEPT
    _count(state)
    return spent_s


def _seconds_after_a_node_came(state: CellState, work: Callable[[Lines], object]) -> float:
    """The median of some runs, each of which is the first behind a node that has come, and is in use as a whole, so
    that the same jobs start. A node that comes or goes gives up all indices of its pool: that these are made anew is
    counted in it.
    """
    some = next(node.spec for node in state.nodes.values() if not node.spec.taints)
    number, spent = len(state.nodes), list[float]()
    for more in range(number, number + COLD_RUNS):
        name = f"node-{more:06}"
        apply(state, NodeChanged(spec=replace(some, id=name), boot="boot-1", status=NodeStatus.READY), 0)
        occupy(state, more, some.gpus)
        spent.append(_seconds_once(state, work))
    return median(spent)


def _count(state: CellState) -> None:
    """Bring the indices up to date."""
    assert state.pools


def walk_and_start(state: CellState, lines: Lines) -> int:
    """Start what the lines hold, one decision after the other, as the service does: before each walk it is noted what
    is kept for owners. How many workers that were.
    """
    workers, owners, is_due = 0, Owners(), True
    owners.note(state, lines)
    while is_due:
        decision = DecisionBuilder(state, 0)
        walk = _walk(state, lines, decision)
        workers += sum(len(effect.workers) for effect in decision.effects if isinstance(effect, JobStarted))
        is_due = not walk.is_whole  # one walk tries so much at the most, and one record holds so much
        if walk.starts and has_owners(state) and owners.note(state, lines):
            lines.free()
            is_due = True
    return workers


def _walk(state: CellState, lines: Lines, decision: DecisionBuilder) -> CycleResult:
    """One walk of the service, until the decision is full."""

    def start(job: Job, places: Places, over: str) -> bool:
        return decision.start(job.spec.id, 1, places, over) and not decision.is_full

    walk = schedule_queues(state, lines, 0, start)
    lines.walked(state, 0)
    return walk


def first_fit_by_a_loop(state: CellState, _: Lines) -> int:
    """The baseline: each job goes to the first node that has a free GPU, found by looking at one after the other."""
    for job_id in state.jobs:
        node = next(node for node in state.nodes.values() if node.is_schedulable and node.free)
        device = (node.free & -node.free).bit_length() - 1
        places = (WorkerPlace(rank=0, node=node.id, devices=(device,), gpu_milli=GPU),)
        APPLY[JobStarted](state, JobStarted(job=job_id, attempt=1, workers=places), 0)
    return len(state.jobs)


def _fill_s(nodes: int, work: Callable[[CellState, Lines], int]) -> float:
    """4,000 jobs of one GPU, on as many GPUs."""
    state = Network(nodes).cell()
    jobs = enqueue(state, [gang(f"job-{number:05}", 1) for number in range(nodes * 8)])

    def fill(lines: Lines) -> None:
        assert work(state, lines) == len(jobs), "all of them start"

    return _seconds(state, fill)


def speed_of(mix: Mix, nodes: int) -> Speed:
    """How fast this mix is started on so many nodes."""
    state = mix.cell(nodes)
    enqueue(state, [*mix.specs])

    def start_all(lines: Lines) -> None:
        assert walk_and_start(state, lines) == mix.workers, "all start but those that fit nowhere"

    per_s = round(mix.workers / _seconds(state, start_all))
    return Speed(per_s, round(mix.workers / _seconds_after_a_node_came(state, start_all)))


def _ms(state: CellState, spec: JobSpec, is_right: Callable[[CellState, Places], bool]) -> float:
    """How long it takes to find the places of one gang."""
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason), found
    assert is_right(state, found), "it sits as it wished"
    return round(_seconds(state, lambda _: place_gang(state, spec), 3 * RUNS) * 1_000, 3)


def _huge() -> dict[str, float]:
    """A gang that fills a cell: its places alone, and with its start, its record and the proof that it can be read."""
    state, spec, sizes = Network(1_250, name_characters=128).cell(), gang("gang", 1, 10_000), list[int]()
    enqueue(state, [spec])

    def decide(_: Lines) -> None:
        places, turn = place_gang(state, spec), DecisionBuilder(state, 0)
        assert not isinstance(places, PendingReason), places
        assert turn.start(spec.id, 1, places)
        value = readable(Decision(cell=CELL, version=1, epoch=1, at_ms=0, effects=tuple(turn.effects)))
        assert isinstance(value, bytes)
        sizes.append(len(value))

    search_ms = _ms(state, spec, lambda _, places: len(places) == spec.workers)
    decision_ms = round(_seconds(state, decide) * 1_000, 1)
    return {"gang_10000_ms": search_ms, "decision_10000_ms": decision_ms, "record_10000_bytes": sizes[0]}


def _names(state: CellState, places: Places, level: str) -> int:
    """How many units of a level a gang uses."""
    of_nodes = [state.nodes[place.node].spec.position for place in places]
    return len({(at.superspine, at.spine, getattr(at, level)) for at in of_nodes})


def _is_one_block(state: CellState, places: Places) -> bool:
    return _names(state, places, "spine") == 1 and len({place.node for place in places}) == BLOCK_OF_RACKS.leaf**2


def _is_one_rack(state: CellState, places: Places) -> bool:
    return _names(state, places, "leaf") == 1


def _is_one_zone(state: CellState, places: Places) -> bool:
    return len({state.nodes[place.node].spec.position.superspine for place in places}) == 1


def _no_ms(nodes: int) -> float:
    """The slowest of three: one node short of GPUs, one short of whole nodes, one more than any leaf has."""
    found: list[float] = []
    for spec, used in (
        (gang("gang", 8, nodes), 1),
        (gang("gang", 8, nodes - 1), 2),
        (gang("gang", 8, 33, IN_LEAF), 2),
    ):
        state = Network(nodes).cell()
        for number in range(used):
            occupy(state, number, 8 // used)
        assert isinstance(place_gang(state, spec), PendingReason), "it does not fit"
        found.append(_seconds(state, lambda _, s=state, j=spec: (place_gang(s, j), shortfall(s, j)), 3 * RUNS))  # type: ignore[misc]
    return round(max(found) * 1_000, 3)
