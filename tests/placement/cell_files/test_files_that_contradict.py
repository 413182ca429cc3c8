"""Cell files whose quotas contradict those of before, or those of run time: in what order, and what is told."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fallow.services.placement.decision import decision_room
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import RemoveQuota
from tests.placement.cell_files.test_files_that_follow_each_other import put
from tests.placement.cell_files.test_settings import family, file_with, texts
from tests.placement.worlds.world import CELL, World, admitted, joined, quota, set_quotas, spec_of


def put_anew(world: World, file: CellFile) -> list[e.AnyEffect]:
    world.file = file
    world.service.reload(file)
    return world.rest()


@pytest.mark.parametrize("is_working", [True, False])
def test_what_a_file_has_no_more_guarantees_nothing_before_its_own_quotas_are_set(*, is_working: bool) -> None:
    """No record between says that more is guaranteed than there is."""
    world = World(family(("ada", 8)))
    world.tell(joined("n1", 1))
    if is_working:
        world.tell(admitted(spec_of("ada/1", tenant="ada")))
    made = put_anew(world, family(("bob", 8)))
    of_bob = made.index(
        e.QuotaSet(quota=replace(quota("bob", None, parent="lab"), guaranteed_milli=8_000), of_file=True)
    )
    lost: e.AnyEffect = e.QuotaRemoved(tenant="ada", gpu_type="gpu")
    if is_working:
        lost = e.QuotaSet(quota=quota("ada", None, parent="lab"), of_file=True)
    assert made.index(lost) < of_bob


def test_a_quota_that_a_file_drops_guarantees_nothing_before_those_that_it_has_are_set_either() -> None:
    """Its tenant stays, and stands elsewhere."""
    lab = Tenant(name="lab", quotas=(TenantQuota(guaranteed=8),))
    limited = TenantQuota(guaranteed=8, limit=8)
    world = World(file_with(lab, Tenant(name="top"), Tenant(name="ada", parent="lab", quotas=(limited,))))
    world.tell(joined("n1", 1), admitted(spec_of("ada/1", tenant="ada")))
    bob = Tenant(name="bob", parent="lab", quotas=(TenantQuota(guaranteed=8),))
    made = put_anew(world, file_with(lab, Tenant(name="top"), Tenant(name="ada", parent="top"), bob))
    set_one_by_one = [(each.quota.tenant, each.quota.guaranteed_milli) for each in made if isinstance(each, e.QuotaSet)]
    assert set_one_by_one == [("ada", 0), ("bob", 8_000), ("ada", 0)]
    assert world.state.quotas["ada", "gpu"] == quota("ada", None, parent="top")


@pytest.mark.parametrize("more", [(), (("bob", 1),)])
def test_a_guarantee_that_an_operator_took_stays_taken_when_another_writer_comes(
    more: tuple[tuple[str, int], ...],
) -> None:
    """With the same file, or with one that says the same of it."""
    world = World(family(("ada", 4)))
    taken = quota("ada", None, parent="lab")
    world.tell(set_quotas(taken))
    world.file = family(("ada", 4), *more)
    world.restart()
    assert world.state.quotas["ada", "gpu"] == taken


def test_what_is_changed_of_a_quota_that_contradicted_comes_into_force_with_the_next_writer() -> None:
    world = World(family())
    world.tell(set_quotas(replace(quota("guest", None, parent="lab"), guaranteed_milli=6_000)))
    lab = family().tenants[0]
    for guaranteed, limit, sure in ((4, 4, 0), (2, 3, 2)):
        quotas = (TenantQuota(guaranteed=guaranteed, limit=limit),)
        world.file = file_with(lab, Tenant(name="ada", parent="lab", quotas=quotas))
        world.restart()
        wanted = replace(quota("ada", limit, parent="lab"), guaranteed_milli=sure * 1_000)
        assert world.state.quotas["ada", "gpu"] == wanted


@pytest.mark.parametrize("room", [300, 400_000])
def test_a_limit_below_what_is_guaranteed_below_it_at_run_time_is_told_once_however_many_records_a_file_needs(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_room, "BYTES_MAX", room)
    world = World(family())
    world.tell(set_quotas(replace(quota("guest", None, parent="lab"), guaranteed_milli=8_000)))
    others = [Tenant(name=f"t{number}", quotas=(TenantQuota(limit=1),)) for number in range(20)]
    before = world.state.version
    put_anew(world, file_with(Tenant(name="lab", quotas=(TenantQuota(limit=4),)), *others))
    made = [effect for each in world.decisions if each.version > before for effect in each.effects]
    assert len(texts(made)) == 1
    assert (world.state.version - before > 3) is (room == 300)
    restarted = len(world.decisions)
    world.restart()
    assert texts(effect for each in world.decisions[restarted:] for effect in each.effects) == []


def test_a_file_with_very_many_contradictions_comes_to_be_in_force_and_tells_of_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where more is to be done behind its quotas: a job of a tenant that goes is held."""
    monkeypatch.setattr(decision_room, "BYTES_MAX", 100_000)
    names = [f"t{number}" for number in range(900)]
    lab = Tenant(name="lab", quotas=(TenantQuota(guaranteed=900),))
    world = World(file_with(lab, Tenant(name="gone")))
    world.tell(set_quotas(replace(quota("guest", None, parent="lab"), guaranteed_milli=900_000)))
    world.tell(admitted(spec_of("gone/1", tenant="gone")))
    before = world.state.version
    file = file_with(lab, *(Tenant(name=name, parent="lab", quotas=(TenantQuota(guaranteed=1),)) for name in names))
    world.service.reload(file)
    world.tell(RemoveQuota(cell=CELL, tenant="guest"))
    made = [effect for each in world.decisions if each.version > before for effect in each.effects]
    assert world.state.version - before <= 4
    assert len(texts(made)) == 21
    assert texts(made)[-1] == "880 more quotas contradict others"
    assert world.job("gone/1").status is JobStatus.HELD
    assert ("guest", "gpu") not in world.state.quotas
    assert all(world.state.quotas[name, "gpu"].parent == "lab" for name in names)


