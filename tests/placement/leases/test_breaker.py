"""Many silent nodes at once: none is lost for a while, then so many in a minute, whichever process writes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.nodes.breaker import (
    BREAKER_NODES,
    BREAKER_PERCENT,
    are_too_many,
    holds_losses_back,
)
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import Cordon, DeclareLost, PlanMaintenance, SetPolicy, Uncordon
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, Fate, World, admitted, cell_with, finished, joined, report, seen, spec_of

WAIT_S, PATIENCE_S = 60, 40
TICK_S = 5
"""Where much time passes in each of many examples, nodes report and the writer looks so often only."""

UNTOLD_S = 15
"""So much of a node's silence, half of its lease, no writer tells the log: a new writer begins to count there."""


def cell_of(count: int, *, wait_s: int = WAIT_S, per_minute: int = 6) -> World:
    world = cell_with(*(joined(f"n{number:02}") for number in range(count)))
    policy = replace(
        world.state.policy, breaker_wait_wall_ms=wait_s * 1_000, breaker_nodes_per_minute=per_minute, remove_lost_ms=0
    )
    world.tell(SetPolicy(cell=CELL, policy=policy))
    return world


def pass_seconds(world: World, seconds: int, *speaking: str, tick_s: int = 1) -> list[tuple[int, str]]:
    """Time passes, a tick at once, while these nodes report. Which nodes are lost, and after how many seconds."""
    made: list[tuple[int, str]] = []
    for begin_s in range(0, seconds, tick_s):
        end_s = min(begin_s + tick_s, seconds)
        made += [(end_s, node) for node in pass_tick(world, end_s - begin_s, *speaking)]
    return made


def pass_tick(world: World, tick_s: int, *speaking: str) -> list[str]:
    """So much time passes at once behind a report of each of these nodes. Which nodes are lost."""
    world.hand_over(*(report(node) for node in speaking))
    return [effect.node for effect in world.pass_time(tick_s * 1_000) if isinstance(effect, e.LeaseExpired)]


def lost(world: World) -> list[str]:
    return [node.id for node in world.state.nodes.values() if node.status is NodeStatus.LOST]


def test_when_all_nodes_are_silent_none_is_lost_before_the_wait_is_over() -> None:
    world = cell_of(4)
    assert pass_seconds(world, PATIENCE_S + WAIT_S) == []
    assert world.service.leases_frozen
    assert world.state.evictions is not None
    assert world.state.evictions.silent == 4


@given(
    phases=st.lists(st.integers(0, 9), min_size=BREAKER_NODES, max_size=12),
    speaking=st.integers(0, 8),
)
def test_nodes_that_fall_silent_one_after_the_other_are_held_all_the_same(phases: list[int], speaking: int) -> None:
    """Each was heard last at a time of its own, within the time between two reports."""
    count = len(phases) + speaking
    assume(len(phases) * 100 > BREAKER_PERCENT * count)
    reaches("fewer nodes fall silent first than hold losses back", phases.count(min(phases)) < BREAKER_NODES)
    world = cell_of(count)
    nodes = sorted(world.state.nodes)
    talkers = nodes[len(phases) :]
    for second in range(10):
        late = [node for node, phase in zip(nodes, phases, strict=False) if phase >= second]
        assert pass_seconds(world, 1, *late, *talkers) == []
    assert pass_seconds(world, PATIENCE_S + WAIT_S - 11, *talkers, tick_s=TICK_S) == []
    assert world.service.leases_frozen


def test_nodes_that_fall_silent_minutes_apart_are_held_from_the_third_on() -> None:
    world = cell_of(8, wait_s=300)
    nodes = sorted(world.state.nodes)
    gone = [node for first in range(1, 4) for _, node in pass_seconds(world, PATIENCE_S + 5, *nodes[first:])]
    assert gone == nodes[:2]
    assert world.service.leases_frozen


def test_then_they_are_lost_at_the_set_rate_to_the_last_one() -> None:
    world = cell_of(5)
    at = [second for second, _ in pass_seconds(world, PATIENCE_S + WAIT_S + 60)]
    begun = PATIENCE_S + WAIT_S + 1
    assert at == [begun, begun + 10, begun + 20, begun + 30, begun + 40]
    assert not world.service.leases_frozen


