"""No job passes a head if it could use what the head waits for, in its queue or in those behind; one that never could
does.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.queue.scheduling_cycle import TRIES_BESIDE_MAX
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, Level, Position, Resources, RetryPolicy, TopologyRequest, Wish
from fallow.shared.events.operations import CellPolicy, Cordon, Drain, PlanMaintenance, Quota, Uncordon
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.replicas import loose
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    failed,
    finished,
    joined,
    lost,
    quota,
    set_quotas,
    spec_of,
    started,
)

STRICT, BACKFILL = QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL
WAITING = [
    Queue(name="line", discipline=discipline, order=order) for discipline in (STRICT, BACKFILL) for order in QueueOrder
]
ALL = [Queue(name="next", discipline=discipline, order=order) for discipline in QueueDiscipline for order in QueueOrder]


def named(queue: Queue) -> str:
    return f"{queue.discipline} {queue.order}"


def world_of(*queues: Queue, wait_ms: int = 0, extra: str = "gpu") -> World:
    cell = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100, gpu_type=extra)),
        queues=queues,
        policy=CellPolicy(backfill_wait_ms=wait_ms, node_lease_wall_ms=1_000_000),
    )
    return World(CellFile(cells=(cell,), tenants=tuple(Tenant(name=name) for name in ("ada", "bob", "eve"))))


def submit(world: World, job: str, gpus: int = 1, workers: int = 1, **spec: Any) -> None:
    given: dict[str, Any] = {"queue": "line", "pools": ("train",), **spec}
    world.tell(admitted(spec_of(job, gpus, workers, **given), world.now_ms + len(world.state.jobs)))


def with_a_head(*queues: Queue, wait_ms: int = 0, **head: Any) -> World:
    """Four GPUs in train are free beside four in use: the head needs eight, together on two nodes."""
    world = world_of(*queues, wait_ms=wait_ms)
    world.tell(joined("n1", 4, labels={"disk": "nvme"}), joined("n2", 4, labels={"disk": "nvme"}))
    submit(world, "first", 4)
    submit(world, "head", 4, 2, **head)
    assert not world.job("head").workers
    return world


@pytest.mark.parametrize("behind", ALL, ids=named)
@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_no_job_of_a_queue_behind_takes_the_room_of_a_head_and_the_head_is_next(queue: Queue, behind: Queue) -> None:
    world = with_a_head(queue, behind)
    for number in range(3):
        submit(world, f"other-{number}", queue="next", tenant="bob")
        assert not world.job(f"other-{number}").workers
        assert world.job(f"other-{number}").deferred is PendingReason.BEHIND_HEAD
    world.tell(finished("first"))
    assert world.job("head").workers
    world.tell(finished("head", "n1"), finished("head", "n2"))
    assert world.job("other-2").workers


def test_who_is_kept_back_from_another_queue_is_told_by_whom() -> None:
    world = with_a_head(Queue(name="line", discipline=STRICT), Queue(name="next"))
    submit(world, "other", queue="next")
    told = why_not(world.state, world.job("other"), world.file.cells[0].queues, world.now_ms)
    assert told.codes == (PendingReason.BEHIND_HEAD,)
    assert told.behind is not None
    assert told.behind.job == "head"


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
def test_whoever_is_kept_back_is_told_of_which_queue_the_head_is_and_what_it_waits_for(queue: Queue, of: str) -> None:
    world = with_a_head(queue, Queue(name="next"))
    submit(world, "late", queue=of)
    told = why_not(world.state, world.job("late"), world.file.cells[0].queues, world.now_ms).behind
    assert told is not None
    assert (told.job, told.queue, told.discipline) == ("head", "line", queue.discipline)
    assert (told.code, told.gpus_milli, told.pools, told.under) == (PendingReason.NO_FREE_GPUS, 8_000, ("train",), None)


@pytest.mark.parametrize("first", [None, "line"])
def test_a_head_that_names_no_queue_is_told_to_be_of_the_first_one(first: str | None) -> None:
    world = with_a_head(Queue(name="line", discipline=STRICT), Queue(name="next"), queue=first)
    submit(world, "late", queue="next")
    told = why_not(world.state, world.job("late"), world.file.cells[0].queues, world.now_ms).behind
    assert told is not None
    assert told.queue == "line"


@pytest.mark.parametrize("queue", [Queue(name="line", discipline=each) for each in (STRICT, BACKFILL)], ids=named)
def test_what_becomes_free_below_a_limit_is_the_heads_though_others_would_use_it_elsewhere(queue: Queue) -> None:
    world = world_of(queue)
    world.tell(joined("n1", 8), joined("n2", 4, labels={"disk": "nvme"}), set_quotas(quota("ada", 8)))
    small: dict[str, Any] = {"node_labels": ("disk=nvme",)}
    submit(world, "first", **small)
    submit(world, "head", 8, priority=5)
    submit(world, "other", **small)
    assert (world.job("head").deferred, world.job("other").workers) == (PendingReason.QUOTA_REACHED, ())
    world.tell(finished("first", "n2"))
    assert world.job("head").workers


@pytest.mark.parametrize("more", [{"kind": JobKind.INFERENCE}, {}], ids=["service", "training"])
def test_who_could_never_have_one_more_worker_below_its_limit_keeps_nobody_back(more: dict[str, Any]) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 8), joined("n2", 8), set_quotas(quota("ada", 12)))
    submit(world, "grows", 8, 2, gang=False, workers_min=1, **more)
    submit(world, "behind")
    submit(world, "other", queue="next")
    assert [len(world.job(job).workers) for job in ("grows", "behind", "other")] == [1, 1, 1]


@pytest.mark.parametrize("line", [STRICT, BACKFILL])
@pytest.mark.parametrize("spec", [{}, {"gang": False, "workers_min": 4}], ids=["gang", "at least four"])
def test_who_may_not_use_one_pool_and_does_not_fit_into_the_other_keeps_nobody_back(
    line: QueueDiscipline, spec: dict[str, Any]
) -> None:
    world = world_of(Queue(name="line", discipline=line), Queue(name="next"), extra="large")
    world.tell(joined("n1", 8), joined("n2", 3, pool="extra", gpu_type="large"), set_quotas(quota("ada", 2)))
    submit(world, "never", 1, 4, pools=(), **spec)
    for number, queue in enumerate(("line", "next", "line", "next")):
        submit(world, f"j{number}", pools=(), queue=queue)
    assert [bool(world.job(job).workers) for job in ("never", "j0", "j1", "j2", "j3")] == [
        False,
        True,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("line", [STRICT, BACKFILL])
@pytest.mark.parametrize("spec", [{}, {"gang": False}, {"gang": False, "kind": JobKind.INFERENCE}])
def test_who_needs_a_node_that_a_person_has_closed_keeps_nobody_back(
    line: QueueDiscipline, spec: dict[str, Any]
) -> None:
    world = world_of(Queue(name="line", discipline=line), Queue(name="next"))
    world.tell(joined("n1", 8), joined("n2", 8), Cordon(cell=CELL, node="n2", by="operator"))
    submit(world, "waits", 8, 2, **{**spec, **({"workers_min": 2} if spec else {})})
    submit(world, "behind")
    submit(world, "other", queue="next")
    assert [len(world.job(job).workers) for job in ("waits", "behind", "other")] == [0, 1, 1]


def test_each_of_many_kinds_behind_a_head_has_its_turn_though_something_becomes_free_all_the_time() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 8, cpu_milli=64_000), joined("n2", 8, cpu_milli=64_000, pool="extra"))
    world.tell(joined("n3", 8, pool="extra", labels={"own": "yes"}, taints=("own",)))
    busy: dict[str, Any] = {"pools": ("extra",), "node_labels": ("own=yes",), "tolerations": ("own",)}
    submit(world, "first", pools=("train",))
    submit(world, "resident", 4, pools=("extra",))
    for number in range(6):
        submit(world, f"busy-{number}", **busy)
    submit(world, "head", 8)
    several: dict[str, Any] = {"queue": "next", "pools": ("train", "extra")}
    for number in range(3 * TRIES_BESIDE_MAX):
        resources = Resources(gpu_milli=5_000, cpu_milli=100 + number)
        world.hand_over(admitted(spec_of(f"kind-{number}", resources=resources, **several), world.now_ms + 100))
    world.hand_over(admitted(spec_of("fits", **several), world.now_ms + 200))
    for number in range(5):
        world.hand_over(finished(f"busy-{number}", "n3"))
        world.decide()
    assert world.nodes_of("fits") == ["n2"]


def test_of_a_head_at_a_limit_the_tenant_is_told_whose_limit_it_is() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 8), set_quotas(quota("ada", 4)))
    submit(world, "first", 3)
    submit(world, "head", 2, pools=())
    submit(world, "late", queue="next", pools=())
    told = why_not(world.state, world.job("late"), world.file.cells[0].queues, world.now_ms).behind
    assert told is not None
    assert (told.job, told.code, told.under, told.gpus_milli) == ("head", PendingReason.QUOTA_REACHED, "ada", 2_000)


def test_a_queue_that_is_walked_earlier_goes_before_a_head() -> None:
    world = with_a_head(Queue(name="urgent"), Queue(name="line", discipline=STRICT))
    submit(world, "now", queue="urgent")
    assert world.job("now").workers


def test_a_head_of_a_queue_that_backfills_is_protected_once_it_has_waited_for_long() -> None:
    world = with_a_head(Queue(name="line", discipline=BACKFILL), Queue(name="next"), wait_ms=1_000)
    submit(world, "early", queue="next")
    assert world.job("early").workers
    assert not world.job("early").backfilled
    world.pass_time(1_000)
    submit(world, "late", queue="next")
    assert not world.job("late").workers


def test_when_the_head_goes_whoever_it_kept_back_starts() -> None:
    world = with_a_head(Queue(name="line", discipline=STRICT), Queue(name="next"))
    submit(world, "other", queue="next")
    world.tell(cancel("head"))
    assert world.job("other").workers


OTHER_ROOM: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "another pool": ({}, {"pool": "extra"}, {"pools": ("extra",)}),
    "another GPU type": ({"gpu_type": "gpu"}, {"gpu_type": "h100"}, {"gpu_type": "h100"}),
    "a type that the head does not take": ({"gpu_type": "gpu"}, {"gpu_type": "h100"}, {"node_labels": ("!disk",)}),
    "other labels": ({"node_labels": ("disk=nvme",)}, {"labels": {"disk": "hdd"}}, {"node_labels": ("disk=hdd",)}),
    "a taint that the head does not tolerate": (
        {},
        {"taints": ("hot",), "labels": {"kind": "hot"}},
        {"tolerations": ("hot",), "node_labels": ("kind=hot",)},
    ),
    "nodes too small for the head": ({}, {"gpus": 2, "labels": {"kind": "small"}}, {"node_labels": ("kind=small",)}),
    "a rack too small for the head": (
        {"topology": TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)},
        {"position": Position(leaf="b"), "labels": {"kind": "small"}},
        {"node_labels": ("kind=small",)},
    ),
}


@pytest.mark.parametrize("what", OTHER_ROOM)
@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("name", ["line", "next"])
def test_a_job_whose_room_is_of_no_use_to_the_head_passes_it(name: str, queue: Queue, what: str) -> None:
    of_head, node, of_job = OTHER_ROOM[what]
    world = world_of(queue, Queue(name="next"))
    world.tell(
        *(joined(each, 4, labels={"disk": "nvme"}, position=Position(leaf="a")) for each in ("n1", "n2")),
        joined(**{"node": "n3", "gpus": 4, **node}),
    )
    submit(world, "first", 4, node_labels=("disk=nvme",))
    submit(world, "head", 4, 2, **of_head)
    assert not world.job("head").workers
    submit(world, "own", queue=name, **of_job)
    submit(world, "rival", queue=name, node_labels=("disk=nvme",))
    assert world.nodes_of("own") == ["n3"]
    assert not world.job("rival").workers


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("name", ["line", "next"])
def test_a_gang_keeps_nothing_back_in_a_pool_that_could_not_hold_all_of_it(name: str, queue: Queue) -> None:
    world = with_a_head(queue, Queue(name="next"), pools=())
    world.tell(joined("n3", 4, pool="extra"))
    submit(world, "beside", queue=name, pools=("extra",))
    submit(world, "rival", queue=name)
    assert world.nodes_of("beside") == ["n3"]
    assert not world.job("rival").workers


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("name", ["line", "next"])
@pytest.mark.parametrize(("workers", "is_free"), [(10, False), (8, True)])
def test_the_rack_of_a_gangs_smaller_last_slice_is_kept_for_it_too(
    name: str, queue: Queue, workers: int, *, is_free: bool
) -> None:
    """A rack for two slices of four workers, and one that holds no more than two workers."""
    world = world_of(queue, Queue(name="next"))
    large, small = (Position(leaf=leaf) for leaf in ("a", "b"))
    world.tell(joined("n1", 8, position=large), joined("n2", 2, position=small, labels={"kind": "small"}))
    submit(world, "first", node_labels=("!kind",))
    submit(world, "second", node_labels=("kind=small",))
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=4)
    submit(world, "head", 1, workers, topology=wish)
    submit(world, "other", queue=name, node_labels=("kind=small",))
    assert bool(world.job("other").workers) is is_free


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("name", ["line", "next"])
@pytest.mark.parametrize("closes", [True, False])
def test_a_rack_that_is_too_small_without_a_closed_node_is_kept_for_no_head(
    name: str, queue: Queue, *, closes: bool
) -> None:
    world = world_of(queue, Queue(name="next"))
    one, other = (Position(leaf=leaf) for leaf in ("a", "b"))
    world.tell(*(joined(f"a{number}", 4, position=one, labels={"rack": "a"}) for number in range(2)))
    world.tell(*(joined(f"b{number}", 4, position=other) for number in range(2)))
    for number in range(2):
        submit(world, f"busy-{number}", 4, node_labels=("!rack",))
    submit(world, "third", 4, node_labels=("rack",))
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    if closes:
        world.tell(Cordon(cell=CELL, node=world.nodes_of("third")[0], reason=""))
    submit(world, "head", 4, 2, topology=wish)
    submit(world, "small", queue=name, node_labels=("rack",))
    assert bool(world.job("small").workers) is closes
    assert world.job("head").deferred is not PendingReason.NO_SUCH_NODES


def test_a_job_that_is_no_gang_waits_for_room_in_each_pool_that_could_hold_one_of_its_workers() -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(joined("n1", 4), joined("n2", 4), joined("n3", 4, pool="extra"))
    submit(world, "first", 3)
    submit(world, "second", 4)
    submit(world, "third", 1, pools=("extra",))
    submit(world, "gang", 4, 2, pools=())
    submit(world, "parts", 4, 2, pools=(), workers_min=1, gang=False, kind=JobKind.INFERENCE)
    world.tell(cancel("gang"))
    submit(world, "beside", pools=("extra",))
    assert world.job("beside").deferred is PendingReason.BEHIND_HEAD


@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_a_head_at_a_limit_keeps_back_those_under_the_same_limit_in_all_queues_and_nobody_else(queue: Queue) -> None:
    world = world_of(queue, Queue(name="next"))
    world.tell(joined("n1", 4), joined("n2", 4), set_quotas(quota("ada", 4)))
    submit(world, "first", 3)
    submit(world, "head", 2)
    submit(world, "small")
    submit(world, "small-too", queue="next")
    submit(world, "of-bob", tenant="bob")
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    started = [job for job in ("small", "small-too", "of-bob") if world.job(job).workers]
    assert started == ["of-bob"]


def with_a_limit_of_one_type(queue: Queue, limit: int) -> World:
    """Two nodes of each GPU type, all in use: of type a ada has a limit, which its running job leaves too little of."""
    world = world_of(queue, Queue(name="next"))
    world.tell(*(joined(f"a{number}", 4, gpu_type="a") for number in range(2)))
    world.tell(*(joined(f"b{number}", 4, pool="extra", gpu_type="b") for number in range(2)))
    world.tell(set_quotas(replace(quota("ada", limit), gpu_type="a")))
    submit(world, "of-ada", 4)
    for number in range(2):
        submit(world, f"of-bob-{number}", 4, tenant="bob", pools=("extra",))
    submit(world, "head", 4, 2, pools=("train", "extra"))
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    return world


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
@pytest.mark.parametrize("limit", [4, 8])
def test_a_head_at_a_limit_of_one_gpu_type_waits_for_room_on_nodes_of_another(
    limit: int, of: str, queue: Queue
) -> None:
    world = with_a_limit_of_one_type(queue, limit)
    submit(world, "small", queue=of, pools=("extra",))
    submit(world, "beside", queue=of, tenant="bob")
    assert world.nodes_of("beside") == ["a1"]
    for number in range(2):
        assert not world.job("small").workers
        world.tell(finished(f"of-bob-{number}", f"b{number}"))
    assert world.nodes_of("head") == ["b0", "b1"]


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize(("limit", "starts"), [(6, True), (8, False)])
def test_what_is_left_below_a_limit_is_kept_for_a_head_that_could_have_room_elsewhere_if_it_could_ever_be_enough(
    limit: int, queue: Queue, *, starts: bool
) -> None:
    world = with_a_limit_of_one_type(queue, limit)
    submit(world, "small", 1, queue="next")
    assert bool(world.job("small").workers) is starts


@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_who_reads_of_a_job_behind_a_head_that_waits_for_room_and_a_limit_is_told_which(queue: Queue) -> None:
    world = with_a_limit_of_one_type(queue, 8)
    for job, pool, under in (("in-extra", "extra", None), ("in-train", "train", "ada")):
        submit(world, job, queue="next", pools=(pool,))
        told = why_not(world.state, world.job(job), world.file.cells[0].queues, world.now_ms).behind
        assert told is not None
        assert (told.job, told.under) == ("head", under)


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
def test_where_nothing_is_guaranteed_a_head_that_may_not_be_preempted_waits_for_room_as_any_other(
    of: str, queue: Queue
) -> None:
    world = world_of(queue, Queue(name="next"))
    world.tell(joined("n1", 4), set_quotas(quota("ada", None)))
    submit(world, "first", 3, tenant="bob")
    submit(world, "head", 2, preemptible=False)
    submit(world, "small", tenant="bob", queue=of)
    waits = [world.job(job).deferred for job in ("head", "small")]
    assert waits == [PendingReason.NO_FREE_GPUS, PendingReason.BEHIND_HEAD]
    world.tell(finished("first", "n1"))
    assert world.nodes_of("head") == ["n1"]


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
def test_a_head_for_which_a_parents_guarantee_has_too_little_left_keeps_back_all_below_that_parent(
    of: str, queue: Queue
) -> None:
    world = world_of(queue, Queue(name="next"))
    lab = replace(quota("lab", None), guaranteed_milli=4_000)
    world.tell(joined("n1", 8), set_quotas(lab, quota("ada", None, "lab"), quota("bob", None, "lab")))
    submit(world, "first", 3, tenant="bob")
    submit(world, "head", 2, preemptible=False)
    submit(world, "small", tenant="bob", queue=of)
    submit(world, "of-eve", tenant="eve", queue=of)
    waits = [world.job(job).deferred for job in ("head", "small", "of-eve")]
    assert waits == [PendingReason.QUOTA_REACHED, PendingReason.BEHIND_HEAD, None]
    world.tell(finished("first", "n1"))
    assert world.nodes_of("head") == ["n1"]


@pytest.mark.parametrize("is_lent", [True, False])
@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
def test_a_head_that_waits_for_what_is_guaranteed_to_nobody_is_passed_by_owners_alone(
    of: str, queue: Queue, *, is_lent: bool
) -> None:
    """Four GPUs of seven are free, two of them bob's, who lends none, or not to a job that would keep them."""
    world = world_of(queue, Queue(name="next"))
    bob = replace(quota("bob", None), guaranteed_milli=2_000, lends=is_lent)
    world.tell(joined("n1", 7), set_quotas(bob))
    submit(world, "first", 3, tenant="eve")
    submit(world, "head", 3, preemptible=not is_lent)
    submit(world, "small", tenant="eve", queue=of)
    assert [world.job(job).deferred for job in ("head", "small")] == [
        PendingReason.QUOTA_REACHED,
        PendingReason.BEHIND_HEAD,
    ]
    submit(world, "of-bob", 2, tenant="bob", queue=of)
    assert [world.nodes_of(job) for job in ("head", "small", "of-bob")] == [[], [], ["n1"]]
    world.tell(finished("first", "n1"))
    assert world.nodes_of("head") == ["n1"]


