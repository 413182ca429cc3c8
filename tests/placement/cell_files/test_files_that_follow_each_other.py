"""Whatever cell file comes behind another one, its quotas come into force as it says, however it comes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.placement.decision import decision_room
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events import effects as e
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World, admitted, joined, spec_of

NAMES, TYPES = ("ada", "bob", "cy", "dan", "eve"), ("gpu", "other")
CELLS = (CellPart(name=CELL, ordinal=0, pools=tuple(Pool(name=name, gpus=1_000, gpu_type=name) for name in TYPES)),)


def file_of(*tenants: Tenant) -> CellFile:
    return CellFile(cells=CELLS, tenants=tenants)


def quota_of(draw: st.DrawFn, gpu_type: str, below: int) -> TenantQuota:
    """One whose children are guaranteed so much together, or that has none."""
    guaranteed = draw(st.sampled_from([0, below, below + 2]))
    least = max(guaranteed, below)
    return TenantQuota(gpu_type=gpu_type, guaranteed=guaranteed, limit=draw(st.sampled_from([None, least, least + 1])))


@st.composite
def files(draw: st.DrawFn) -> CellFile:
    """Some of the names, some of them below others, with quotas that leave no room beside them."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    top = names[: draw(st.integers(1, len(names)))]
    parents = {name: draw(st.none() | st.sampled_from(top)) for name in names[len(top) :]}
    together: dict[tuple[str | None, str], int] = {}
    tenants = []
    for name in reversed(names):
        quotas = []
        for gpu_type in draw(st.sampled_from([TYPES, TYPES[:1], ()])):
            quota = quota_of(draw, gpu_type, together.get((name, gpu_type), 0))
            above = parents.get(name), gpu_type
            together[above] = together.get(above, 0) + max(quota.guaranteed, together.get((name, gpu_type), 0))
            quotas.append(quota)
        tenants.append(Tenant(name=name, parent=parents.get(name), quotas=tuple(quotas)))
    return file_of(*draw(st.permutations(tenants)))


def put(world: World, file: CellFile, *, by_reload: bool) -> None:
    world.file = file
    if by_reload:
        world.service.reload(file)
        world.rest()
    else:
        world.restart()


def child(name: str) -> CellFile:
    lab = Tenant(name="dan", quotas=(TenantQuota(guaranteed=8, limit=8),))
    return file_of(lab, Tenant(name=name, parent="dan", quotas=(TenantQuota(guaranteed=8),)))


@given(
    before=files(),
    after=files(),
    ways=st.tuples(st.booleans(), st.booleans()),
    room=st.sampled_from([1, 200, 600, 400_000]),
    working=st.lists(st.sampled_from(NAMES), max_size=2),
)
@example(before=child("ada"), after=child("bob"), ways=(True, True), room=1, working=[])
@example(before=child("ada"), after=child("bob"), ways=(False, False), room=400_000, working=["ada"])
def test_each_file_sets_all_of_its_quotas_and_those_of_others_guarantee_nothing(
    before: CellFile, after: CellFile, ways: tuple[bool, bool], room: int, working: list[str]
) -> None:
    """By a reload or by another writer, in one record or several, and back again to the first file."""
    named = {tenant.name for tenant in before.tenants}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decision_room, "BYTES_MAX", room)
        world = World(before)
        world.tell(joined("n1", 1))
        world.tell(
            *(admitted(spec_of(f"{name}/{at}", tenant=name)) for at, name in enumerate(working) if name in named)
        )
        for file, by_reload in zip((after, before), ways, strict=True):
            put(world, file, by_reload=by_reload)
            all_of = {(quota.tenant, quota.gpu_type): quota for quota in file.quotas()}
            assert {account: world.state.quotas.get(account) for account in all_of} == all_of
            left = {at: quota for at, quota in world.state.quotas.items() if at not in all_of}
            assert all(needs(world, at, quota) for at, quota in left.items()), left
            reaches("a quota of a tenant that is gone stays, as its jobs live", bool(left))
    made = [effect for each in world.decisions for effect in each.effects]
    assert not any(isinstance(effect, e.ProposalRefused) for effect in made)
    reaches("a quota is removed", any(isinstance(effect, e.QuotaRemoved) for effect in made))
    world.check()


def needs(world: World, account: Account, quota: Quota) -> bool:
    """Whether something needs a quota that the file has not, and it guarantees nothing."""
    lives = any(job.spec.tenant == account[0] for job in world.state.jobs.values())
    below = any((each.parent, each.gpu_type) == account for each in world.state.quotas.values())
    return quota.guaranteed_milli == 0 and (lives or below)
