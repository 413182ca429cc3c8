"""Runs simulated worlds, many at a time, and looks for the shortest story of one that fails."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context

from fallow.simulator.draws.workload import Item
from fallow.simulator.history.of_world import judge_history
from fallow.simulator.history.reached import reached
from fallow.simulator.history.record import Injected
from fallow.simulator.shrink import shortest
from fallow.simulator.trouble.faults import Fault
from fallow.simulator.world import World

SEEDS_AT_ONCE = 4
SHRINK_TRIES_MAX = 250
YOUNG_OBJECTS = 200_000
"""A world makes many objects and ends soon: looking at so many at once saves a tenth of it beside Python's own 700."""


@dataclass(frozen=True, slots=True)
class Story:
    """Which world to run: None keeps all faults, and all items of the workload."""

    seed: int
    kinds: tuple[Fault, ...] = tuple(Fault)
    keep_faults: frozenset[int] | None = None
    keep_items: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """How a world ended: (invariant, words) of its first violation, or None; and which effects and reasons its log
    holds.
    """

    story: Story
    steps: int
    injected: Counter[str]
    violation: tuple[str, str] | None
    violations: int = 0
    reached: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Ending:
    """A failing story with all that happened in it."""

    told: Told
    faults: Sequence[Injected]
    items: Sequence[Item]


def tell(story: Story) -> Told:
    """Run one world and judge it."""
    return _ending(story).told


def tell_all(stories: Sequence[Story], processes: int) -> Iterator[Told]:
    """Run these worlds on so many processes; the answers come in the order of the stories."""
    if processes == 1:
        yield from map(tell, stories)
        return
    with get_context().Pool(processes, _collect_rarely) as pool:
        yield from pool.imap(tell, stories, chunksize=SEEDS_AT_ONCE)


def _collect_rarely() -> None:
    """For the processes of worlds alone: nothing else is done there."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def shrunk(story: Story) -> Ending:
    """The shortest story that breaks the same invariant: fewer faults first, then fewer wishes, then faults again."""
    whole = _ending(story)
    violation = whole.told.violation
    assert violation is not None, "only a story that fails can be shortened"

    def fails(shorter: Story) -> bool:
        found = tell(shorter).violation
        return found is not None and found[0] == violation[0]

    kept = replace(story, keep_faults=frozenset(fault.number for fault in whole.faults))
    kept = kept if fails(kept) else story
    for _ in range(2):
        faults = tuple(fault.number for fault in _ending(kept).faults)
        fewer = shortest(faults, partial(_fails_with, fails, kept, "keep_faults"), SHRINK_TRIES_MAX)
        kept = _if_fails(replace(kept, keep_faults=frozenset(fewer)), kept, whole)
        items = tuple(item.number for item in _ending(kept).items)
        fewer = shortest(items, partial(_fails_with, fails, kept, "keep_items"), SHRINK_TRIES_MAX)
        kept = _if_fails(replace(kept, keep_items=frozenset(fewer)), kept, whole)
    return _ending(kept)


def _fails_with(fails: Callable[[Story], bool], base: Story, name: str, some: frozenset[int]) -> bool:
    return fails(replace(base, keep_faults=some) if name == "keep_faults" else replace(base, keep_items=some))


def _if_fails(shorter: Story, before: Story, whole: Ending) -> Story:
    found = tell(shorter).violation
    assert whole.told.violation is not None
    return shorter if found is not None and found[0] == whole.told.violation[0] else before


def _ending(story: Story) -> Ending:
    chance = random.Random(story.seed)  # noqa: S311 - a world is drawn from its seed
    world = World(story.seed, chance, faults=story.kinds, keep_faults=story.keep_faults, keep_items=story.keep_items)
    history = world.run()
    found = [(violation.invariant, violation.text) for violation in history.violations]
    found = found or [(violation.invariant, violation.text) for violation in judge_history(history)]
    injected = Counter(fault.kind for fault in history.injected)
    told = Told(story, history.steps, injected, found[0] if found else None, len(found), reached(history))
    return Ending(told, history.injected, world.items)