@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_a_head_that_waits_for_room_since_an_owner_has_started_lets_others_have_nodes_that_it_cannot_use_at_once(
    queue: Queue,
) -> None:
    """Five GPUs are free, one of them in another pool. Of the head's four, one is bob's, who lends none. When bob has
    two, the head lacks room: no guarantee keeps it any more. Nothing is kept for bob, whose job is not the first of its
    strict queue, so no other places are kept by its start.
    """
    world = world_of(queue, Queue(name="next", discipline=STRICT))
    bob = replace(quota("bob", None), guaranteed_milli=2_000, lends=False)
    world.tell(joined("n1", 7), joined("n2", 1, pool="extra"), set_quotas(bob))
    submit(world, "first", 3, tenant="eve")
    submit(world, "head", 4)
    submit(world, "small", tenant="eve", queue="next", pools=("extra",))
    assert [world.job(job).deferred for job in ("head", "small")] == [
        PendingReason.QUOTA_REACHED,
        PendingReason.BEHIND_HEAD,
    ]
    submit(world, "of-bob", 2, tenant="bob", queue="next")
    assert [world.nodes_of(job) for job in ("head", "of-bob", "small")] == [[], ["n1"], ["n2"]]


@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_a_head_that_waits_for_what_is_guaranteed_to_nobody_keeps_nobody_back_while_that_is_closed(
    queue: Queue,
) -> None:
    world = world_of(queue, Queue(name="next"))
    bob = replace(quota("bob", None), guaranteed_milli=2_000, lends=False)
    world.tell(joined("n1", 4), joined("n2", 3), set_quotas(bob), Cordon(cell=CELL, node="n2", reason=""))
    submit(world, "head", 3)
    submit(world, "small", tenant="eve", queue="next")
    assert (world.job("head").deferred, world.nodes_of("small")) == (PendingReason.QUOTA_REACHED, ["n1"])


