"""Runs the simulated world of this code, seed after seed, until a promise is broken. Started in a mutant's own copy.

Prints one JSON object: how many seeds it took, the invariant (null: none within the given number) and what was seen.
"""

from __future__ import annotations

import json
import sys

from fallow.faults.fault_worlds import Story, tell
from fallow.faults.faults import kinds_of
from fallow.faults.mutants import is_broken


def hunt(first_seed: int, seeds_max: int, faults: str = "", looked_at_first: str = "") -> dict[str, object]:
    """The worlds from this seed on, with these kinds of faults alone if any are named, until one breaks a promise. The
    world of another seed may be looked at first.
    """
    kinds = kinds_of(faults)
    seeds = [int(looked_at_first)] if looked_at_first else []
    for number, seed in enumerate([*seeds, *range(first_seed, first_seed + seeds_max)]):
        broken = tell(Story(seed, kinds)).violation
        if broken is None:
            continue
        invariant, text = broken
        if is_broken(text):
            raise SystemExit(f"seed {seed}: {text}")
        return {"seeds": number + 1, "seed": seed, "invariant": invariant, "text": f"seed {seed}: {text}"}
    return {"seeds": seeds_max, "invariant": None, "text": f"not caught in {seeds_max} seeds"}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
