"""A service, or a job whose workers come singly, may take some workers of each GPU type: what quotas ever let it have
of all of them together decides whether it keeps others back.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.quotas.test_borrowing import why
from tests.placement.worlds.world import CELL, DIGEST, World, admitted, finished, joined, set_quotas, spec_of

TYPES = ("big", "gpu")
STRICT = QueueDiscipline.STRICT_FIFO


def cell_of(*quotas: Quota, gpus: tuple[int, int] = (4, 4), pools: tuple[str, str] = ("train", "train")) -> World:
    """A cell with one node of each type."""
    queues = (Queue(name="line", discipline=STRICT),)
    parts = tuple(Pool(name=name, gpus=40) for name in dict.fromkeys(pools))
    part = CellPart(name=CELL, ordinal=0, pools=parts, queues=queues, policy=CellPolicy(backfill_wait_ms=0))
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    for gpu_type, count, pool in zip(TYPES, gpus, pools, strict=True):
        world.tell(joined(gpu_type, count, gpu_type=gpu_type, pool=pool, cpu_milli=64_000))
    if quotas:
        world.tell(set_quotas(*quotas))
    return world


def limit(gpu_type: str, gpus: int, tenant: str = "ada") -> Quota:
    return Quota(tenant=tenant, gpu_type=gpu_type, limit_milli=gpus * 1_000)


def singly(workers: int, fewest: int, kind: JobKind = JobKind.INFERENCE, gpus: int = 1) -> JobSpec:
    return JobSpec(
        id="head",
        tenant="ada",
        queue="line",
        kind=kind,
        gang=False,
        workers=workers,
        workers_min=fewest,
        resources=Resources(gpu_milli=gpus * 1_000),
    )


@st.composite
def some_quotas(draw: st.DrawFn) -> tuple[Quota, ...]:
    """Limits, guarantees that are lent or not, and rights to borrow, of both types."""
    found = []
    for tenant in ("ada", "bob"):
        for gpu_type in TYPES:
            guaranteed = draw(st.integers(0, 3)) * 1_000
            limit_milli = draw(st.none() | st.integers(0, 5).map(lambda gpus: gpus * 1_000))
            found.append(
                Quota(
                    tenant=tenant,
                    gpu_type=gpu_type,
                    guaranteed_milli=guaranteed,
                    limit_milli=None if limit_milli is None else max(limit_milli, guaranteed),
                    lends=draw(st.booleans()),
                    borrows=draw(st.booleans()),
                )
            )
    return tuple(found)


@given(
    some_quotas(),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([("train", "train"), ("train", "other")]),
    st.integers(1, 6),
    st.sampled_from([1, 2]),
    st.booleans(),
)
@example((limit("big", 2), limit("gpu", 2)), (4, 4), ("train", "train"), 3, 1, True)
@example((limit("big", 0),), (4, 2), ("train", "other"), 3, 1, True)
def test_alone_in_its_cell_a_service_starts_just_if_quotas_may_ever_let_it(
    quotas: tuple[Quota, ...],
    gpus: tuple[int, int],
    pools: tuple[str, str],
    fewest: int,
    each: int,
    is_preemptible: bool,
) -> None:
    world = cell_of(*quotas, gpus=gpus, pools=pools)
    spec = replace(singly(fewest, fewest, gpus=each), preemptible=is_preemptible)
    world.tell(admitted(spec))
    job = world.job("head")
    fits = sum(count // each for count in gpus) >= fewest
    reaches("a service starts on nodes of both types", len({place.node for place in job.workers}) > 1)
    # Of a job that has started the question would be whether it may have more: so a twin is asked about that waits.
    twin = cell_of(*quotas, gpus=gpus, pools=pools).state
    apply(twin, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)
    assert bool(job.workers) is (fits and is_ever_allowed(twin, twin.jobs["head"]))


def test_a_service_that_its_limits_let_start_on_two_types_together_is_waited_for() -> None:
    world = cell_of(limit("big", 2), limit("gpu", 2))
    world.run(*(spec_of(f"busy-{gpu_type}", 4, tenant="bob", gpu_type=gpu_type, queue="line") for gpu_type in TYPES))
    world.tell(admitted(singly(3, 3)), admitted(spec_of("behind", 3, tenant="bob", queue="line"), 1))
    world.tell(finished("busy-gpu", "gpu"))
    assert why(world, "behind") is PendingReason.BEHIND_HEAD
    world.tell(finished("busy-big", "big"))
    assert sorted(world.nodes_of("head")) == ["big", "big", "gpu"]


def test_a_service_of_which_one_type_is_too_small_and_the_other_at_its_limit_keeps_nobody_back() -> None:
    world = cell_of(limit("big", 0), gpus=(4, 2), pools=("train", "other"))
    world.tell(admitted(singly(3, 3)), admitted(spec_of("behind", tenant="bob", queue="line", gpu_type="gpu"), 1))
    assert world.job("head").status is JobStatus.QUEUED
    assert world.job("behind").workers


@pytest.mark.parametrize("kind", [JobKind.TRAINING, JobKind.INFERENCE])
def test_a_job_that_runs_and_may_have_no_more_of_the_type_that_has_room_keeps_nobody_back(kind: JobKind) -> None:
    """All of `gpu` is its own, and of `big` its limit leaves too little for one more of its workers."""
    world = cell_of(limit("big", 3), gpus=(4, 2), pools=("train", "other"))
    world.tell(admitted(singly(6, 1, kind, gpus=2)))
    held = sorted(world.nodes_of("head"))
    world.tell(admitted(spec_of("behind", queue="line"), 1))
    assert held == ["big", "gpu"]
    assert world.job("behind").workers
