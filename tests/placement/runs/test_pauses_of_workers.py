"""Only what failed or was lost again waits: all other workers of a job that is no gang enter at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.model.config import Queue
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.fields.values import JobSpec, RetryPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.hypothesis_profile import reaches, shared_among
from tests.placement.lines.test_wakes_by_time import WAIT_MS, go_to, submit, world_of
from tests.placement.worlds.between_events import effects_of
from tests.placement.worlds.replicas import all_start, leave, loose, ranks, service, word
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    joined,
    kinds,
    lost,
    set_policy,
    spec_of,
    update,
)

PATIENT = RetryPolicy(budget=100, backoff_ms=10_000, backoff_max_ms=600_000)
MAKERS = pytest.mark.parametrize("make", [loose, service])


def running(make: Callable[..., JobSpec], workers: int, nodes: int, **more: object) -> World:
    """A job runs with a worker on each of so many nodes, and some nodes are free."""
    world = cell_with(*(joined(f"n{number:02}", 1) for number in range(nodes)))
    world.listens = False
    world.tell(admitted(make("job", workers, retry=PATIENT, **{"workers_min": 1, **more})))
    all_start(world, "job")
    return world


def lose(world: World, rank: int) -> None:
    """The node of this worker is lost, and there is another one in its stead."""
    (node,) = (place.node for place in world.job("job").workers if place.rank == rank)
    world.tell(lost(node, world.state.nodes[node].boot))
    world.tell(joined(f"{node}+", 1))


@MAKERS
def test_an_incident_that_takes_workers_one_after_the_other_delays_none_of_them(make: Callable[..., JobSpec]) -> None:
    world = running(make, 30, 40)
    for rank in range(12):
        lose(world, rank)
        assert ranks(world, "job") == list(range(30))
        world.pass_time(60_000)
        all_start(world, "job")
    assert world.job("job").losses == 1


@MAKERS
def test_while_one_worker_waits_that_is_lost_again_and_again_the_others_come_back_at_once(
    make: Callable[..., JobSpec],
) -> None:
    world = running(make, 4, 8)
    for _ in range(3):
        world.pass_time(max(0, world.job("job").not_before_ms - world.now_ms))
        all_start(world, "job")
        lose(world, 1)
    assert ranks(world, "job") == [0, 2, 3]
    lose(world, 2)
    assert ranks(world, "job") == [0, 2, 3]
    world.pass_time(world.job("job").not_before_ms - world.now_ms)
    assert ranks(world, "job") == [0, 1, 2, 3]


def test_a_service_is_scaled_up_at_once_while_a_replica_waits() -> None:
    world = running(service, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.tell(update("job", workers=5))
    assert ranks(world, "job") == [1, 2, 3, 4]
    world.pass_time(10_000)
    assert ranks(world, "job") == [0, 1, 2, 3, 4]


def test_another_writer_knows_which_workers_wait() -> None:
    world = running(service, 3, 8)
    world.tell(word(n.RunFailed, world, "job", 1))
    world.restart()
    lose(world, 0)
    assert ranks(world, "job") == [0, 2]
    world.pass_time(10_000)
    assert ranks(world, "job") == [0, 1, 2]


def test_the_last_worker_that_goes_by_no_fault_of_its_own_comes_back_at_once() -> None:
    world = running(service, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 1))
    lose(world, 0)
    assert (world.job("job").attempt, 0 in ranks(world, "job")) == (2, True)


def test_a_replica_that_fails_with_no_other_one_there_waits() -> None:
    world = running(service, 1, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    assert ranks(world, "job") == []
    world.pass_time(10_000)
    assert ranks(world, "job") == [0]


def test_a_replica_that_was_given_up_before_it_had_started_has_not_failed() -> None:
    world = running(service, 2, 4)
    world.tell(update("job", workers=4))
    world.tell(update("job", workers=2))
    leave(world, "job")
    world.tell(update("job", workers=4))
    assert (ranks(world, "job"), world.job("job").avoid) == ([0, 1, 2, 3], ())


def test_a_worker_that_had_to_leave_its_node_before_it_had_started_enters_another_one_at_once() -> None:
    world = cell_with(*(joined(f"n{number}", 1) for number in range(3)))
    world.tell(admitted(loose("job", 2, retry=PATIENT)))
    world.tell(word(n.RunStarted, world, "job", 0))
    world.tell(o.Drain(cell=CELL, node=world.job("job").workers[1].node))
    leave(world, "job")
    assert (ranks(world, "job"), world.job("job").avoid) == ([0, 1], ())


@MAKERS
def test_a_worker_that_did_not_start_in_time_waits_and_goes_elsewhere(make: Callable[..., JobSpec]) -> None:
    world = cell_with(*(joined(f"n{number}", 1) for number in range(3)))
    world.tell(set_policy(start_timeout_wall_ms=5_000), admitted(make("job", 2, retry=PATIENT)))
    world.tell(word(n.RunStarted, world, "job", 0))
    late = world.job("job").workers[1].node
    world.pass_time(5_000)
    leave(world, "job")
    assert (ranks(world, "job"), world.job("job").avoid) == ([0], (late,))
    world.pass_time(10_000)
    assert ranks(world, "job") == [0, 1]
    assert late not in world.nodes_of("job")


@MAKERS
def test_no_rank_waits_for_the_pause_of_another_one(make: Callable[..., JobSpec]) -> None:
    world = running(make, 3, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.pass_time(9_000)
    world.tell(word(n.RunFailed, world, "job", 1))
    world.pass_time(1_000)
    assert ranks(world, "job") == [0, 2]
    world.pass_time(9_000)
    assert ranks(world, "job") == [0, 1, 2]


@MAKERS
def test_a_pause_outlasts_the_attempt(make: Callable[..., JobSpec]) -> None:
    world = running(make, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.pass_time(5_000)
    lose(world, 1)
    assert (world.job("job").attempt, ranks(world, "job")) == (2, [1])
    world.restart()
    world.pass_time(5_000)
    assert ranks(world, "job") == [0, 1]


def test_a_pause_outlasts_an_attempt_that_ends_with_a_drain() -> None:
    world = running(loose, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.tell(o.Drain(cell=CELL, node=world.job("job").workers[0].node))
    leave(world, "job")
    assert (world.job("job").attempt, ranks(world, "job")) == (2, [1])
    world.pass_time(10_000)
    assert ranks(world, "job") == [0, 1]


@MAKERS
def test_a_job_starts_again_when_its_fewest_ranks_have_waited_out_their_pauses(make: Callable[..., JobSpec]) -> None:
    world = running(make, 3, 8, workers_min=2)
    for rank in (0, 1):
        world.tell(word(n.RunFailed, world, "job", rank))
        world.pass_time(4_000)
    lose(world, 2)
    assert ranks(world, "job") == []
    world.pass_time(2_000)
    assert ranks(world, "job") == [0, 2]
    world.pass_time(4_000)
    assert ranks(world, "job") == [0, 1, 2]


def test_a_service_that_shall_have_more_replicas_at_least_while_it_waits_starts_when_so_many_may() -> None:
    world = running(service, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.pass_time(4_000)
    world.tell(word(n.RunFailed, world, "job", 1))
    world.tell(update("job", workers_min=2))
    world.pass_time(6_000)
    assert ranks(world, "job") == []
    world.pass_time(4_000)
    assert ranks(world, "job") == [0, 1]


def test_a_replica_in_its_pause_takes_no_room_from_one_whose_node_is_drained() -> None:
    world = running(service, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.tell(o.Drain(cell=CELL, node=world.job("job").workers[0].node))
    assert (ranks(world, "job"), world.job("job").leaving) == ([1, 2], ())
    all_start(world, "job")
    assert world.job("job").leaving == (1,)
    leave(world, "job")
    world.pass_time(10_000)
    assert ranks(world, "job") == [0, 2]


def test_a_replica_moves_before_the_deadline_of_a_drain_once_another_one_may_enter() -> None:
    world = running(service, 2, 8)
    world.tell(word(n.RunFailed, world, "job", 0))
    world.tell(o.Drain(cell=CELL, node=world.job("job").workers[0].node, deadline_ms=30_000))
    all_start(world, "job")
    assert (ranks(world, "job"), world.job("job").leaving) == ([1, 2], ())
    world.pass_time(30_000)
    assert (ranks(world, "job"), world.job("job").leaving) == ([0, 1, 2], ())
    all_start(world, "job")
    assert world.job("job").leaving == (1,)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["lose", "fail"]), st.integers(0, 5)),
        st.tuples(st.just("scale"), st.integers(1, 8)),
        st.tuples(st.just("pass"), st.sampled_from([1_000, 20_000, 700_000])),
    ),
    max_size=25,
)


@given(STEPS)
def test_no_rank_is_empty_but_for_what_happened_to_itself(steps: list[tuple[str, int]]) -> None:
    """There is always a free node. A rank waits no longer than its service's longest pause, and only where a worker of
    its own has failed, or was lost again.
    """
    world = running(service, 4, 40)
    guilty: dict[int, int] = {}
    lost_before: set[int] = set()
    waits = False
    for what, number in steps:
        place = {place.rank: place for place in world.job("job").workers}.get(number)
        if what == "scale":
            world.tell(update("job", workers=number))
            leave(world, "job")
        elif what == "pass":
            world.pass_time(number)
        elif place is not None:
            if what == "fail":
                world.tell(word(n.RunFailed, world, "job", number))
            else:
                lose(world, number)
            if what == "fail" or number in lost_before:
                guilty[number] = world.now_ms
            lost_before.add(number)
        all_start(world, "job")
        waiting = [rank for rank, at_ms in guilty.items() if at_ms + PATIENT.backoff_max_ms > world.now_ms]
        waits |= bool(waiting)
        assert world.job("job").spec.workers - len(ranks(world, "job")) <= len(waiting)
    reaches("a rank pauses for what happened to itself", waits)


@dataclass
class Rank:
    """What a rank should do, told by itself alone: in a row it `failed` and was `lost`, and it enters at `at_ms`."""

    failed: int = 0
    lost: int = 0
    at_ms: int = 0

    def ends(self, what: str, now_ms: int) -> None:
        """Its worker has failed or was lost."""
        ran_ms = now_ms - self.at_ms
        self.failed = self.failed if ran_ms <= 600_000 else 0
        self.lost = self.lost if ran_ms < 3_600_000 else 0
        if what == "fail":
            self.failed += 1
            doublings = self.failed - 1
        else:
            self.lost += 1
            doublings = self.lost - 2
        self.at_ms = now_ms if doublings < 0 else now_ms + min(10_000 * 2**doublings, 600_000)


def each_enters_in_time(world: World, told: list[Rank], ms: int) -> None:
    """Time passes, and who enters starts at once."""
    end_ms = world.now_ms + ms
    for at_ms in sorted({rank.at_ms for rank in told if world.now_ms < rank.at_ms < end_ms} | {end_ms}):
        world.pass_time(at_ms - world.now_ms)
        all_start(world, "job")


ENDS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["fail", "lose"]), st.integers(0, 2)),
        st.tuples(st.just("pass"), st.sampled_from([1_000, 10_000, 160_000, 601_000, 3_600_000])),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("fail again"), st.integers(0, 2)),
    ),
    max_size=30,
)
"""One that fails again does so as soon as it has entered: else hardly any rank has a longer pause than its first."""


@MAKERS
@shared_among(2)
@given(ENDS)
def test_each_rank_waits_out_its_own_pause_and_no_other_one(
    make: Callable[..., JobSpec], steps: list[tuple[str, int]]
) -> None:
    """There is always a free node."""
    world = running(make, 3, 40)
    told = [Rank() for _ in range(3)]
    is_longer = False
    for what, number in steps:
        if what == "fail again" and told[number].at_ms > world.now_ms:
            each_enters_in_time(world, told, told[number].at_ms - world.now_ms)
        if what == "pass":
            each_enters_in_time(world, told, number)
        elif what == "restart":
            world.restart()
        elif number in ranks(world, "job"):
            if what != "lose":
                world.tell(word(n.RunFailed, world, "job", number))
            else:
                lose(world, number)
            told[number].ends("lose" if what == "lose" else "fail", world.now_ms)
            is_longer |= told[number].at_ms > world.now_ms + 10_000
        all_start(world, "job")
        assert ranks(world, "job") == [rank for rank in range(3) if told[rank].at_ms <= world.now_ms]
    reaches("a rank waits out a pause that has become longer", is_longer)
    each_enters_in_time(world, told, 600_000)
    assert ranks(world, "job") == [0, 1, 2]


@given(
    st.lists(
        st.tuples(st.sampled_from(["fail", "drain", "pass"]), st.integers(0, 2), st.sampled_from([0, 30_000])),
        max_size=12,
    )
)
def test_a_drain_takes_no_replica_away_while_there_is_room_elsewhere(steps: list[tuple[str, int, int]]) -> None:
    world = running(service, 3, 40)
    is_both = False
    for what, number, deadline_ms in steps:
        places = world.job("job").workers
        before = len(places)
        if what == "pass":
            world.pass_time(10_000)
        elif number < before and what == "fail":
            world.tell(word(n.RunFailed, world, "job", places[number].rank))
            before -= 1
        elif number < before:
            node = places[number].node
            world.tell(o.Drain(cell=CELL, node=node, deadline_ms=world.now_ms + deadline_ms if deadline_ms else None))
        paused = sum(setback.until_ms > world.now_ms for setback in world.job("job").setbacks)
        is_both |= what == "drain" and number < before and paused > 0
        for _ in range(8):
            all_start(world, "job")
            assert len(world.job("job").workers) - len(world.job("job").leaving) >= min(before, 3 - paused)
            leave(world, "job")
    reaches("a node is drained while another rank pauses", is_both)


@pytest.mark.parametrize("are_made_anew", [False, True])
def test_a_worker_that_is_lacked_since_this_decision_does_not_yet_end_the_claim_of_a_due_head_of_its_tenant(
    *, are_made_anew: bool
) -> None:
    """Nor where the lines are made anew for this decision, as for one that plans the first maintenance."""
    world = world_of(Queue(name="line", discipline=QueueDiscipline.BACKFILL, order=QueueOrder.FAIR_SHARE))
    world.tell(*(joined(name, 1, labels={"at": name}) for name in ("n3", "n4", "n9")))
    world.tell(admitted(service("job", 2, workers_min=1, priority=1, node_labels=("at=n1|n3|n4",))))
    all_start(world, "job")
    world.tell(joined("n1", 8, labels={"at": "n1"}))
    submit(world, "fill", 6, "eve", node_labels=("at=n1",))
    submit(world, "head", 8, "ada", node_labels=("at=n1",))
    go_to(world, WAIT_MS)
    known = len(world.log)
    plan = o.PlanMaintenance(cell=CELL, node="n9", begin_ms=10**8, end_ms=2 * 10**8)
    small = admitted(spec_of("small", 2, tenant="bob", node_labels=("at=n1",)), world.now_ms)
    world.tell(lost("n3"), *([plan] if are_made_anew else []), small)
    assert "JobStarted" not in kinds(effects_of(world.log[known].decision))
    assert (world.nodes_of("job"), world.nodes_of("small")) == (["n4"], ["n1"]), "it is told that the worker waits"
