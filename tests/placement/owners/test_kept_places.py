"""What is kept for an owner who waits is of use to the owner, and only then is it kept.

In most cases an owner waits for one worker on a whole node of eight GPUs, which is guaranteed to it, while others start
jobs of one GPU as fast as some end: the owner must get its node when as many have ended as run.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fallow.services.placement.owners.claims import KINDS_MAX
from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.events import nodes as n
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    JobKind,
    JobSpec,
    Level,
    NodeRole,
    Position,
    Resources,
    TopologyRequest,
    Wish,
)
from fallow.shared.events.operations import Cordon, PlanMaintenance, Uncordon
from fallow.shared.events.reasons import PendingReason
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    finished,
    joined,
    set_policy,
    set_quotas,
    spec_of,
)

FILE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100))),),
    tenants=(Tenant(name="ada"), Tenant(name="bob"), Tenant(name="eve")),
)


class Cell:
    """Nodes `n1` to `n3` that all may use, and what is guaranteed to ada and to eve, eight GPUs each. Bob borrows."""

    def __init__(self, *more: n.NodeJoined, nodes: int = 3, **policy: Any) -> None:
        self.world = World(FILE)
        self.world.tell(set_policy(**policy), set_quotas(share("ada", 8), share("bob"), share("eve", 8)))
        self.world.tell(*(joined(f"n{number}", cpu_milli=16_000) for number in range(1, nodes + 1)), *more)
        self._numbers = count()

    def lend(self, spec: JobSpec, ends: int) -> list[str]:
        """Bob's jobs like this one stand in line at any time, and so many of those that run end, the first ones first.
        The jobs that ran.
        """
        for _ in range(8):
            self._submit(spec)
        ran: list[str] = []
        for _ in range(ends):
            running = [job for job in self.world.state.jobs.values() if job.status in HOLDING and job.id[0] == "b"]
            if running and self.world.job("own").status not in HOLDING:
                first = min(running, key=lambda job: int(job.id[1:]))
                ran.append(first.id)
                self.world.tell(*(finished(first.id, node) for node in first.runs))
                self._submit(spec)
        return ran

    def fill(self, spec: JobSpec, jobs: int) -> None:
        """Bob starts so many before anybody else comes."""
        for _ in range(jobs):
            self._submit(spec)

    def _submit(self, spec: JobSpec) -> None:
        self.world.tell(admitted(replace(spec, id=f"b{next(self._numbers)}"), 1))

    @property
    def at(self) -> list[str]:
        """Where the owner's job runs."""
        return self.world.nodes_of("own")


SMALL = spec_of("b", tenant="bob", pools=("train",))


def of_no_use(node: n.NodeJoined, *events: Event) -> Callable[[], tuple[n.NodeJoined, tuple[Event, ...]]]:
    return lambda: (node, events)


UNUSABLE = {
    "cordoned": of_no_use(joined("x1"), Cordon(cell=CELL, node="x1")),
    "tainted": of_no_use(joined("x1", taints=("hot",))),
    "in another pool": of_no_use(joined("x1", pool="extra")),
    "with another label": of_no_use(joined("x1", labels={"zone": "b"})),
    "in the inference zone": of_no_use(joined("x1", role=NodeRole.INFERENCE)),
    "before maintenance": of_no_use(joined("x1"), PlanMaintenance(cell=CELL, node="x1", begin_ms=10, end_ms=10**6)),
}


@pytest.mark.parametrize("placement", ["best-fit", "e-binpack", "e-spread", "spread", "first-fit", "frag-aware"])
@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_owner_gets_what_is_guaranteed_though_nodes_that_it_cannot_use_are_idle(kind: str, placement: str) -> None:
    node, events = UNUSABLE[kind]()
    cell = Cell(node, placement=placement)
    cell.world.tell(*events)
    lender = replace(SMALL, node_labels=("zone!=b",), estimate_run_ms=1_000)
    cell.fill(lender, 24)
    own = spec_of("own", 8, pools=("train",), node_labels=("zone!=b",), estimate_run_ms=1_000)
    cell.world.tell(admitted(own, 2))
    assert why(cell.world, "own") is not None
    cell.lend(lender, 60)
    assert cell.at[:1] in (["n1"], ["n2"], ["n3"])


