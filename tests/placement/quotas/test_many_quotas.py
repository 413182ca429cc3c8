"""How many quotas a cell takes, and that what is done with them costs no more the more others there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fallow.services.placement.decision.decision import STEPS_MAX
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota, count_quotas
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.rules import QUOTAS_MAX
from fallow.shared.cluster.quota.tree import QuotaTree
from fallow.shared.events import effects as e
from fallow.shared.events.operations import Quota, RemoveQuota, SetQuota
from tests.placement.worlds.world import CELL, World, admitted, kinds, spec_of


def file_of(types: int, *tenants: Tenant) -> CellFile:
    pools = tuple(Pool(name=f"p{number}", gpu_type=f"t{number}", gpus=1_000) for number in range(types))
    return CellFile(cells=(CellPart(name=CELL, ordinal=0, pools=pools),), tenants=tenants)


def family(types: int, tenants: int, name: str = "a") -> tuple[Tenant, ...]:
    """A group with a quota of each type, and so many tenants below it that name none."""
    quotas = tuple(TenantQuota(gpu_type=f"t{number}", guaranteed=1) for number in range(types))
    below = (Tenant(name=f"{name}{number}", parent="org") for number in range(tenants))
    return (Tenant(name="org", quotas=quotas), *below)


def of_types(first: int, count: int, tenant: str = "ada") -> tuple[Quota, ...]:
    return tuple(Quota(tenant=tenant, gpu_type=f"{number:x}") for number in range(first, first + count))


def world_with(*tenants: Tenant, types: int = 1) -> World:
    world = World(file_of(types, *tenants))
    world.checks = False
    world.rest()
    return world


def texts(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, e.ProposalRefused)]


# The bound.


def test_a_file_of_eight_gpu_types_and_two_thousand_tenants_is_taken() -> None:
    assert len(file_of(8, *family(8, 1_999)).quotas()) == 16_000


def test_a_file_of_more_quotas_than_a_cell_takes_is_refused_with_both_figures_before_they_are_made() -> None:
    tenants = family(300, 5_000)
    why = "a tenant has one of its own of each GPU type of which a tenant above it has one"
    said = f"tenants: together they have 1500300 quotas ({why}): a cell takes at most 20000"
    with pytest.raises(ValueError, match="together they have") as refused:
        file_of(1, *tenants)
    assert said in str(refused.value)


def test_what_is_counted_is_what_is_made() -> None:
    own, other = (TenantQuota(gpu_type="t0"),), (TenantQuota(gpu_type="t1"), TenantQuota(gpu_type="t0"))
    tenants = (
        Tenant(name="low", parent="mid", quotas=other),
        Tenant(name="top", quotas=own),
        Tenant(name="mid", parent="top"),
        Tenant(name="lowest", parent="low"),
        Tenant(name="beside", parent="top", quotas=other[:1]),
        Tenant(name="alone"),
    )
    assert count_quotas(tenants) == len(file_of(2, *tenants).quotas()) == 8


def full() -> World:
    """A cell that takes three quotas more."""
    world = world_with(Tenant(name="ada"), Tenant(name="bob"))
    for first in range(0, QUOTAS_MAX - 3, 4_000):
        world.tell(SetQuota(cell=CELL, quotas=of_types(first, min(4_000, QUOTAS_MAX - 3 - first))))
    assert len(world.state.quotas) == QUOTAS_MAX - 3
    return world


def test_an_operation_that_would_bring_more_is_refused_as_a_whole_with_both_figures() -> None:
    world = full()
    refused = world.tell(SetQuota(cell=CELL, quotas=of_types(0, 4, "bob")))
    assert texts(refused) == [f"the cell would have {QUOTAS_MAX + 1} quotas, it takes at most {QUOTAS_MAX}"]
    assert kinds(world.tell(SetQuota(cell=CELL, quotas=of_types(0, 3, "bob")))) == ["QuotaSet"] * 3
    changed = Quota(tenant="bob", gpu_type="0", weight=2)
    assert kinds(world.tell(SetQuota(cell=CELL, quotas=(changed,)))) == ["QuotaSet"]  # it is there already


def test_a_reload_sets_all_quotas_of_its_file_also_beside_as_many_as_a_cell_takes() -> None:
    world = full()
    world.service.reload(file_of(8, *family(8, 0), Tenant(name="ada"), Tenant(name="bob")))
    reloaded = world.rest()
    assert (texts(reloaded), kinds(reloaded).count("QuotaSet")) == ([], 8)
    assert kinds(reloaded)[-1] == "CellFileSet"
    assert kinds(world.tell(SetQuota(cell=CELL, quotas=of_types(0, 1, "bob")))) == ["ProposalRefused"]


def test_a_reload_that_names_most_tenants_otherwise_sets_the_quotas_of_all() -> None:
    """Those of the tenants that go are removed before that."""
    stay, go, come = family(8, 1_875), family(8, 624, "go"), family(8, 624, "come")
    world = world_with(*stay, *go[1:], types=8)
    file = file_of(8, *stay, *come[1:])
    world.service.reload(file)
    assert texts(world.rest()) == []
    assert world.state.quotas.keys() == {(quota.tenant, quota.gpu_type) for quota in file.quotas()}


def test_a_removal_that_no_record_holds_is_refused_with_its_size() -> None:
    world = world_with(Tenant(name="ada"))
    for first in (0, 4_000, 8_000):
        world.tell(SetQuota(cell=CELL, quotas=of_types(first, 4_000)))
    refused = texts(world.tell(RemoveQuota(cell=CELL, tenant="ada")))
    assert refused[0].startswith("12000 removals need ")
    assert refused[0].endswith("a decision takes 400000: remove the quotas of one GPU type after the other")
    assert kinds(world.tell(RemoveQuota(cell=CELL, tenant="ada", gpu_type="1f"))) == ["QuotaRemoved"]


# What it costs.


class Walked(dict[Any, Any]):
    """Quotas that count how often a caller goes over all of them."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def watch(state: CellState) -> Walked:
    state.quotas = quotas = Walked(state.quotas)
    state.tree = QuotaTree(quotas, state.usage)
    return quotas


