"""Admission refuses for its quotas just what placement never starts, in a cell with all nodes of its file."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.admission.policy.ceilings import Ceilings
from fallow.services.admission.policy.resolve import Home
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World, admitted, joined

TYPES = ("a100", "h100")
GPUS = 4


@st.composite
def some_tenants(draw: st.DrawFn) -> tuple[Tenant, ...]:
    """Two tenants with limits, guarantees that are lent or not, and rights to borrow, of both types."""
    found = []
    for name in ("ada", "bob"):
        quotas, is_tight = [], draw(st.booleans())
        for gpu_type in TYPES:
            guaranteed = draw(st.integers(0, GPUS // 2))
            limit = draw(
                st.integers(guaranteed, GPUS // 2) if is_tight else st.none() | st.integers(guaranteed, GPUS + 1)
            )
            lends, borrows = draw(st.booleans()), draw(st.booleans())
            quotas.append(
                TenantQuota(gpu_type=gpu_type, guaranteed=guaranteed, limit=limit, lends=lends, borrows=borrows)
            )
        found.append(Tenant(name=name, quotas=tuple(quotas) if is_tight or draw(st.booleans()) else ()))
    return tuple(found)


def limited(gpus: int) -> tuple[Tenant, ...]:
    quotas = tuple(TenantQuota(gpu_type=gpu_type, limit=gpus) for gpu_type in TYPES)
    return (Tenant(name="ada", quotas=quotas), Tenant(name="bob"))


@given(
    some_tenants(),
    st.sampled_from([JobKind.TRAINING, JobKind.INFERENCE]),
    st.integers(1, GPUS) | st.integers(1, 2 * GPUS),
    st.sampled_from([500, 1_000, 2_000]),
    st.booleans(),
)
@example(limited(2), JobKind.INFERENCE, 3, 1_000, True)
@example(limited(3), JobKind.INFERENCE, 3, 2_000, True)
def test_admission_refuses_for_quotas_just_what_placement_never_starts(
    tenants: tuple[Tenant, ...], kind: JobKind, workers: int, each_milli: int, is_preemptible: bool
) -> None:
    pools = tuple(Pool(name=gpu_type, gpus=GPUS, gpus_per_node=GPUS, gpu_type=gpu_type) for gpu_type in TYPES)
    part = CellPart(name=CELL, ordinal=0, pools=pools, queues=(Queue(name="default"),))
    file = CellFile(cells=(part,), tenants=tenants)
    is_service = kind is JobKind.INFERENCE
    spec = JobSpec(
        id="job",
        tenant="ada",
        kind=kind,
        gang=not is_service,
        workers=workers,
        workers_min=workers if is_service else None,
        preemptible=is_preemptible,
        resources=Resources(gpu_milli=each_milli),
    )
    world = World(file)
    world.tell(*(joined(gpu_type, GPUS, pool=gpu_type, gpu_type=gpu_type) for gpu_type in TYPES))
    world.tell(admitted(spec))
    room = workers * each_milli <= (2 if is_service else 1) * GPUS * 1_000
    is_let_in = Ceilings(file).rejection(spec, Home(part, "default", pools), pools) is None
    reaches("there is room for a job that quotas keep out", room and not is_let_in)
    assert bool(world.job("job").workers) is (room and is_let_in)
