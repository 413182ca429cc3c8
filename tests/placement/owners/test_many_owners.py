"""What is kept for owners costs a start the same whether a few owners wait or a thousand, and a decision that changes
nothing for them does not look at each of them again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from fallow.services.placement.owners.owners import Owners, kept_for
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.search.gang import Places, place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, WorkerPlace
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import CELL, DIGEST, spec_of

GPUS = 20
"""What is guaranteed to each owner."""

OWNERS_ON_NODE = 10
FEW, MANY = 50, 1_000
KINDS = 8
"""For so many kinds of an owner's jobs places are kept."""


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
        gc.disable()  # what others run after a collection is no step of ours
        sys.setprofile(see)
        try:
            yield
        finally:
            sys.setprofile(before)
            gc.enable()


def tenant(number: int) -> str:
    return f"owner-{number:04}"


def cell_of(owners: int, placement: str, kept_gpus: int, cohorts: int) -> CellState:
    """Owners in so many cohorts, for each of which so many GPUs are kept; each node has room for ten of them."""
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
) -> tuple[int, Places | PendingReason]:
    """What the tries of ten tenants cost, each after a start, and what comes of the last one."""
    state, steps = cell_of(owners, placement, kept_gpus, cohorts), Steps()
    found = place_gang(state, wanted)  # what is made once for all tries
    for number in range(OWNERS_ON_NODE):
        with steps.counted():
            found = place_gang(state, replace(wanted, tenant=tenant(number)))
        if not isinstance(found, PendingReason):
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
    found = [not isinstance(each, PendingReason) for each in (of_few, of_many)]
    assert found == [fits, fits]
    assert many <= 1.5 * few, (few, many)


class Waiting:
    """So many owners, of each of which jobs of eight kinds wait, each kind on nodes of its own; and nodes that none of
    them can use. Guests are on half of the nodes of each kind.
    """

    def __init__(self, owners: int) -> None:
        self.state, self.lines, self.owners, self.steps = CellState(CELL), Lines((Queue(name="default"),)), Owners(), 0
        nodes = [
            NodeSpec(id=f"n{kind}-{number:03}", pool="train", gpus=GPUS, labels={"kind": str(kind)})
            for kind in range(KINDS + 1)
            for number in range(owners // 5)
        ]
        self.do(*(e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY) for spec in nodes))
        sure = [Quota(tenant=tenant(at), gpu_type="gpu", guaranteed_milli=1_000 * GPUS) for at in range(owners)]
        self.do(*(e.QuotaSet(quota=quota) for quota in sure))
        for spec in nodes[::2]:
            self.start(spec)
        self.do(*(enqueued(self.job(at, kind)) for at in range(owners) for kind in range(KINDS)))
        assert len(self.state.tree.kept.all) == owners * KINDS

    def job(self, owner: int, kind: int) -> JobSpec:
        return spec_of(f"j{owner}-{kind}", 2, tenant=tenant(owner), node_labels=(f"kind={kind}",))

    def do(self, *effects: e.AnyEffect) -> None:
        """These come into force. `steps` is what it costs to note the owners behind that."""
        for effect in effects:
            apply(self.state, effect, 0)
        self.lines.follow(self.state, effects, 0)
        steps = Steps()
        with steps.counted():
            self.owners.note(self.state, self.lines)
        self.steps = steps.count

    def start(self, node: NodeSpec) -> None:
        """A guest starts on this node."""
        job = f"guest-{node.id}"
        self.do(enqueued(spec_of(job, 1, tenant="guest")))
        place = WorkerPlace(rank=0, node=node.id, devices=(0,), gpu_milli=1_000, cpu_milli=0, memory_mib=0)
        self.do(e.JobStarted(job=job, attempt=1, workers=(place,)))


def enqueued(spec: JobSpec) -> e.JobEnqueued:
    return e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST)


def steps_of_noting(owners: int) -> dict[str, int]:
    """What it costs to note so many owners that wait, by what has happened."""
    cell, found = Waiting(owners), dict[str, int]()
    cell.do()  # what follows from the last claims is worked out once
    cell.do()
    found["nothing"] = cell.steps
    cell.do(enqueued(spec_of("stranger", 1, tenant="guest")))
    found["a guest comes"] = cell.steps
    cell.do(enqueued(replace(cell.job(3, 4), id="behind")))
    found["a job comes behind another of its class"] = cell.steps
    cell.do(enqueued(replace(cell.job(3, 4), id="other", priority=-1)))
    found["a job comes that is behind the largest of its kind"] = cell.steps
    cell.start(cell.state.nodes[f"n{KINDS}-001"].spec)
    found["a guest starts where no owner could"] = cell.steps
    cell.do(e.JobFinished(job=f"guest-n{KINDS}-000", attempt=1))
    found["a guest ends there"] = cell.steps
    return found


def test_what_changes_nothing_for_owners_looks_at_none_of_them() -> None:
    many = steps_of_noting(250)
    assert many == steps_of_noting(25)
    assert max(many.values()) < 200, many
