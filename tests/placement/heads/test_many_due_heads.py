"""Many heads that could each be on many nodes: a decision holds jobs against so many of them at most, and the walks
that it leaves are made in the next ones.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from fallow.services.placement.queue.head_index import BLOCK
from fallow.services.placement.queue.heads import COMPARISONS_TO_ASK
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import CycleResult, Start
from fallow.services.placement.service import COMPARISONS_AT_REST_MAX, ROUNDS_AT_REST_MAX, PlacementService
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Resources
from fallow.shared.events.jobs import JobAdmitted
from tests.placement.heads.test_due_heads_beside_others import WAIT_MS, job_of, running, world_of
from tests.placement.worlds.world import FILE, World, admitted, finished, joined, spec_of

NODES = 160
HEADS = 320
NODES_OF_A_HEAD = 15
OF_A_WALK = HEADS * 5 * COMPARISONS_TO_ASK
"""A job is asked about once before all turns and twice when its turn comes, and meets a few heads each time."""


def comparisons(world: World) -> list[int]:
    """Decide until nothing is left to decide, and count how often each decision held a job against a head."""
    found = []
    while True:
        begun = world.state.capacity.effort.comparisons
        goes_on = world.decide()
        found.append(world.state.capacity.effort.comparisons - begun)
        due_ms = world.service.next_cell_ms()
        if not goes_on and (due_ms is None or due_ms > world.now_ms):
            return found


def wide(world: World, number: int, random: Random) -> JobAdmitted:
    return job_of(world, f"bob-{number}", 4, *(f"n{random.randrange(NODES)}" for _ in range(NODES_OF_A_HEAD)))


def full_of_heads() -> World:
    """Each node has one GPU free, and all heads wait for whole nodes, some for long enough to be due. The last one
    could also be on a node where no other one could be.
    """
    names, random = [f"n{number}" for number in range(NODES)], Random(1)
    world = world_of(*names, "own")
    world.checks = False
    world.tell(*(job_of(world, f"eve-{name}", 3, name) for name in (*names, "own")))
    world.tell(wide(world, 0, random))
    for number in range(1, HEADS):
        world.hand_over(wide(world, number, random))
    comparisons(world)
    world.pass_time(WAIT_MS)
    comparisons(world)
    world.tell(job_of(world, "bob-last", 4, *names[:NODES_OF_A_HEAD], "own"))
    comparisons(world)
    return world


def test_no_decision_holds_jobs_against_more_heads_than_it_may_and_the_last_head_comes_to_its_turn() -> None:
    world = full_of_heads()
    assert len(world.state.heads) > HEADS / 2
    world.hand_over(job_of(world, "ada-0", 1, "n0"))
    comparisons(world)
    world.hand_over(finished("eve-own", "own"))
    found = comparisons(world)
    assert max(found) <= COMPARISONS_AT_REST_MAX + OF_A_WALK
    assert sum(found) > COMPARISONS_AT_REST_MAX + OF_A_WALK
    assert "bob-last" in running(world)


def kind(number: int) -> JobAdmitted:
    """A job for any node, like others but for its memory: of a kind of its own."""
    resources = Resources(gpu_milli=2 * GPU, memory_mib=number)
    return admitted(JobSpec(id=f"ada-{number}", tenant="ada", queue="q", resources=resources))


@pytest.mark.parametrize("kinds", [100, 400])
def test_of_many_kinds_of_jobs_each_costs_a_walk_the_same_behind_however_many_heads(kinds: int) -> None:
    """They could be on nodes that the heads keep, and beside them on one that is in use."""
    names = [f"n{number}" for number in range(2 * BLOCK)]
    world = world_of(*names, "own", memory_mib=1_000)
    world.checks = False
    world.tell(*(job_of(world, f"eve-{name}", 3, name) for name in (*names, "own")))
    world.tell(*(job_of(world, f"bob-{name}", 4, name) for name in names))
    world.pass_time(WAIT_MS)
    for number in range(kinds):
        world.hand_over(kind(number))
    comparisons(world)
    assert len(world.state.heads) == len(names) + kinds
    world.hand_over(job_of(world, "eve-new", 1, "n7"))
    found = comparisons(world)
    of_heads = len(names) * (3 * COMPARISONS_TO_ASK + BLOCK + 2 * len(names) / BLOCK)
    assert max(found) <= of_heads + kinds * (2 * COMPARISONS_TO_ASK + BLOCK)


class Restless:
    """A walk that always leaves something untried, and holds jobs against heads often."""

    def __init__(self, comparisons: int) -> None:
        self.walks, self._comparisons = 0, comparisons

    def walk(self, state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
        self.walks += 1
        state.capacity.effort.comparisons += self._comparisons
        return CycleResult(has_untried=True)


def restless(walk: Restless, *, stepped: bool = False) -> World:
    class Cell(World):
        placement = partial(PlacementService, walk=walk.walk)  # type: ignore[assignment]

    world = Cell(FILE, stepped=stepped)
    world.tell(joined("n1", 1))
    comparisons(world)
    walk.walks = 0
    world.hand_over(None)
    return world


@pytest.mark.parametrize(
    ("stepped", "of_a_walk", "decisions"),
    [
        (False, 0, 1),
        (False, COMPARISONS_AT_REST_MAX // ROUNDS_AT_REST_MAX // 2, 1),
        (False, COMPARISONS_AT_REST_MAX // 2, (1 + ROUNDS_AT_REST_MAX) // 2 + 1),
        (False, COMPARISONS_AT_REST_MAX, 1 + ROUNDS_AT_REST_MAX),
        (True, COMPARISONS_AT_REST_MAX, 1),
    ],
)
def test_as_many_walks_are_made_at_rest_in_however_many_decisions(
    *, stepped: bool, of_a_walk: int, decisions: int
) -> None:
    walk = Restless(of_a_walk)
    world = restless(walk, stepped=stepped)
    assert len(comparisons(world)) == decisions
    assert walk.walks == 1 + ROUNDS_AT_REST_MAX


def test_a_decision_that_is_written_begins_the_walks_at_rest_anew() -> None:
    walk = Restless(COMPARISONS_AT_REST_MAX)
    world = restless(walk)
    for _ in range(ROUNDS_AT_REST_MAX):
        world.decide()
    world.hand_over(admitted(spec_of("job")))
    comparisons(world)
    assert walk.walks == ROUNDS_AT_REST_MAX + 1 + 1 + ROUNDS_AT_REST_MAX
