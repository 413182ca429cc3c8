"""Draw worlds of the properties of lines, and tell how many fail and what they reached.

    python -m tests.placement.measurements.drawn_worlds --kind keeping --first 1000000 --count 1000

Prints one line for each world that fails, one each 500 worlds, and at the end how often the worlds reached what the
properties are about.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from time import perf_counter

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from tests.placement.properties.test_lines_property import Twins, live_alike
from tests.placement.properties.test_lines_quota_property import KeepingNaive, KeepingTwins, MixedTwins, QuotaTwins
from tests.placement.worlds.world import set_policy


def _unconfirmed(random: Random) -> Twins:
    twins = Twins(random)
    twins.settle(
        set_policy(backfill_wait_ms=60, fair_half_life_ms=160, max_unacknowledged_starts_per_node=random.randint(1, 4))
    )
    return twins


KINDS: dict[str, Callable[[Random], Twins]] = {
    "plain": Twins,
    "unconfirmed": _unconfirmed,
    "quota": QuotaTwins,
    "keeping": KeepingTwins,
    "mixed": MixedTwins,
}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def reached_by(twins: Twins) -> Counter[str]:
    """How often something happened in the world, by the log of the one that goes by its lines."""
    found = Counter[str]()
    decisions = [record.decision for record in twins.lines.log]
    for decision in decisions:
        assert isinstance(decision, Decision), decision
        for effect in decision.effects:
            name = type(effect).__name__
            if isinstance(effect, e.JobDeferred):
                name = f"deferred {effect.code.value}"
            elif isinstance(effect, e.JobStarted) and effect.attempt > 1:
                name = "JobStarted again"
            found[name] += 1
    if isinstance(twins.naive, KeepingNaive) and twins.naive.times_kept:
        found["walks beside kept places"] = twins.naive.times_kept
    found["waits at the end"] = sum(job.status is JobStatus.QUEUED for job in twins.lines.state.jobs.values())
    return found


def main() -> int:
    """Whether no world failed, as an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, default=1_000)
    args = parser.parse_args()
    begin, failed, total, worlds = perf_counter(), list[int](), Counter[str](), Counter[str]()
    for number in range(args.count):
        seed = args.first + number
        twins = KINDS[args.kind](Random(seed))
        try:
            live_alike(twins)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
            failed.append(seed)
            where = traceback.extract_tb(error.__traceback__)[-1]
            _say(f"{args.kind} {seed} fails: {type(error).__name__} {where.name}:{where.lineno}")
        found = reached_by(twins)
        total += found
        worlds.update(found.keys())
        if (number + 1) % 500 == 0:
            _say(f"{args.kind}: {number + 1} worlds, {len(failed)} failed, {perf_counter() - begin:.0f} s")
    for name, times in sorted(total.items()):
        _say(f"  {name:32} {times:9} times in {worlds[name]:6} of {args.count} worlds")
    rate = 1_000 * len(failed) / args.count
    _say(f"{args.kind}: {len(failed)} of {args.count} worlds fail, {rate:.2f} of 1,000")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
