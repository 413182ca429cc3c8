"""A quota that a cell file has set goes with the file, whichever comes and however; what a person has set stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.decision import decision_room
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.config import CellFile, Tenant, TenantQuota
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.operations import Quota, RemoveQuota, SetQuota
from tests.hypothesis_profile import reaches
from tests.placement.cell_files.test_files_that_follow_each_other import NAMES, TYPES, file_of, files, needs, put
from tests.placement.cell_files.test_settings import file_with, texts
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, quota, set_quotas, spec_of, started


class Step(NamedTuple):
    """A file that comes, by a reload or with another writer; or a weight that a person sets."""

    file: CellFile | None = None
    by_reload: bool = True
    account: Account = ("", "")


def comes(file: CellFile, by_reload: bool) -> Step:
    return Step(file, by_reload)


def weighs(tenant: str, gpu_type: str) -> Step:
    return Step(account=(tenant, gpu_type))


STEPS = st.lists(
    st.builds(comes, files(), st.booleans()) | st.builds(weighs, st.sampled_from(NAMES), st.sampled_from(TYPES)),
    min_size=2,
    max_size=7,
)


@given(
    first=files(),
    steps=STEPS,
    room=st.sampled_from([1, 300, 400_000]),
    working=st.lists(st.sampled_from(NAMES), max_size=2),
)
def test_quotas_of_files_go_with_the_files_and_those_of_people_stay(
    first: CellFile, steps: list[Step], room: int, working: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decision_room, "BYTES_MAX", room)
        world, people = World(first), People(first)
        world.tell(joined("n1", 1), *_jobs_of(first, working))
        for step in steps:
            if step.file is None:
                if not texts(world.tell(_weighs(step.account))):
                    people.set(step.account)
                continue
            before = dict(world.state.quotas)
            put(world, step.file, by_reload=step.by_reload)
            people.see(step.file, world, by_reload=step.by_reload)
            _hold(world, step.file, before, people)
    world.check()


def _jobs_of(file: CellFile, working: Sequence[str]) -> list[JobAdmitted]:
    named = {tenant.name for tenant in file.tenants}
    return [admitted(spec_of(f"{name}/{at}", tenant=name)) for at, name in enumerate(working) if name in named]


def _weighs(account: Account) -> SetQuota:
    wanted = Quota(tenant=account[0], gpu_type=account[1], weight=7)
    return SetQuota(cell=CELL, quotas=(wanted,), fields=("weight",))


class People:
    """What people have set that no file has set since, and whether any file had such a quota."""

    def __init__(self, file: CellFile) -> None:
        self.known = {tenant.name for tenant in file.tenants}
        self._had = {(each.tenant, each.gpu_type) for each in file.quotas()}
        self._in_force = self._had
        self.set_by: dict[Account, bool] = {}

    def set(self, account: Account) -> None:
        self.set_by[account] = self.set_by.get(account, account in self._had)

    def see(self, file: CellFile, world: World, *, by_reload: bool) -> None:
        names, all_of = {tenant.name for tenant in file.tenants}, {(q.tenant, q.gpu_type) for q in file.quotas()}
        gone = self.known - names
        self._had = {at for at in self._had | all_of if at in world.state.quotas}
        for account, was_of_file in list(self.set_by.items()):
            is_of_file = account in all_of or was_of_file or account in self._in_force
            if (by_reload and account[0] in names and is_of_file) or account[0] in gone:
                del self.set_by[account]
        self._in_force = all_of
        self.known = names


def _hold(world: World, file: CellFile, before: dict[Account, Quota], people: People) -> None:
    all_of = {(each.tenant, each.gpu_type): each for each in file.quotas()}
    parents = {tenant.name: tenant.parent for tenant in file.tenants}
    refused = any(isinstance(effect, e.ProposalRefused) for each in world.decisions for effect in each.effects)
    for account, now in world.state.quotas.items():
        if account in people.set_by:
            assert now == before[account], "what a person has set stays"
        elif account in all_of:
            assert now == all_of[account] or refused, "the rest is as the file says"
        else:
            assert needs(world, account, now), "nothing is left that nobody needs"
            if account[0] in parents:
                # Below what a person has set it may close a circle, and stays where it stood.
                parent = now.parent if people.set_by else parents[account[0]]
                assert now == Quota(tenant=account[0], gpu_type=account[1], parent=parent)
    missing = all_of.keys() - world.state.quotas.keys()
    assert not missing
    reaches("a person's quota stands beside a file's", bool(people.set_by))
    reaches("a quota is left by an earlier file", bool(world.state.quotas.keys() - all_of - people.set_by.keys()))


def one(*, guaranteed: int = 0, limit: int | None = None, weight: int = 1) -> CellFile:
    row = TenantQuota(guaranteed=guaranteed, limit=limit, weight=weight)
    return file_with(Tenant(name="ada", quotas=(row,)), Tenant(name="bob"))


@pytest.mark.parametrize("taken_to", [0, 1, 2])
@pytest.mark.parametrize(
    "other",
    [one(guaranteed=4, limit=8), one(guaranteed=4, limit=9), one(guaranteed=4, limit=8, weight=2)],
    ids=["the same", "another limit", "another weight"],
)
def test_a_guarantee_that_a_person_lowered_stays_whatever_else_of_its_row_a_later_writers_file_changes(
    taken_to: int, other: CellFile
) -> None:
    world = World(one(guaranteed=4, limit=8))
    lowered = replace(quota("ada", 8), guaranteed_milli=taken_to * 1_000)
    world.tell(set_quotas(lowered))
    told = len(world.decisions)
    put(world, other, by_reload=False)
    assert world.state.quotas["ada", "gpu"] == lowered
    assert not any(texts(each.effects) for each in world.decisions[told:])


def test_a_quota_that_was_changed_at_run_time_and_that_a_restarts_file_drops_goes_with_the_next_reload() -> None:
    world = World(one(limit=8))
    world.tell(set_quotas(quota("ada", 2)))
    without = file_with(Tenant(name="ada"), Tenant(name="bob"))
    put(world, without, by_reload=False)
    assert world.state.quotas["ada", "gpu"] == quota("ada", 2)
    put(world, without, by_reload=True)
    assert ("ada", "gpu") not in world.state.quotas


@pytest.mark.parametrize("by_reload", [True, False])
def test_a_tenant_that_is_back_has_the_quotas_of_the_file_with_which_it_comes_back(*, by_reload: bool) -> None:
    """Whether its jobs live or not, and whether that file has any quota of it."""
    for limit in (None, 5):
        world = World(one(limit=9))
        world.tell(joined("n1", 1), admitted(spec_of("ada/1", tenant="ada")))
        put(world, file_with(Tenant(name="bob")), by_reload=by_reload)
        assert world.state.quotas["ada", "gpu"] == quota("ada", 9)
        back = file_with(Tenant(name="ada"), Tenant(name="bob")) if limit is None else one(limit=limit)
        put(world, back, by_reload=by_reload)
        assert world.state.quotas["ada", "gpu"] == quota("ada", limit)


def test_a_quota_of_a_tenant_that_is_gone_goes_with_the_first_file_or_writer_behind_its_last_job() -> None:
    """Until then its limit counts, where it stands."""
    world = World(one(guaranteed=4, limit=9))
    world.tell(joined("n1", 1), admitted(spec_of("ada/1", tenant="ada")))
    gone = file_with(Tenant(name="bob"))
    put(world, gone, by_reload=True)
    assert world.state.quotas["ada", "gpu"] == quota("ada", 9)
    world.tell(started("ada/1"), finished("ada/1"))
    assert ("ada", "gpu") in world.state.quotas
    world.restart()
    assert world.state.quotas == {}


def test_a_limit_that_a_person_sets_in_a_quota_that_a_file_has_left_empty_goes_with_the_next_reload() -> None:
    """The quota is the file's still, as a job of its tenant lived when the file dropped it."""
    world = World(one(limit=8))
    world.tell(joined("n1", 1), admitted(spec_of("ada/1", tenant="ada")))
    without = (Tenant(name="ada"), Tenant(name="bob"))
    put(world, file_with(*without), by_reload=True)
    world.tell(set_quotas(quota("ada", 2)))
    put(world, file_with(*without, Tenant(name="cy")), by_reload=False)
    assert world.state.quotas["ada", "gpu"] == quota("ada", 2)
    put(world, file_with(*without, Tenant(name="cy")), by_reload=True)
    assert world.state.quotas["ada", "gpu"] == quota("ada", None)