BELOW = quota("bob", None, "lab")


LARGER_THAN_ALLOWED: dict[str, tuple[tuple[Quota, ...], dict[str, Any]]] = {
    "the limit of the tenant above": ((quota("lab", 4),), {}),
    "its right to borrow": ((replace(quota("lab", None), guaranteed_milli=4_000, borrows=False),), {}),
    "the guarantee, as it may not be preempted": (
        (replace(quota("lab", None), guaranteed_milli=4_000),),
        {"preemptible": False},
    ),
}


@pytest.mark.parametrize("of", LARGER_THAN_ALLOWED)
@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("name", ["line", "next"])
def test_a_job_that_alone_is_more_than_its_tenant_may_ever_use_keeps_nothing_back(
    name: str, queue: Queue, of: str
) -> None:
    quotas, job = LARGER_THAN_ALLOWED[of]
    world = world_of(queue, Queue(name="next"))
    children = (quota(tenant, None, parent="lab") for tenant in ("ada", "bob"))
    world.tell(joined("n1", 8), set_quotas(*quotas, *children))
    submit(world, "large", 5, **job)
    submit(world, "large-too", 5, **job)
    submit(world, "small", queue=name, tenant="bob")
    submit(world, "small-too", queue=name)
    assert [world.job(each).deferred for each in ("large", "large-too")] == [PendingReason.QUOTA_REACHED] * 2
    assert [bool(world.job(each).workers) for each in ("small", "small-too")] == [True, True]
    told = why_not(world.state, world.job("large-too"), world.file.cells[0].queues, world.now_ms)
    assert told.codes == (PendingReason.QUOTA_REACHED,)


