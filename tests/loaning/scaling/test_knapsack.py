"""The knapsack of phase 2: the vectors of the paper, every combination as oracle, and how long it takes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.loaning.policy.scaling.curve import ScalingCurve, diminishing, linear
from fallow.services.loaning.policy.scaling.elastic_job import ElasticJob, ResizeRule, group_of
from fallow.services.loaning.policy.scaling.knapsack import WORK_MAX, Group, solve
from fallow.services.loaning.policy.scaling.remembered import LastSolution
from tests.hypothesis_profile import reaches
from tests.loaning.scaling.elastic_jobs import KNAPSACKS, value_max, value_max_by_table

S = 1000
STATES_MAX = 500
"""So many states of the exact search take well below a millisecond."""

# Lyra, Table 4 and Fig 6. A: 2 to 3 workers of 2 GPUs, 100 s with 3; B: 2 to 6 workers of 1 GPU, 20 s with 6.
A = ElasticJob(gpus_per_worker=2, base_ms=150 * S, curve=linear(2, 3))
B = ElasticJob(gpus_per_worker=1, base_ms=60 * S, curve=linear(2, 6))


def test_the_items_are_those_of_figure_6() -> None:
    assert group_of(A) == Group((0, 2), (0, 50 * S))
    assert group_of(B) == Group((0, 1, 2, 3, 4), (0, 20 * S, 30 * S, 36 * S, 40 * S))


@pytest.mark.parametrize(
    ("gpus_free", "choices", "saved_s"),
    [
        (0, (0, 0), 0),
        (1, (0, 1), 20),
        (2, (1, 0), 50),
        (3, (1, 1), 70),
        (4, (1, 2), 80),
        (6, (1, 4), 90),
        (9, (1, 4), 90),
    ],
)
def test_a_gets_its_worker_first_although_b_is_shorter(gpus_free: int, choices: tuple[int, ...], saved_s: int) -> None:
    """Table 4: to favour A gives 62 s in the mean (100 and 24), to favour B 63.33 s (106.67 and 20)."""
    solution = solve([group_of(A), group_of(B)], gpus_free)
    assert (solution.choices, solution.value, solution.is_exact) == (choices, saved_s * S, True)


def test_workers_go_where_the_next_one_saves_most() -> None:
    """Tables 2 and 3: A and B have 2 to 6 workers of 1 GPU and run 50 s and 20 s with 6; 8 workers in all, 4 beyond the
    base. The steps of A save 50, 25, 15 and 10 s, the first one of B 20 s.
    """
    a, b = (group_of(ElasticJob(1, 3 * shortest * S, linear(2, 6))) for shortest in (50, 20))
    assert a.values == (0, 50 * S, 75 * S, 90 * S, 100 * S)
    assert solve([a, b], 4).choices == (3, 1)


def test_favouring_a_or_b_gives_the_means_of_table_3() -> None:
    """At first 8 workers for both; when one ends the other has 6. (Mean run times of the paper: 51.67, 41.67, 45 s.)"""
    assert [_mean_jct(first, second) for first, second in ((6, 2), (2, 6), (4, 4))] == pytest.approx(
        [51.67, 41.67, 45], abs=0.01
    )


def _mean_jct(workers_a: int, workers_b: int) -> float:
    """By hand: work is run time with 6 workers, times 6."""
    work_a, work_b = 300.0, 120.0
    first = min(work_a / workers_a, work_b / workers_b)
    rest = max(work_a - first * workers_a, work_b - first * workers_b)
    return (first + first + rest / 6) / 2


@given(KNAPSACKS)
def test_no_combination_of_choices_is_worth_more(knapsack: tuple[list[Group], int]) -> None:
    groups, capacity = knapsack
    solution = solve(groups, capacity)
    weight = sum(group.weights[choice] for group, choice in zip(groups, solution.choices, strict=True))
    worth = sum(group.values[choice] for group, choice in zip(groups, solution.choices, strict=True))
    assert weight <= capacity
    assert solution.value == solution.value_max == worth == value_max(groups, capacity)
    reaches(
        "a knapsack in which the steps along the hulls leave a gap", not solve(groups, capacity, work_max=0).is_exact
    )


@pytest.mark.parametrize("seed", range(8))
def test_larger_ones_are_worth_what_a_plain_table_over_all_gpus_says(seed: int) -> None:
    random = Random(seed)
    groups = []
    for _ in range(30):
        weights = sorted(random.sample(range(1, 25), 5))
        groups.append(Group((0, *weights), (0, *(random.randint(0, 40) + 3 * weight for weight in weights))))
    assert solve(groups, 140).value == value_max_by_table(groups, 140)
    assert not solve(groups, 140, work_max=0).is_exact


@given(KNAPSACKS, st.integers(0, 1_000_000), st.integers(0, 20))
def test_a_solution_that_is_cut_short_keeps_its_bound(
    knapsack: tuple[list[Group], int], gap_ppm_max: int, work_max: int
) -> None:
    groups, capacity = knapsack
    solution = solve(groups, capacity, gap_ppm_max, work_max)
    assert solution.value <= value_max(groups, capacity) <= solution.value_max
    if work_max == WORK_MAX:
        assert (solution.value_max - solution.value) * 1_000_000 <= gap_ppm_max * solution.value_max


def test_a_resize_that_costs_more_than_it_saves_is_left() -> None:
    rule = ResizeRule(resize_ms=30 * S)
    has_one = ElasticJob(1, 60 * S, linear(2, 6), flexible=1)
    assert solve([group_of(has_one, rule)], 4).choices == (1,), "three more would save 20 s and cost 30 s"
    assert solve([group_of(has_one)], 4).choices == (4,)
    assert solve([group_of(has_one, rule)], 0).choices == (0,), "what is not there is given up"


def test_a_resize_that_saves_enough_is_made() -> None:
    assert solve([group_of(ElasticJob(1, 600 * S, linear(2, 6), flexible=1), ResizeRule(30 * S))], 4).choices == (4,)


def test_only_the_rest_of_a_running_job_counts() -> None:
    almost_over, fresh = ElasticJob(1, 2 * S, linear(2, 4)), ElasticJob(1, 60 * S, linear(2, 4))
    assert solve([group_of(almost_over), group_of(fresh)], 2).choices == (0, 2)


def test_a_curve_that_flattens_is_worth_less() -> None:
    assert diminishing(2, 4, 80).throughput == (200, 280, 360)
    assert group_of(ElasticJob(1, 36 * S, diminishing(2, 4, 80))).values == (0, 36 * S - 25_715, 16 * S)


@pytest.mark.parametrize(
    ("workers_min", "throughput", "rule"),
    [
        (0, (1,), "workers_min = 0: must be at least 1"),
        (2, (), r"throughput = \(\): must have a value for workers_min"),
        (2, (0, 1), "throughput of 2 workers = 0: must be above 0"),
        (2, (4, 6, 5), "throughput of 4 workers = 5: must be at least 6, that of one less"),
    ],
)
def test_a_curve_that_falls_or_is_empty_is_refused(workers_min: int, throughput: tuple[int, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ScalingCurve(workers_min, throughput)


@pytest.mark.parametrize(
    ("weights", "values", "rule"),
    [((1,), (0,), "first choice"), ((0, 1), (0,), "2 weights and 1 values"), ((0, -1), (0, 1), "weight = -1")],
)
def test_a_group_that_is_none_is_refused(weights: tuple[int, ...], values: tuple[int, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Group(weights, values)


def test_a_capacity_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity = -1: must be at least 0"):
        solve([], -1)


def test_it_is_solved_again_only_when_its_input_has_changed() -> None:
    last = LastSolution()
    answers = [last.of([group_of(A), group_of(B)], gpus) for gpus in (3, 3, 4, 4, 3)]
    assert [answer.choices for answer in answers] == [(1, 1), (1, 1), (1, 2), (1, 2), (1, 1)]
    assert last.solved == 3


def elastic_jobs(count: int, seed: int, kept_pct: int = 100) -> list[Group]:
    random = Random(seed)
    jobs = []
    for _ in range(count):
        workers, gpus, base_ms = random.randint(1, 8), random.choice((1, 2, 4, 8)), random.randint(60 * S, 200_000 * S)
        curve = diminishing(workers, workers + random.randint(1, workers), kept_pct)
        jobs.append(group_of(ElasticJob(gpus, base_ms, curve)))
    return jobs


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kept_pct", [100, 80])
def test_350_items_and_250_gpus_need_few_states_for_an_exact_answer(seed: int, kept_pct: int) -> None:
    groups = elastic_jobs(140, seed, kept_pct)
    assert sum(len(group.weights) - 1 for group in groups) > 350
    assert solve(groups, 250, work_max=STATES_MAX).is_exact


def test_5000_jobs_on_20000_gpus_need_few_states_for_a_proven_gap_of_a_thousandth() -> None:
    groups = elastic_jobs(5000, seed=1)
    solution = solve(groups, 20_000, gap_ppm_max=1000, work_max=STATES_MAX)
    assert (solution.value_max - solution.value) * 1000 <= solution.value_max
    assert 1_000 < sum(choice > 0 for choice in solution.choices) < 4_900


@pytest.mark.parametrize("seed", range(3))
def test_values_that_follow_weights_are_as_hard_as_it_gets_and_still_exact(seed: int) -> None:
    """A subset sum: all choices are worth as much a GPU, so that none can be left out beforehand."""
    random = Random(seed)
    drawn = [sorted(random.sample(range(7, 90), 4)) for _ in range(60)]
    groups = [Group((0, *weights), (0, *weights)) for weights in drawn]
    assert solve(groups, 245).value == 245
