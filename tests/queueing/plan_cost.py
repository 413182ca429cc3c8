"""What a plan costs, and what reservations cost a cycle of placement: `python -m tests.queueing.plan_cost [NODES]`.

5,000 nodes of 8 GPUs, full of jobs of one to eight GPUs, and 10,000 that wait: four fifths of one node or less, the
others gangs of two to sixteen nodes. Prints milliseconds of CPU: the first plan and the median of the next ones; and a
cycle in which one job ends, with and without reservations.
"""

from __future__ import annotations

import cProfile
import json
import pstats
from random import Random
from statistics import median
from sys import argv, stdout
from time import process_time

from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.fields.values import JobSpec, Level, TopologyRequest, Wish
from fallow.shared.events.queue import PlannedStart, QueueDiscipline, StartsPlanned
from tests.placement.worlds.planned import Planned, file_of
from tests.placement.worlds.world import CELL, finished, joined, set_policy, spec_of

NODES, WAITING, MAX, ROUNDS = 5_000, 10_000, 64, 15
DAY = Queue(name="day", discipline=QueueDiscipline.BACKFILL)


def spec(random: Random, number: int, workers: int = 1) -> JobSpec:
    """A job with an estimate of its own."""
    gpus = 8 if workers > 1 else random.choice((1, 2, 4, 8))
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.PREFERRED) if workers > 1 else None
    run_ms = random.randint(60_000, 40 * 3_600_000)
    return spec_of(f"j{number:06}", gpus, workers, queue="day", estimate_run_ms=run_ms, topology=wish)


def loaded(random: Random, nodes_wanted: int) -> Planned:
    """The cell, full, with its backlog."""
    planned = Planned(file_of(DAY, reservations_max=MAX))
    planned.world.checks = False
    nodes = [joined(f"n{number:05}", 8) for number in range(nodes_wanted)]
    planned.tell(*nodes)
    number = 0
    while sum(pool.free_whole for pool in planned.world.state.pools.values()) > 0 and number < 40_000:
        planned.submit(*(spec(random, number + more) for more in range(1_000)))
        number += 1_000
    while planned.world.state.waiting < WAITING:
        shapes = [random.choice((1, 1, 1, 1, random.randint(2, 16))) for _ in range(500)]
        planned.submit(*(spec(random, number + more, workers) for more, workers in enumerate(shapes)))
        number += 500
    return planned


def cycles(planned: Planned, jobs: list[str]) -> list[float]:
    """Milliseconds of placement's cycles in which each of these jobs ends."""
    took = []
    for job in jobs:
        node = planned.world.nodes_of(job)[0]
        planned.world.hand_over(finished(job, node))
        begin_s = process_time()
        planned.world.decide()
        took.append((process_time() - begin_s) * 1_000)
        planned._note(planned.world.rest())
    return took


def main() -> None:
    """Measure, and print one JSON object."""
    random = Random(1)
    planned = loaded(random, int(argv[1]) if len(argv) > 1 else NODES)
    world, queues = planned.world, (DAY,)
    running = [job.id for job in world.state.jobs.values() if len(job.workers) == 1]
    random.shuffle(running)
    planned.tell(set_policy(reservations_max=0))
    none = cycles(planned, running[2 * ROUNDS : 3 * ROUNDS])
    planned.tell(set_policy(reservations_max=MAX))
    before = cycles(planned, running[:ROUNDS])
    plans: list[float] = []
    starts: tuple[PlannedStart, ...] = ()
    for _ in range(5):
        begin_s = process_time()
        starts = plan_starts(world.twin, queues, world.now_ms, MAX, estimator_of(world.twin))
        plans.append((process_time() - begin_s) * 1_000)
    event = StartsPlanned(cell=CELL, writer="q", plan=1, version=world.twin.version, at_ms=world.now_ms, starts=starts)
    begin_s = process_time()
    planned.tell(event)
    taken_ms = (process_time() - begin_s) * 1_000
    kept = len(world.state.reservations)
    profile = cProfile.Profile() if "--profile" in argv else None
    if profile is not None:
        profile.enable()
    after = cycles(planned, running[ROUNDS : 2 * ROUNDS])
    if profile is not None:
        profile.disable()
        pstats.Stats(profile, stream=stdout).sort_stats("tottime").print_stats(25)
    found = {
        "waiting": world.state.waiting,
        "running": len(running),
        "planned": len(starts),
        "in_force": kept,
        "kept_nodes": len({place.node for each in world.state.reservations.values() for place in each.workers}),
        "first_plan_ms": round(plans[0], 1),
        "plan_ms": round(median(plans[1:]), 1),
        "take_plan_ms": round(taken_ms, 1),
        "cycle_without_plans_ms": round(median(none), 2),
        "cycle_before_the_first_plan_ms": round(median(before), 2),
        "cycle_with_reservations_ms": round(median(after), 2),
    }
    stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
