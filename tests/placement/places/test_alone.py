"""A job's only worker is placed by a way of its own, and comes to where the first worker of a gang would come."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.fit.filling import fullest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.policy.best_fit import place_alone
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, DIGEST

STATUSES = (NodeStatus.READY, NodeStatus.READY, NodeStatus.READY, NodeStatus.CORDONED)


def spec(random: Random, job: str) -> JobSpec:
    """One worker of whole GPUs."""
    wants = Resources(gpu_milli=GPU * random.randint(1, 8), cpu_milli=random.choice((0, 2_000)))
    return JobSpec(id=job, tenant="ada", gpu_type=random.choice((None, None, "h100")), resources=wants)


def cell(random: Random) -> CellState:
    """Nodes of several sizes, types and states, some of them in use."""
    state = CellState(CELL)
    for number in range(random.randint(1, 12)):
        gpus = random.choice((1, 4, 8, 20))
        kind = random.choice(("gpu", "h100"))
        node = NodeSpec(id=f"n{number:02}", pool="train", gpus=gpus, gpu_type=kind, cpu_milli=9_000)
        apply(state, e.NodeChanged(spec=node, boot="b", status=random.choice(STATUSES)), 0)
        if random.random() < 0.3:
            apply(state, e.DeviceChanged(node=node.id, device=random.randrange(gpus), healthy=False), 0)
    return state


def put(state: CellState, job: JobSpec, place: WorkerPlace) -> None:
    apply(state, e.JobEnqueued(spec=job, submit_ms=0, digest=DIGEST), 0)
    apply(state, e.JobStarted(job=job.id, attempt=1, workers=(place,)), 0)


@given(st.randoms(use_true_random=False))
def test_the_only_worker_goes_where_the_first_of_a_gang_would_go(random: Random) -> None:
    state = cell(random)
    answers = set[bool]()
    for number in range(12):
        job = spec(random, f"job-{number}")
        alone = place_alone(state, state.pools["train"], job)
        gang = places_of_gang(FreeCapacity.of(state, state.pools["train"], job), job, fullest)
        answers.add(alone is not None)
        assert gang == (None if alone is None else (alone,))
        if alone is not None:
            put(state, job, alone)
    reaches("one job of one worker has a place, and another one none", len(answers) > 1)
