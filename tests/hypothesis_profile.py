"""How properties are searched: fresh examples each time, 300 in CI and few elsewhere, and no deadline (the machine may
be busy). A failure prints what brings it about again.

Importing it is enough. `HYPOTHESIS_EXAMPLES=2000` searches deeper. A property that says by `reaches` how often an
example reaches what it is about has that printed when tests have run, and fails where none of many does; so does a run,
where none of many examples in all of its tests does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis.strategies import SearchStrategy, integers, lists, one_of

from fallow.shared.runtime.clocks import wall_ms

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "25"))
IN_CI_LEAST, EACH_LEAST = 300, 10
IN_ALL = max(EXAMPLES, IN_CI_LEAST) if "CI" in os.environ else EXAMPLES

settings.register_profile(
    "fallow",
    max_examples=IN_ALL,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fallow")


def shared_among(count: int) -> settings:
    """For a property that runs for each of so many things: as many examples in all as any other, and some of each."""
    return settings(max_examples=max(EACH_LEAST, -(-IN_ALL // count)))


DAY_MS = 86_400_000


def today() -> int:
    """The number of the day, for what takes turns in CI."""
    return wall_ms() // DAY_MS


class Story(Random):
    """What is drawn in a world: from one seed how it is set up, and from a seed of its own what each round brings. So a
    round can be left out, and the others bring what they brought.
    """

    def __init__(self, seeds: tuple[int, ...]) -> None:
        super().__init__(seeds[0])
        self._seeds = seeds

    def rounds(self) -> Iterator[int]:
        """The number of each round, from which on its own seed counts."""
        for number, seed in enumerate(self._seeds[1:]):
            self.seed(seed)
            yield number

    def __repr__(self) -> str:
        return f"Story({self._seeds})"


def stories(rounds_max: int, *, whole_of: int = 2) -> SearchStrategy[Story]:
    """Of so many rounds at most. All but one of `whole_of` are that long, the others mostly far shorter: these cost
    little. One that fails shrinks to the rounds without which it does not.
    """
    seeds = integers(0, 10**9)
    whole = [lists(seeds, min_size=rounds_max + 1, max_size=rounds_max + 1) for _ in range(whole_of - 1)]
    drawn = one_of(lists(seeds, min_size=3, max_size=rounds_max + 1), *whole)
    return drawn.map(lambda found: Story(tuple(found)))


def rounds_of(random: Random, otherwise: int) -> Iterator[int]:
    """The rounds that a story has; so many of any other world, which goes by one seed."""
    yield from random.rounds() if isinstance(random, Story) else range(otherwise)


MANY = 100
"""What one example in twenty reaches, a hundred miss once in 170 runs: be content with no less than one in ten."""

REACHED: Counter[tuple[str, bool]] = Counter()
"""How many examples of this test process reached what they are about, and how many did not, since it was last read."""


def reaches(what: str, is_reached: object) -> None:
    """Count an example of a property that is about this."""
    REACHED[what, bool(is_reached)] += 1


def counted() -> list[tuple[str, bool, int]]:
    """What was counted since this was last called."""
    found = [(what, is_reached, count) for (what, is_reached), count in REACHED.items()]
    REACHED.clear()
    return found


def never_reached(rows: Iterable[tuple[str, bool, int]]) -> list[str]:
    """What none of `MANY` examples or more has reached."""
    missed, reached = Counter[str](), set[str]()
    for what, is_reached, count in rows:
        if is_reached:
            reached.add(what)
        else:
            missed[what] += count
    return sorted(what for what, count in missed.items() if count >= MANY and what not in reached)


def shown(reached: Counter[tuple[str, bool]]) -> list[str]:
    """A line for each thing that properties are about: of how many examples how many reached it."""
    lines = []
    for what in sorted({what for what, _ in reached}):
        yes, no = reached[what, True], reached[what, False]
        lines.append(f"{what}: {yes} of {yes + no} examples ({100 * yes // (yes + no)} %)")
    return lines
