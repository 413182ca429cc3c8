"""How long the jobs of one kind have run, and what that says of one that has run for so long already.

Times are counted in buckets, four to each doubling. What is expected of a run is the middle one of those jobs that ran
for at least as long as it has by now, so that a run is expected to last the longer, the longer it has lasted: to
predict again is what pays (LAVA, Ling et al., MLSys 2025). It is said for each bucket of the age, from a count that is
brought up to date only when some more jobs have ended: so it stays the same for some time, and nothing has to be worked
out anew with each end. All in integers, whoever folds the same log expects the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from fallow.shared.events.base import LATEST_MS, later

SHORTEST_BITS: Final = 10
"""All that is shorter than about a second is one bucket."""

RUNS_MAX = 512
"""Where so many runs are counted, all counts are halved: what was seen of late counts for more."""

RUNS_LEAST = 4
"""Nothing is said of a kind of which fewer jobs have ended."""

NEWS_PART = 8
"""What is said is brought up to date when this part more jobs have ended."""


def bucket_of(run_ms: int) -> int:
    """The bucket of a run time."""
    bits = run_ms.bit_length()
    if bits <= SHORTEST_BITS:
        return 0
    return 4 * (bits - SHORTEST_BITS - 1) + (run_ms >> bits - 3 & 3) + 1


def end_of(bucket: int) -> int:
    """The shortest run time that is beyond the bucket."""
    doublings, quarter = divmod(bucket, 4)
    return 4 + quarter << SHORTEST_BITS - 2 + doublings


class RunHistory(NamedTuple):
    """The run times of one kind of jobs. `counts` says how many were in each bucket that any was in. `told` is what is
    said of a run that is in the bucket of its place: for how long it is expected to run in all. It was made when there
    were `told_of` counts (0: nothing is said yet). `number` tells when the last of these jobs ended, among all.
    """

    counts: tuple[tuple[int, int], ...] = ()
    told: tuple[int, ...] = ()
    told_of: int = 0
    number: int = 0

    def with_run(self, run_ms: int, number: int) -> RunHistory:
        """The same with one more that has ended."""
        counts = dict(self.counts)
        bucket = bucket_of(run_ms)
        counts[bucket] = counts.get(bucket, 0) + 1
        runs, told_of = sum(counts.values()), self.told_of
        if runs > RUNS_MAX:
            counts = {at: count // 2 for at, count in counts.items() if count > 1}
            runs, told_of = sum(counts.values()), told_of // 2
        rows = tuple(sorted(counts.items()))
        if runs < max(RUNS_LEAST, told_of + -(-told_of // NEWS_PART)):
            return RunHistory(rows, self.told, told_of, number)
        return RunHistory(rows, _told(counts), runs, number)

    def run_ms(self, ran_ms: int = 0) -> int:
        """How long a run is expected to last in all that has lasted for so long: always longer than that. One that has
        outlasted all others is expected to last for half as long again.
        """
        bucket = bucket_of(ran_ms)
        if bucket < len(self.told):
            return self.told[bucket]
        return later(end_of(bucket), end_of(bucket) // 2)


def same_until_ms(ran_ms: int) -> int:
    """For how long a run will have lasted when another thing may be expected of it than now."""
    return min(end_of(bucket_of(ran_ms)), LATEST_MS)


def _told(counts: Mapping[int, int]) -> tuple[int, ...]:
    """For each bucket up to the last one: the end of the bucket in which the middle one of the longer runs was."""
    last = max(counts)
    behind = list(accumulate(counts.get(bucket, 0) for bucket in range(last, -1, -1)))[::-1]
    found, middle = list[int](), last
    for bucket in range(last, -1, -1):
        # Of the runs from here on half are in later buckets than the middle one's.
        while middle > bucket and 2 * behind[middle] < behind[bucket]:
            middle -= 1
        found.append(end_of(middle))
    return tuple(found[::-1])
