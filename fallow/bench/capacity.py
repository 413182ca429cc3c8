"""The highest rate that a cell holds, found by trials."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf, sqrt

FIRST_PER_S, STEP, HALVINGS = 1_000.0, 1.5, 2
LEAST_PER_S = 10.0
"""Nothing below is tried."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One rate (1/s), whether it was held, and how many jobs were started in a second."""

    per_s: float
    is_held: bool
    started_per_s: float


async def trials_of(tried: Callable[[float], Awaitable[Trial]], max_per_s: float) -> list[Trial]:
    """Try rates, none above this one: by steps of a half until one is held and the next is not, then halve what lies
    between, twice. The highest that was held is then at least nine tenths of what is.
    """
    trials = [await tried(min(FIRST_PER_S, max_per_s))]
    step = STEP if trials[0].is_held else 1 / STEP
    while trials[-1].is_held is trials[0].is_held:
        per_s = trials[-1].per_s * step
        if not LEAST_PER_S <= per_s <= max_per_s:
            return trials
        trials.append(await tried(per_s))
    held, missed = sorted((trials[-1].per_s, trials[-2].per_s))
    for _ in range(HALVINGS):
        middle = sqrt(held * missed)
        trials.append(await tried(middle))
        held, missed = (middle, missed) if trials[-1].is_held else (held, middle)
    return trials


def highest_held(trials: list[Trial]) -> Trial | None:
    """The one of the highest rate below the lowest that was missed; None where none was held."""
    missed = min((trial.per_s for trial in trials if not trial.is_held), default=inf)
    held = [trial for trial in trials if trial.is_held and trial.per_s < missed]
    return max(held, key=lambda trial: trial.per_s, default=None)
