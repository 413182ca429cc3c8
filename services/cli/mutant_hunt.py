"""Runs the simulated world of this code, seed after seed, until a promise is broken. Started in a mutant's own copy.

Prints one JSON object: how many seeds it took, the invariant (null: none within the given number) and what was seen.
"""

from __future__ import annotations

import json
import sys

from services.cli.fault_worlds import Story, tell

BROKEN_CODE = ("NameError", "AttributeError", "TypeError", "ImportError", "SyntaxError", "UnboundLocalError")
"""What a mutant raises that does not take a defence out, but breaks the code."""


def hunt(first_seed: int, seeds_most: int) -> dict[str, object]:
    """The worlds from this seed on, until one breaks a promise."""
    for number in range(seeds_most):
        broken = tell(Story(first_seed + number)).violation
        if broken is None:
            continue
        invariant, text = broken
        if any(f"{name}:" in text for name in BROKEN_CODE):
            raise SystemExit(f"seed {first_seed + number}: {text}")
        return {"seeds": number + 1, "invariant": invariant, "text": f"seed {first_seed + number}: {text}"}
    return {"seeds": seeds_most, "invariant": None, "text": f"not caught in {seeds_most} seeds"}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]), int(sys.argv[2]))))