def test_a_line_that_a_file_makes_too_deep_by_what_stands_below_it_at_run_time_is_told() -> None:
    world = World(file_with(Tenant(name="lab"), Tenant(name="ada")))
    line = ["ada", *(f"g{number}" for number in range(15))]
    world.tell(set_quotas(*(quota(name, None, parent=above) for above, name in pairwise(line))))
    limited = Tenant(name="ada", parent="lab", quotas=(TenantQuota(limit=9),))
    (told,) = texts(put_anew(world, file_with(Tenant(name="lab", quotas=(TenantQuota(limit=9),)), limited)))
    assert told == (
        "ada/gpu is set all the same: ada/gpu: parent 'lab': stands more than 16 levels deep, or others below it do"
    )
    guaranteed = Tenant(name="ada", parent="lab", quotas=(TenantQuota(guaranteed=1),))
    (told,) = texts(put_anew(world, file_with(Tenant(name="lab", quotas=(TenantQuota(limit=9),)), guaranteed)))
    assert told.startswith("ada/gpu is set without its guarantee: ada/gpu: parent 'lab': stands more than 16 levels")


@pytest.mark.parametrize("room", [1, 400_000])
def test_a_limit_beside_which_an_operator_took_the_guarantee_stays_where_a_file_without_it_comes_by_a_restart(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_room, "BYTES_MAX", room)
    sure = TenantQuota(guaranteed=4, limit=4)
    world = World(file_with(Tenant(name="ada", quotas=(sure,)), Tenant(name="bob", quotas=(sure,))))
    world.tell(joined("n1", 1), admitted(spec_of("bob/1", tenant="bob")))
    world.tell(set_quotas(quota("ada", 4)))
    world.file = file_with(Tenant(name="ada"), Tenant(name="bob"))
    world.restart()
    assert world.state.quotas == {("ada", "gpu"): quota("ada", 4), ("bob", "gpu"): quota("bob", None)}


def pools_of(gpus: int, *tenants: tuple[str, int]) -> CellFile:
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=gpus),))
    quotas = [(name, TenantQuota(guaranteed=guaranteed)) for name, guaranteed in tenants]
    return CellFile(cells=(part,), tenants=tuple(Tenant(name=name, quotas=(each,)) for name, each in quotas))


@pytest.mark.parametrize("by_reload", [True, False])
def test_a_file_that_guarantees_more_than_the_pools_have_beside_what_was_set_at_run_time_is_in_force_without_that(
    *, by_reload: bool
) -> None:
    """What fits beside that is in force as it says."""
    world = World(pools_of(64, ("ada", 30), ("bob", 4)))
    world.tell(set_quotas(replace(quota("lab", None), guaranteed_milli=30_000)))
    told = len(world.decisions)
    put(world, pools_of(64, ("ada", 60), ("bob", 3)), by_reload=by_reload)
    found = {name: world.state.quotas[name, "gpu"].guaranteed_milli for name in ("ada", "bob", "lab")}
    assert found == {"ada": 0, "bob": 3_000, "lab": 30_000}
    assert [text for each in world.decisions[told:] for text in texts(each.effects)] == [
        (
            "ada/gpu is set without its guarantee, for what was set at run time of lab: "
            "all tenants together would be guaranteed 93 of gpu, the pools have 64"
        )
    ]


@pytest.mark.parametrize("by_reload", [True, False])
def test_pools_that_a_file_makes_smaller_than_what_is_guaranteed_at_run_time_are_told(*, by_reload: bool) -> None:
    world = World(pools_of(64, ("bob", 4)))
    world.tell(set_quotas(replace(quota("lab", None), guaranteed_milli=60_000)))
    told = len(world.decisions)
    put(world, pools_of(48, ("bob", 4)), by_reload=by_reload)
    assert [text for each in world.decisions[told:] for text in texts(each.effects)] == [
        (
            "more is guaranteed than there is, for what was set at run time of lab: "
            "all tenants together would be guaranteed 64 of gpu, the pools have 48"
        )
    ]


def test_where_more_is_guaranteed_than_the_pools_have_a_person_may_change_what_makes_that_no_worse() -> None:
    world = World(pools_of(64, ("bob", 4)))
    world.tell(set_quotas(replace(quota("lab", None), guaranteed_milli=60_000)))
    put(world, pools_of(48, ("bob", 4)), by_reload=True)
    for guaranteed, is_taken in ((61, False), (60, True), (59, True), (60, False)):
        wanted = replace(quota("lab", None), guaranteed_milli=guaranteed * 1_000, weight=2)
        made = world.tell(set_quotas(wanted))
        assert (texts(made) == []) is is_taken