@pytest.mark.parametrize("kind", UNUSABLE)
def test_nothing_is_kept_on_nodes_that_the_owner_cannot_use(kind: str) -> None:
    """The mirror: one more GPU would be enough for the numbers, and it is not the owner's to use."""
    node, events = UNUSABLE[kind]()
    cell = Cell(node, nodes=1)
    cell.world.tell(*events)
    own = spec_of("own", 8, pools=("train",), node_labels=("zone!=b",), estimate_run_ms=1_000)
    cell.fill(replace(SMALL, node_labels=("zone!=b",), estimate_run_ms=1_000), 1)
    cell.world.tell(admitted(own, 2))
    assert why(cell.world, "own") is not None
    inference = kind == "in the inference zone"
    guest = spec_of(
        "guest",
        8,
        tenant="bob",
        tolerations=("hot",),
        kind=JobKind.INFERENCE if inference else JobKind.TRAINING,
        estimate_run_ms=1,
    )
    cell.world.tell(admitted(guest, 3))
    assert cell.world.nodes_of("guest") == ([] if kind == "cordoned" else ["x1"])


@pytest.mark.parametrize("placement", ["best-fit", "e-binpack", "spread"])
def test_what_is_kept_is_a_whole_node_and_not_as_many_gpus_here_and_there(placement: str) -> None:
    cell = Cell(placement=placement, nodes=4)
    cell.fill(SMALL, 32)
    cell.world.tell(admitted(spec_of("own", 8, pools=("train",)), 2))
    ran = cell.lend(SMALL, 100)
    assert len(cell.at) == 1
    assert len(ran) <= 32


def test_a_gang_over_two_nodes_gets_both() -> None:
    cell = Cell(nodes=3)
    cell.world.tell(set_quotas(share("ada", 16), share("bob"), share("eve", 0)))
    cell.fill(SMALL, 24)
    cell.world.tell(admitted(spec_of("own", 8, workers=2, pools=("train",)), 2))
    cell.lend(SMALL, 60)
    assert len(cell.at) == 2


def test_cpus_are_kept_with_the_gpus() -> None:
    """Jobs that need much of these would take the CPUs of each node for ever, though half of the GPUs are idle."""
    cell = Cell(nodes=2)
    hog = replace(SMALL, resources=Resources(gpu_milli=1_000, cpu_milli=4_000))
    cell.fill(hog, 8)
    own = spec_of("own", pools=("train",), resources=Resources(gpu_milli=8_000, cpu_milli=8_000))
    cell.world.tell(admitted(own, 2))
    assert why(cell.world, "own") is not None
    cell.lend(hog, 30)
    assert len(cell.at) == 1


@pytest.mark.parametrize("level", [Level.LEAF, Level.NODE])
def test_what_an_owner_requires_in_one_unit_is_kept_in_one(level: Level) -> None:
    nodes = [joined(f"x{leaf}{node}", 4, position=Position(leaf=leaf)) for leaf in "abc" for node in range(2)]
    cell = Cell(*nodes, nodes=0, placement="spread")
    cell.fill(SMALL, 24)
    workers, gpus = (2, 4) if level is Level.LEAF else (4, 1)
    wish = TopologyRequest(wish=Wish.REQUIRED, level=level)
    cell.world.tell(admitted(spec_of("own", gpus, workers=workers, pools=("train",), topology=wish), 2))
    cell.lend(SMALL, 60)
    assert len({node[:2] if level is Level.LEAF else node for node in cell.at}) == 1


def test_an_owner_within_its_guarantee_leaves_another_owners_places_alone_where_it_fits_elsewhere() -> None:
    """Most is free on the node that is kept for ada, and the policy would go there. Eve takes it only if it must."""
    cell = Cell(nodes=2, placement="spread")
    cell.fill(SMALL, 16)
    cell.world.tell(admitted(spec_of("own", 8, pools=("train",)), 2))
    on = {node: [job.id for job in cell.world.state.jobs.values() if node in job.runs] for node in ("n1", "n2")}
    ended = [*on["n1"][:4], *on["n2"][:1]]
    cell.world.tell(*(finished(job, node) for job in ended for node in cell.world.job(job).runs))
    kept = [place for each in cell.world.state.tree.kept.all for place in each.places]
    assert [(place.node, place.milli) for place in kept] == [("n1", 4_000)]
    cell.world.tell(admitted(spec_of("eve-1", tenant="eve"), 3))
    assert cell.world.nodes_of("eve-1") == ["n2"]
    cell.world.tell(admitted(replace(SMALL, id="late"), 4), admitted(spec_of("eve-2", tenant="eve"), 5))
    assert why(cell.world, "late") is PendingReason.RESERVED_FOR_OTHER
    assert cell.world.nodes_of("eve-2") == ["n1"]


