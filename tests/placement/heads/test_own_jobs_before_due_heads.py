"""By shares a due head keeps its room from other tenants unless a job of its own tenant that stands before it waits for
the same: what waits for something else, may never start, or was not looked for yet takes nothing from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.queue import due_heads
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources, RetryPolicy
from fallow.shared.events.nodes import RunFailed
from fallow.shared.events.operations import Cordon, Drain, PlanMaintenance, Uncordon
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.heads.test_heads import BACKFILL, submit, world_of
from tests.placement.worlds.replicas import all_start, service, word
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    finished,
    joined,
    quota,
    set_quotas,
    spec_of,
    update,
)

FAIR = Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE)
NEW: dict[str, Any] = {"node_labels": ("new",)}
OLD: dict[str, Any] = {"node_labels": ("old",)}
SPARE: dict[str, Any] = {"node_labels": ("!old",)}
HALF_HOUR_MS = 1_800_000
HOUR_MS = 2 * HALF_HOUR_MS


def before_the_flow(gpu_type: str) -> World:
    """Two nodes that a stream of ada's uses in turn, a third beside them, and others that bob and eve fill."""
    world = world_of(FAIR, wait_ms=HALF_HOUR_MS, extra="h100")
    world.listens = False  # hours pass, and no node speaks
    pool = "train" if gpu_type == "gpu" else "extra"
    world.tell(*(joined(f"x{n}", 4, pool=pool, gpu_type=gpu_type, labels={"new": "1"}) for n in (1, 2)))
    world.tell(joined("spare", 4), *(joined(f"t{n}", 8, labels={"old": "1"}) for n in range(6)))
    submit(world, "own", 8, tenant="bob", **OLD)
    submit(world, "also-own", 8, 2, tenant="bob", **OLD)
    submit(world, "other", 8, 3, tenant="eve", **OLD)
    submit(world, "fill", 2, tenant="eve", **SPARE)
    return world


def flows(world: World, each: Callable[[int], list[Event]] | None, **where: Any) -> int | None:
    """Two jobs of ada's run, and behind them bob's head waits for both nodes. Ada submits one more in each half minute,
    and the older one of hers ends: when the head starts, in minutes; None for never in an hour and a half. `each` is
    what bob sends with that end.
    """
    for number in (0, 1):
        submit(world, f"small-{number}", 4, tenant="ada", **where)
        world.pass_time(30_000)
    submit(world, "head", 4, 2, tenant="bob", **where)
    for number in range(2, 180):
        submit(world, f"small-{number}", 4, tenant="ada", **where)
        world.pass_time(30_000)
        running = [job for job in world.state.jobs if job.startswith("small-") and world.job(job).workers]
        ended = [finished(job, world.nodes_of(job)[0]) for job in running[:1]]
        world.tell(*ended, *([] if each is None else each(number)))
        if world.job("head").workers:
            return world.now_ms // 60_000
    return None


@pytest.mark.parametrize("before", ["nothing", "at its limit", "never, as its limit is", "never, of its own type"])
def test_a_due_head_starts_however_many_of_another_tenant_come_if_what_stands_before_it_waits_for_something_else(
    before: str,
) -> None:
    gpu_type = "gpu" if before == "never, of its own type" else "h100"
    world = before_the_flow(gpu_type)
    if before == "at its limit":
        world.tell(set_quotas(quota("bob", 28)))
        submit(world, "before", 8, tenant="bob", **OLD)
    elif before != "nothing":
        submit(world, "before", 4, 9, tenant="bob")
        world.tell(set_quotas(quota("bob", 32)))
    started = flows(world, None, pools=("train" if gpu_type == "gpu" else "extra",), **NEW)
    assert started in range(30, 34)


@pytest.mark.parametrize("wanted", [4, 5])
def test_a_due_head_starts_though_a_running_job_before_it_wants_a_worker_more_that_no_node_could_hold(
    wanted: int,
) -> None:
    """It waits for other nodes than there are, and so for nothing that ends: nor when something has become free."""
    world = world_of(FAIR, wait_ms=HALF_HOUR_MS)
    world.listens = False  # hours pass, and no node speaks
    world.tell(*(joined(f"x{number}", 8, memory_mib=2) for number in (1, 2)))
    submit(world, "grows", 1, wanted, tenant="bob", gang=False, resources=Resources(gpu_milli=1_000, memory_mib=1))
    assert len(world.job("grows").workers) == 4
    assert flows(world, None) in range(30, 34)


