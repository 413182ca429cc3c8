"""The greedy of Lyra (section 5.3): the server with the lowest preemption cost, again and again."""

from __future__ import annotations

from fallow.services.loaning.policy.reclaim.spread import Spread


def vacate_greedily(spread: Spread, needed: int) -> list[str]:
    """The jobs to preempt so that so many servers become empty of base workers, or all that there are; in order.

    Changes `spread`. A single server is found by trying each (section 5.3): there the whole cost of its jobs counts.
    """
    preempted, left = list[str](), min(needed, len(spread.occupied()))
    is_single = left == 1
    while left > 0:
        position = _cheapest(spread, left, is_single=is_single)
        emptied = len(spread.vacated_with(position))
        preempted += spread.preempt_all_on(position)
        left -= emptied
    return preempted


def _cheapest(spread: Spread, left: int, *, is_single: bool) -> int:
    """The server with the lowest cost.

    Between equal costs the one that leaves more servers empty, as far as they are needed, then the one that frees the
    fewest GPUs beyond these servers, then the first. The paper says "smaller collateral damage": read as the GPUs
    freed on all other servers, that would prefer S4 in its own example and preempt two jobs instead of one.
    """
    occupied = spread.occupied()
    costs = {position: spread.cost_of(position) if is_single else spread.shares[position] for position in occupied}
    lowest = min(costs.values())
    ties = [position for position in occupied if costs[position] == lowest]
    if len(ties) == 1:
        return ties[0]

    def rank(position: int) -> tuple[int, int, int]:
        emptied = sorted(spread.vacated_with(position).values(), reverse=True)[:left]
        return -len(emptied), spread.freed_with(position) - sum(emptied), position

    return min(ties, key=rank)