def test_in_the_shipped_cell_an_owner_gets_its_node_though_16_inference_nodes_are_idle() -> None:
    """Each training job that ends is followed by one of another tenant's that waits, and borrows."""
    shipped = load_cell_file(Path(__file__).parents[3] / "deploy" / "cell.yaml")
    cell = shipped.cells[0].model_copy(update={"name": CELL})
    world = World(shipped.model_copy(update={"cells": (cell,)}))
    inference = (joined(f"i{number}", pool="inference", role=NodeRole.INFERENCE) for number in range(16))
    world.tell(*(joined(f"t{number}", pool="training") for number in range(9)), *inference)
    lender = spec_of("", tenant="robotics", pools=("training",))
    world.tell(*(admitted(replace(lender, id=f"b{number}"), 1) for number in range(9 * 8 + 20)))
    world.tell(admitted(spec_of("own", 8, tenant="search", pools=("training",)), 2))
    for number in range(16):
        if not world.nodes_of("own"):
            world.tell(*(finished(f"b{number}", node) for node in world.nodes_of(f"b{number}")))
    assert len(world.nodes_of("own")) == 1
    world.check()


def test_of_a_share_no_more_is_kept_than_is_idle_of_the_guarantee() -> None:
    """Ada's guarantee holds one of its two halves of a GPU: the other half of that device is lent."""
    cell = Cell(nodes=1)
    cell.fill(SMALL, 7)
    cell.world.tell(set_quotas(replace(share("ada"), guaranteed_milli=500), share("bob"), share("eve")))
    halves = spec_of("own", workers=3, pools=("train",), resources=Resources(gpu_milli=500))
    cell.world.tell(admitted(halves, 2))
    kept = [place for each in cell.world.state.tree.kept.all for place in each.places]
    assert sum(place.milli for place in kept) <= 500
    cell.world.tell(admitted(spec_of("guest", tenant="bob", resources=Resources(gpu_milli=500)), 3))
    assert cell.world.nodes_of("guest") == ["n1"]


def test_a_share_of_a_gpu_is_kept_too() -> None:
    cell = Cell(nodes=1)
    half = replace(SMALL, resources=Resources(gpu_milli=500))
    cell.fill(half, 16)
    cell.world.tell(admitted(spec_of("own", resources=Resources(gpu_milli=600)), 2))
    cell.lend(half, 16)
    assert cell.at == ["n1"]


@pytest.mark.parametrize("placement", POLICIES)
def test_a_share_goes_to_a_device_in_use_beside_whole_ones_that_are_kept_on_its_node(placement: str) -> None:
    cell = Cell(nodes=2, placement=placement)
    cell.world.tell(set_quotas(share("eve", 14)))
    cell.world.tell(admitted(spec_of("fill", 8, tenant="bob", node_labels=("zone!=b",))))
    cell.world.tell(admitted(replace(SMALL, id="half", resources=Resources(gpu_milli=500))))
    cell.world.tell(admitted(spec_of("own", 7, 2, tenant="eve"), 1))
    cell.world.tell(admitted(replace(SMALL, id="guest", resources=Resources(gpu_milli=400)), 2))
    whole = replace(SMALL, id="whole")
    cell.world.tell(admitted(whole, 3))
    assert cell.world.nodes_of("guest") == cell.world.nodes_of("half")
    assert (cell.world.nodes_of("whole"), why(cell.world, "whole")) == ([], PendingReason.RESERVED_FOR_OTHER)


