"""A job that may never start takes nothing from a due head of its tenant behind it, whatever keeps it off for good, and
however many of them come.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobKind, Level, TopologyRequest, Wish
from fallow.shared.events.operations import Quota
from fallow.shared.events.queue import QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.heads.test_heads import BACKFILL, submit, world_of
from tests.placement.heads.test_own_jobs_before_due_heads import NEW, before_the_flow, flows, with_a_due_head
from tests.placement.worlds.world import admitted, joined, quota, set_quotas, spec_of

FIRM = [Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=4_000)]
SMALL_BORROWER = [Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=4_000, borrow_limit_milli=28_000)]
BELOW_A_PARENT = [quota("lab", 32), quota("bob", None, parent="lab")]

NEVER: dict[str, tuple[list[Quota], dict[str, Any]]] = {
    "more than its guarantee, and not to be preempted": (FIRM, {"gpus": 4, "workers": 2, "preemptible": False, **NEW}),
    "more than its limit": ([quota("bob", 32)], {"gpus": 4, "workers": 11}),
    "more than its parent's limit": (BELOW_A_PARENT, {"gpus": 4, "workers": 11}),
    "more than it may borrow": (SMALL_BORROWER, {"gpus": 4, "workers": 11}),
    "a service with more than its limit": (
        [quota("bob", 32)],
        {"gpus": 4, "workers": 11, "workers_min": 11, "kind": JobKind.INFERENCE, "gang": False},
    ),
    "more than all nodes": ([], {"gpus": 4, "workers": 3, **NEW}),
    "more than one node": ([], {"gpus": 16}),
    "more than one unit of the network": (
        [],
        {"gpus": 4, "workers": 2, "topology": TopologyRequest(wish=Wish.REQUIRED, level=Level.NODE), **NEW},
    ),
    "held": ([], {"gpus": 4, "hold": True, **NEW}),
    "not before a time that is far": ([], {"gpus": 4, "not_before_ms": 10**12, **NEW}),
}


ALL = [quota("lab", 32), Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=4_000, parent="lab")]
"""With these each of them may never start."""


def sent(why: str, number: int, **also: Any) -> Event:
    given = {"queue": "line", "pools": ("train",), "tenant": "bob", "priority": 100, **NEVER[why][1], **also}
    return admitted(spec_of(f"never-{number}", **given), number)


@pytest.mark.parametrize("why", list(NEVER))
def test_a_due_head_starts_though_its_tenant_sends_a_job_that_may_never_start_with_each_end(why: str) -> None:
    """As soon as without them."""
    world = before_the_flow("gpu")
    if NEVER[why][0]:
        world.tell(set_quotas(*NEVER[why][0]))
    started = flows(world, lambda number: [sent(why, number)], **NEW)
    assert started in range(30, 34)


@pytest.mark.parametrize("seed", range(3))
def test_a_due_head_starts_whatever_jobs_that_may_never_start_its_tenant_sends_with_each_end(seed: int) -> None:
    """Of any of these kinds, and of ever new ones: of some more labels, and shut to some time."""
    world, random = before_the_flow("gpu"), Random(seed)
    world.tell(set_quotas(*ALL))

    def send(number: int) -> list[Event]:
        why = random.choice(list(NEVER))
        labels = (*NEVER[why][1].get("node_labels", ()), *random.choice([(), (f"!x{random.randrange(50)}",)]))
        also = {"max_run_ms": random.choice([None, 600_000 + number]), "priority": random.choice([1, 100])}
        return [sent(why, number, node_labels=labels, **also)]

    assert flows(world, send, **NEW) in range(30, 34)


NEVER_SMALL: dict[str, tuple[list[Quota], dict[str, Any]]] = {
    "more than its guarantee, and not to be preempted": (FIRM, {"gpus": 4, "workers": 2, "preemptible": False}),
    "more than its limit": ([quota("bob", 12)], {"gpus": 2, "workers": 7}),
    "a service with more than its limit": (
        [quota("bob", 12)],
        {"gpus": 2, "workers": 7, "workers_min": 7, "kind": JobKind.INFERENCE, "gang": False},
    ),
}


@pytest.mark.parametrize("where", [NEW, {}])
@pytest.mark.parametrize("why", list(NEVER_SMALL))
def test_one_that_may_never_start_is_told_its_quota_though_a_due_head_of_its_tenant_keeps_its_room(
    why: str, where: dict[str, Any]
) -> None:
    """No job passes the head for it."""
    world = with_a_due_head()
    world.tell(set_quotas(*NEVER_SMALL[why][0]))
    young = spec_of("young", tenant="bob", queue="line", pools=("train",), priority=1, **NEVER_SMALL[why][1], **where)
    made = world.tell(admitted(young, world.now_ms))
    for _ in range(3):
        made = [*made, *world.pass_time(1_000)]
    code = world.job("young").deferred
    assert code is (PendingReason.NO_SUCH_NODES if where and "limit" in why else PendingReason.QUOTA_REACHED)
    assert [each.code for each in made if isinstance(each, e.JobDeferred) and each.job == "young"] == [code]
    assert world.nodes_of("small") == []
    told = why_not(world.state, world.job("young"), world.file.cells[0].queues, world.now_ms)
    assert told.codes[0] is code
    told = why_not(world.state, world.job("small"), world.file.cells[0].queues, world.now_ms)
    assert told.behind is not None
    assert told.behind.job == "head"


def test_each_of_several_that_may_never_start_is_told_its_quota() -> None:
    world = with_a_due_head()
    world.tell(set_quotas(quota("bob", 12)))
    for number in range(3):
        submit(world, f"never-{number}", 2, 7, tenant="bob", priority=1)
        world.pass_time(1_000)
    assert {world.job(f"never-{n}").deferred for n in range(3)} == {PendingReason.QUOTA_REACHED}


@pytest.mark.parametrize(
    ("order", "tenant"),
    [(QueueOrder.FIFO, "bob"), (QueueOrder.FIFO, "ada"), (QueueOrder.FAIR_SHARE, "ada")],
)
@pytest.mark.parametrize("where", [NEW, {}])
def test_one_that_may_never_start_is_told_of_a_due_head_that_stands_before_it_or_is_another_tenants(
    order: QueueOrder, tenant: str, where: dict[str, Any]
) -> None:
    """Its quota is told only of a job that its own head behind it keeps back."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=order), wait_ms=10_000)
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    world.tell(set_quotas(Quota(tenant=tenant, gpu_type="gpu", guaranteed_milli=4_000)))
    submit(world, "first", 2, tenant="eve", **NEW)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    submit(world, "young", 4, 2, tenant=tenant, preemptible=False, **where)
    world.pass_time(3_000)
    assert list(world.state.heads) == ["head"]
    assert world.job("young").deferred is PendingReason.BEHIND_HEAD