def closed_by(how: str, now_ms: int) -> Event:
    """What closes the node x3 so."""
    if how == "maintenance":
        return PlanMaintenance(cell=CELL, node="x3", begin_ms=now_ms, end_ms=now_ms + 1_000_000_000)
    return Cordon(cell=CELL, node="x3") if how == "cordoned" else Drain(cell=CELL, node="x3")


@pytest.mark.parametrize("kind", list(JobKind))
@pytest.mark.parametrize("how", ["cordoned", "drained", "maintenance"])
@pytest.mark.parametrize("wanted", [4, 5])
def test_a_due_head_starts_though_a_running_job_before_it_wants_a_worker_more_that_only_a_closed_node_could_hold(
    wanted: int, how: str, kind: JobKind
) -> None:
    """Nothing that ends on the open nodes is of any use to it."""
    world = world_of(FAIR, wait_ms=HALF_HOUR_MS)
    world.listens = False  # hours pass, and no node speaks
    world.tell(*(joined(f"x{number}", 8, memory_mib=2) for number in (1, 2, 3)))
    world.tell(closed_by(how, world.now_ms))
    wants = Resources(gpu_milli=1_000, memory_mib=1)
    fewest = {"workers_min": 1} if kind is JobKind.INFERENCE else {}
    submit(world, "grows", 1, wanted, tenant="bob", gang=False, resources=wants, kind=kind, **fewest)
    assert len(world.job("grows").workers) == 4
    assert flows(world, None) in range(30, 34)


@pytest.mark.parametrize("other", ["closed", "full of its own"])
def test_a_due_head_starts_though_a_job_before_it_that_waits_for_another_node_could_else_be_on_one_that_is(
    other: str,
) -> None:
    """Both could be on that node, and neither has any use of it."""
    world = world_of(FAIR, wait_ms=HALF_HOUR_MS)
    world.listens = False  # hours pass, and no node speaks
    world.tell(joined("both", 4, labels={"old": "1", "new": "1"}), joined("o1", 4, labels={"old": "1"}))
    world.tell(*(joined(f"x{number}", 4, labels={"new": "1"}) for number in (1, 2)))
    submit(world, "fill", 4, tenant="eve", node_labels=("old", "!new"))
    if other == "closed":
        world.tell(Cordon(cell=CELL, node="both"))
    submit(world, "waits", 4, 1 if other == "closed" else 2, tenant="bob", gang=other == "closed", **OLD)
    assert world.nodes_of("waits") == ([] if other == "closed" else ["both"])
    assert flows(world, None, **NEW) in range(30, 34)


def test_workers_enter_as_soon_as_the_closed_node_that_alone_could_hold_them_is_opened() -> None:
    world = world_of(FAIR)
    world.tell(*(joined(f"x{number}", 8, memory_mib=2) for number in (1, 2, 3)))
    world.tell(Cordon(cell=CELL, node="x3"))
    submit(world, "grows", 1, 5, tenant="bob", gang=False, resources=Resources(gpu_milli=1_000, memory_mib=1))
    world.pass_time(1_000)
    assert world.nodes_of("grows") == ["x1", "x1", "x2", "x2"]
    world.tell(Uncordon(cell=CELL, node="x3"))
    assert world.nodes_of("grows") == ["x1", "x1", "x2", "x2", "x3"]


def test_in_a_strict_queue_who_waits_for_a_worker_that_only_a_closed_node_could_hold_keeps_nobody_back() -> None:
    world = world_of(Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO))
    world.tell(*(joined(f"x{number}", 8, memory_mib=2) for number in (1, 2)))
    world.tell(Cordon(cell=CELL, node="x2"))
    submit(world, "grows", 1, 3, tenant="bob", gang=False, resources=Resources(gpu_milli=1_000, memory_mib=1))
    submit(world, "next", 4, tenant="ada")
    assert (world.nodes_of("grows"), world.nodes_of("next")) == (["x1", "x1"], ["x1"])


def test_a_due_head_starts_though_its_tenant_sends_a_small_job_of_a_higher_priority_with_each_end() -> None:
    world = before_the_flow("gpu")

    def send(number: int) -> list[Event]:
        last = f"young-{number - 1}"
        has_run = last in world.state.jobs and world.job(last).workers
        ended = [finished(last, world.nodes_of(last)[0])] if has_run else []
        spec = spec_of(f"young-{number}", 2, tenant="bob", queue="line", priority=100, **SPARE)
        return [*ended, admitted(spec, world.now_ms)]

    started = flows(world, send, **NEW)
    assert started in range(30, 34)


