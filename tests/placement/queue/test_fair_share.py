"""How much each tenant has, and whose turn it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.queue.fair_share import Share, Shares, totals_of
from fallow.services.placement.queue.fair_share_heap import FairShareHeap
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.fair_use import FairUse, Used
from fallow.shared.cluster.quota.quota import Account
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, cell_with, joined, lost

FILE = CellFile(
    cells=(
        CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=64), Pool(name="extra", gpu_type="big", gpus=8))),
    ),
    tenants=(Tenant(name="ada"),),
)
HALF_LIFE_MS = 693_147
HELD_MS = 1_000_000
"""Who always held the same has used it for so long."""


def state_of(*quotas: Quota, **held: int) -> CellState:
    """64 GPUs of type gpu and 8 of type big; tenants that hold so many GPUs of either, `big_x` for tenant x of big."""
    nodes = [joined(f"n{number}") for number in range(8)]
    state = cell_with(*nodes, joined("m1", pool="extra", gpu_type="big"), file=FILE).state
    state.quotas.update({(quota.tenant, quota.gpu_type): quota for quota in quotas})
    for name, gpus in held.items():
        account = (name.removeprefix("big_"), "big") if name.startswith("big_") else (name, "gpu")
        state.usage[account] = gpus * 1_000
    return state


def quota(tenant: str, parent: str | None = None, weight: int = 1, gpu_type: str = "gpu") -> Quota:
    return Quota(tenant=tenant, gpu_type=gpu_type, parent=parent, weight=weight)


def share(state: CellState, tenant: str, now_ms: int = 0) -> float:
    return Shares(state, now_ms).of(tenant).share / 10**9


def test_the_gpus_of_a_type_are_those_of_nodes_that_are_not_lost() -> None:
    world = cell_with(joined("n1"), joined("n2"), joined("m1", pool="extra", gpu_type="big"), file=FILE)
    assert totals_of(world.state) == (("big", 8_000), ("gpu", 16_000))
    world.tell(lost("n1"), lost("m1"))
    assert totals_of(world.state) == (("gpu", 8_000),)


def test_a_pool_may_have_gpus_of_several_types() -> None:
    world = cell_with(joined("n1"), joined("n2", gpu_type="big"), file=FILE)
    assert totals_of(world.state) == (("big", 8_000), ("gpu", 8_000))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, 0.0),
        ({"ada": 16}, 0.25),
        ({"ada": 16, "big_ada": 1}, 0.25),
        ({"ada": 16, "big_ada": 4}, 0.5),
        ({"big_ada": 4}, 0.5),
        ({"bob": 16}, 0.0),
    ],
)
def test_without_a_half_life_a_share_is_the_largest_part_of_any_type_that_is_held_now(
    held: dict[str, int], expected: float
) -> None:
    assert share(state_of(**held), "ada") == pytest.approx(expected)


@pytest.mark.parametrize(("weight", "expected"), [(1, 0.25), (2, 0.125), (5, 0.05)])
def test_a_share_is_divided_by_the_weight(weight: int, expected: float) -> None:
    assert share(state_of(quota("ada", weight=weight), ada=16), "ada") == pytest.approx(expected)


def test_each_type_has_a_weight_of_its_own() -> None:
    quotas = (quota("ada", weight=4), quota("ada", weight=2, gpu_type="big"))
    assert share(state_of(*quotas, ada=32, big_ada=1), "ada") == pytest.approx(0.125)
    assert share(state_of(*quotas, ada=32, big_ada=4), "ada") == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("held", "lately_ms", "expected"),
    [(16, 0, 0.125), (16, 16 * HELD_MS, 0.25), (0, 16 * HELD_MS, 0.125), (32, 16 * HELD_MS, 0.375)],
)
def test_a_share_is_the_mean_of_now_and_of_late(held: int, lately_ms: int, expected: float) -> None:
    state = state_of(ada=held)
    state.fair = FairUse(HALF_LIFE_MS, {("ada", "gpu"): Used(lately_ms * 1_000, 0, 0)}, dict(state.usage))
    assert share(state, "ada") == pytest.approx(expected, rel=1e-5)


def test_a_family_is_compared_as_one_and_a_parents_own_jobs_beside_its_children() -> None:
    state = state_of(quota("top", weight=2), quota("ada", "top", 4), quota("bob", "top"), top=48, ada=16, bob=8)
    shares = Shares(state, 0)
    assert shares.line("ada") == ["top", "ada"]
    assert [shares.of(name).share for name in ("top", "ada", "bob")] == [375_000_000, 62_500_000, 125_000_000]
    assert shares.own("top") == Share(has_no_weight=False, share=375_000_000, tenant="top")
    assert shares.own("ada").share == 0


def test_parents_that_go_round_in_a_circle_over_two_types_end_somewhere() -> None:
    state = state_of(quota("ada", "bob"), quota("bob", "ada", gpu_type="big"))
    assert Shares(state, 0).line("ada") == ["bob", "ada"]


def test_weight_nothing_comes_last_whatever_it_holds() -> None:
    shares = Shares(state_of(quota("ada", weight=0), eve=60), 0)
    assert shares.of("eve") < shares.of("ada")


TENANTS = ("ada", "bob", "dan", "eve", "fay", "top")
PARENTS: dict[str, Any] = {"ada": "top", "bob": "top", "dan": "bob"}
TURNS = st.lists(st.tuples(st.sampled_from(("serve", "leave")), st.integers(1, 8)), max_size=60)


@given(
    st.fixed_dictionaries({name: st.integers(0, 3) for name in TENANTS}),
    st.fixed_dictionaries({name: st.integers(0, 12) for name in TENANTS}),
    st.lists(st.sampled_from(TENANTS), unique=True, min_size=1),
    TURNS,
    st.lists(st.integers(0, 3), min_size=len(TENANTS), max_size=len(TENANTS)),
)
def test_the_turns_are_those_of_a_comparison_of_all_level_by_level(
    weights: dict[str, int], held: dict[str, int], tenants: list[str], turns: list[tuple[str, int]], submits: list[int]
) -> None:
    state = with_family(weights, held)
    reaches("tenants below the same one compete for turns", turns and len(PARENTS.keys() & {*tenants}) > 1)
    shares = Shares(state, 0)
    came = {name: (submits[number], number) for number, name in enumerate(tenants)}
    tournament, left = FairShareHeap(shares, came), dict.fromkeys(tenants)
    for turn, (what, gpus) in enumerate(turns):
        expected = next_of(Shares(state, 0), list(left), came, 0) if left else None
        assert tournament.first() == expected
        if expected is None:
            return
        if what == "serve":
            hold(state, expected, gpus)
            came[expected] = (came[expected][0] + turn % 3, len(tenants) + turn)
            tournament.moved()
        else:
            del left[expected]
            tournament.leave()


def next_of(shares: Shares, tenants: list[str], came: dict[str, tuple[int, int]], level: int) -> str:
    """Of tenants that stand below the same ones down to this level: by share, then by when the next job came."""
    parts: dict[str, list[str]] = {}
    for tenant in tenants:
        line = shares.line(tenant)
        parts.setdefault(line[level] if level < len(line) else "", []).append(tenant)
    found = {name: part[0] if not name else next_of(shares, part, came, level + 1) for name, part in parts.items()}

    def key(name: str) -> tuple[bool, int, tuple[int, int]]:
        share = shares.of(name) if name else shares.own(found[name])
        return (share.has_no_weight, share.share, came[found[name]])

    return found[min(found, key=key)]


def with_family(weights: dict[str, int], held: dict[str, int]) -> CellState:
    """Some tenants stand below others."""
    state = state_of(*(quota(name, PARENTS.get(name), weights[name]) for name in TENANTS))
    for name, gpus in held.items():
        hold(state, name, gpus)
    return state


def hold(state: CellState, tenant: str, gpus: int) -> None:
    """The tenant has so many GPUs more, and all above it."""
    name: str | None = tenant
    while name is not None:
        account: Account = (name, "gpu")
        state.usage[account] = state.usage.get(account, 0) + gpus * 1_000
        name = PARENTS.get(name)
