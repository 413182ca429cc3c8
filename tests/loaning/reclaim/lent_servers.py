"""Draws of lent servers, and an oracle for reclaims that tries every set of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

from hypothesis import strategies as st

from fallow.services.loaning.policy.reclaim.spread import LentServer

JOBS = tuple("abcdef")


@st.composite
def lent_servers(draw: st.DrawFn, servers_max: int = 8) -> list[LentServer]:
    """Servers whose jobs reach over several of them more often than not."""
    count = draw(st.sampled_from((servers_max, servers_max, 3, 1)))
    held: list[dict[str, int]] = [{} for _ in range(count)]
    flexible: list[dict[str, int]] = [{} for _ in range(count)]
    for job in JOBS[: draw(st.sampled_from((6, 6, 5, 3, 0)))]:
        spread = draw(st.integers(1, min(4, count)))
        for position in draw(st.permutations(range(count)))[:spread]:
            held[position][job] = 1000 * draw(st.integers(1, 4))
    for position in draw(st.sets(st.integers(0, count - 1), max_size=2)):
        flexible[position][draw(st.sampled_from(JOBS))] = 1000 * draw(st.integers(1, 4))
    return [LentServer(f"s{n}", base, extra) for n, (base, extra) in enumerate(zip(held, flexible, strict=True))]


def least_cost(servers: Sequence[LentServer], needed: int, costs: Mapping[str, int]) -> int:
    """The cost of the cheapest set of jobs without which so many servers, or all, have no base workers."""
    jobs = sorted({job for server in servers for job in server.base})
    wanted = min(needed, len(servers))
    every_set = chain.from_iterable(combinations(jobs, size) for size in range(len(jobs) + 1))
    return min(
        sum(costs.get(job, 1) for job in ended)
        for ended in every_set
        if sum(all(job in ended for job in server.base) for server in servers) >= wanted
    )