@pytest.mark.parametrize("writer", ["the same", "another one"])
def test_a_service_that_lacked_a_replica_before_a_head_of_its_tenant_was_due_goes_on_waiting(writer: str) -> None:
    """Ada's service comes before her head, which is at her limit, and before bob's service, as he has more: also where
    no walk has looked at it since the head came to be due.
    """
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("n1", 4), set_quotas(quota("ada", 4), quota("bob", 8)))
    for job, tenant in (("own", "ada"), ("other", "bob")):
        world.tell(admitted(service(job, 1, tenant=tenant, queue="line", workers_min=1)))
        all_start(world, job)
    world.run(*(spec_of(f"fill-{number}", tenant="bob", queue="line") for number in (0, 1)))
    world.tell(*(update(job, tenant, workers=2) for job, tenant in (("own", "ada"), ("other", "bob"))))
    submit(world, "head", 4, tenant="ada")
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    world.now_ms += 20_000
    if writer == "another one":
        world.restart()
    world.tell(finished("fill-0"))
    assert (len(world.job("own").workers), len(world.job("other").workers)) == (2, 1)


def test_a_new_writer_finds_no_more_heads_beside_one_behind_a_service_that_still_lacks_a_replica() -> None:
    """Ada's head is due, and keeps nothing behind her service. Before it did, eve's `second`, which waits behind her
    `first` and for either node, would be looked for beside it, in vain, and be a head there.
    """
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("n1", 8, labels={"new": "1"}), joined("n2", 8, labels={"old": "1"}))
    submit(world, "fill-1", 4, tenant="bob", **NEW)
    submit(world, "fill-2", 4, tenant="bob", **OLD)
    world.tell(admitted(service("lacks", 2, 4, tenant="ada", queue="line", workers_min=1, **NEW)))
    all_start(world, "lacks")
    submit(world, "due", 4, tenant="ada", **NEW)
    world.pass_time(5_000)
    submit(world, "first", 8, tenant="eve", priority=1, **OLD)
    submit(world, "second", 6, tenant="eve")
    world.pass_time(7_000)
    heads = {"due": 0, "first": 5_000}
    assert world.state.heads == heads
    world.restart()
    assert world.state.heads == heads


def with_a_replica_that_failed(world: World, until_ms: int, **where: Any) -> None:
    """One of two replicas of bob's service has failed, and comes back at this moment."""
    pauses = RetryPolicy(budget=9, backoff_ms=until_ms - world.now_ms, backoff_max_ms=HOUR_MS)
    spec = service("lacks", 2, 4, tenant="bob", queue="line", pools=("train",), workers_min=1, retry=pauses, **where)
    world.tell(admitted(spec))
    all_start(world, "lacks")
    world.tell(word(RunFailed, world, "lacks", 0))
    assert [setback.until_ms for setback in world.job("lacks").setbacks] == [until_ms]


@pytest.mark.parametrize("writer", ["the same", "one that comes later", "one that comes in between"])
def test_nobody_passes_a_due_head_while_a_replica_of_its_tenant_comes_back_beside_it(writer: str) -> None:
    """Ada has less, and so the turn: what she wants is kept from her, since the replica has room on another node. Where
    the writer was gone as its pause ended no walk has looked for that yet.
    """
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    world.tell(joined("spare", 8), joined("o1", 4, labels={"old": "1"}))
    submit(world, "own", 4, tenant="bob", **OLD)
    submit(world, "first", 4, tenant="eve", **NEW)
    with_a_replica_that_failed(world, 30_000, **SPARE)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    submit(world, "small", 2, tenant="ada", **NEW)
    if writer == "one that comes later":
        world.now_ms, world.wall_ms = 31_000, 31_000
    else:
        world.pass_time(11_000)
    if writer != "the same":
        world.restart()
    assert (world.nodes_of("lacks"), world.nodes_of("small")) == (["spare", "spare"], [])


