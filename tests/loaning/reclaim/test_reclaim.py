"""Reclaims: the example of the paper, the order in which servers go, and a search of every set of jobs as oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.loaning.policy.reclaim.cost import AtRisk, CostWeights, preemption_cost
from fallow.services.loaning.policy.reclaim.reclaim import ScaledIn, reclaim
from fallow.services.loaning.policy.reclaim.spread import LentServer, Spread
from tests.hypothesis_profile import reaches
from tests.loaning.reclaim.lent_servers import JOBS, least_cost, lent_servers

FIGURE_5 = [
    LentServer("S1", {"a": 6000}),
    LentServer("S2", {"a": 6000}),
    LentServer("S3", {"b": 8000}),
    LentServer("S4", {"c": 8000}),
    LentServer("S5", {"c": 2000, "d": 2000}),
    LentServer("S6", {"d": 8000}),
]
COSTS = st.dictionaries(st.sampled_from(JOBS), st.integers(0, 5))
NEEDED = st.sampled_from((2, 3, 4, 1, 0, 8))
EXACT = 5_000


def test_the_costs_are_those_of_the_papers_table() -> None:
    spread = Spread(FIGURE_5, {})
    assert [share / spread.unit for share in spread.shares] == [0.5, 0.5, 1, 0.5, 1, 0.5]


@pytest.mark.parametrize("order", [FIGURE_5, FIGURE_5[::-1], FIGURE_5[3:] + FIGURE_5[:3]])
@pytest.mark.parametrize("nodes_max", [0, EXACT])
def test_the_papers_example_takes_one_preemption_in_any_order_of_servers(
    order: list[LentServer], nodes_max: int
) -> None:
    plan = reclaim(order, 2, nodes_max=nodes_max)
    assert plan.preempted == ("a",)
    assert sorted(plan.servers) == ["S1", "S2"]
    assert (plan.cost, plan.surplus_milli, plan.short, plan.is_exact) == (1, 0, 0, True)


def test_one_server_is_found_by_trying_each_and_not_by_its_share_of_the_cost() -> None:
    servers = [LentServer("shared", {"a": 1000, "b": 1000}), LentServer("own", {"c": 8000})]
    servers += [LentServer(f"more-{n}", {"a": 1000, "b": 1000, "c": 1000, "d": 1000}) for n in range(3)]
    assert Spread(servers, {}).shares[0] == 2 * Spread(servers, {}).shares[1]
    assert reclaim(servers, 1).servers == ("own",)


def test_of_equal_costs_the_server_that_empties_more_of_those_needed_goes_before_the_one_that_frees_less() -> None:
    servers = [
        LentServer("y", {"c": 1000}),
        LentServer("z1", {"c": 1000, "d": 7000}),
        LentServer("z2", {"c": 1000, "e": 7000}),
        LentServer("x1", {"a": 8000}),
        LentServer("x2", {"a": 8000}),
        LentServer("x3", {"a": 4000, "b": 4000}),
    ]
    plan = reclaim(servers, 2)
    assert (plan.servers, plan.preempted, plan.surplus_milli) == (("x1", "x2"), ("a",), 4000)


def test_costs_are_updated_when_a_job_that_shared_a_server_has_ended() -> None:
    rest = [LentServer(f"s{n}", {"c": 1, "d": 1}) for n in (5, 6, 7)]
    servers = [LentServer("s1", {"a": 1}), LentServer("s2", {"a": 1, "b": 1}), LentServer("s3", {"c": 1})]
    servers += [LentServer("s4", {"b": 1, "d": 1}), *rest]
    costs = {"a": 4, "b": 4, "c": 12, "d": 400}
    spread = Spread(servers, costs)
    assert [share // spread.unit for share in spread.shares[:3]] == [2, 4, 3], "s2 costs 2 when a has ended"
    assert reclaim(servers, 2, costs).preempted == ("a", "b")


def test_idle_servers_go_first_then_flexible_workers_and_nothing_is_preempted_while_these_suffice() -> None:
    servers = [
        LentServer("base", {"a": 8000}),
        LentServer("many", {}, {"b": 8000}),
        LentServer("few", {}, {"b": 1000, "c": 2000}),
        LentServer("idle"),
    ]
    plan = reclaim(servers, 2)
    assert plan.servers == ("idle", "few")
    assert plan.scaled_in == (ScaledIn("b", "few", 1000), ScaledIn("c", "few", 2000))
    assert (plan.idle, plan.flexible, plan.preempted) == (1, 1, ())
    assert reclaim(servers, 4).preempted == ("a",)


def test_flexible_workers_beside_base_ones_leave_with_their_server_unless_their_job_ends() -> None:
    servers = [LentServer("s", {"a": 4000}, {"a": 1000, "b": 2000})]
    assert reclaim(servers, 1).scaled_in == (ScaledIn("b", "s", 2000),)


def test_what_is_wanted_beyond_all_that_is_lent_is_told() -> None:
    plan = reclaim(FIGURE_5, 9)
    assert (len(plan.servers), plan.short, plan.preempted) == (6, 3, tuple("acdb"))


def test_surplus_is_what_is_freed_on_servers_that_stay() -> None:
    plan = reclaim([LentServer("x", {"a": 8000}), LentServer("y", {"a": 3000})], 1)
    assert (plan.servers, plan.surplus_milli) == (("x",), 3000)


@pytest.mark.parametrize(
    ("needed", "costs", "rule"),
    [(-1, {}, "needed = -1: must be at least 0"), (1, {"a": -2}, "cost of a = -2: must be at least 0")],
)
def test_numbers_below_zero_are_refused(needed: int, costs: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        reclaim(FIGURE_5, needed, costs)


def test_a_cost_by_lost_work_spares_the_job_that_has_run_long() -> None:
    weights = CostWeights(per_preemption=1, per_gpu_s=1)
    long = preemption_cost(AtRisk(8000, unsaved_ms=3_600_000, restart_ms=63_000), weights)
    short = preemption_cost(AtRisk(1000, unsaved_ms=1, restart_ms=0), weights)
    assert (long, short) == (1 + 8 * 3663, 2)
    servers = [LentServer("x", {"long": 8000}), LentServer("y", {"short-1": 1000, "short-2": 1000})]
    assert reclaim(servers, 1).preempted == ("long",)
    assert reclaim(servers, 1, {"long": long, "short-1": short, "short-2": short}).servers == ("y",)
    with pytest.raises(ValueError, match="per_gpu_s = -1"):
        CostWeights(per_gpu_s=-1)


def test_the_exact_search_finds_two_servers_of_the_same_jobs_where_the_greedy_takes_the_cheaper_one_first() -> None:
    both = {"a": 1000, "b": 1000, "c": 1000}
    servers = [LentServer("x", {"d": 1000}), LentServer("y", both), LentServer("z", both)]
    greedy, exact = reclaim(servers, 2), reclaim(servers, 2, nodes_max=EXACT)
    assert (greedy.preempted, exact.preempted) == (("d", "a", "b", "c"), ("a", "b", "c"))
    assert (greedy.cost_min, exact.cost_min, greedy.is_exact, exact.is_exact) == (3, 3, False, True)


@given(lent_servers(), NEEDED, COSTS)
def test_the_exact_search_finds_what_a_search_of_all_sets_finds(
    servers: list[LentServer], needed: int, costs: dict[str, int]
) -> None:
    least = least_cost(servers, needed, costs)
    greedy, exact = reclaim(servers, needed, costs), reclaim(servers, needed, costs, nodes_max=EXACT)
    assert (exact.cost, exact.cost_min) == (least, least)
    assert greedy.cost_min <= least <= greedy.cost
    reaches(
        "a reclaim that preempts two jobs or more and leaves others", 2 <= len(exact.preempted) < len(_jobs(servers))
    )


@given(lent_servers(), NEEDED, COSTS, st.integers(0, 4))
def test_a_search_that_is_cut_short_still_vacates_enough_within_its_bound(
    servers: list[LentServer], needed: int, costs: dict[str, int], nodes_max: int
) -> None:
    plan = reclaim(servers, needed, costs, nodes_max)
    assert plan.cost_min <= least_cost(servers, needed, costs) <= plan.cost
    assert len(plan.servers) == len(set(plan.servers)) == min(needed, len(servers))
    for server in servers:
        assert server.name not in plan.servers or set(plan.preempted).issuperset(server.base)


@given(lent_servers(), NEEDED)
def test_names_decide_nothing(servers: list[LentServer], needed: int) -> None:
    renamed = dict(zip(JOBS, reversed(JOBS), strict=True))
    others = [
        LentServer(f"t{-n}", {renamed[j]: g for j, g in s.base.items()}, {renamed[j]: g for j, g in s.flexible.items()})
        for n, s in enumerate(servers)
    ]
    one, other = reclaim(servers, needed, nodes_max=EXACT), reclaim(others, needed, nodes_max=EXACT)
    assert [renamed[job] for job in one.preempted] == list(other.preempted)
    assert [_number(servers, name) for name in one.servers] == [_number(others, name) for name in other.servers]


def _jobs(servers: list[LentServer]) -> set[str]:
    return {job for server in servers for job in server.base}


def _number(servers: list[LentServer], name: str) -> int:
    return [server.name for server in servers].index(name)