@pytest.mark.parametrize("count", [20, 500])
def test_quotas_of_many_types_are_set_and_removed_by_as_many_walks_as_those_of_few(count: int) -> None:
    world = world_with(Tenant(name="ada"))
    quotas = watch(world.state)
    world.tell(SetQuota(cell=CELL, quotas=of_types(0, count)))
    world.tell(RemoveQuota(cell=CELL, tenant="ada"))
    assert not quotas
    assert quotas.walks < 20


def test_a_reader_goes_over_all_quotas_once_however_many_are_removed() -> None:
    state = CellState(CELL)
    for each in of_types(0, 500):
        apply(state, e.QuotaSet(quota=each), 0)
    quotas = watch(state)
    for each in of_types(0, 500):
        apply(state, e.QuotaRemoved(tenant=each.tenant, gpu_type=each.gpu_type), 0)
    assert quotas.walks == 1


def test_an_operation_counts_what_the_rules_cost_among_the_quotas_of_its_type() -> None:
    world = world_with(Tenant(name="ada"))
    world.tell(SetQuota(cell=CELL, quotas=of_types(0, 2_000)))
    each = [SetQuota(cell=CELL, quotas=(Quota(tenant="ada", gpu_type="0", weight=weight),)) for weight in range(2, 42)]
    world.hand_over(*each)
    known = len(world.decisions)
    world.rest()
    sets = [kinds(decision.effects).count("QuotaSet") for decision in world.decisions[known:]]
    assert max(sets) <= STEPS_MAX // (5 * 2_000) < sum(sets)


def test_a_decision_on_quotas_may_take_long() -> None:
    world = world_with(Tenant(name="ada"))
    world.tell(admitted(spec_of("ada/job", tenant="ada")))
    assert not world.service.may_decide_long
    world.hand_over(SetQuota(cell=CELL, quotas=of_types(0, 1)))
    assert world.service.may_decide_long
