"""The cell wakes when a walk comes to something else by time alone: a job that may start then waits for no event."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.owners.patience import PATIENCE_MS
from fallow.services.placement.queue.heads import PLAN_WAITS_MAX
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.fields.values import RetryPolicy, WorkerPlace
from fallow.shared.events.nodes import RunFailed
from fallow.shared.events.operations import CellPolicy, PlanMaintenance
from fallow.shared.events.queue import PlannedStart, QueueDiscipline, QueueOrder, StartsPlanned
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.replicas import all_start, loose, service, word
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    finished,
    joined,
    quota,
    set_quotas,
    spec_of,
    update,
)

BACKFILL, STRICT = QueueDiscipline.BACKFILL, QueueDiscipline.STRICT_FIFO
WAIT_MS = 1_000
LEASE_MS = 80_000_000


def world_of(*queues: Queue, **policy: Any) -> World:
    """A cell in which a head is due after a second, and no node is taken for silent."""
    numbers = CellPolicy(**{"backfill_wait_ms": WAIT_MS, "node_lease_wall_ms": LEASE_MS, **policy})
    pools = (Pool(name="train", gpus=100), Pool(name="extra", gpus=100, gpu_type="big"))
    cell = CellPart(name=CELL, ordinal=0, pools=pools, queues=queues, policy=numbers)
    return World(CellFile(cells=(cell,), tenants=tuple(Tenant(name=name) for name in ("ada", "bob", "eve"))))


def submit(world: World, name: str, gpus: int, tenant: str, **more: Any) -> None:
    """One job comes now."""
    world.tell(admitted(spec_of(name, gpus, tenant=tenant, **more), world.now_ms))


def plan(world: World, **starts: tuple[str, int]) -> None:
    """Queueing has planned these jobs of eight GPUs, each on a node, and when. All of them hold."""
    planned = []
    for job, (node, start_ms) in starts.items():
        place = WorkerPlace(rank=0, node=node, devices=tuple(range(8)), gpu_milli=8_000)
        planned.append(PlannedStart(job=job, start_ms=start_ms, places=(place,)))
    state = world.state
    found = StartsPlanned(
        cell=CELL, writer="q", plan=1, version=state.version, at_ms=world.now_ms, starts=tuple(planned)
    )
    world.tell(found)
    assert {job: kept.start_ms for job, kept in state.reservations.items()} == {
        job: at for job, (_, at) in starts.items()
    }


def go_to(world: World, at_ms: int) -> None:
    """It is this time now; what the cell has planned until then it has done."""
    while (due_ms := world.service.next_cell_ms()) is not None and due_ms <= at_ms:
        assert due_ms > world.now_ms, "it does not wake again for the same"
        world.now_ms = world.wall_ms = due_ms
        world.rest()
    world.now_ms = world.wall_ms = at_ms


def two_heads() -> World:
    """By shares ada's head `room` waits for n1, of which it has two GPUs, and `limit`, which stands before it and is a
    head since half a second later, for ada's limit on n2. For bob's `third` there is room on n1.
    """
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE))
    world.tell(joined("n1", 8, labels={"one": "1"}), joined("n2", 8, labels={"two": "1"}))
    world.tell(set_quotas(quota("ada", 8)))
    submit(world, "runs", 4, "ada", node_labels=("two",))
    submit(world, "fill", 6, "eve", node_labels=("one",))
    submit(world, "room", 4, "ada", node_labels=("one",))
    go_to(world, 500)
    submit(world, "limit", 8, "ada", node_labels=("two",), priority=1)
    go_to(world, 1_200)
    submit(world, "third", 2, "bob", node_labels=("one",))
    return world


def test_a_job_starts_when_a_second_head_that_becomes_due_ends_what_a_first_one_kept() -> None:
    world = two_heads()
    assert world.state.heads == {"room": 0, "limit": 500}
    assert world.job("third").deferred is PendingReason.BEHIND_HEAD
    go_to(world, 1_499)
    assert not world.job("third").workers
    go_to(world, 1_500)
    assert world.nodes_of("third") == ["n1"]


def test_of_two_jobs_that_come_to_be_due_heads_in_one_walk_the_older_one_keeps_its_room_at_once() -> None:
    """Heads wait for nothing until they are due here. Ada's turn is first; bob's older job is a head beside hers."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), backfill_wait_ms=0)
    world.tell(joined("n1", 8, labels={"one": "1"}), joined("n2", 8, labels={"two": "1"}))
    submit(world, "runs", 8, "bob", node_labels=("two",))
    submit(world, "fill", 2, "eve", node_labels=("one",))
    either = admitted(spec_of("either", 6, tenant="bob"), 0)
    world.tell(either, admitted(spec_of("whole", 8, tenant="ada", node_labels=("one",)), 0))
    assert world.nodes_of("either") == ["n1"]
    assert world.state.heads == {"whole": 0}


