"""What quotas can never let start: it is what they do not let start in a cell where nothing else is in use."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.fields.values import Level, TopologyRequest, Wish
from fallow.shared.events.operations import CellPolicy, Cordon, Drain, Quota, Uncordon
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World, admitted, cell_with, finished, joined, set_quotas, spec_of

GPUS = 16
TENANTS = ("ada", "bob", "eve", "kid")
STRICT, BACKFILL = QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL


def cell_of(*quotas: Quota, discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO) -> World:
    """A cell of one node, where heads are due at once."""
    queues = (Queue(name="first", discipline=discipline), Queue(name="second"))
    pools, policy = (Pool(name="train", gpus=GPUS, gpus_per_node=GPUS),), CellPolicy(backfill_wait_ms=0)
    part = CellPart(name=CELL, ordinal=0, pools=pools, queues=queues, policy=policy)
    tenants = tuple(Tenant(name=name, parent="bob" if name == "kid" else None) for name in TENANTS)
    world = World(CellFile(cells=(part,), tenants=tenants))
    world.tell(joined("n1", GPUS))
    if quotas:
        world.tell(set_quotas(*quotas))
    return world


@st.composite
def some_quotas(draw: st.DrawFn) -> tuple[Quota, ...]:
    """Quotas of some tenants, with every rule of lending and borrowing."""
    milli = st.none() | st.integers(0, GPUS).map(lambda gpus: gpus * 1_000)
    found = []
    for tenant in draw(st.lists(st.sampled_from(TENANTS), unique=True, max_size=4)):
        guaranteed = draw(st.integers(0, 6)) * 1_000
        limit = draw(milli)
        found.append(
            Quota(
                tenant=tenant,
                gpu_type="gpu",
                parent="bob" if tenant == "kid" else None,
                guaranteed_milli=guaranteed,
                limit_milli=None if limit is None else max(limit, guaranteed),
                borrow_limit_milli=draw(milli),
                lend_limit_milli=draw(milli),
                borrows=draw(st.booleans()),
                lends=draw(st.booleans()),
            )
        )
    return tuple(found)


@given(some_quotas(), st.sampled_from(TENANTS), st.integers(1, GPUS), st.booleans())
@example((Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=2_000, lends=False),), "ada", 16, True)
@example((Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=2_000),), "ada", 16, False)
def test_alone_in_its_cell_a_job_starts_just_if_quotas_may_ever_let_it(
    quotas: tuple[Quota, ...], tenant: str, gpus: int, is_preemptible: bool
) -> None:
    world = cell_of(*quotas)
    world.tell(admitted(spec_of("job", gpus, tenant=tenant, queue="first", preemptible=is_preemptible)))
    reaches("quotas never let a job start", not world.job("job").workers)
    assert bool(world.job("job").workers) is is_ever_allowed(world.state, world.job("job"))


@pytest.mark.parametrize("discipline", [STRICT, BACKFILL])
@pytest.mark.parametrize("queue", ["first", "second"])
@pytest.mark.parametrize("is_lent", [True, False])
def test_a_job_for_which_others_would_have_to_give_up_what_is_theirs_for_good_keeps_nobody_back(
    discipline: QueueDiscipline, queue: str, is_lent: bool
) -> None:
    world = cell_of(Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=2_000, lends=is_lent), discipline=discipline)
    world.tell(admitted(spec_of("head", 16, queue="first", preemptible=not is_lent)))
    world.tell(admitted(spec_of("small", queue=queue)))
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    world.tell(admitted(spec_of("later", queue=queue)))
    world.tell(admitted(spec_of("of-bob", 2, tenant="bob", queue=queue)))
    world.tell(admitted(spec_of("last", queue=queue)))
    assert [world.nodes_of(job) for job in ("small", "later", "of-bob", "last")] == [["n1"]] * 4


@pytest.mark.parametrize("closes", [Cordon, Drain])
@pytest.mark.parametrize("discipline", [STRICT, BACKFILL])
@pytest.mark.parametrize("is_lent", [True, False])
def test_a_job_that_quotas_allow_only_with_closed_nodes_keeps_nobody_back_until_they_open(
    discipline: QueueDiscipline, is_lent: bool, closes: type[Cordon | Drain]
) -> None:
    world = cell_of(Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=16_000, lends=is_lent), discipline=discipline)
    world.tell(joined("n2", GPUS), closes(cell=CELL, node="n2"))
    world.tell(admitted(spec_of("head", 8, queue="first", preemptible=not is_lent)))
    if not is_lent:
        world.tell(set_quotas(Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=12_000, lends=False)))
    world.tell(admitted(spec_of("small", 2, queue="first")))
    world.tell(admitted(spec_of("later", 2, queue="first")))
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    assert [world.nodes_of(job) for job in ("small", "later")] == [["n1"]] * 2
    world.tell(Uncordon(cell=CELL, node="n2"))
    assert world.job("head").workers


def test_a_job_whose_allowed_gpu_type_is_on_closed_nodes_alone_keeps_nobody_back() -> None:
    world = cell_of(Quota(tenant="ada", gpu_type="gpu", limit_milli=2_000), discipline=STRICT)
    world.tell(joined("a1", GPUS, gpu_type="a100"), Cordon(cell=CELL, node="a1"))
    world.tell(admitted(spec_of("head", 8, queue="first")))
    world.tell(admitted(spec_of("small", queue="first")))
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    assert world.nodes_of("small") == ["n1"]
    world.tell(Uncordon(cell=CELL, node="a1"))
    assert world.nodes_of("head") == ["a1"]


def test_a_gang_in_slices_that_each_need_one_node_is_held_by_as_many_nodes_that_are_alike() -> None:
    world = cell_with(joined("n1", 2), joined("n2", 2))
    wish = TopologyRequest(level=Level.NODE, wish=Wish.REQUIRED, slice_workers=2)
    world.run(spec_of("runs"))
    world.tell(admitted(spec_of("more", 1, 6, topology=wish)), admitted(spec_of("gang", 1, 4, topology=wish)))
    assert world.job("more").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("gang").deferred is not PendingReason.NO_SUCH_NODES
    world.tell(finished("runs", world.nodes_of("runs")[0]))
    assert sorted(place.node for place in world.job("gang").workers) == ["n1", "n1", "n2", "n2"]


@pytest.mark.parametrize("discipline", [STRICT, BACKFILL])
def test_a_gang_that_quotas_keep_to_one_of_a_pools_types_which_is_too_small_keeps_nobody_back(
    discipline: QueueDiscipline,
) -> None:
    """Both types together would hold it, were it not for what is guaranteed of one to another tenant."""
    world = cell_of(discipline=discipline)
    quota = Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=12_000, lends=False)
    world.tell(joined("a1", GPUS, gpu_type="a100"), set_quotas(quota))
    world.tell(admitted(spec_of("head", 8, 3, queue="first")), admitted(spec_of("small", queue="first")))
    assert not world.job("head").workers
    world.tell(admitted(spec_of("later", queue="first", gpu_type="gpu")))
    assert world.nodes_of("small")
    assert world.nodes_of("later") == ["n1"]
