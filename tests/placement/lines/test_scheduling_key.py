"""Jobs of one line with the same scheduling key are interchangeable for the walk; and the key leaves nothing out.

The oracle is the service itself: two jobs take each other's specification, and nothing may come of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.policy.frag_aware.demand import ask_of
from fallow.services.placement.queue.lines.classes import class_of, room_of
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    Dependency,
    JobKind,
    JobSpec,
    Level,
    Resources,
    RetryPolicy,
    TopologyRequest,
    VirtualRun,
)
from fallow.shared.events.queue import QueueDiscipline
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World, admitted, cell_with, finished, joined, set_policy, spec_of

NO_GANG = {"gang": False, "workers": 4}
ARRAY = {"array_of": "ada/array", "array_max_running": 1}

VARIANTS: dict[str, dict[str, Any]] = {
    "id": {"id": "ada/other"},
    "tenant": {"tenant": "bob"},
    "kind": {"kind": JobKind.INFERENCE},
    "priority": {"priority": 7},
    "queue": {"queue": "other"},
    "cell": {"cell": CELL},
    "pools": {"pools": ("train",)},
    "gpu_type": {"gpu_type": "h100"},
    "workers": {"workers": 3},
    "workers_min": {"workers_min": 1},
    "resources": {"resources": Resources(gpu_milli=3000)},
    "gang": {"gang": False},
    "topology": {"topology": TopologyRequest(level=Level.LEAF)},
    "spread": {"spread": Level.LEAF},
    "run": {"run": VirtualRun(duration_ms=70)},
    "preemptible": {"preemptible": False},
    "checkpoint_interval_ms": {"checkpoint_interval_ms": 30},
    "max_run_ms": {"max_run_ms": 60_000},
    "estimate_run_ms": {"estimate_run_ms": 60_000},
    "min_run_ms": {"min_run_ms": 9},
    "fungible": {"fungible": True},
    "heterogeneous": {"heterogeneous": True},
    "scaling": {"scaling": (1000, 1900)},
    "retry": {"retry": RetryPolicy(budget=3)},
    "hold": {"hold": True},
    "not_before_ms": {"not_before_ms": 50},
    "after": {"after": (Dependency(job="ada/first"),)},
    "array": {"array": 2},
    "array_max_running": ARRAY,
    "array_of": ARRAY,
    "array_index": {"array_index": 1},
    "node_labels": {"node_labels": ("rack=a",)},
    "tolerations": {"tolerations": ("odd",)},
    "exclusive": {"exclusive": True},
}
"""For each field of a job another value than a job of the table has."""

OUTSIDE = {
    "id": "it only decides between jobs that nothing else tells apart",
    "queue": "it decides in which line the job stands",
    "cell": "it decides to which cell the job goes",
    "hold": "a held job stands in no line",
    "not_before_ms": "before its time a job stands in no line",
    "after": "until these are over a job stands in no line",
    "array": "each element stands in its line as a job of its own",
    "array_index": "elements stand in their order, and each may start as the one before it",
}
"""What decides where a job stands, and not whether it may start there."""

NOT_READ = (
    "workers_min",
    "run",
    "checkpoint_interval_ms",
    "max_run_ms",
    "estimate_run_ms",
    "min_run_ms",
    "fungible",
    "heterogeneous",
    "scaling",
    "retry",
)
"""What decides of no gang whether it may start, in a cell in which no node is to close and no start is planned."""


def key_of(spec: JobSpec, state: CellState | None = None) -> object:
    """The scheduling key, as lines make it."""
    known = in_line(job := Job(spec=spec, submit_ms=0, digest=""))
    return class_of(room_of(state or CellState(CELL), known), job, known)


@pytest.mark.parametrize("field", JobSpec.__struct_fields__)
def test_each_field_of_a_job_is_in_the_key_or_is_known_to_decide_nothing(field: str) -> None:
    """A new field: give it a value in VARIANTS, and put it into `room_of` or `class_of`, or into a list above."""
    base = spec_of("one", 2, 2)
    is_in_key = key_of(replace(base, **VARIANTS[field])) != key_of(base)
    assert is_in_key is (field not in OUTSIDE and field not in NOT_READ)


@pytest.mark.parametrize("field", JobSpec.__struct_fields__)
def test_what_a_worker_costs_under_frag_aware_is_a_part_of_the_key(field: str) -> None:
    base, state = spec_of("one", 2, 2), CellState(CELL)
    other = replace(base, **VARIANTS[field])
    assert room_of(state, other) != room_of(state, base) or ask_of(other) == ask_of(base)


@pytest.mark.parametrize("field", ["max_run_ms", "estimate_run_ms"])
def test_where_nodes_are_to_close_the_run_time_is_in_the_key(field: str) -> None:
    state, base = CellState(CELL), spec_of("one", 2, 2)
    state.maintenance_starts["n1"] = 90_000
    assert key_of(replace(base, **VARIANTS[field]), state) != key_of(base, state)


def test_of_a_job_that_is_no_gang_the_fewest_workers_are_in_the_key() -> None:
    base = spec_of("one", 2, **NO_GANG)
    assert key_of(replace(base, workers_min=2)) != key_of(base)


def file_with(discipline: QueueDiscipline, limit: int | None) -> CellFile:
    queue = Queue(name="default", discipline=discipline)
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=100),), queues=(queue,))
    quotas = () if limit is None else (TenantQuota(limit=limit),)
    return CellFile(cells=(part,), tenants=(Tenant(name="ada", quotas=quotas), Tenant(name="bob")))


CELLS = st.fixed_dictionaries(
    {
        "discipline": st.sampled_from(tuple(QueueDiscipline)),
        "limit": st.none() | st.integers(4, 16),
        "placement": st.sampled_from(("best-fit", "e-spread", "spread", "frag-aware", "first-fit")),
        "nodes": st.lists(st.integers(1, 8), min_size=1, max_size=4),
        "others": st.lists(st.tuples(st.integers(1, 8), st.integers(1, 2)), max_size=4),
    }
)
COMMON = st.fixed_dictionaries(
    {"gpus": st.integers(1, 8), "workers": st.integers(1, 3), "exclusive": st.booleans(), "priority": st.integers(0, 1)}
)
CHANGES = st.lists(st.sampled_from(NOT_READ), min_size=1, unique=True)


def outcome(world: World, jobs: tuple[str, str]) -> list[object]:
    return [(job.status, job.workers, job.deferred) for job in (world.job(each) for each in jobs)]


def course(cell: dict[str, Any], specs: tuple[JobSpec, JobSpec]) -> list[list[object]]:
    """What comes of two jobs that are submitted one behind the other, as others before them end."""
    nodes = [joined(f"n{number}", gpus) for number, gpus in enumerate(cell["nodes"])]
    world = cell_with(*nodes, file=file_with(cell["discipline"], cell["limit"]))
    world.tell(set_policy(placement=cell["placement"]))
    others = [spec_of(f"other-{n}", *size, tenant=("ada", "bob")[n % 2]) for n, size in enumerate(cell["others"])]
    world.tell(*(admitted(spec) for spec in others))
    first, second = specs
    jobs = ("first", "second")
    world.tell(admitted(replace(first, id=jobs[0])), admitted(replace(second, id=jobs[1])))
    found = [outcome(world, jobs)]
    for other in others:
        places = world.job(other.id).workers
        world.tell(*(finished(other.id, node) for node in dict.fromkeys(place.node for place in places)))
        found.append(outcome(world, jobs))
    return found


@given(cell=CELLS, common=COMMON, changes=CHANGES)
def test_jobs_of_one_key_may_take_each_others_turn(
    cell: dict[str, Any], common: dict[str, Any], changes: list[str]
) -> None:
    one = spec_of("one", **common)
    other = one
    for field in changes:
        other = replace(other, **VARIANTS[field])
    assert key_of(one) == key_of(other)
    found = course(cell, (one, other))
    reaches("one of two such jobs starts, and the other one does not", len({bool(each[1]) for each in found[0]}) > 1)  # type: ignore[index]
    assert course(cell, (other, one)) == found