def test_what_a_person_sets_of_a_tenant_that_is_gone_stays() -> None:
    world = World(file_with(Tenant(name="bob")))
    world.tell(set_quotas(quota("lab", 4)))
    for by_reload in (False, True):
        put(world, file_of(Tenant(name="bob"), Tenant(name="cy")), by_reload=by_reload)
        assert world.state.quotas["lab", "gpu"] == quota("lab", 4)
    world.tell(RemoveQuota(cell=CELL, tenant="lab"))
    assert not world.state.quotas
    assert not world.state.quotas_of_file


def test_a_quota_that_contradicted_has_its_guarantee_with_the_first_writer_behind_what_contradicted_it() -> None:
    lab = Tenant(name="lab", quotas=(TenantQuota(guaranteed=8, limit=8),))
    world = World(file_with(lab))
    world.tell(set_quotas(replace(quota("guest", None, parent="lab"), guaranteed_milli=6_000)))
    put(world, file_with(lab, Tenant(name="ada", parent="lab", quotas=(TenantQuota(guaranteed=4),))), by_reload=True)
    assert world.state.quotas["ada", "gpu"].guaranteed_milli == 0
    world.tell(RemoveQuota(cell=CELL, tenant="guest"))
    world.restart()
    assert world.state.quotas["ada", "gpu"].guaranteed_milli == 4_000


def test_a_snapshot_tells_which_quotas_a_file_has_set() -> None:
    world = World(one(limit=8))
    world.tell(set_quotas(quota("guest", 1)))
    put(world, file_with(*one(limit=8).tenants, Tenant(name="cy", quotas=(TenantQuota(limit=3),))), by_reload=True)
    world.tell(set_quotas(quota("cy", 2)))
    again = state_from(rows_of(world.state))
    assert again.quotas_of_file == world.state.quotas_of_file == {("ada", "gpu"): True, ("cy", "gpu"): False}
    assert list(again.quotas) == list(world.state.quotas)
    assert '["quota",{"tenant":"guest","gpu_type":"gpu","limit_milli":1000}]' in rows_of(again)
