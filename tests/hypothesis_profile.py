"""How properties are searched: few examples, fresh ones each time, and no deadline (the machine may be busy). A failure
prints what brings it about again.

Importing it is enough. `HYPOTHESIS_EXAMPLES=2000` searches deeper. A property on which much depends is `THOROUGH`, and
says by `reaches` how often an example reaches what it is about: the run of the tests prints that at its end.
"""

from __future__ import annotations

import os
from collections import Counter

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "25"))
THOROUGH_LEAST = 300

settings.register_profile(
    "fallow",
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fallow")

THOROUGH = settings(max_examples=max(EXAMPLES, THOROUGH_LEAST) if "CI" in os.environ else EXAMPLES)
"""In CI 300 examples at least."""

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


def shown(reached: Counter[tuple[str, bool]]) -> list[str]:
    """A line for each thing that properties are about: of how many examples how many reached it."""
    lines = []
    for what in sorted({what for what, _ in reached}):
        yes, no = reached[what, True], reached[what, False]
        lines.append(f"{what}: {yes} of {yes + no} examples ({100 * yes // (yes + no)} %)")
    return lines
