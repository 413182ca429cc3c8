"""A job that is passed and should not have been, and one that could start and is left waiting, are found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import (
    Level,
    NodeRole,
    NodeSpec,
    NodeStatus,
    Position,
    Resources,
    TopologyRequest,
    Wish,
)
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.simulator.history.evidence import Evidence
from fallow.simulator.history.judge import judge
from tests.cluster.worlds.examples import DIGEST, enqueued, node, place, started
from tests.simulator.history.story import CELL, Story

TWO = Resources(gpu_milli=2000)
FULL = [enqueued("full"), started("full", place(0, "n1", 0))]
"""One of the two GPUs of n1 is taken."""

NEXT = started("next", place(0, "n1", 1))


def queues(*disciplines: str, order: str = "fifo") -> e.CellFileSet:
    named = [{"name": f"q{number}", "discipline": each, "order": order} for number, each in enumerate(disciplines)]
    content = json.dumps({"cells": [{"name": CELL, "queues": named}]})
    return e.CellFileSet(content=content, digest=DIGEST)


def quota(tenant: str, **more: Any) -> e.QuotaSet:
    return e.QuotaSet(quota=Quota(tenant=tenant, gpu_type="gpu", **more))


def story(*first: Any, policy: CellPolicy | None = None) -> Story:
    """A node with two GPUs, and what else there is from the first decision on."""
    begin = e.WriterStarted(epoch=1, writer="one")
    set_policy = e.PolicySet(policy=policy or CellPolicy(backfill_wait_ms=0))
    return Story().decide(begin, set_policy, node("n1", gpus=2), *first)


def order_of(told: Story) -> list[str]:
    """What is said of the order of starts."""
    found = judge(Evidence([told.evidence(quiet_from=0)]))
    return [violation.text for violation in found if violation.invariant == "ORDER"]


HEAD = enqueued("head", resources=TWO)
SMALL = enqueued("next")


@pytest.mark.parametrize(
    ("discipline", "is_wrong"), [("strict-fifo", True), ("backfill", False), ("best-effort-fifo", False)]
)
def test_a_strict_queue_starts_nothing_past_what_waits_for_the_same_node(discipline: str, is_wrong: bool) -> None:
    told = story(queues(discipline), *FULL).decide(HEAD, SMALL).decide(NEXT)
    assert order_of(told) == ["job next starts on n1, for which head waits and must not be passed"] * is_wrong


def test_a_strict_head_is_passed_by_what_cannot_use_its_nodes() -> None:
    elsewhere = enqueued("head", resources=TWO, pools=("other",))
    told = story(queues("strict-fifo"), node("n2", gpus=2, pool="other"), *FULL).decide(elsewhere, SMALL).decide(NEXT)
    assert order_of(told) == ["job next starts before head, which could start and comes before it"]
    busy = started("busy", place(0, "n2", 0))
    told = story(queues("strict-fifo"), node("n2", gpus=2, pool="other"), *FULL, enqueued("busy"), busy)
    assert order_of(told.decide(elsewhere, SMALL).decide(NEXT)) == []


def test_a_head_that_no_node_could_hold_is_passed_by_all() -> None:
    told = story(queues("strict-fifo"), *FULL).decide(enqueued("head", resources=Resources(gpu_milli=4000)), SMALL)
    assert order_of(told.decide(NEXT)) == []


def test_a_head_that_a_limit_keeps_is_not_passed_for_the_sake_of_room() -> None:
    told = story(queues("strict-fifo"), quota("bob", limit_milli=1000), *FULL)
    told.decide(enqueued("head", tenant="bob", resources=TWO), SMALL).decide(NEXT)
    assert order_of(told) == []


@pytest.mark.parametrize(("limit_milli", "is_wrong"), [(3_000, False), (4_000, True)])
def test_a_head_behind_one_that_their_common_limit_may_keep_is_none(limit_milli: int, *, is_wrong: bool) -> None:
    """Either of them is below it for itself: the one before may wait for the limit, and the other one for that."""
    lab = quota("lab", limit_milli=limit_milli)
    members = [quota(name, parent="lab") for name in ("bob", "kim")]
    before = enqueued("before", tenant="bob", resources=TWO, pools=("other",))
    head = enqueued("head", tenant="kim", resources=TWO)
    told = story(queues("strict-fifo"), lab, *members, node("n2", gpus=1, pool="other"), *FULL)
    told = told.decide(before, head, enqueued("next", tenant="eve")).decide(NEXT)
    assert order_of(told) == ["job next starts on n1, for which head waits and must not be passed"] * is_wrong


@pytest.mark.parametrize(("gpus", "is_wrong"), [(2, False), (3, True)])
def test_a_head_that_guarantees_of_others_keep_for_good_is_passed_by_all(gpus: int, *, is_wrong: bool) -> None:
    other = [node("n2", gpus=gpus - 2)] if gpus > 2 else []
    told = story(queues("strict-fifo"), *other, quota("eve", guaranteed_milli=1000, lends=False), *FULL)
    busy = [enqueued("busy"), started("busy", place(0, "n2", 0))] if other else []
    told.decide(*busy, HEAD, SMALL).decide(NEXT)
    assert bool(order_of(told)) is is_wrong


def test_who_has_a_guarantee_may_pass_who_would_borrow() -> None:
    told = story(queues("strict-fifo"), quota("eve", guaranteed_milli=1000), *FULL)
    assert order_of(told.decide(HEAD, enqueued("next", tenant="eve")).decide(NEXT)) == []


@pytest.mark.parametrize(("at_ms", "is_wrong"), [(1_000, False), (1_001, True)])
@pytest.mark.parametrize("order", ["fifo", "fair-share"])
def test_a_head_that_is_due_is_passed_no_more(at_ms: int, order: str, *, is_wrong: bool) -> None:
    told = story(queues("backfill", order=order), *FULL, policy=CellPolicy(backfill_wait_ms=1_000))
    told.decide(HEAD, SMALL, e.HeadBlocked(job="head")).decide(NEXT, at_ms=at_ms)
    assert bool(order_of(told)) is is_wrong


@pytest.mark.parametrize(("since_ms", "is_wrong"), [(0, False), (500, True)])
def test_by_shares_the_head_that_has_waited_longest_is_passed_by_no_tenant(since_ms: int, *, is_wrong: bool) -> None:
    told = story(queues("backfill", order="fair-share"), *FULL, policy=CellPolicy(backfill_wait_ms=1_000))
    first, last = enqueued("first", tenant="eve", resources=TWO), enqueued("head", tenant="bob", resources=TWO)
    told.decide(last, first, enqueued("next", tenant="cyd"), e.HeadBlocked(job="first"), at_ms=since_ms)
    told.decide(e.HeadBlocked(job="head"), at_ms=since_ms + 200)
    texts = order_of(told.decide(NEXT, at_ms=1_400))
    assert texts == ["job next starts on n1, for which first waits and must not be passed"] * (not is_wrong)


@pytest.mark.parametrize(("tenant", "is_wrong"), [("eve", True), ("bob", False)])
def test_by_shares_one_behind_another_head_in_the_line_of_its_tenant_is_none(tenant: str, *, is_wrong: bool) -> None:
    told = story(queues("backfill", order="fair-share"), *FULL, policy=CellPolicy(backfill_wait_ms=1_000))
    before = enqueued("before", tenant=tenant, resources=TWO, priority=1)
    head = enqueued("head", tenant="bob", resources=TWO)
    told.decide(head, e.HeadBlocked(job="head"), at_ms=0).decide(before, e.HeadBlocked(job="before"), at_ms=200)
    texts = order_of(told.decide(enqueued("next", tenant="cyd"), at_ms=1_800).decide(NEXT, at_ms=1_900))
    assert ("job next starts on n1, for which head waits and must not be passed" in texts) is is_wrong


@pytest.mark.parametrize(("tenant", "is_wrong"), [("eve", True), ("bob", False)])
def test_by_shares_one_behind_any_job_of_its_tenant_that_waits_for_the_same_is_none(
    tenant: str, *, is_wrong: bool
) -> None:
    told = story(queues("backfill", order="fair-share"), *FULL, policy=CellPolicy(backfill_wait_ms=1_000))
    head = enqueued("head", tenant="bob", resources=TWO)
    told.decide(head, e.HeadBlocked(job="head"), at_ms=0)
    told.decide(enqueued("before", tenant=tenant, resources=TWO, priority=1), at_ms=200)
    texts = order_of(told.decide(enqueued("next", tenant="cyd"), at_ms=1_800).decide(NEXT, at_ms=1_900))
    assert ("job next starts on n1, for which head waits and must not be passed" in texts) is is_wrong


def test_who_is_a_head_no_more_is_passed() -> None:
    told = story(queues("backfill"), *FULL).decide(HEAD, SMALL, e.HeadBlocked(job="head"))
    assert order_of(told.decide(e.HeadCleared(job="head"), at_ms=5_000).decide(NEXT, at_ms=6_000)) == []


@pytest.mark.parametrize(
    ("disciplines", "is_wrong"),
    [(("strict-fifo", "best-effort-fifo"), True), (("best-effort-fifo", "strict-fifo"), False)],
)
def test_what_a_head_waits_for_is_left_alone_by_later_queues(disciplines: tuple[str, ...], *, is_wrong: bool) -> None:
    head, other = enqueued("head", resources=TWO, queue="q0"), enqueued("next", queue="q1")
    told = story(queues(*disciplines), *FULL).decide(head, other).decide(NEXT)
    assert bool(order_of(told)) is is_wrong


def test_a_later_job_does_not_start_before_one_that_could() -> None:
    told = story(queues("best-effort-fifo")).decide(enqueued("first"), SMALL).decide(started("next", place(0, "n1", 0)))
    assert order_of(told) == ["job next starts before first, which could start and comes before it"]


def test_a_job_of_a_later_queue_does_not_either() -> None:
    told = story(queues("best-effort-fifo", "best-effort-fifo")).decide(
        enqueued("next", queue="q1"), enqueued("first", queue="q0")
    )
    assert len(order_of(told.decide(started("next", place(0, "n1", 0))))) == 1


def test_a_higher_priority_comes_first() -> None:
    told = story(queues("best-effort-fifo")).decide(enqueued("first"), enqueued("next", priority=5))
    assert order_of(told.decide(started("next", place(0, "n1", 0)))) == []
    told = story(queues("best-effort-fifo")).decide(SMALL, enqueued("first", priority=5))
    assert len(order_of(told.decide(started("next", place(0, "n1", 0))))) == 1


def test_by_shares_the_tenant_with_less_comes_first() -> None:
    def told(holder: str) -> Story:
        held = [enqueued("held", tenant=holder), started("held", place(0, "n2", 0))]
        begun = story(
            queues("best-effort-fifo", order="fair-share"), node("n2"), *held, policy=CellPolicy(fair_half_life_ms=0)
        )
        begun.decide(enqueued("next", tenant="bob"), enqueued("first", tenant="eve"))
        return begun.decide(started("next", place(0, "n1", 0)))

    assert len(order_of(told("bob"))) == 1
    assert order_of(told("eve")) == []


def resting(
    *effects: Any, disciplines: tuple[str, ...] = ("best-effort-fifo",), first: tuple[Any, ...] = ()
) -> list[str]:
    """What is said when nothing is decided for long behind these effects."""
    told = story(queues(*disciplines), *first).decide(*effects)
    told.moment += 2_000
    return order_of(told.decide(node("n9")))


def test_what_could_start_is_not_left_waiting() -> None:
    assert resting(SMALL) == ["job next could start and waits 2001 ms in which nothing happens"]
    assert resting(enqueued("next", resources=Resources(gpu_milli=4000))) == []
    assert resting(enqueued("next", not_before_ms=10)) == []
    assert resting(SMALL, e.JobHeld(job="next")) == []


def test_before_the_faults_are_over_anything_may_wait() -> None:
    told = story(queues("best-effort-fifo")).decide(SMALL)
    told.moment += 2_000
    told.decide(node("n9"))
    assert told.texts(quiet_from=5_000) == []
    assert told.texts() == []


@pytest.mark.parametrize("discipline", ["strict-fifo", "backfill"])
def test_a_job_behind_one_that_must_not_be_passed_may_wait(discipline: str) -> None:
    ahead = enqueued("ahead", resources=TWO)
    assert resting(ahead, SMALL, disciplines=(discipline,), first=tuple(FULL)) == []
    assert len(resting(ahead, SMALL, first=tuple(FULL))) == 1
    impossible = enqueued("ahead", resources=Resources(gpu_milli=8000))
    assert len(resting(impossible, SMALL, disciplines=(discipline,), first=tuple(FULL))) == 1


@pytest.mark.parametrize(("other", "may_wait"), [("ada", True), ("eve", False)])
def test_a_job_behind_one_that_waits_for_the_same_limit_may_wait_wherever_it_could_be(
    other: str, *, may_wait: bool
) -> None:
    """What starts on any node of the type is used up below the limit."""
    first = (*FULL, node("n2", pool="other"), quota("ada", limit_milli=2000), quota("eve", limit_milli=2000))
    ahead = enqueued("ahead", resources=TWO, pools=("train",))
    behind = enqueued("next", tenant=other, pools=("other",))
    assert (resting(ahead, behind, disciplines=("strict-fifo",), first=first) == []) is may_wait


def gang(workers: int, slice_workers: int | None = None) -> e.JobEnqueued:
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=slice_workers)
    return enqueued("gang", workers=workers, topology=wish)


def placed(id_: str, leaf: str | None, **more: Any) -> e.NodeChanged:
    spec = NodeSpec(id=id_, pool="far", gpus=2, position=Position(leaf=leaf), **more)
    return e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY)


@pytest.mark.parametrize(
    ("leaves", "wanted", "could_start"),
    [
        (("a", "a"), gang(4), True),
        (("a", "b"), gang(4), False),
        (("a", "b"), gang(4, 2), True),
        (("a", None), gang(4, 2), False),
        (("a", "b", "b"), gang(4), True),
    ],
)
def test_a_required_place_in_the_network_counts(
    leaves: tuple[str, ...], wanted: e.JobEnqueued, *, could_start: bool
) -> None:
    nodes = tuple(placed(f"m{number}", leaf) for number, leaf in enumerate(leaves))
    assert bool(resting(wanted, first=nodes)) is could_start


@pytest.mark.parametrize(
    ("effects", "could_start"),
    [
        ([], True),
        ([e.NodeSilent(node="n1", boot="boot-1", silent_wall_ms=1)], False),
        ([e.DeviceChanged(node="n1", device=0, healthy=False)], False),
        ([e.MaintenanceSet(node="n1", begin_ms=5_000, end_ms=6_000)], False),
        ([quota("ada", limit_milli=1000)], False),
        ([quota("ada", limit_milli=2000)], True),
        ([quota("eve", guaranteed_milli=1000)], False),
        (
            [node("n2"), e.MaintenanceSet(node="n2", begin_ms=5_000, end_ms=6_000), quota("eve", guaranteed_milli=1)],
            False,
        ),
        ([node("n1", gpus=2, role=NodeRole.INFERENCE)], False),
    ],
)
def test_whatever_keeps_a_job_from_its_nodes_counts(effects: list[Any], *, could_start: bool) -> None:
    assert bool(resting(enqueued("next", resources=TWO), *effects)) is could_start


def planned(job: str, node: str, device: int) -> e.ReservationSet:
    return e.ReservationSet(job=job, workers=(place(0, node, device),), start_ms=10**6)


def test_a_due_head_with_a_planned_start_is_passed_on_other_nodes() -> None:
    told = story(queues("backfill"), *FULL, node("n2", gpus=2), enqueued("busy"), started("busy", place(0, "n2", 0)))
    told.decide(HEAD, SMALL, e.HeadBlocked(job="head"), planned("head", "n2", 0))
    assert order_of(told.decide(NEXT, at_ms=6_000)) == []


def test_what_is_kept_for_a_planned_start_may_be_left_idle() -> None:
    later = enqueued("later", queue="q1", resources=TWO)
    assert resting(later, planned("later", "n1", 0), SMALL, first=tuple(FULL)) == []


@pytest.mark.parametrize(("kept", "is_wrong"), [("n1", False), ("n2", True)])
def test_a_strict_head_is_passed_on_nodes_that_are_kept_for_the_planned_start_of_another_job(
    kept: str, *, is_wrong: bool
) -> None:
    """The head may not go there itself: what is over by then keeps it from nothing."""
    told = story(queues("backfill", "strict-fifo"), *FULL, node("n2", gpus=2), enqueued("busy"))
    told.decide(started("busy", place(0, "n2", 0)), enqueued("planned", queue="q0", resources=TWO))
    head, other = enqueued("head", queue="q1", resources=TWO), enqueued("next", queue="q1")
    told.decide(planned("planned", kept, 0), head, other)
    assert bool(order_of(told.decide(NEXT, at_ms=6_000))) is is_wrong