def test_when_the_pause_of_a_worker_before_a_due_head_ends_who_may_pass_from_then_on_starts_without_an_event() -> None:
    """The head keeps room before all turns until ada's worker waits again, which the log does not tell."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE))
    world.tell(joined("n1"))
    pauses = RetryPolicy(budget=9, backoff_ms=3_000, backoff_max_ms=3_000)
    world.tell(admitted(loose("singly", 2, 4, workers_min=1, retry=pauses)))
    all_start(world, "singly")
    submit(world, "head", 8, "ada")
    submit(world, "small", 2, "bob")
    go_to(world, 1_500)
    world.tell(word(RunFailed, world, "singly", 0))
    assert world.nodes_of("small") == []
    go_to(world, 4_500)
    assert world.nodes_of("small") == ["n1"]


def test_a_cell_at_rest_with_due_heads_wakes_no_more() -> None:
    world = two_heads()
    go_to(world, 1_500)
    assert world.service.next_cell_ms() is None


def test_a_cell_does_not_wake_for_the_wait_of_a_head_whose_queue_backfills_no_more() -> None:
    world = two_heads()
    assert world.service.next_cell_ms() == 1_500
    (part,) = world.file.cells
    strict = (Queue(name="line", discipline=STRICT, order=QueueOrder.FAIR_SHARE),)
    world.file = CellFile(cells=(part.model_copy(update={"queues": strict}),), tenants=world.file.tenants)
    world.service.reload(world.file)
    world.rest()
    assert list(world.state.heads) == ["room", "limit"]
    assert world.service.next_cell_ms() is None


def test_a_cell_in_which_only_the_head_waits_does_not_wake_when_that_is_due() -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL))
    world.tell(joined("n1", 8))
    submit(world, "runs", 8, "ada")
    submit(world, "head", 8, "bob")
    assert list(world.state.heads) == ["head"]
    assert world.service.next_cell_ms() is None
    submit(world, "other", 4, "bob")
    assert world.service.next_cell_ms() == WAIT_MS


def test_a_job_starts_on_what_was_kept_for_a_job_at_its_limit_when_its_first_planned_start_is_over() -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL), reservation_ttl_ms=60_000)
    world.tell(joined("n1", 8), joined("n2", 8), set_quotas(quota("ada", 8)))
    submit(world, "runs", 8, "ada", estimate_run_ms=3_000)
    free = "n2" if world.nodes_of("runs") == ["n1"] else "n1"
    submit(world, "planned", 8, "ada")
    plan(world, planned=(free, 3_000))
    submit(world, "behind", 4, "bob")
    assert not world.job("behind").workers
    go_to(world, 2_999)
    assert not world.job("behind").workers
    go_to(world, 3_000)
    assert world.nodes_of("behind") == [free]


@pytest.mark.parametrize("first", ["planned", "later"])
def test_a_job_starts_when_the_first_of_two_planned_starts_is_over_whichever_was_planned_first(first: str) -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL), reservation_ttl_ms=60_000)
    world.tell(joined("b1", 8, pool="extra", gpu_type="big"))
    world.tell(joined("n1", 8, labels={"one": "1"}), joined("n2", 8, labels={"two": "1"}), set_quotas(quota("ada", 8)))
    submit(world, "fills-big", 8, "eve", pools=("extra",), estimate_run_ms=20_000)
    submit(world, "runs", 8, "ada", node_labels=("one",), estimate_run_ms=3_000)
    submit(world, "planned", 8, "ada", pools=("train",))
    submit(world, "later", 8, "eve", pools=("extra",))
    starts = {"planned": ("n2", 3_000), "later": ("b1", 20_000)}
    plan(world, **{first: starts[first]}, **{job: starts[job] for job in starts if job != first})
    assert next(iter(world.state.reservations)) == first
    submit(world, "behind", 4, "bob", node_labels=("two",))
    go_to(world, 2_999)
    assert not world.job("behind").workers
    go_to(world, 3_000)
    assert world.nodes_of("behind") == ["n2"]


@pytest.mark.parametrize("also", [{}, {"soon": ("b1", 5_000)}])
def test_a_head_whose_start_is_planned_for_far_away_ends_what_another_one_kept_once_it_waits_no_longer_for_that(
    also: dict[str, tuple[str, int]],
) -> None:
    """The two heads of ada's again, of which `limit` is planned: with and without another start planned, for soon."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), reservation_ttl_ms=600_000)
    world.tell(joined("n1", 8, labels={"one": "1"}), joined("n2", 8, labels={"two": "1"}))
    world.tell(joined("b1", 8, pool="extra", gpu_type="big"), set_quotas(quota("ada", 8)))
    submit(world, "runs", 4, "ada", node_labels=("two",), estimate_run_ms=100_000)
    submit(world, "fill", 6, "eve", node_labels=("one",))
    submit(world, "fills-big", 8, "eve", pools=("extra",), estimate_run_ms=5_000)
    submit(world, "room", 4, "ada", node_labels=("one",))
    submit(world, "soon", 8, "eve", pools=("extra",))
    go_to(world, 500)
    submit(world, "limit", 8, "ada", node_labels=("two",), priority=1)
    plan(world, limit=("n2", 100_000), **also)
    go_to(world, 1_200)
    submit(world, "third", 2, "bob", node_labels=("one",))
    go_to(world, 500 + PLAN_WAITS_MAX * WAIT_MS - 1)
    assert not world.job("third").workers
    go_to(world, 500 + PLAN_WAITS_MAX * WAIT_MS)
    assert world.nodes_of("third") == ["n1"]


