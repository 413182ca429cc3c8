"""The names under which a case's jobs, nodes and queues are known to the services: numbers in the order of the rows,
or, to show that no verdict hangs on names, numbers in an order that a seed draws.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from fallow.shared.events.fields.job_ids import full_id, own_id
from fallow.simulator.engine import Chance

T = TypeVar("T")

NAMES_MAX = 10_000

_NAME = re.compile(r"\b(?:queue-\d{4}/)?(?:job|node|queue|place|pool|gpu)-\d{4}\b")


def shuffled(rows: Sequence[T], chance: Chance | None) -> list[T]:
    """The rows in an order that the seed draws; as they are without one."""
    found = list(rows)
    if chance is not None:
        for at in range(len(found) - 1, 0, -1):
            other = chance.randrange(0, at + 1)
            found[at], found[other] = found[other], found[at]
    return found


class Names:
    """Both ways between the case's names and those inside."""

    def __init__(self, chance: Chance | None) -> None:
        self._numbers = shuffled(range(NAMES_MAX), chance)
        self._inside: dict[tuple[str, str], str] = {}
        self._outside: dict[str, str] = {}
        self._used: dict[str, int] = {}

    def inside(self, kind: str, name: str) -> str:
        """The name inside of the job, node, queue or place that the case calls so."""
        known = self._inside.get((kind, name))
        if known is None:
            number = self._used[kind] = self._used.get(kind, -1) + 1
            known = self._inside[kind, name] = f"{kind}-{self._numbers[number]:04d}"
            self._outside[known] = name
        return known

    def job_of(self, queue: str, name: str) -> str:
        """The name inside, in full, of the job that the case calls so and that it puts into this queue: from now on it
        is the one that is meant.
        """
        own = own_id(self.inside("job", name))
        known = self._inside["job", name] = full_id(self.inside("queue", queue), own)
        self._outside[known] = name
        return known

    def in_order(self, kind: str, names: Sequence[str]) -> None:
        """Give these names such ones inside that stand in the same order."""
        found = sorted(self.inside(kind, name) for name in names)
        for name, known in zip(names, found, strict=True):
            self._inside[kind, name], self._outside[known] = known, name

    def outside(self, name: str) -> str:
        """What the case calls it."""
        return self._outside.get(name, name)

    def in_words(self, text: str) -> str:
        """A text with the case's own names."""
        return _NAME.sub(lambda found: self.outside(found.group()), text)
