"""What is kept for owners costs a start the same whether a few owners wait or a thousand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from services.placement.policy.gang import Places, place_gang
from services.placement.policy.owners import kept_for
from shared.cluster.apply import apply
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.operations import CellPolicy, Quota
from shared.events.reasons import DeferCode
from shared.events.value import replace
from shared.events.values import JobSpec, NodeSpec, NodeStatus
from tests.placement.world import CELL, DIGEST, spec_of

GPUS = 20
"""What is guaranteed to each owner."""

OWNERS_ON_NODE = 10
FEW, MANY = 50, 1_000


class Steps:
    """How many functions were called."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While this lasts they are counted."""

        def see(_frame: FrameType, event: str, _arg: object) -> None:
            self.count += event == "call"

        before = sys.getprofile()
        sys.setprofile(see)
        try:
            yield
        finally:
            sys.setprofile(before)


def tenant(number: int) -> str:
    return f"owner-{number:04}"


def cell_of(owners: int, placement: str, kept_gpus: int, cohorts: int) -> CellState:
    """Owners in so many cohorts, for each of whom so many GPUs are kept; on each node there is room for ten of them."""
    state = CellState(CELL)
    apply(state, e.PolicySet(policy=CellPolicy(placement=placement)), 0)
    for number in range(owners // OWNERS_ON_NODE):
        spec = NodeSpec(id=f"n{number:04}", pool="train", gpus=GPUS * OWNERS_ON_NODE)
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    sure_milli = 1_000 * GPUS
    tops = [Quota(tenant=f"cohort-{at}", gpu_type="gpu") for at in range(cohorts)]
    leaves = [
        Quota(tenant=tenant(at), gpu_type="gpu", guaranteed_milli=sure_milli, parent=f"cohort-{at % cohorts}")
        for at in range(owners)
    ]
    for quota in (*tops, *leaves):
        apply(state, e.QuotaSet(quota=quota), 0)
    for number in range(owners):
        enqueue(state, spec_of(f"j{number}", kept_gpus, tenant=tenant(number)))
    state.tree.kept = kept_for(state, [*state.jobs.values()])
    assert len(state.tree.kept.all) == owners
    return state


def enqueue(state: CellState, spec: JobSpec) -> None:
    apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)


def steps_of_a_try(
    owners: int, placement: str, kept_gpus: int, cohorts: int, wanted: JobSpec
) -> tuple[int, Places | DeferCode]:
    """What the tries of ten tenants cost, each after a start, and what comes of the last one."""
    state, steps = cell_of(owners, placement, kept_gpus, cohorts), Steps()
    found = place_gang(state, wanted)  # what is made once for all tries
    for number in range(OWNERS_ON_NODE):
        with steps.counted():
            found = place_gang(state, replace(wanted, tenant=tenant(number)))
        if not isinstance(found, DeferCode):
            spec = replace(wanted, id=f"more-{number}", tenant=tenant(number))
            enqueue(state, spec)
            apply(state, e.JobStarted(job=spec.id, attempt=1, workers=found), 0)
    return steps.count, found


@pytest.mark.parametrize("placement", ["best-fit", "e-binpack", "e-spread", "first-fit"])
@pytest.mark.parametrize(
    ("kept_gpus", "cohorts", "wanted", "fits"),
    [
        pytest.param(10, 5, spec_of("new", 1), True, id="small, beside what is kept"),
        pytest.param(GPUS, 5, spec_of("new", GPUS + 5), True, id="all is kept, some of it for another cohort"),
        pytest.param(GPUS, 1, spec_of("new", GPUS + 5), False, id="all is kept in one cohort"),
        pytest.param(GPUS, 5, spec_of("new", 5), True, id="all is kept, some of it is its own"),
    ],
)
def test_a_try_beside_a_thousand_owners_costs_what_it_costs_beside_fifty(
    kept_gpus: int, cohorts: int, wanted: JobSpec, placement: str, *, fits: bool
) -> None:
    few, of_few = steps_of_a_try(FEW, placement, kept_gpus, cohorts, wanted)
    many, of_many = steps_of_a_try(MANY, placement, kept_gpus, cohorts, wanted)
    found = [not isinstance(each, DeferCode) for each in (of_few, of_many)]
    assert found == [fits, fits]
    assert many <= 1.5 * few, (few, many)