def test_a_job_starts_when_one_before_it_would_not_be_over_by_a_planned_start_any_more() -> None:
    """Of the nodes that `long` may have beside a head it keeps n1 off `short`, until that is planned for another one
    too soon for it.
    """
    world = world_of(
        Queue(name="line", discipline=BACKFILL), Queue(name="next", discipline=STRICT), reservation_ttl_ms=60_000
    )
    world.tell(joined("n1", 8, labels={"one": "1"}), joined("n2", 8, labels={"two": "1"}))
    submit(world, "fill-1", 4, "eve", queue="line", node_labels=("one",), estimate_run_ms=3_000)
    submit(world, "fill-2", 8, "eve", queue="line", node_labels=("two",))
    submit(world, "planned", 8, "ada", queue="line", node_labels=("one",))
    plan(world, planned=("n1", 3_000))
    submit(world, "whole", 8, "eve", queue="next", node_labels=("two",))
    submit(world, "long", 6, "ada", queue="next", estimate_run_ms=2_000)
    submit(world, "short", 2, "bob", queue="next", estimate_run_ms=100, node_labels=("one",))
    go_to(world, 1_000)
    assert not world.job("short").workers
    go_to(world, 1_001)
    assert world.nodes_of("short") == ["n1"]


@pytest.mark.parametrize("begins_ms", [PATIENCE_MS // 2, PATIENCE_MS // 2 + 1])
def test_a_borrower_starts_on_a_node_of_which_an_owner_that_has_waited_for_long_expects_nothing_any_more(
    begins_ms: int,
) -> None:
    """Not at the moment before which runs count as endless, when the last one began just then."""
    world = cell_with()
    world.listens = False
    world.tell(set_quotas(share("ada", 8), share("bob")), joined("n0"))
    submit(world, "endless", 1, "bob")
    world.now_ms = world.wall_ms = begins_ms
    world.tell(joined("n1"), admitted(spec_of("newer", 7, tenant="bob"), world.now_ms))
    submit(world, "beside", 1, "bob")
    world.tell(finished("newer", world.nodes_of("newer")[0]), admitted(spec_of("own", 8), 0))
    assert world.nodes_of("beside") == ["n1"]
    go_to(world, PATIENCE_MS)
    assert [kept.is_more for kept in world.state.tree.kept.all] == [False, True]
    submit(world, "small", 1, "bob")
    assert world.job("small").deferred is PendingReason.RESERVED_FOR_OTHER
    go_to(world, 2 * PATIENCE_MS - 1)
    assert not world.job("small").workers
    go_to(world, 2 * PATIENCE_MS)
    assert world.nodes_of("small") == ["n1"]
    go_to(world, 100 * PATIENCE_MS)
    assert world.service.next_cell_ms() is None, "all that runs counts as endless by then"


def test_a_job_starts_when_the_node_closes_that_a_head_keeps_beside_another_one() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("b1", 8, pool="extra", gpu_type="big"), joined("n1", 8))
    submit(world, "fills-big", 2, "eve", queue="line", pools=("extra",))
    submit(world, "fills", 2, "eve", queue="line", pools=("train",))
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=10_000, end_ms=20_000))
    submit(world, "first", 8, "ada", queue="line", pools=("extra",))
    submit(world, "second", 8, "ada", queue="line", estimate_run_ms=500)
    submit(world, "behind", 2, "bob", queue="next", pools=("train",), estimate_run_ms=100)
    assert not world.job("behind").workers
    go_to(world, 9_500)
    assert not world.job("behind").workers
    go_to(world, 9_501)
    assert world.nodes_of("behind") == ["n1"]


def test_a_replica_enters_when_shares_move_though_no_job_waits_that_does_not_run() -> None:
    world = world_of(
        Queue(name="line", discipline=STRICT, order=QueueOrder.FAIR_SHARE), fair_half_life_ms=64_000, backfill_wait_ms=0
    )
    world.tell(joined("n1", 8), joined("n2", 8))
    submit(world, "past", 8, "bob", workers=2)
    go_to(world, 64_000)
    world.tell(*(finished("past", node) for node in ("n1", "n2")))
    world.tell(admitted(service("large", 1, 6), world.now_ms))
    world.tell(admitted(service("small", 1, 2, tenant="bob"), world.now_ms))
    submit(world, "fill", 4, "eve")
    for name in ("large", "small"):
        all_start(world, name)
    world.tell(update("large", workers=2), update("small", tenant="bob", workers=2))
    assert (world.state.waiting, len(world.nodes_of("small"))) == (0, 1)
    go_to(world, 180_000)
    assert world.nodes_of("small") == ["n1", "n2"]