def test_several_heads_wait_side_by_side_each_for_its_own_kind_of_nodes() -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(joined("n1", 4), joined("n2", 4, gpu_type="h100"))
    submit(world, "a", 3, gpu_type="gpu")
    submit(world, "b", 3, gpu_type="h100")
    submit(world, "head-a", 4, gpu_type="gpu")
    submit(world, "head-b", 4, gpu_type="h100")
    submit(world, "small-a", gpu_type="gpu")
    submit(world, "small-b", gpu_type="h100")
    assert not world.job("small-a").workers
    assert not world.job("small-b").workers
    world.tell(finished("b", "n2"))
    assert (world.nodes_of("head-b"), world.nodes_of("head-a")) == (["n2"], [])


@pytest.mark.parametrize("of", ["bob", "lab"])
def test_who_takes_what_is_guaranteed_to_him_or_above_passes_a_head_of_another_queue_that_would_borrow(of: str) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    guaranteed = [replace(each, guaranteed_milli=4_000 * (each.tenant == of)) for each in (quota("lab", None), BELOW)]
    world.tell(joined("n1", 4), joined("n2", 4), set_quotas(*guaranteed))
    submit(world, "first", 4)
    submit(world, "head", 4, 2)
    submit(world, "of-bob", 4, queue="next", tenant="bob")
    submit(world, "of-ada", queue="next")
    assert [job for job in ("head", "of-bob", "of-ada") if world.job(job).workers] == ["of-bob"]


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("name", ["line", "next"])
@pytest.mark.parametrize(
    "closes", [Cordon(cell=CELL, node="n1", reason=""), Drain(cell=CELL, node="n1", deadline_ms=0)]
)
def test_a_gang_that_needs_a_closed_node_keeps_nobody_back_until_it_is_opened(
    name: str, queue: Queue, closes: Cordon | Drain
) -> None:
    world = world_of(queue, Queue(name="next"))
    world.tell(joined("n1", 4), joined("n2", 4), closes)
    submit(world, "head", 4, 2)
    submit(world, "small", queue=name)
    assert world.nodes_of("small") == ["n2"]
    told = why_not(world.state, world.job("head"), world.file.cells[0].queues, world.now_ms)
    assert (told.codes, told.to_open) == ((PendingReason.NO_FREE_GPUS,), ("n1",))
    world.tell(Uncordon(cell=CELL, node="n1"))
    submit(world, "late", queue=name)
    assert not world.job("late").workers
    world.tell(finished("small", "n2"))
    assert len(world.job("head").workers) == 2


def test_room_is_not_kept_for_an_owner_that_needs_a_closed_node() -> None:
    world = world_of(Queue(name="line"))
    guaranteed = replace(quota("bob", None), guaranteed_milli=8_000)
    world.tell(joined("n1", 4), joined("n2", 4), set_quotas(guaranteed), Cordon(cell=CELL, node="n1", reason=""))
    submit(world, "of-bob", 4, 2, tenant="bob")
    submit(world, "of-ada")
    assert world.nodes_of("of-ada") == ["n2"]


@pytest.mark.parametrize("is_in_use", [True, False])
def test_what_is_guaranteed_of_one_gpu_type_passes_no_head_on_nodes_of_another(*, is_in_use: bool) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"), extra="h100")
    guaranteed = replace(quota("bob", None), gpu_type="h100", guaranteed_milli=4_000)
    nodes = [joined("n1", 4), joined("n2", 4), joined("n3", 4, pool="extra", gpu_type="h100")]
    world.tell(*nodes, set_quotas(guaranteed))
    submit(world, "first", 4)
    if is_in_use:
        submit(world, "second", 4, pools=("extra",))
    submit(world, "head", 4, 2)
    for job in ("of-bob", "of-bob-too"):
        submit(world, job, 4, queue="next", tenant="bob", pools=("train", "extra"))
    started = world.nodes_of("of-bob"), world.nodes_of("of-bob-too")
    assert started == (([], []) if is_in_use else (["n3"], []))


def with_an_owner(order: QueueOrder) -> World:
    """Eight free GPUs, of which four are guaranteed to bob, and a strict queue."""
    world = world_of(Queue(name="line", discipline=STRICT, order=order), Queue(name="next"))
    world.tell(joined("n1", 8), set_quotas(replace(quota("bob", None), guaranteed_milli=4_000)))
    return world


def test_in_a_strict_queue_by_shares_the_owner_for_whom_the_heads_room_is_kept_passes_it() -> None:
    world = with_an_owner(QueueOrder.FAIR_SHARE)
    head, other = (spec_of(job, gpus, queue="line", pools=("train",)) for job, gpus in (("head", 8), ("of-ada", 1)))
    owner = replace(other, id="of-bob", tenant="bob")
    world.hand_over(admitted(head), admitted(other), admitted(owner))
    world.rest()
    assert [job for job in ("head", "of-ada", "of-bob") if world.job(job).workers] == ["of-bob"]


@pytest.mark.parametrize("order", list(QueueOrder))
def test_a_head_and_an_owner_whose_job_is_larger_than_its_guarantee_do_not_wait_for_each_other(
    order: QueueOrder,
) -> None:
    world = with_an_owner(order)
    submit(world, "first", 8)
    submit(world, "head", 8)
    submit(world, "of-bob", 6, tenant="bob")
    world.tell(finished("first"))
    assert (bool(world.job("head").workers), bool(world.job("of-bob").workers)) == (True, False)
    world.tell(finished("head"))
    assert world.job("of-bob").workers