def test_a_new_writer_finds_no_more_heads_beside_one_behind_a_replica_whose_pause_was_over_before_it_was_due() -> None:
    """As in the test before, though the log does not tell that the writer before has looked for the replica in vain."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("n1", 8, labels={"new": "1"}), joined("n2", 8, labels={"old": "1"}))
    with_a_replica_that_failed(world, 7_000, **NEW)
    submit(world, "fill-1", 4, tenant="ada", **NEW)
    submit(world, "fill-2", 4, tenant="ada", **OLD)
    submit(world, "due", 4, tenant="bob", **NEW)
    world.pass_time(5_000)
    submit(world, "first", 8, tenant="eve", priority=1, **OLD)
    submit(world, "second", 6, tenant="eve")
    for _ in range(7):
        world.pass_time(1_000)
    heads = {"due": 0, "first": 5_000}
    assert (world.state.at_ms, world.state.heads) == (5_000, heads)
    world.restart()
    assert world.state.heads == heads


def test_a_due_head_that_comes_to_its_limit_by_a_job_behind_it_lets_those_pass_that_are_not_below_that() -> None:
    """Though it was told before that it waits for room, and nothing else happens."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)), joined("o1", 8, labels={"old": "1"}))
    world.tell(set_quotas(quota("bob", 12)))
    submit(world, "first", 4, tenant="eve", **NEW)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    submit(world, "small", 2, tenant="ada", **NEW)
    assert (world.job("small").deferred, world.job("head").deferred) == (
        PendingReason.BEHIND_HEAD,
        PendingReason.NO_FREE_GPUS,
    )
    submit(world, "behind", 8, tenant="bob", **OLD)
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    assert (world.nodes_of("behind"), world.nodes_of("small")) == (["o1"], ["n2"])


def with_a_due_head(**young: Any) -> World:
    """Bob's head waits for two nodes, one of which is free; a third one has room, and would be left emptier."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    world.tell(joined("spare", 8), joined("o1", 4, labels={"old": "1"}))
    submit(world, "own", 4, tenant="bob", **OLD)
    submit(world, "first", 4, tenant="eve", **NEW)
    submit(world, "head", 4, 2, tenant="bob", estimate_run_ms=1_000, **NEW)
    world.pass_time(20_000)
    submit(world, "small", 2, tenant="ada", estimate_run_ms=1_000, **NEW)
    assert world.job("small").deferred is PendingReason.BEHIND_HEAD
    if young:
        submit(world, "young", tenant="bob", priority=1, **young)
    return world


def test_a_new_job_before_a_due_head_of_its_tenant_is_tried_beside_what_that_keeps() -> None:
    world = with_a_due_head(gpus=2, **SPARE)
    assert (world.nodes_of("young"), world.nodes_of("small")) == (["spare"], [])


def test_a_new_job_that_finds_nothing_beside_a_due_head_of_its_tenant_waits_for_the_same_from_the_next_look() -> None:
    """Which comes at once, though nothing else happens. When it has started the head keeps its room again."""
    world = with_a_due_head()
    made = world.tell(admitted(spec_of("young", 2, tenant="bob", queue="line", priority=1, **NEW), world.now_ms))
    assert e.JobDeferred(job="young", code=PendingReason.BEHIND_HEAD) in made
    assert world.nodes_of("small") == world.nodes_of("young") == ["n2"]
    world.tell(finished("small", "n2"), finished("young", "n2"))
    submit(world, "next", 2, tenant="ada", **NEW)
    assert (world.nodes_of("next"), world.job("next").deferred) == ([], PendingReason.BEHIND_HEAD)


def test_that_one_was_kept_off_says_nothing_of_a_new_job_that_is_like_it() -> None:
    """The one has given up, and the new one finds a place beside what the head keeps."""
    world = with_a_due_head()
    submit(world, "fill", 8, tenant="eve", **SPARE)
    young = spec_of("young", 4, tenant="bob", queue="line", pools=("train",), priority=1, **SPARE)
    made = world.tell(admitted(young, world.now_ms))
    assert e.JobDeferred(job="young", code=PendingReason.BEHIND_HEAD) in made
    assert (world.nodes_of("small"), world.nodes_of("young")) == (["n2"], [])
    alike, small = replace(young, id="alike"), spec_of("next", 2, tenant="ada", queue="line", pools=("train",), **NEW)
    world.tell(
        finished("small", "n2"),
        finished("fill", "spare"),
        *(admitted(each, world.now_ms) for each in (alike, small)),
        cancel("young", "bob"),
    )
    assert (world.nodes_of("alike"), world.nodes_of("next")) == (["spare"], [])


def test_a_job_before_a_due_head_of_its_tenant_waits_for_the_same_once_nodes_have_come_that_it_could_use() -> None:
    """Whatever it was told before they came."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)), joined("o1", 4, labels={"old": "1"}))
    submit(world, "own", 4, tenant="bob", **OLD)
    submit(world, "first", 4, 2, tenant="eve", **NEW)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    submit(world, "before", 2, tenant="bob", priority=1, node_labels=("new", "fresh"))
    assert world.job("before").deferred is PendingReason.NO_SUCH_NODES
    world.tell(joined("n3", 4, labels={"new": "1", "fresh": "1"}))
    assert world.nodes_of("before") == ["n3"]