@given(
    count=st.integers(4, 24),
    percent=st.integers(21, 100),
    per_minute=st.sampled_from([6, 30, 120]),
    stints=st.booleans(),
)
def test_no_minute_loses_more_than_the_set_rate_once_many_are_silent(
    count: int, percent: int, per_minute: int, *, stints: bool
) -> None:
    """Also when what is still silent is no large part of the cell any more, and whichever process writes."""
    world = cell_of(count, per_minute=per_minute)
    nodes = sorted(world.state.nodes)
    silent = max(BREAKER_NODES, count * percent // 100 + 1)
    assume(silent <= count)
    world.checks = False
    assert pass_seconds(world, PATIENCE_S + WAIT_S, *nodes[silent:], tick_s=TICK_S) == []
    if stints:
        world.restart()
    at = [second for second, _ in pass_seconds(world, 120, *nodes[silent:], tick_s=1 if per_minute > 6 else 2)]
    world.check()
    most = {at_s: sum(at_s <= other < at_s + 60 for other in at) for at_s in at}
    reaches("several nodes are lost one after the other", len(at) > 1)
    assert max(most.values(), default=0) <= per_minute + 1


def test_a_rate_of_many_nodes_still_loses_no_large_part_in_one_record() -> None:
    world = cell_of(20, per_minute=100_000)
    pass_seconds(world, PATIENCE_S + WAIT_S + 30)
    assert len(lost(world)) == 20
    at_once = [sum(isinstance(effect, e.LeaseExpired) for effect in decision.effects) for decision in world.decisions]
    living = 20
    for count in at_once:
        assert count < BREAKER_NODES or count * 100 <= 20 * living
        living -= count


def test_a_writer_that_has_written_for_long_tells_seldom_how_long_it_has_gone_on() -> None:
    world = cell_of(4, wait_s=300)
    pass_seconds(world, PATIENCE_S + 290)
    told = [effect for made in world.decisions for effect in made.effects if isinstance(effect, e.EvictionsHeld)]
    assert len(told) <= 22


def test_nodes_that_speak_again_end_it_and_a_later_silence_waits_anew() -> None:
    world = cell_of(4)
    nodes = sorted(world.state.nodes)
    pass_seconds(world, PATIENCE_S + WAIT_S - 5)
    world.tell(*(report(node) for node in nodes))
    assert world.state.evictions is None
    assert pass_seconds(world, PATIENCE_S + WAIT_S) == []


@pytest.mark.parametrize("stint_s", [30, 45])
def test_writers_that_take_turns_come_to_an_end_too(stint_s: int) -> None:
    world, gone = cell_of(8), list[str]()
    for _ in range(20):
        gone += [node for _, node in pass_seconds(world, stint_s, "n06", "n07")]
        world.restart()
    assert sorted(gone) == [f"n{number:02}" for number in range(6)]


def test_a_record_that_is_lost_counts_nothing() -> None:
    world = cell_of(4)
    pass_seconds(world, PATIENCE_S + WAIT_S)
    fates = iter([Fate.LOST, Fate.LATE, Fate.BEATEN])
    world.on_append = lambda: next(fates, Fate.KEPT)
    pass_seconds(world, 60)
    assert len(lost(world)) == 4
    world.check()


def test_the_work_of_nodes_that_do_not_come_back_goes_to_those_that_are_there() -> None:
    """A cell of eight nodes is started again with four of them."""
    world = cell_of(8, wait_s=5, per_minute=600)
    world.run(*(spec_of(f"job-{number}", 8) for number in range(8)))
    here = [f"n{number:02}" for number in range(4)]
    world.restart()
    runs = {node: [seen(job, attempt=1) for job in world.state.nodes[node].jobs] for node in here}
    for _ in range(55):
        world.hand_over(*(report(node, *runs[node]) for node in here))
        world.pass_time(1_000)
    assert sorted(lost(world)) == [f"n{number:02}" for number in range(4, 8)]
    waiting = [job for job in world.state.jobs.values() if job.status is JobStatus.QUEUED]
    assert len(waiting) == 4
    world.tell(finished(runs["n00"][0].job, "n00"))
    (next_job,) = [job for job in waiting if job.status is JobStatus.STARTING]
    assert world.nodes_of(next_job.id) == ["n00"]


def test_a_new_writer_counts_the_nodes_that_the_one_before_it_let_be_lost() -> None:
    world = cell_of(10, wait_s=300)
    nodes = sorted(world.state.nodes)
    assert [node for _, node in pass_seconds(world, PATIENCE_S + 5, *nodes[2:])] == nodes[:2]
    world.restart()
    assert pass_seconds(world, PATIENCE_S + 5, *nodes[4:]) == []
    assert world.service.leases_frozen


def test_what_was_lost_long_ago_counts_for_no_writer() -> None:
    world = cell_of(10, wait_s=100)
    nodes = sorted(world.state.nodes)
    assert len(pass_seconds(world, PATIENCE_S + 5, *nodes[2:])) == 2
    pass_seconds(world, 100, *nodes[2:])
    world.restart()
    assert [node for _, node in pass_seconds(world, PATIENCE_S + 5, *nodes[3:])] == nodes[2:3]


def test_what_was_declared_lost_just_before_counts_for_no_new_writer() -> None:
    world = cell_of(10, wait_s=300)
    nodes = sorted(world.state.nodes)
    world.tell(*(DeclareLost(cell=CELL, node=node) for node in nodes[8:]))
    world.restart()
    assert pass_seconds(world, PATIENCE_S - 10, *nodes[1:8]) == []
    assert [*world.state.silent] == nodes[:1]
    assert not holds_losses_back(world.state)
    assert [node for _, node in pass_seconds(world, 15, *nodes[1:8])] == nodes[:1]


def test_nodes_that_were_lost_of_late_and_are_back_count_no_more() -> None:
    world = cell_of(10, wait_s=300)
    nodes = sorted(world.state.nodes)
    assert [node for _, node in pass_seconds(world, PATIENCE_S + 5, *nodes[2:])] == nodes[:2]
    world.tell(*(report(node) for node in nodes))
    assert lost(world) == []
    assert [node for _, node in pass_seconds(world, PATIENCE_S + 5, *nodes[:2], *nodes[3:])] == nodes[2:3]


@given(
    count=st.integers(4, 12),
    falls=st.lists(st.integers(0, 240), min_size=2, max_size=6),
    turns_s=st.lists(st.integers(20, 60), min_size=1, max_size=4),
)
def test_writers_that_take_turns_lose_together_no_more_nodes_at_once_than_one_may(
    count: int, falls: list[int], turns_s: list[int]
) -> None:
    """Nodes fall silent for good, each at a time of its own; what is lost before the breaker holds is told."""
    wait_s, tick_s = 300, 3
    world, recent = cell_of(count, wait_s=wait_s), list[int]()
    world.checks = False
    silent_from = dict(zip(sorted(world.state.nodes), sorted(falls), strict=False))
    turns, next_turn = 0, turns_s[0]
    losses, is_held = 0, False
    for second in range(tick_s, 360, tick_s):
        speaking = [node for node in world.state.nodes if silent_from.get(node, second) >= second]
        living = count - len(lost(world))
        now = pass_tick(world, tick_s, *speaking)
        is_held |= world.service.leases_frozen
        losses += len(now)
        if now and not world.service.leases_frozen:
            recent = [at for at in recent if at > second - wait_s + 10]  # a writer does not know it to the second
            assert not are_too_many(len(recent) + len(now), living + len(recent))
            recent += [second] * len(now)
        if second >= next_turn:
            turns += 1
            next_turn += turns_s[turns % len(turns_s)]
            world.restart()

    world.check()
    reaches("a writer loses nodes, and then holds others", losses and is_held)


def requeued_after(world: World, job: str, *silent: str, max_s: int = 900) -> int:
    """After how many seconds of this silence the job no longer runs."""
    for second in range(1, max_s):
        speaking = [node for node in world.state.nodes if node not in silent]
        pass_seconds(world, 1, *speaking)
        if world.job(job).status is not JobStatus.RUNNING:
            return second
    raise AssertionError("it runs on")


@pytest.mark.parametrize("why", ["maintenance", "cordoned"])
@pytest.mark.parametrize("before_s", [0, 15, 60])
def test_what_operators_took_out_of_use_does_not_delay_the_loss_of_a_busy_node(why: str, before_s: int) -> None:
    world = cell_of(20, wait_s=300)
    world.run(spec_of("job", 8))
    (busy,) = world.nodes_of("job")
    off = [node for node in world.state.nodes if node != busy][-8:]
    if why == "maintenance":
        world.tell(*(PlanMaintenance(cell=CELL, node=node, begin_ms=0, end_ms=10**8) for node in off))
    else:
        world.tell(*(Cordon(cell=CELL, node=node, reason="to be moved") for node in off))
    pass_seconds(world, before_s, *(node for node in world.state.nodes if node not in off))
    assert requeued_after(world, "job", busy, *off) == PATIENCE_S + 1
    pass_seconds(world, PATIENCE_S, *(node for node in world.state.nodes if node not in (busy, *off)))
    assert sorted(lost(world)) == sorted([busy, *off])


def test_nodes_that_were_opened_in_the_middle_of_their_maintenance_count_like_all_others() -> None:
    world = cell_of(20, wait_s=300)
    world.run(spec_of("job", 8))
    (busy,) = world.nodes_of("job")
    opened = [node for node in world.state.nodes if node != busy][-8:]
    world.tell(*(PlanMaintenance(cell=CELL, node=node, begin_ms=0, end_ms=10**8) for node in opened))
    world.tell(*(Uncordon(cell=CELL, node=node) for node in opened))
    pass_seconds(world, PATIENCE_S + 1, *(node for node in world.state.nodes if node not in (busy, *opened)))
    assert sorted(lost(world)) == []
    assert world.state.evictions is not None


def test_a_new_writer_does_not_count_the_nodes_that_were_lost_in_maintenance() -> None:
    world = cell_of(20, wait_s=300)
    world.run(spec_of("job", 8))
    (busy,) = world.nodes_of("job")
    off = [node for node in world.state.nodes if node != busy][-8:]
    world.tell(*(PlanMaintenance(cell=CELL, node=node, begin_ms=0, end_ms=10**8) for node in off))
    pass_seconds(world, PATIENCE_S + 1, *(node for node in world.state.nodes if node not in off))
    assert sorted(lost(world)) == sorted(off)
    world.restart()
    assert requeued_after(world, "job", busy, *off) == PATIENCE_S + 1


def test_a_new_writer_does_not_count_the_nodes_that_were_lost_while_cordoned() -> None:
    world = cell_of(20, wait_s=300)
    world.run(spec_of("job", 8))
    (busy,) = world.nodes_of("job")
    off = [node for node in world.state.nodes if node != busy][-8:]
    world.tell(*(Cordon(cell=CELL, node=node, reason="to be moved") for node in off))
    pass_seconds(world, PATIENCE_S + 1, *(node for node in world.state.nodes if node not in off))
    assert sorted(lost(world)) == sorted(off)
    world.restart()
    assert requeued_after(world, "job", busy, *off) == PATIENCE_S + 1


def test_cordoned_nodes_that_hold_jobs_count_like_all_others() -> None:
    """Their loss would take jobs along, so it waits like that of the rest."""
    world = cell_of(8)
    world.run(*(spec_of(f"job-{number}", 8) for number in range(8)))
    silent = list(world.state.nodes)[:3]
    world.tell(*(Cordon(cell=CELL, node=node, reason="to be moved") for node in silent))
    assert pass_seconds(world, PATIENCE_S + WAIT_S, *(node for node in world.state.nodes if node not in silent)) == []
    assert world.service.leases_frozen


@pytest.mark.parametrize(("speed", "counts"), [(0.25, False), (1.0, True), (4.0, True)])
def test_how_long_ago_nodes_were_lost_goes_by_wall_time_however_fast_cell_time_goes(
    speed: float, *, counts: bool
) -> None:
    """Two were lost 150 s of cell time ago, and a third is silent: three of ten are too many, if all are of late."""
    world = cell_of(10, wait_s=300)
    nodes = sorted(world.state.nodes)
    assert [node for _, node in pass_seconds(world, PATIENCE_S + 5, *nodes[2:])] == nodes[:2]
    pass_seconds(world, 120, *nodes[2:])
    assert pass_seconds(world, PATIENCE_S - 10, *nodes[3:]) == []
    assert [*world.state.silent] == nodes[2:3]
    assert holds_losses_back(world.state, speed) == counts


@pytest.mark.parametrize("number", [0, 10, 19])
def test_of_many_silent_nodes_those_that_hold_jobs_are_lost_first_whatever_they_are_called(number: int) -> None:
    world = cell_of(20)
    busy = f"n{number:02}"
    world.tell(*(Cordon(cell=CELL, node=node, reason="") for node in world.state.nodes if node != busy))
    world.run(spec_of("job", 8))
    world.tell(*(Uncordon(cell=CELL, node=node) for node in world.state.nodes if node != busy))
    assert world.nodes_of("job") == [busy]
    others = [node for node in world.state.nodes if node != busy][:8]
    assert requeued_after(world, "job", busy, *others) == PATIENCE_S + WAIT_S + 1


@dataclass
class Told:
    """What became of nodes that fell silent in waves, by the second: `held_s` are the ticks behind which losses were
    held back, `restarts_s` those behind which another writer took over.
    """

    tick_s: int
    silent_s: dict[str, int] = field(default_factory=dict)
    gone: list[tuple[int, str]] = field(default_factory=list)
    held_s: dict[int, None] = field(default_factory=dict)
    restarts_s: list[int] = field(default_factory=list)

    def note(self, world: World, second: int) -> None:
        """What this tick has brought, also by the first decisions of a writer that took over behind it."""
        known = {node for _, node in self.gone}
        self.gone += [(second, node) for node in lost(world) if node not in known]
        if world.state.evictions is not None:
            self.held_s[second] = None

    def overdue_s(self, node: str) -> int:
        """The tick behind which its lease has run out, whichever process writes."""
        return self.silent_s[node] + PATIENCE_S + self.tick_s

    def waited_s(self) -> dict[str, int]:
        """For how long each node was lost later than with its lease."""
        return {node: at_s - self.overdue_s(node) + self.tick_s for at_s, node in self.gone}

    def is_overdue_while_held(self, node: str) -> bool:
        """Whether others were held back when its lease ran out. For a writer that took over meanwhile it runs out later
        by as much as the log did not tell of its silence, and others may be let go by then.
        """
        begin_s = end_s = self.overdue_s(node)
        if any(self.silent_s[node] <= at_s < begin_s for at_s in self.restarts_s):
            end_s += UNTOLD_S
        return all(at_s in self.held_s for at_s in range(begin_s, end_s + 1, self.tick_s))


def fall_silent(world: World, waves: list[tuple[int, int]], tick_s: int, stint_s: int) -> Told:
    """So many nodes of each wave fall silent, and so much time passes behind it; until all of them are lost."""
    told, left_s, second = Told(tick_s), stint_s, 0
    for many, pause_s in [*waves, (0, PATIENCE_S + WAIT_S + 180)]:
        talkers = [node for node in sorted(world.state.nodes) if node not in told.silent_s]
        told.silent_s |= dict.fromkeys(talkers[:many], second)
        for _ in range(0, pause_s, tick_s):
            if many == 0 and len(told.gone) == len(told.silent_s):
                break
            second, left_s = second + tick_s, left_s - tick_s
            pass_tick(world, tick_s, *talkers[many:])
            if left_s <= 0:
                world.restart()
                told.restarts_s.append(second)
                left_s = stint_s
            told.note(world, second)
    return told


@example(waves=[(1, 72), (1, 0)], busy=set(), per_minute=6, tick_s=2, stint_s=10_000)
@example(waves=[(7, 141), (2, 0)], busy=set(), per_minute=6, tick_s=2, stint_s=75)
@example(waves=[(1, 91), (3, 75), (1, 0)], busy=set(), per_minute=30, tick_s=2, stint_s=75)
@example(waves=[(1, 0), (1, 0), (8, 0)], busy=set(), per_minute=30, tick_s=5, stint_s=75)
@given(
    waves=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 150)), min_size=1, max_size=4),
    busy=st.sets(st.integers(0, 15), max_size=6),
    per_minute=st.sampled_from([6, 30]),
    tick_s=st.sampled_from([5, 5, 5, 2]),
    stint_s=st.sampled_from([10_000, 75]),
)
def test_each_silent_node_has_its_own_wait_and_then_no_minute_loses_more_than_the_rate(
    waves: list[tuple[int, int]], busy: set[int], per_minute: int, tick_s: int, stint_s: int
) -> None:
    """Nodes fall silent in waves, the first of which is a large part of the cell; some of them hold jobs."""
    world = cell_of(0, per_minute=per_minute)
    world.tell(*(joined(f"n{number:02}") for number in sorted(busy)))
    world.run(*(spec_of(f"job-{number}", 8) for number in sorted(busy)))
    world.tell(*(joined(f"n{number:02}") for number in range(16) if number not in busy))
    world.checks = False
    told = fall_silent(world, [(4, 30), *waves], tick_s, stint_s)
    world.check()
    waited_s = told.waited_s()
    waiting = [node for node in waited_s if told.is_overdue_while_held(node)]
    reaches("a node falls silent while others are held", len(waiting) > 4)
    # Where the last of those that were held back was lost just before, the next one is a loss like any other.
    assert all(waited_s[node] >= WAIT_S for node in waiting)
    assert all(wait_s >= 0 for wait_s in waited_s.values())
    assert sorted(waited_s) == sorted(told.silent_s)
    most = max(sum(at_s <= other < at_s + 60 for other, _ in told.gone) for at_s, _ in told.gone)
    # Once the last of those that were held back is lost, others are lost as ever: at once, if they are so few.
    assert most <= per_minute + BREAKER_NODES - 1


