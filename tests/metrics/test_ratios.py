"""GAR, SOR and GFR, by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.metrics.policy.kant.gar import Gar
from fallow.services.metrics.policy.kant.gfr import Gfr
from fallow.services.metrics.policy.kant.sor import Sor
from fallow.services.metrics.policy.time_weighted import WHOLES_MAX, TimeWeightedRatio
from fallow.shared.events import effects as e
from fallow.shared.events.reasons import RequeueReason
from tests.histories import History
from tests.hypothesis_profile import reaches
from tests.metrics.logs import Log


def test_a_ratio_is_weighted_by_the_time_for_which_it_held() -> None:
    ratio = TimeWeightedRatio()
    ratio.set(100, 0, 8)
    ratio.set(200, 8, 8)
    ratio.set(500, 2, 8)
    assert ratio.mean(600) == (0 * 100 + Fraction(8, 8) * 300 + Fraction(2, 8) * 100) / 500
    assert ratio.now() == Fraction(1, 4)


def test_time_without_a_whole_does_not_count() -> None:
    ratio = TimeWeightedRatio()
    ratio.set(0, 1, 2)
    ratio.set(10, 0, 0)
    ratio.set(90, 1, 1)
    assert ratio.mean(100) == (Fraction(1, 2) * 10 + 10) / 20


def test_nothing_has_no_mean() -> None:
    assert (TimeWeightedRatio().mean(100), TimeWeightedRatio().now()) == (None, None)


def test_time_does_not_go_back() -> None:
    ratio = TimeWeightedRatio()
    ratio.set(10, 1, 2)
    with pytest.raises(ValueError, match="time has come to 10 already"):
        ratio.set(9, 2, 2)


def test_gar_counts_allocated_of_healthy_gpus_in_each_pool_and_in_all() -> None:
    gar = Gar()
    log = Log(gar.take)
    log.node(0, "n1", gpus=8, pool="pool-a")
    log.node(0, "n2", gpus=4, pool="pool-b")
    log.submit(0, "a", gpus=4)
    log.start(100, "a", "n1")
    log.finish(300, "a")
    assert gar.cell.mean(400) == Fraction(4 * 200, 12 * 400)
    assert gar.pools["pool-a"].mean(400) == Fraction(4 * 200, 8 * 400)
    assert gar.pools["pool-b"].mean(400) == 0


def test_gar_counts_no_gpus_of_lost_nodes_and_no_failed_ones() -> None:
    gar = Gar()
    log = Log(gar.take)
    log.node(0, "n1")
    log.node(0, "n2")
    log.submit(0, "a", gpus=4)
    log.start(0, "a", "n1")
    log.lose(100, "n2")
    log.decide(200, e.DeviceChanged(node="n1", device=7, healthy=False))
    assert gar.cell.mean(300) == (Fraction(4, 16) + Fraction(4, 8) + Fraction(4, 7)) / 3


def test_gfr_counts_nodes_that_are_partly_in_use() -> None:
    gfr = Gfr()
    log = Log(gfr.take)
    log.node(0, "n1")
    log.node(0, "n2")
    log.submit(0, "a", gpus=3)
    log.submit(0, "b", gpus=5)
    log.start(100, "a", "n1")
    log.start(200, "b", "n1")
    log.finish(300, "a")
    log.finish(400, "b")
    assert gfr.cell.mean(500) == (Fraction(1, 2) * 100 + Fraction(1, 2) * 100) / 500


def test_a_full_node_with_a_failed_device_is_not_fragmented() -> None:
    gfr = Gfr()
    log = Log(gfr.take)
    log.node(0, "n1")
    log.decide(0, e.DeviceChanged(node="n1", device=7, healthy=False))
    log.submit(0, "a", gpus=7)
    log.start(0, "a", "n1")
    assert gfr.cell.now() == 0


def test_sor_adds_up_the_gpu_time_of_each_attempt() -> None:
    sor = Sor()
    log = Log(sor.take)
    log.node(0, "n1")
    log.submit(0, "a", gpus=2)
    log.start(100, "a", "n1")
    log.decide(200, e.JobRequeued(job="a", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0))
    log.start(300, "a", "n1")
    assert sor.value(500) == Fraction(2 * 100 + 2 * 200, 8 * 500)


def test_sor_counts_the_capacity_of_each_time() -> None:
    sor = Sor()
    log = Log(sor.take)
    log.node(0, "n1")
    log.submit(0, "a", gpus=8)
    log.start(0, "a", "n1")
    log.node(100, "n2")
    assert sor.value(300) == Fraction(8 * 300, 8 * 100 + 16 * 200)


def test_sor_of_no_time_is_none() -> None:
    assert Sor().value(100) is None


steps = st.lists(st.tuples(st.integers(0, 500), st.sampled_from((1, 2, 4, 8)), st.booleans()), max_size=30)


@given(steps)
def test_sor_equals_the_mean_of_gar_while_the_capacity_is_constant(steps: list[tuple[int, int, bool]]) -> None:
    gar, sor = Gar(), Sor()
    log = Log(gar.take, sor.take)
    log.decide(50, *log.node(50, "n1").effects, *log.node(50, "n2").effects)
    at_ms = 50
    for number, (wait_ms, gpus, ends) in enumerate(steps):
        at_ms += wait_ms
        roomy = [name for name, node in log.state.nodes.items() if node.gpus_free >= gpus]
        if ends and log.state.jobs:
            log.finish(at_ms, next(iter(log.state.jobs)))
        elif roomy:
            log.submit(at_ms, f"job-{number}", gpus)
            log.start(at_ms, f"job-{number}", roomy[0])
    reaches("some GPUs are in use, and not all of the time", 0 < (sor.value(at_ms + 7) or 0) < 1)
    assert sor.value(at_ms + 7) == gar.cell.mean(at_ms + 7)


@given(st.integers(0, 10**6))
def test_ratios_stay_between_nothing_and_all_whatever_happens(seed: int) -> None:
    history, gar, gfr, sor = History(seed), Gar(), Gfr(), Sor()
    for _ in range(60):
        decision = history.decide()
        for accumulator in (gar, gfr, sor):
            accumulator.take(history.state, decision)
    until_ms = history.state.at_ms + 1
    used, parted = gar.cell.mean(until_ms) or 0, gfr.cell.mean(until_ms) or 0
    reaches("nodes are in use by parts", 0 < used < 1 and 0 < parted < 1)
    assert 0 <= (gfr.cell.mean(until_ms) or 0) <= 1
    assert (gar.cell.mean(until_ms) or 0) >= 0
    assert (sor.value(until_ms) or 0) >= 0


def test_a_ratio_over_ever_other_wholes_keeps_few_of_them_and_stays_true() -> None:
    ratio, exact = TimeWeightedRatio(), Fraction(0)
    for step in range(1_000):
        ratio.set(step, step % 7, 1_000 + step)
        exact += Fraction(step % 7, 1_000 + step)
    assert len(ratio._part_ms) <= WHOLES_MAX
    mean = ratio.mean(1_000)
    assert mean is not None
    assert abs(mean - exact / 1_000) < Fraction(1, 2**60)