def test_a_new_job_that_would_meet_maintenance_wherever_a_due_head_of_its_tenant_waits_takes_nothing_from_it() -> None:
    world = with_a_due_head()
    plans = [PlanMaintenance(cell=CELL, node=node, begin_ms=500_000, end_ms=900_000) for node in ("n1", "n2")]
    world.tell(*plans)
    submit(world, "young", 1, tenant="bob", priority=1, max_run_ms=10_000_000, **NEW)
    for _ in range(3):
        world.pass_time(1_000)
        assert world.nodes_of("small") == []


@pytest.mark.parametrize("is_one_before", [False, True])
def test_a_head_at_a_limit_is_passed_by_nobody_below_it_though_an_own_job_waits_for_room_of_another_gpu_type(
    is_one_before: bool,
) -> None:
    world = world_of(FAIR, wait_ms=10_000, extra="h100")
    world.tell(joined("t1", 8), *(joined(f"x{n}", 4, pool="extra", gpu_type="h100") for n in range(4)))
    lab = [quota(name, None, parent="lab", gpu_type="h100") for name in ("bob", "ada")]
    world.tell(set_quotas(quota("lab", 8, gpu_type="h100"), *lab))
    submit(world, "first", 8, tenant="eve")
    submit(world, "of-ada", 4, tenant="ada", pools=("extra",))
    if is_one_before:
        submit(world, "before", 8, tenant="bob")
    submit(world, "head", 4, 2, tenant="bob", pools=("extra",))
    world.pass_time(20_000)
    submit(world, "next", 4, tenant="ada", pools=("extra",))
    assert (world.nodes_of("next"), world.job("next").deferred) == ([], PendingReason.BEHIND_HEAD)