def test_a_fresh_cut_waits_in_full_though_others_are_held_for_long() -> None:
    """Five idle nodes are silent; shortly before they are lost the fifteen others, which hold jobs, fall silent."""
    world = cell_of(20)
    world.run(*(spec_of(f"job-{number}", 8) for number in range(20)))
    idle = [world.nodes_of(f"job-{number}")[0] for number in range(5)]
    world.tell(*(finished(f"job-{number}", idle[number]) for number in range(5)))
    busy = [node for node in world.state.nodes if node not in idle]
    assert pass_seconds(world, PATIENCE_S + WAIT_S - 10, *busy) == []
    gone = pass_seconds(world, PATIENCE_S + WAIT_S + 170)
    assert sorted(node for _, node in gone[:5]) == sorted(idle)
    assert [second for second, _ in gone] == [*range(11, 61, 10), *range(PATIENCE_S + WAIT_S, 241, 10)]


@given(names=st.permutations(range(6)), submits=st.permutations(range(6)))
def test_nodes_that_are_silent_for_equally_long_go_by_the_submission_of_their_jobs(
    names: list[int], submits: list[int]
) -> None:
    """The jobs fill one node each: those of so many GPUs."""
    by_name = [ms for _, ms in sorted(zip(names, submits, strict=True))]
    reaches("neither their names nor when they joined say it", sorted(submits) not in (by_name, submits))
    world = cell_of(0)
    world.tell(*(joined(f"n{name}", gpus) for gpus, name in enumerate(names, 1)))
    world.tell(*(admitted(spec_of(f"job-{gpus}", gpus), submit_ms=ms) for gpus, ms in enumerate(submits, 1)))
    at = {world.nodes_of(f"job-{gpus}")[0]: ms for gpus, ms in enumerate(submits, 1)}
    gone = [node for _, node in pass_seconds(world, PATIENCE_S + WAIT_S + 60, tick_s=TICK_S)]
    assert [at[node] for node in gone] == list(range(6))


@given(names=st.permutations(range(6)), chance=st.randoms(use_true_random=False))
def test_nodes_that_are_equal_in_all_go_as_they_joined_also_under_a_writer_from_a_snapshot(
    names: list[int], chance: Random
) -> None:
    reaches("nodes join in another order than that of their names", names != sorted(names))
    world = cell_of(0)
    world.tell(*(joined(f"n{name}") for name in names))
    world.restart_from_snapshot(chance)
    gone = [node for _, node in pass_seconds(world, PATIENCE_S + WAIT_S + 60, tick_s=TICK_S)]
    assert gone == [f"n{name}" for name in names]
