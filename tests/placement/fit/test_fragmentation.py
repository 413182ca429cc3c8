"""The score of fragmentation, number by number."""

from __future__ import annotations

import pytest

from fallow.services.placement.policy.frag_aware.demand import Demand, Kind, ResourceRequest, age_of
from fallow.services.placement.policy.frag_aware.fragmentation import SCALE, Losses, Stranding, rests
from tests.placement.policy.pods import cell, machine, pod, wait

A, B = Kind("a", "gpu"), Kind("b", "gpu")


def ask(milli: int, cpu: int = 0, pools: tuple[str, ...] = ()) -> ResourceRequest:
    return ResourceRequest(milli, cpu, 0, None, pools)


def test_without_any_shares_all_that_is_left_of_a_device_is_lost() -> None:
    assert [rests({})[free] for free in (0, 190, 999)] == [0, 190_000, 999_000]


@pytest.mark.parametrize(("free", "lost"), [(499, 499), (500, 0), (700, 200), (999, 499), (1_000, 0)])
def test_a_rest_is_what_the_usual_shares_leave_over(free: int, lost: int) -> None:
    assert rests({500: 1})[free] == lost * SCALE


def test_a_rest_to_which_few_shares_could_come_is_half_given_up() -> None:
    """One share in twenty fits: of 10 + 10 parts 10 say that nothing comes, and that all 100 are lost."""
    assert rests({100: 1, 900: 19})[100] == 50 * SCALE


def test_a_rest_that_can_be_filled_in_two_ways_loses_their_mean() -> None:
    """600 or 400 come alike to a rest of 700: 100 are left of it, or 300."""
    assert rests({600: 1, 400: 1})[700] == 200 * SCALE


@pytest.mark.parametrize(
    ("gpu_milli", "cpu_milli", "lost"),
    [(4_000, 40_000, 0), (4_000, 20_000, 2_000), (500, 0, 500), (4_000, 39_000, 100), (4_000, 60_000, 0)],
)
def test_gpus_are_stranded_where_cpus_do_not_last_for_them(gpu_milli: int, cpu_milli: int, lost: int) -> None:
    assert Stranding([(10_000, 1_000, 1)]).of(gpu_milli, cpu_milli) == lost * SCALE


def test_stranded_gpus_are_the_mean_over_what_jobs_ask_for_by_their_gpus() -> None:
    """A GPU with 5 CPUs is half lost to jobs of 10 CPUs, which take three of four GPUs, and not to those of 2."""
    assert Stranding([(10_000, 1_000, 3), (1_000, 500, 2)]).of(1_000, 5_000) == 375 * SCALE


def test_a_node_is_broken_for_jobs_of_several_gpus_by_what_is_over_their_number() -> None:
    """Half of all GPUs go to jobs of eight: of seven free ones half of them all, and of that a tenth counts."""
    demand = Demand({ask(8_000): 1, ask(1_000): 8}, {A: 16_000})
    losses = Losses(demand, A)
    assert [losses.broken(whole) for whole in (0, 7, 8, 9)] == [0, 350 * SCALE, 0, 50 * SCALE]


def test_nodes_are_wanted_by_those_who_can_go_nowhere_else() -> None:
    """All but the one GPU in a hundred that is assumed of each kind beforehand."""
    demand = Demand({ask(1_000, pools=("a",)): 49, ask(1_000): 49}, {A: 4_000, B: 4_000})
    assert [demand.pressure(kind, SCALE) for kind in (A, B)] == [SCALE, 20]


def test_as_long_as_nothing_is_known_the_nodes_of_small_kinds_are_kept() -> None:
    demand = Demand({}, {A: 1_000, B: 4_000})
    assert [demand.pressure(kind, SCALE) for kind in (A, B)] == [SCALE, 625]


def test_who_accepts_two_kinds_of_three_wants_of_each_by_its_size() -> None:
    """A quarter of all GPUs is asked for by it, on half of them; three of a hundred are assumed, one of each kind."""
    kinds = {A: 1_000, B: 3_000, Kind("c", "gpu"): 4_000}
    demand = Demand({ask(1_000, pools=("a", "b")): 25, ask(1_000): 72}, kinds)
    assert [demand.pressure(kind, SCALE) for kind in kinds] == [500 + 80, 500 + 26, 20]


def test_demand_is_what_live_jobs_ask_for() -> None:
    state = cell([machine("n1", 2), machine("n2", 8, pool="other")])
    wait(state, [pod("x", 500), pod("y", 500), pod("z", 2_000, cpu=7)])
    found = Demand.of(state)
    assert found.workers == {ResourceRequest(2_000, 7, 0, None, ()): 1, ask(500): 2}
    assert found.gpus_milli == {Kind("train", "gpu"): 2_000, Kind("other", "gpu"): 8_000}


def test_a_cell_grows_older_each_time_that_its_jobs_double() -> None:
    state, ages = cell([]), []
    for number in range(9):
        wait(state, [pod(f"job-{number}", 1_000)])
        ages.append(age_of(state))
    assert ages == [1, 2, 2, 3, 3, 3, 3, 4, 4]