@pytest.mark.parametrize("is_older", [True, False])
def test_an_own_due_head_at_the_limit_of_the_same_type_has_the_one_behind_it_keep_nothing(*, is_older: bool) -> None:
    """On other nodes too: it may not be passed by it, so what that would keep would lie idle. Also where it came later,
    and stands before it by its priority.
    """
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("o1", 8, labels={"old": "1"}), *(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    world.tell(set_quotas(quota("bob", 8)))
    submit(world, "own", 4, tenant="bob", **OLD)
    submit(world, "first", 4, tenant="eve", **NEW)
    submit(world, "second", 2, tenant="eve", **NEW)
    if is_older:
        submit(world, "limited", 8, tenant="bob", **OLD)
    submit(world, "head", 2, 2, tenant="bob", **NEW)
    if not is_older:
        world.pass_time(1_000)
        submit(world, "limited", 8, tenant="bob", priority=1, **OLD)
    world.pass_time(20_000)
    codes = {job: world.job(job).deferred for job in ("limited", "head")}
    assert codes == {"limited": PendingReason.QUOTA_REACHED, "head": PendingReason.NO_FREE_GPUS}
    assert list(world.state.heads) == (["limited"] if is_older else ["head", "limited"])
    submit(world, "small", 2, tenant="ada", **NEW)
    assert world.nodes_of("small") == ["n2"]


def test_a_head_that_comes_to_a_limit_keeps_nothing_below_it_while_an_own_job_before_it_waits_for_room() -> None:
    """Also in the decision in which it comes there: the limit is of the whole GPU type."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("o1", 8, labels={"old": "1"}), *(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    lab = [quota(name, None, parent="lab") for name in ("bob", "ada")]
    world.tell(set_quotas(quota("lab", 100), *lab))
    submit(world, "own", 4, tenant="bob", **OLD)
    submit(world, "fill", 4, tenant="eve", **OLD)
    submit(world, "first", 4, tenant="eve", **NEW)
    submit(world, "second", 4, tenant="eve", **NEW)
    submit(world, "before", 4, tenant="bob", **OLD)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    assert world.job("head").deferred is PendingReason.NO_FREE_GPUS
    small = admitted(spec_of("small", 2, tenant="ada", queue="line", pools=("train",), **NEW), world.now_ms)
    world.tell(finished("second", "n2"), set_quotas(quota("lab", 10), *lab), small)
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    assert world.nodes_of("small") == ["n2"]


def test_the_workers_that_a_running_job_still_wants_wait_for_the_same_once_another_tenants_head_has_kept_them_off() -> (
    None
):
    """Nodes of both heads would do for them: what its tenant's own head behind it keeps is theirs then."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("own", 1), joined("x1", 4, labels={"old": "1"}))
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    submit(world, "fill", 4, tenant="eve", **OLD)
    for number in (1, 2):
        submit(world, f"first-{number}", 4, tenant="eve", **NEW)
    submit(world, "grows", 1, 3, tenant="bob", gang=False)
    submit(world, "other", 4, tenant="eve", **OLD)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    assert (world.nodes_of("grows"), list(world.state.heads)) == (["own"], ["other", "head"])
    world.tell(finished("first-2", world.nodes_of("first-2")[0]))
    assert world.nodes_of("grows") == ["own", "n2", "n2"]


@pytest.mark.parametrize("grows", [False, True])
def test_a_due_head_that_keeps_nothing_any_more_lets_others_start_at_once_whichever_head_has_kept_the_own_job_off(
    *, grows: bool
) -> None:
    """The head of an earlier queue keeps off what comes to stand before it: what the head kept is ada's to have, in the
    same moment and not when something else happens.
    """
    world = world_of(Queue(name="urgent", discipline=BACKFILL), FAIR, wait_ms=1_000)
    world.tell(joined("u1", 4, labels={"old": "1"}), *(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    submit(world, "fill", 4, tenant="bob", **OLD)
    submit(world, "first-1", 2, tenant="eve", **NEW)
    submit(world, "first-2", 4, tenant="eve", **NEW)
    assert (world.nodes_of("first-1"), world.nodes_of("first-2")) == (["n1"], ["n2"])
    if grows:
        world.tell(joined("own", 4))
        world.tell(admitted(service("comes", 1, 4, tenant="bob", queue="line", workers_min=1, priority=1)))
        all_start(world, "comes")
    submit(world, "urgent", 4, tenant="eve", queue="urgent", **OLD)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(2_000)
    submit(world, "small", 2, tenant="ada", **NEW)
    assert (list(world.state.heads), world.nodes_of("small")) == (["urgent", "head"], [])
    if grows:
        assert world.nodes_of("comes") == ["own"]
        world.tell(update("comes", "bob", workers=2))
    else:
        submit(world, "comes", 4, tenant="bob", priority=1)
    assert world.nodes_of("small") == ["n1"]


def heads_with_nodes_of_their_own(many: int, *more: tuple[int, JobSpec]) -> World:
    """Each of bob's heads waits for a node of its own, in use by half. `more` of his come with the heads of these
    numbers, and stand behind them.
    """
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("own", 8, labels={"own": "1"}))
    world.tell(*(joined(f"n{n}", 4, labels={"host": f"h{n}"}) for n in range(many)))
    submit(world, "own", 8, tenant="bob", node_labels=("own",))
    for number in range(many):
        submit(world, f"first-{number}", 2, tenant="eve", node_labels=(f"host=h{number}",))
    heads = [spec_of(f"head-{n}", 4, tenant="bob", queue="line", node_labels=(f"host=h{n}",)) for n in range(many)]
    sent = sorted([*enumerate(heads), *more], key=lambda each: each[0])
    world.tell(*(admitted(spec, world.now_ms + n) for n, spec in sent))
    world.pass_time(20_000)
    assert [job for job in world.state.heads if job.startswith("head-")] == [spec.id for spec in heads]
    return world


def passed(world: World, many: int) -> list[int]:
    """The heads that a job of another tenant passes."""
    for number in range(many):
        submit(world, f"small-{number}", 2, tenant="ada", node_labels=(f"host=h{number}",))
    world.pass_time(1_000)
    return [number for number in range(many) if world.nodes_of(f"small-{number}")]


def test_each_due_head_of_a_tenant_with_many_keeps_its_room() -> None:
    world = heads_with_nodes_of_their_own(80)
    assert passed(world, 80) == []


def test_of_so_many_kinds_that_stand_before_due_heads_no_more_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heads behind these keep nothing; those before keep what they wait for."""
    monkeypatch.setattr(due_heads, "KINDS_MAX", 4)
    world = heads_with_nodes_of_their_own(8)
    assert passed(world, 8) == [5, 6, 7]
    assert told_behind(world, 8) == [0, 1, 2, 3, 4]


def told_behind(world: World, many: int) -> list[int]:
    """The heads which jobs of another tenant that have no room beside them are told to stand behind."""
    world.pass_time(1_000)
    found, queues = [], world.file.cells[0].queues
    for number in range(many):
        submit(world, f"large-{number}", 4, tenant="ada", node_labels=(f"host=h{number}",))
        behind = why_not(world.state, world.job(f"large-{number}"), queues, world.now_ms).behind
        assert behind is None or behind.job == f"head-{number}"
        found += [] if behind is None else [number]
    return found


def own(job: str, gpus: int, *labels: str, **more: Any) -> JobSpec:
    return spec_of(job, gpus, tenant="bob", queue="line", node_labels=labels, **more)


MORE: dict[str, list[tuple[int, JobSpec]]] = {
    "nothing": [],
    "one more of the first kind": [(3, own("again", 4, "host=h0"))],
    "one of each of the first kinds": [(n, own(f"again-{n}", 4, f"host=h{n}")) for n in range(4)],
    "one that waits for its time": [(1, own("later", 4, "host=h1", not_before_ms=10**9))],
}


@pytest.mark.parametrize("more", list(MORE))
def test_whoever_asks_is_told_just_those_heads_that_nobody_passes_though_more_kinds_stand_there_than_are_looked_at(
    more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_heads, "KINDS_MAX", 4)
    world = heads_with_nodes_of_their_own(8, *MORE[more])
    assert (passed(world, 8), told_behind(world, 8)) == ([5, 6, 7], [0, 1, 2, 3, 4])


def test_kinds_that_no_node_could_hold_are_kinds_that_stand_before_due_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_heads, "KINDS_MAX", 4)
    world = heads_with_nodes_of_their_own(5, *[(n, own(f"never-{n}", 16, f"host=h{n}")) for n in (1, 2)])
    assert (passed(world, 5), told_behind(world, 5)) == ([3, 4], [0, 1, 2])


@pytest.mark.parametrize("grows", [False, True])
def test_nobody_is_told_of_a_due_head_that_keeps_nothing_since_a_running_job_before_it_wants_more_workers(
    *, grows: bool
) -> None:
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("own", 2), joined("x1", 4, labels={"old": "1"}))
    world.tell(*(joined(f"n{n}", 4, labels={"new": "1"}) for n in (1, 2)))
    for number in (1, 2):
        submit(world, f"first-{number}", 4, tenant="eve", **NEW)
    submit(world, "fill", 4, tenant="eve", **OLD)
    submit(world, "grows", 2, 3 if grows else 1, tenant="bob", gang=False, **SPARE)
    submit(world, "head", 4, 2, tenant="bob", **NEW)
    world.pass_time(20_000)
    submit(world, "large", 4, tenant="ada", **NEW)
    code = PendingReason.NO_FREE_GPUS if grows else PendingReason.BEHIND_HEAD
    assert (world.nodes_of("grows"), world.job("large").deferred) == (["own"], code)
    told = why_not(world.state, world.job("large"), world.file.cells[0].queues, world.now_ms)
    assert (told.behind and told.behind.job) == (None if grows else "head")
    world.tell(finished("first-2", world.nodes_of("first-2")[0]))
    assert bool(world.nodes_of("large")) == grows


WANTS_MORE: dict[str, tuple[int, dict[str, Any], bool]] = {
    "no more": (1, NEW, True),
    "one more": (2, NEW, False),
    "one more than its nodes hold": (2, {"node_labels": ("host=full",)}, True),
}
"""How many workers bob's running job wants, where one of them runs; and whether his head behind it keeps its room."""


@pytest.mark.parametrize("wants", list(WANTS_MORE))
def test_who_waits_is_told_of_a_due_head_just_if_the_workers_that_a_job_before_it_still_wants_take_nothing_from_it(
    wants: str,
) -> None:
    workers, where, keeps = WANTS_MORE[wants]
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(*(joined(name, 4, labels={"new": "1", "host": name}) for name in ("full", "half")))
    submit(world, "first", 2, tenant="eve", node_labels=("host=half",))
    submit(world, "grows", 4, workers, tenant="bob", gang=False, **where)
    submit(world, "head", 4, tenant="bob", **NEW)
    world.pass_time(20_000)
    submit(world, "large", 4, tenant="ada", **NEW)
    told = why_not(world.state, world.job("large"), world.file.cells[0].queues, world.now_ms)
    submit(world, "small", 2, tenant="ada", **NEW)
    assert ((told.behind and told.behind.job), world.nodes_of("small")) == (("head", []) if keeps else (None, ["half"]))


@pytest.mark.parametrize("most", [1, 2])
def test_the_workers_that_a_running_job_still_wants_are_one_of_the_kinds_that_stand_before_due_heads(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they wait for other nodes."""
    monkeypatch.setattr(due_heads, "KINDS_MAX", most)
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("o1", 4, labels={"old": "1"}), joined("n1", 4, labels={"host": "h0"}))
    submit(world, "fill", 2, tenant="eve", **OLD)
    submit(world, "grows", 2, 2, tenant="bob", gang=False, **OLD)
    submit(world, "first", 2, tenant="eve", node_labels=("host=h0",))
    submit(world, "before", 4, tenant="bob", **OLD)
    submit(world, "head-0", 4, tenant="bob", node_labels=("host=h0",))
    world.pass_time(20_000)
    by = passed(world, 1)
    assert by == ([0] if most == 1 else [])
    assert told_behind(world, 1) == ([] if by else [0])


def test_whoever_asks_is_told_which_due_head_keeps_a_job_back_though_its_turn_comes_later() -> None:
    world = with_a_due_head()
    told = why_not(world.state, world.job("small"), world.file.cells[0].queues, world.now_ms)
    assert told.codes == (PendingReason.BEHIND_HEAD,)
    assert told.behind is not None
    assert told.behind.job == "head"
    assert told.ahead.first == ()


def test_nobody_is_told_of_a_due_head_that_keeps_nothing_since_an_own_job_waits_for_the_same() -> None:
    world = with_a_due_head(gpus=4, workers=2, **NEW)
    world.pass_time(1_000)
    submit(world, "large", 4, 2, tenant="ada", **NEW)
    assert world.nodes_of("small") == ["n2"]
    told = why_not(world.state, world.job("large"), world.file.cells[0].queues, world.now_ms)
    assert told.behind is None


@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BEST_EFFORT_FIFO])
def test_nobody_is_told_of_a_due_head_that_keeps_room_before_its_turn_in_a_queue_that_backfills_no_more(
    discipline: QueueDiscipline,
) -> None:
    """The log still knows it as a head: a new cell file says so, and the writer has not walked by it yet."""
    world = with_a_due_head()
    queue = Queue(name="line", discipline=discipline, order=QueueOrder.FAIR_SHARE)
    told = why_not(world.state, world.job("small"), (queue,), world.now_ms)
    assert told.behind is None


def kept_back_by(world: World, job: str) -> tuple[tuple[PendingReason, ...], str | None]:
    """Why a job waits now, and the head that it stands behind."""
    told = why_not(world.state, world.job(job), world.file.cells[0].queues, world.now_ms)
    return told.codes, None if told.behind is None else told.behind.job


def test_a_head_is_told_of_a_younger_one_of_its_tenant_with_a_higher_priority_that_keeps_it_off() -> None:
    """That one keeps nothing from other tenants: a third job of ada's stands before it, and waits for the same node."""
    world = world_of(FAIR, wait_ms=1_000)
    world.tell(joined("x1", 4, labels={"old": "1"}), joined("x2", 4))
    submit(world, "busy", 4, tenant="eve", **OLD)
    submit(world, "ends", 4, tenant="eve", **SPARE)
    submit(world, "head", 4, tenant="ada", **SPARE)
    world.pass_time(500)
    submit(world, "younger", 4, 2, tenant="ada", priority=10)
    submit(world, "first", 4, tenant="ada", priority=20, **OLD)
    world.pass_time(2_000)
    assert world.state.heads == {"head": 0, "younger": 500, "first": 500}
    world.tell(finished("ends", "x2"))
    assert not world.job("head").workers
    assert kept_back_by(world, "head") == ((PendingReason.BEHIND_HEAD,), "younger")


def test_a_head_is_told_of_an_older_one_of_another_tenant_though_shares_alone_would_put_it_first() -> None:
    """A job of that tenant that finds no room leaves the turn with it, and so the older head is met before."""
    world = world_of(FAIR, wait_ms=1_000)
    world.tell(joined("x1", 4, labels={"old": "1"}), joined("x2", 4))
    submit(world, "small", 2, tenant="ada", **OLD)
    submit(world, "ends", 4, tenant="bob", **SPARE)
    submit(world, "older", 4, 2, tenant="bob")
    world.pass_time(2_000)
    submit(world, "first", 4, tenant="bob", priority=10, **OLD)
    submit(world, "head", 2, 2, tenant="ada")
    assert world.state.heads == {"older": 0, "first": 2_000, "head": 2_000}
    world.tell(finished("ends", "x2"))
    assert not world.job("head").workers
    assert kept_back_by(world, "head") == ((PendingReason.BEHIND_HEAD,), "older")
