"""How often an agent searches the whole machine. One search looks at every process there is: were each worker to make
its own, a node with hundreds of workers would do nothing else, and its lease would not be renewed.
"""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.executor.processes.supervisor import (
    SUPERVISES,
    environments_among,
    processes,
    start_ticks,
    without_forks,
)

SEARCHERS_MAX = 4
"""So many workers may search the machine themselves between two looks: those without a supervisor. One does
so two or three times in its turn.
"""


class Searches:
    """What one search tells all workers of an agent, and who of them may search the machine next."""

    def __init__(
        self, mark: str, listed: Callable[[], list[int]] = processes, searchers_max: int = SEARCHERS_MAX
    ) -> None:
        """`mark` ends in a slash and is the beginning of those of all workers; `listed` gives the ids of all processes
        of the machine.
        """
        self.listed = listed
        self._mark, self._max = mark, searchers_max
        self._supervisors: dict[str, list[tuple[int, int]]] | None = None
        self._left, self._served, self._is_asked_in_vain = searchers_max, set[str](), False

    def begin_turn(self) -> None:
        """What was found is out of date, and others may search."""
        self._supervisors, self._left = None, self._max
        if not self._is_asked_in_vain:
            self._served.clear()
        self._is_asked_in_vain = False

    def supervisors(self, mark: str) -> list[tuple[int, int]]:
        """Those of one worker that lived when the machine was last searched in this turn: process id and the ticks at
        which it began.
        """
        if self._supervisors is None:
            self._supervisors = {}
            found = dict(environments_among(self.listed(), self._mark, SUPERVISES))
            for pid in without_forks([*found]):
                marks, ticks = found[pid], start_ticks(pid)
                for each in marks if ticks is not None else ():
                    self._supervisors.setdefault(each, []).append((pid, ticks or 0))
        return self._supervisors.get(mark, [])

    def may_search(self, mark: str) -> bool:
        """Whether this worker may search the machine now. One that may not has its turn before the others."""
        if mark in self._served or self._left == 0:
            self._is_asked_in_vain |= mark not in self._served
            return False
        self._left -= 1
        self._served.add(mark)
        return True
