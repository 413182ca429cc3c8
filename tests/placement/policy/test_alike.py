"""Jobs that are alike are placed together as if each was placed and started before the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.policy import policies
from fallow.services.placement.search.gang import place_alike, place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import MACHINES, Machine, gang, network, start, walked

POLICIES = st.sampled_from([name for name, policy in policies.POLICIES.items() if policy.alike is not None])


def one_after_the_other(state: CellState, spec: JobSpec, most: int) -> list[WorkerPlace]:
    """The places of as many jobs as start."""
    found: list[WorkerPlace] = []
    for number in range(most):
        places = place_gang(state, spec)
        if isinstance(places, PendingReason):
            break
        start(state, replace(spec, id=f"job-{number}"), places)
        found += places
    return found


def group_after_group(state: CellState, spec: JobSpec, most: int) -> list[WorkerPlace]:
    """These jobs, placed together as far as one question tells."""
    found: list[WorkerPlace] = []
    while some := place_alike(state, spec, most - len(found)):
        for place in some:
            start(state, replace(spec, id=f"job-{len(found)}"), (place,))
            found.append(place)
        if len(found) == most:
            break
    return found


@given(machines=MACHINES, policy=POLICIES, gpus=st.integers(1, 5), cpu=st.integers(0, 2), most=st.integers(1, 30))
def test_together_they_get_the_places_that_they_would_get_one_by_one(
    machines: list[Machine], policy: str, gpus: int, cpu: int, most: int
) -> None:
    spec = gang("job", gpus, cpu=cpu)
    found = group_after_group(network(machines, policy), spec, most)
    reaches("jobs that are alike fill one node and go on to another", len({place.node for place in found}) > 1)
    assert found == one_after_the_other(network(machines, policy), spec, most)


def submit(state: CellState, specs: list[JobSpec]) -> CellState:
    for number, spec in enumerate(specs):
        apply(state, e.JobEnqueued(spec=spec, submit_ms=number, digest="0" * 32), 0)
    return state


@given(
    machines=MACHINES,
    policy=POLICIES,
    wants=st.lists(st.tuples(st.sampled_from((1, 1, 1, 2, 4)), st.sampled_from((1, 1, 1, 2))), max_size=12),
    limit=st.none() | st.integers(0, 20),
)
def test_a_walk_over_a_line_comes_to_the_same_starts_as_walks_over_its_jobs(
    machines: list[Machine], policy: str, wants: list[tuple[int, int]], limit: int | None
) -> None:
    specs = [gang(f"job-{number:02}", gpus, workers) for number, (gpus, workers) in enumerate(wants)]
    states = [network(machines, policy), network(machines, policy)]
    for state in states:
        if limit is not None:
            apply(state, e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu", limit_milli=limit * 1000)), 0)
    together = walked(submit(states[0], specs))
    reaches("a walk over a line starts some of its jobs, and not all", 0 < len(together) < len(specs))
    assert together == [start for spec in specs for start in walked(submit(states[1], [spec]))]