def test_replicas_of_a_service_that_borrows_leave_it_alone() -> None:
    cell = Cell(nodes=2)
    cell.fill(SMALL, 10)
    cell.world.tell(admitted(spec_of("own", 8, pools=("train",)), 2))
    service = spec_of("b-service", tenant="bob", workers=10, workers_min=1, gang=False, kind=JobKind.INFERENCE)
    cell.world.tell(admitted(service, 3))
    runs = len(cell.world.job("b-service").workers)
    for number in range(10):
        cell.world.tell(*(finished(f"b{number}", node) for node in cell.world.nodes_of(f"b{number}")))
        if cell.at:
            break
    assert len(cell.at) == 1
    assert runs < 6


def test_the_lender_gets_it_back_when_the_owner_goes() -> None:
    cell = Cell(nodes=1)
    cell.fill(SMALL, 4)
    cell.world.tell(admitted(spec_of("own", 8, pools=("train",)), 2), admitted(replace(SMALL, id="late"), 3))
    assert why(cell.world, "late") is PendingReason.RESERVED_FOR_OTHER
    cell.world.tell(cancel("own"))
    assert cell.world.nodes_of("late") == ["n1"]


def test_what_is_not_lent_stays_idle_on_nodes_that_take_new_work() -> None:
    world = World(FILE)
    world.tell(set_quotas(share("ada", 8, lends=False), share("bob")), joined("n1"), joined("n2"))
    world.tell(Cordon(cell=CELL, node="n2"), admitted(spec_of("guest", 1, tenant="bob")))
    assert why(world, "guest") is PendingReason.QUOTA_REACHED
    world.tell(admitted(spec_of("own", 8), 1))
    assert world.nodes_of("own") == ["n1"]
    world.tell(Uncordon(cell=CELL, node="n2"))
    assert world.nodes_of("guest") == ["n2"]
    world.check()


def kept_nodes(cell: Cell) -> list[list[str]]:
    return [sorted({place.node for place in each.places}) for each in cell.world.state.tree.kept.all]


def test_what_is_kept_for_two_owners_is_kept_twice() -> None:
    cell = Cell(nodes=2, placement="spread")
    cell.fill(SMALL, 8)
    cell.world.tell(admitted(spec_of("own", 8, pools=("train",)), 2))
    cell.world.tell(admitted(spec_of("other", 8, pools=("train",), tenant="eve"), 3))
    assert sorted(kept_nodes(cell)) == [["n1"], ["n2"]]


def test_nobody_joins_a_node_that_is_kept_for_an_owner_who_is_alone_on_it() -> None:
    cell = Cell(nodes=1)
    cell.fill(SMALL, 4)
    cell.world.tell(admitted(spec_of("own", 2, pools=("train",), exclusive=True), 2))
    ran = cell.lend(SMALL, 20)
    assert cell.at == ["n1"]
    assert len(ran) <= 4


def test_a_guest_who_is_alone_on_its_node_takes_none_of_which_a_part_is_kept() -> None:
    cell = Cell(nodes=2)
    cell.world.tell(set_quotas(share("ada", 16), share("bob"), share("eve", 0)))
    cell.fill(SMALL, 8)
    cell.world.tell(admitted(spec_of("own", 5, workers=2, pools=("train",)), 2))
    assert why(cell.world, "own") is not None
    cell.world.tell(admitted(spec_of("guest", 1, tenant="bob", pools=("train",), exclusive=True), 3))
    assert why(cell.world, "guest") is PendingReason.RESERVED_FOR_OTHER


def test_for_one_owner_places_are_kept_for_eight_kinds_of_jobs_and_no_more() -> None:
    cell = Cell(nodes=2)
    cell.world.tell(set_quotas(share("ada", 16), share("bob"), share("eve", 0)))
    cell.fill(SMALL, 16)
    kinds = [spec_of(f"own-{number}", pools=("train",), tolerations=(f"taint-{number}",)) for number in range(10)]
    cell.world.tell(*(admitted(spec, 2) for spec in kinds))
    assert len(cell.world.state.tree.kept.all) == KINDS_MAX


def test_of_the_jobs_of_a_kind_it_is_the_largest_for_which_places_are_kept() -> None:
    cell = Cell(nodes=3, placement="spread")
    cell.fill(SMALL, 23)
    cell.world.tell(
        admitted(spec_of("small", 2, pools=("train",)), 2), admitted(spec_of("own", 8, pools=("train",)), 3)
    )
    assert [each.owners for each in cell.world.state.tree.kept.all] == [((("ada", "gpu"), 8_000),)]
