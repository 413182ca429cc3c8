"""A backtest: what rules would have lent on a curve of demand, and for how long demand would not have been met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fallow.services.loaning.policy.forecast.forecast import PPM, Forecast, lendable

HEADROOM_PPM = 20_000
"""Lyra's: 2 % of the servers are never lent (section 7.1)."""

Rule = Callable[[Sequence[int], int], int]
"""How many servers are lent until the next samples: of the curve, and of the number of the present sample. A rule that
reads behind it knows the future.
"""


@dataclass(frozen=True, slots=True)
class LoanOutcome:
    """Server-steps that were lent, and steps in which servers were lacking."""

    lent: int
    short: int
    steps: int


def perfect(servers: int, steps: int) -> Rule:
    """Lyra's rule with a forecast that is always right: the largest of the next samples and the headroom."""

    def lent(curve: Sequence[int], now: int) -> int:
        return max(0, PPM - max(curve[now + 1 : now + 1 + steps]) - HEADROOM_PPM) * servers // PPM

    return lent


def by_point(servers: int, steps: int, season: int) -> Rule:
    """Lyra's rule with a point forecast: the present sample and the mean rise at this time of earlier days, and the
    headroom. Before the second day the present sample is the forecast.
    """

    def lent(curve: Sequence[int], now: int) -> int:
        rises = [max(curve[then + 1 : then + 1 + steps]) - curve[then] for then in range(now - season, -1, -season)]
        point = curve[now] + (sum(rises) // len(rises) if rises else 0)
        return max(0, PPM - point - HEADROOM_PPM) * servers // PPM

    return lent


def by_forecast(servers: int, steps: int, forecast: Callable[[], Forecast], quantile_ppm: int) -> Rule:
    """Sized by a quantile. The samples are observed in their order."""
    learned, seen = forecast(), [0]

    def lent(curve: Sequence[int], now: int) -> int:
        while seen[0] <= now:
            learned.observe(curve[seen[0]])
            seen[0] += 1
        return lendable(learned, servers, steps, quantile_ppm)

    return lent


def backtest(curve: Sequence[int], rule: Rule, servers: int, begin: int, steps: int) -> LoanOutcome:
    """From sample `begin` on, a loan every `steps` samples for so long. Demand is not met in a step in which it and
    what is lent are more than there are servers.
    """
    moments = list(_moments(curve, begin, steps))
    lent = short = 0
    for now in moments:
        count = rule(curve, now)
        needed = [-(-sample * servers // PPM) for sample in curve[now + 1 : now + 1 + steps]]
        lent += count * len(needed)
        short += sum(need + count > servers for need in needed)
    return LoanOutcome(lent, short, len(moments) * steps)


def _moments(curve: Sequence[int], begin: int, steps: int) -> Iterator[int]:
    return iter(range(begin, len(curve) - steps, steps))