def start_one_after_the_other(world: World, *jobs: str) -> None:
    """One of two jobs runs, and the other one starts when it has finished."""
    started = [job for job in jobs if world.job(job).workers]
    assert len(started) == 1
    world.tell(finished(started[0]))
    assert all(job in started or world.job(job).workers for job in jobs)


@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_a_head_whose_room_is_kept_for_an_owner_and_that_owner_in_a_queue_behind_do_not_wait_for_each_other(
    queue: Queue,
) -> None:
    """Where the owner's job is larger than its guarantee, too."""
    world = world_of(queue, Queue(name="next"))
    world.tell(joined("n1", 8), set_quotas(replace(quota("bob", None), guaranteed_milli=4_000)))
    submit(world, "first", 8)
    submit(world, "of-bob", 6, queue="next", tenant="bob")
    submit(world, "head", 8)
    world.tell(finished("first"))
    start_one_after_the_other(world, "of-bob", "head")


def with_a_head_of_two_types(queue: Queue, *busy: str) -> World:
    """A node of each of two GPU types, and one more for each `busy` job. A limit keeps the head from one type, and of
    the other what becomes free is kept for bob.
    """
    world = world_of(queue, Queue(name="next"), extra="big")
    world.tell(joined("n2", 8, pool="extra", gpu_type="big"))
    sure = replace(quota("bob", None), guaranteed_milli=8_000 * (1 + len(busy)))
    world.tell(set_quotas(replace(quota("ada", 4), gpu_type="big"), sure))
    for number, job in enumerate(("first", *busy)):
        world.tell(joined(f"n{2 * number + 1}", 8))
        submit(world, job, 8, tenant="eve")
    submit(world, "head", 8, pools=())
    return world


@pytest.mark.parametrize(
    ("queue", "of", "gpus"),
    [
        (Queue(name="line", discipline=STRICT, order=QueueOrder.FAIR_SHARE), "line", 8),
        *((queue, "next", gpus) for queue in WAITING for gpus in (8, 6)),
    ],
    ids=str,
)
def test_a_head_that_a_limit_keeps_from_another_type_and_the_owner_of_its_room_do_not_wait_for_each_other(
    queue: Queue, of: str, gpus: int
) -> None:
    """Where the owner's job is larger than its guarantee, too."""
    world = with_a_head_of_two_types(queue)
    if gpus < 8:
        world.tell(set_quotas(replace(quota("bob", None), guaranteed_milli=4_000)))
    submit(world, "of-bob", gpus, queue=of, tenant="bob")
    world.tell(finished("first"))
    start_one_after_the_other(world, "of-bob", "head")


def test_a_head_whose_room_is_kept_for_an_owner_keeps_from_others_no_node_of_which_a_limit_keeps_it() -> None:
    world = with_a_head_of_two_types(Queue(name="line", discipline=STRICT, order=QueueOrder.FAIR_SHARE), "busy")
    submit(world, "of-bob", 8, 2, queue="next", tenant="bob")
    world.tell(finished("first"))
    submit(world, "small", tenant="eve", pools=())
    assert world.job("head").deferred is PendingReason.RESERVED_FOR_OTHER
    assert (world.nodes_of("head"), world.nodes_of("small")) == ([], ["n2"])


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
def test_a_head_whose_room_is_kept_for_an_owner_is_passed_by_no_other_job(of: str, queue: Queue) -> None:
    """The owner waits for a node of its kind that is long in use."""
    world = world_of(queue, Queue(name="next"), Queue(name="owners"))
    world.tell(set_quotas(replace(quota("bob", None), guaranteed_milli=8_000)))
    world.tell(*(joined(f"n{number}", 4, labels={"disk": "nvme"} if number < 2 else {}) for number in range(4)))
    submit(world, "endless", node_labels=("disk",))
    submit(world, "of-bob", 4, 2, queue="owners", tenant="bob", node_labels=("disk",))
    for number in range(2):
        submit(world, f"busy-{number}", 4, tenant="eve", node_labels=("!disk",))
    submit(world, "head", 4, 2)
    world.tell(finished("busy-0", world.nodes_of("busy-0")[0]))
    assert world.job("head").deferred in (PendingReason.NO_FREE_GPUS, PendingReason.RESERVED_FOR_OTHER)
    submit(world, "small", queue=of, node_labels=("!disk",))
    assert not world.job("small").workers
    world.tell(finished("busy-1", world.nodes_of("busy-1")[0]))
    assert world.nodes_of("head") == ["n2", "n3"]


def test_an_owner_who_waits_is_not_told_of_a_head_whose_room_is_kept_for_owners() -> None:
    world = with_an_owner(QueueOrder.FIFO)
    submit(world, "first", 5, queue="next")
    submit(world, "large", 6, queue="next", tenant="bob")
    submit(world, "head")
    submit(world, "of-bob", 4, tenant="bob")
    assert world.job("head").deferred is PendingReason.RESERVED_FOR_OTHER
    told = why_not(world.state, world.job("of-bob"), world.file.cells[0].queues, world.now_ms)
    assert (told.codes, told.behind) == ((PendingReason.NO_FREE_GPUS,), None)


@pytest.mark.parametrize("types", [("a100", "h100"), ("h100", "a100")])
def test_a_limits_head_leaves_the_nodes_of_other_gpu_types_to_others_whichever_node_of_a_pool_is_the_first(
    types: tuple[str, str],
) -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(*(joined(f"n{number}", 8, gpu_type=each) for number, each in enumerate(types)))
    tenants = [replace(quota(name, 8), gpu_type="h100", parent="lab") for name in ("ada", "bob")]
    world.tell(set_quotas(replace(quota("lab", 4), gpu_type="h100"), *tenants))
    submit(world, "first", 2, gpu_type="h100")
    submit(world, "head", 4, gpu_type="h100")
    submit(world, "any", tenant="bob")
    submit(world, "other", gpu_type="a100", tenant="bob")
    not_limited = f"n{types.index('a100')}"
    assert [world.nodes_of(job) for job in ("head", "any", "other")] == [[], [not_limited], [not_limited]]


@pytest.mark.parametrize("discipline", list(QueueDiscipline))
def test_jobs_that_one_record_does_not_hold_are_not_told_that_they_stand_behind_a_head(
    discipline: QueueDiscipline,
) -> None:
    world = world_of(Queue(name="line", discipline=discipline))
    world.tell(*(joined(f"n{number:03}", 8) for number in range(170)))
    begin = world.now_ms
    jobs = [admitted(spec_of(f"j{number:04}", queue="line", pools=("train",)), begin) for number in range(1_300)]
    made = [*world.tell(*jobs), *world.rest()]
    assert world.state.waiting == 0
    assert [effect for effect in made if isinstance(effect, e.JobDeferred)] == []


def with_a_job_for_any_node(queue: Queue, *behind: Queue, pool: str = "extra", gpu_type: str = "gpu") -> World:
    """`head` waits for the node of train; the other node is in use, and `any` accepts both."""
    world = world_of(queue, *behind)
    world.tell(joined("n1", 4, gpu_type="a100"), joined("n2", 4, pool=pool, gpu_type=gpu_type))
    submit(world, "first", 4, gpu_type="a100")
    submit(world, "other", 4, pools=(pool,), gpu_type=gpu_type)
    submit(world, "head", 4, gpu_type="a100")
    submit(world, "any", 4, pools=())
    return world


PLACES = [("extra", "gpu"), ("train", "h100")]


@pytest.mark.parametrize(("pool", "gpu_type"), PLACES)
@pytest.mark.parametrize("behind", ["line", "next"])
@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_a_job_that_accepts_several_kinds_of_nodes_is_overtaken_on_none_of_them(
    queue: Queue, behind: str, pool: str, gpu_type: str
) -> None:
    world = with_a_job_for_any_node(queue, Queue(name="next"), pool=pool, gpu_type=gpu_type)
    submit(world, "late", 4, pools=(pool,), gpu_type=gpu_type, queue=behind)
    assert world.job("late").deferred is PendingReason.BEHIND_HEAD
    assert why_not(world.state, world.job("late"), world.file.cells[0].queues, world.now_ms).behind is not None
    world.tell(finished("other", "n2"))
    assert world.nodes_of("any") == ["n2"]
    assert not world.job("head").workers
    assert not world.job("late").workers


@pytest.mark.parametrize(("pool", "gpu_type"), PLACES)
@pytest.mark.parametrize("queue", WAITING, ids=named)
def test_a_job_that_accepts_several_kinds_of_nodes_starts_at_once_where_no_head_waits(
    queue: Queue, pool: str, gpu_type: str
) -> None:
    world = world_of(queue)
    world.tell(joined("n1", 4, gpu_type="a100"), joined("n2", 4, pool=pool, gpu_type=gpu_type))
    submit(world, "first", 2, gpu_type="a100")
    submit(world, "head", 4, gpu_type="a100")
    submit(world, "any", 2, pools=())
    assert world.nodes_of("any") == ["n2"]


def behind_told(world: World, job: str) -> tuple[tuple[PendingReason, ...], str | None]:
    """What a reader is told: why the job waits, and behind which other one."""
    told = why_not(world.state, world.job(job), world.file.cells[0].queues, world.now_ms)
    return told.codes, None if told.behind is None else told.behind.job


def guaranteeing(**guaranteed: int) -> World:
    """A strict queue goes before another one. Of two nodes of four GPUs one is in use; the head needs both."""
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    quotas = [replace(quota(tenant, None), guaranteed_milli=1_000 * gpus) for tenant, gpus in guaranteed.items()]
    world.tell(joined("n1", 4), joined("n2", 4), set_quotas(*quotas))
    submit(world, "first", 4)
    submit(world, "head", 4, 2)
    return world


def test_a_job_within_its_guarantee_passes_no_head_of_its_own_queue() -> None:
    world = guaranteeing(bob=4)
    submit(world, "of-bob", 4, tenant="bob")
    assert world.job("of-bob").deferred is PendingReason.BEHIND_HEAD
    assert behind_told(world, "of-bob") == ((PendingReason.BEHIND_HEAD,), "head")


def test_a_job_within_its_guarantee_passes_no_head_that_is_within_its_own() -> None:
    world = guaranteeing(ada=12, bob=4)
    submit(world, "of-bob", 4, queue="next", tenant="bob")
    assert world.job("of-bob").deferred is PendingReason.BEHIND_HEAD


def test_a_job_within_its_guarantee_passes_a_head_of_another_queue_even_behind_a_like_job_that_may_not() -> None:
    world = guaranteeing(bob=4)
    submit(world, "of-ada", 4, queue="next")
    submit(world, "of-bob", 4, queue="next", tenant="bob")
    assert [job for job in ("of-ada", "of-bob") if world.job(job).workers] == ["of-bob"]


def test_of_like_jobs_that_come_together_only_those_within_a_guarantee_pass_a_head_of_another_queue() -> None:
    world = guaranteeing(bob=1)
    world.tell(
        *(
            admitted(spec_of(f"of-{tenant}", queue="next", tenant=tenant, pools=("train",)), world.now_ms + number)
            for number, tenant in enumerate(("bob", "ada"))
        )
    )
    assert [job for job in ("of-ada", "of-bob") if world.job(job).workers] == ["of-bob"]


@pytest.mark.parametrize("pools", [("train", "extra"), ("extra", "train")])
def test_a_guarantee_of_the_type_that_the_head_waits_for_is_enough_for_a_job_that_accepts_another_type_too(
    pools: tuple[str, ...],
) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"), extra="h100")
    world.tell(joined("n1", 4), joined("n2", 4), joined("n3", 4, pool="extra", gpu_type="h100"))
    world.tell(set_quotas(replace(quota("bob", None), guaranteed_milli=4_000)))
    submit(world, "first", 4)
    submit(world, "fill", 4, pools=("extra",), tenant="eve")
    submit(world, "head", 4, 2)
    submit(world, "of-ada", 4, queue="next", pools=pools)
    submit(world, "of-bob", 4, queue="next", pools=pools, tenant="bob")
    assert [job for job in ("of-ada", "of-bob") if world.job(job).workers] == ["of-bob"]


@pytest.mark.parametrize("discipline", [STRICT, BACKFILL])
def test_a_head_at_the_limit_of_its_parent_tenant_keeps_back_all_jobs_below_that_parent(
    discipline: QueueDiscipline,
) -> None:
    world = world_of(Queue(name="line", discipline=discipline), Queue(name="next"))
    world.tell(joined("n1", 4), joined("n2", 4))
    world.tell(set_quotas(quota("lab", 4), quota("ada", None, "lab"), quota("bob", None, "lab")))
    submit(world, "first", 3)
    submit(world, "head", 2)
    submit(world, "of-bob", tenant="bob")
    submit(world, "of-bob-too", queue="next", tenant="bob")
    submit(world, "of-eve", tenant="eve")
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    assert [job for job in ("of-bob", "of-bob-too", "of-eve") if world.job(job).workers] == ["of-eve"]


@pytest.mark.parametrize("order", list(QueueOrder))
def test_an_owner_passes_a_due_head_that_would_borrow_in_its_own_backfilling_queue(order: QueueOrder) -> None:
    """There is no room for the head, however little is kept: what is kept for the owner would stay idle."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=order))
    world.tell(joined("n1", 2), set_quotas(replace(quota("ada", None), guaranteed_milli=1_000)))
    submit(world, "first", tenant="bob")
    submit(world, "head", 2, tenant="bob")
    submit(world, "guest", tenant="eve")
    submit(world, "own", tenant="ada")
    assert world.job("head").deferred is PendingReason.NO_FREE_GPUS
    assert [job for job in ("guest", "own") if world.job(job).workers] == ["own"]
    world.check()


@pytest.mark.parametrize("of", ["line", "next"])
def test_a_job_passes_no_head_of_its_own_tenant_that_is_larger_than_their_guarantee(of: str) -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL), Queue(name="next"))
    world.tell(joined("n1", 8), set_quotas(replace(quota("ada", None), guaranteed_milli=4_000)))
    submit(world, "first", 4, tenant="bob")
    submit(world, "head", 8)
    submit(world, "small", 4, queue=of)
    assert world.job("small").deferred is PendingReason.BEHIND_HEAD


def test_a_due_head_keeps_back_a_job_that_may_pass_a_younger_head() -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL), wait_ms=1_000)
    world.tell(joined("n1", 4), joined("n2", 4, pool="extra"))
    submit(world, "first", 2)
    submit(world, "second", 4, pools=("extra",))
    submit(world, "old", 4)
    world.pass_time(1_000)
    submit(world, "young", 4, pools=("extra",), priority=1)
    submit(world, "small", pools=("train", "extra"))
    assert {"old", "young"} <= set(world.state.heads)
    assert world.job("small").deferred is PendingReason.BEHIND_HEAD


def test_the_nodes_where_a_head_could_be_are_found_again_when_a_node_joins() -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(*(joined(f"n{number}", 4) for number in (1, 2, 3)), joined("n4", 2, labels={"disk": "hdd"}))
    submit(world, "first", 4, 2)
    submit(world, "fill", 2, node_labels=("disk=hdd",))
    submit(world, "head", 4, 3)
    submit(world, "small", node_labels=("disk=hdd",))
    assert world.job("small").deferred is PendingReason.NO_FREE_GPUS
    world.tell(joined("n5", 4, labels={"disk": "hdd"}))
    assert not world.job("head").workers
    assert not world.job("small").workers
    world.tell(finished("fill", "n4"))
    assert world.nodes_of("small") == ["n4"]


def test_a_strict_head_that_waits_for_maintenance_keeps_back_only_its_own_queue() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 4), PlanMaintenance(cell=CELL, node="n1", begin_ms=50_000, end_ms=60_000, reason="disk"))
    submit(world, "head", max_run_ms=90_000)
    submit(world, "own", max_run_ms=10_000)
    submit(world, "other", max_run_ms=10_000, queue="next")
    assert world.job("head").deferred is PendingReason.MAINTENANCE
    assert not world.job("own").workers
    assert world.job("other").workers


@pytest.mark.parametrize("queue", WAITING, ids=named)
@pytest.mark.parametrize("of", ["line", "next"])
def test_a_head_keeps_no_node_whose_maintenance_it_would_meet(of: str, queue: Queue) -> None:
    world = world_of(queue, Queue(name="next"))
    world.tell(*(joined(f"n{number}", 4, labels={"closes": "no"} if number < 2 else {}) for number in range(3)))
    world.tell(PlanMaintenance(cell=CELL, node="n2", begin_ms=50_000, end_ms=60_000, reason="fans"))
    submit(world, "first", 4, node_labels=("closes",))
    submit(world, "head", 4, 2, max_run_ms=90_000)
    for job, max_ms in (("short", 10_000), ("long", 90_000)):
        submit(world, job, 2, queue=of, max_run_ms=max_ms)
    assert world.job("head").deferred is PendingReason.NO_FREE_GPUS
    assert [world.nodes_of(job) for job in ("short", "long")] == [["n2"], []]


def test_why_not_names_no_head_that_a_job_within_its_guarantee_may_pass() -> None:
    world = guaranteeing(bob=4)
    submit(world, "of-bob", 4, queue="next", tenant="bob")
    submit(world, "more", 4, queue="next", tenant="bob")
    world.tell(finished("of-bob", "n2"))
    submit(world, "later", 4, queue="next", tenant="bob")
    assert world.job("more").workers
    assert behind_told(world, "later")[1] == "head"  # the guarantee is in use
    world.tell(set_quotas(replace(quota("bob", None), guaranteed_milli=8_000)))
    assert behind_told(world, "later") == ((PendingReason.NO_FREE_GPUS,), None)


def test_why_not_names_the_first_of_several_heads() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 4))
    for job, gpus, priority in (("fill", 2, 0), ("second", 3, 0), ("first", 4, 1)):
        submit(world, job, gpus, priority=priority)
    submit(world, "other", queue="next")
    assert behind_told(world, "other") == ((PendingReason.BEHIND_HEAD,), "first")


def test_why_not_names_no_job_that_its_own_array_keeps_back() -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(joined("n1", 4))
    submit(world, "many", array=2, array_max_running=1)
    submit(world, "fill", 3)
    submit(world, "own")
    assert world.job("many.1").deferred is PendingReason.ARRAY_LIMIT
    assert behind_told(world, "own") == ((PendingReason.NO_FREE_GPUS,), None)


def test_of_one_class_the_job_before_a_head_starts_and_the_one_behind_it_waits() -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(joined("n1", 4), joined("n2", 4, gpu_type="h100"))
    jobs = [("b", 1, "h100"), ("head-b", 4, "h100"), ("before", 1, "gpu"), ("head-a", 4, "gpu"), ("behind", 1, "gpu")]
    world.tell(
        *(
            admitted(spec_of(job, gpus, gpu_type=gpu_type, queue="line", pools=("train",)), number)
            for number, (job, gpus, gpu_type) in enumerate(jobs)
        )
    )
    assert [job for job, *_ in jobs if world.job(job).workers] == ["b", "before"]


def test_the_nodes_where_a_head_could_be_are_found_again_when_a_node_is_lost() -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(*(joined(f"n{number}", 4) for number in (1, 2, 3)), joined("n4", 2, labels={"disk": "hdd"}))
    world.tell(joined("n5", 4, labels={"disk": "hdd"}))
    submit(world, "first", 4, 3, node_labels=("!disk",))
    submit(world, "fill", 2, node_labels=("disk=hdd",))
    submit(world, "head", 4, 3)
    submit(world, "small", node_labels=("disk=hdd",))
    assert world.nodes_of("fill") == ["n4"]
    assert world.job("small").deferred is PendingReason.BEHIND_HEAD
    world.tell(lost("n5"))
    assert world.job("small").deferred is PendingReason.NO_FREE_GPUS
    world.tell(finished("fill", "n4"))
    assert not world.job("head").workers
    assert world.nodes_of("small") == ["n4"]


def test_a_head_stays_one_while_jobs_of_another_queue_that_backfills_wait_too() -> None:
    world = with_a_head(Queue(name="line", discipline=BACKFILL), Queue(name="next", discipline=BACKFILL), wait_ms=1_000)
    since_ms = world.state.heads["head"]
    submit(world, "other", 4, 2, queue="next")
    world.pass_time(500)
    submit(world, "more", 4, 2, queue="next")
    assert world.state.heads["head"] == since_ms


def test_who_reads_of_a_head_that_one_of_an_earlier_queue_keeps_back_is_told_so() -> None:
    queues = (
        Queue(name="line", discipline=STRICT),
        Queue(name="next", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE),
    )
    world = world_of(*queues)
    world.tell(joined("n1", 4), joined("n2", 4))
    submit(world, "first", 4)
    submit(world, "fill", 4, queue="next", tenant="bob")
    submit(world, "later", 4, queue="next", tenant="bob")
    submit(world, "head", 4, 2)
    world.tell(finished("fill", "n2"))
    assert not world.job("later").workers
    told = why_not(world.state, world.job("later"), queues, world.now_ms)
    assert told.codes == (PendingReason.BEHIND_HEAD,)
    assert told.behind is not None
    assert told.behind.job == "head"


def test_a_service_that_needs_several_workers_at_least_is_tried_beside_a_head_for_a_single_one_that_it_lacks() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 4), joined("n2", 4, gpu_type="h100"))
    submit(world, "on-n1", 1, gpu_type="gpu")
    submit(world, "service", 1, 6, gang=False, kind=JobKind.INFERENCE, workers_min=3, gpu_type="h100", queue="next")
    submit(world, "head", 4, gpu_type="gpu")
    assert world.nodes_of("service") == ["n2"] * 4
    world.tell(joined("n3", 1, gpu_type="h100"))
    assert world.nodes_of("service") == ["n2"] * 4 + ["n3"]
    world.tell(joined("n4", 4, gpu_type="h100"))
    assert len(world.job("service").workers) == 6


@pytest.mark.parametrize("order", list(QueueOrder))
@pytest.mark.parametrize("job", ["behind", "other"])
def test_who_stands_behind_a_running_service_that_lacks_room_is_told_so(job: str, order: QueueOrder) -> None:
    queues = (Queue(name="line", discipline=STRICT, order=order), Queue(name="next"))
    world = world_of(*queues)
    world.tell(joined("n1", 8), joined("n2", 8))
    submit(world, "first", 4)
    submit(world, "service", 8, 2, gang=False, kind=JobKind.INFERENCE, workers_min=1)
    submit(world, "behind")
    submit(world, "other", queue="next")
    assert (len(world.job("service").workers), world.job(job).deferred) == (1, PendingReason.BEHIND_HEAD)
    told = why_not(world.state, world.job(job), queues, world.now_ms)
    assert told.codes == (PendingReason.BEHIND_HEAD,)
    assert told.behind is not None
    assert (told.behind.job, told.behind.code) == ("service", PendingReason.NO_FREE_GPUS)


@pytest.mark.parametrize("kinds", [15, 16, 17, 200])
def test_however_many_kinds_of_jobs_a_head_keeps_back_each_is_tried_on_the_other_nodes(kinds: int) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 4, cpu_milli=64_000), joined("n2", 4, gpu_type="h100", cpu_milli=64_000))
    submit(world, "on-n1", 1, gpu_type="gpu")
    submit(world, "on-n2", 2, gpu_type="h100")
    submit(world, "head", 4, gpu_type="gpu")
    for number in range(kinds):
        submit(world, f"kind-{number}", queue="next", resources=Resources(gpu_milli=3_000, cpu_milli=number + 1))
    submit(world, "small", queue="next")
    assert world.nodes_of("small") == ["n2"]
    assert not any(world.job(f"kind-{number}").workers for number in range(kinds))
    world.tell(finished("on-n2", "n2"))
    assert [world.nodes_of(f"kind-{number}") for number in range(kinds)].count(["n2"]) == 1


@pytest.mark.parametrize("kind", [JobKind.TRAINING, JobKind.INFERENCE])
def test_a_running_job_that_lacks_workers_grows_on_nodes_where_no_head_could_be(kind: JobKind) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 8), joined("n2", 8, pool="extra"))
    submit(world, "fill", 8, pools=("extra",))
    submit(world, "busy", 6)
    both: dict[str, Any] = {"pools": ("train", "extra"), "queue": "next"}
    submit(world, "lacking", 2, 3, gang=False, workers_min=1, kind=kind, **both)
    submit(world, "head", 8)
    assert world.nodes_of("lacking") == ["n1"]
    world.tell(finished("fill", "n2"))
    submit(world, "later", 8, **both)
    assert world.nodes_of("lacking") == ["n1", "n2", "n2"]
    assert world.nodes_of("later") == []


def test_a_retried_job_goes_to_another_node_also_beside_a_head() -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(joined("n1", 8), joined("n2", 8, pool="extra"), joined("n3", 8, pool="extra"))
    submit(world, "busy", 4)
    submit(world, "head", 8)
    submit(world, "job", 8, pools=("train", "extra"), queue="next", retry=RetryPolicy(budget=3))
    (before,) = world.nodes_of("job")
    world.tell(started("job", before), failed("job", before))
    world.listens = False
    world.pass_time(30_000)
    assert world.nodes_of("job") == [node for node in ("n2", "n3") if node != before]


@pytest.mark.parametrize("order", list(QueueOrder))
def test_a_job_behind_a_head_is_a_head_only_of_the_nodes_beside_it_and_an_owner_passes_both(order: QueueOrder) -> None:
    """The head waits for bob, whose job is larger than his guarantee: the second one must not keep that one back."""
    world = world_of(Queue(name="line", discipline=STRICT, order=order), Queue(name="next"))
    world.tell(joined("n1", 4), joined("n2", 4), joined("n3", 2))
    world.tell(set_quotas(replace(quota("bob", None), guaranteed_milli=5_000)))
    submit(world, "first", 4, 2)
    submit(world, "of-bob", 4, 2, queue="next", tenant="bob")
    submit(world, "head", 4, 2)
    submit(world, "second", 2, 4, tenant="eve")
    world.tell(finished("first", "n1"), finished("first", "n2"))
    assert world.job("of-bob").workers
    submit(world, "behind", 2, tenant="eve", queue="next")
    assert world.job("behind").deferred is PendingReason.BEHIND_HEAD


def test_who_is_kept_back_by_a_due_head_passes_a_younger_one_on_other_nodes() -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL), wait_ms=10_000)
    for disk in "ab":
        world.tell(joined(f"n-{disk}", 4, labels={"disk": disk}))
        submit(world, f"first-{disk}", 2, node_labels=(f"disk={disk}",))
    submit(world, "old", 4, node_labels=("disk=a",))
    world.pass_time(10_000)
    submit(world, "young", 4, node_labels=("disk=b",))
    submit(world, "small")
    assert world.nodes_of("small") == ["n-b"]


def test_by_shares_a_head_behind_one_of_its_own_tenant_keeps_no_owner_off_for_whom_that_ones_room_is_kept() -> None:
    """The head waits for the owner's places, and the owner's job is larger than its guarantee."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), extra="big")
    world.tell(*(joined(f"n{number}", 8) for number in range(3)), joined("n3", 8, pool="extra", gpu_type="big"))
    sure = replace(quota("eve", None, "lab"), guaranteed_milli=8_000)
    borrowing = replace(quota("ada", None, gpu_type="big"), borrow_limit_milli=4_000)
    world.tell(set_quotas(quota("lab", None), sure, quota("bob", None, "lab"), borrowing))
    submit(world, "first", 8, 2, tenant="bob")
    submit(world, "head", 8, 3, pools=())
    submit(world, "of-bob", 8, 2, tenant="bob")
    submit(world, "behind", 2, 3, pools=())
    world.pass_time(1)
    world.tell(*(finished("first", node) for node in world.nodes_of("first")))
    assert world.job("of-bob").workers
    world.tell(*(finished("of-bob", node) for node in world.nodes_of("of-bob")))
    assert world.job("head").workers


@pytest.mark.parametrize("order", QueueOrder)
def test_a_walk_comes_by_a_job_once_that_another_one_of_its_class_has_let_come_first_again(order: QueueOrder) -> None:
    """Late stood first in its class until early came, which starts with one worker where the strict head could not be:
    then late is the first again, and a head itself.
    """
    queues = Queue(name="strict", discipline=STRICT), Queue(name="line", discipline=BACKFILL, order=order)
    world = world_of(*queues, wait_ms=10_000)
    world.tell(joined("n1", 4), joined("n2", 1, pool="extra"), set_quotas(quota("ada", 9)))
    submit(world, "first", tenant="bob", queue="strict")
    submit(world, "head", 4, tenant="bob", queue="strict")
    alike: dict[str, Any] = {"tenant": "ada", "queue": "line", "pools": ("train", "extra"), "workers_min": 1}
    world.tell(admitted(loose("late", 2, **alike), 35), admitted(loose("early", 2, **alike), 26))
    assert [(job, len(world.job(job).workers)) for job in ("early", "late")] == [("early", 1), ("late", 0)]
    assert "late" in world.state.heads
