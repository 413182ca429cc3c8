"""Ends all processes with a mark, whichever their parents are: an agent does this where a supervisor is gone."""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.executor.processes.supervisor import Owners, kill_with_group, processes, search, search_newest

LOOKS_MAX = 50
"""After so many looks in a row without any such process there is none, also where each look missed others: on a machine
on which processes come and go all the time no look is whole.
"""

CHASES = 200
"""So often the newest processes are looked at where a look missed any: a look at all takes too long for these."""


class Sweep:
    """One mark, or all that begin with one that ends in a slash, look by look. `listed` gives the ids of all processes
    of the machine; `owners` are the users whose processes may have the mark, None: all.
    """

    def __init__(
        self, mark: str, listed: Callable[[], list[int]] = processes, owners: Callable[[], Owners] = lambda: None
    ) -> None:
        self._mark, self._listed, self._owners = mark, listed, owners
        self._missed = set[int]()
        self._looks = 0

    def look(self) -> bool:
        """Kill what is there. Whether nothing is left: no process was found, and none that was there at the begin of
        the look had ended before its turn. One that forks and exits all the time always has.
        """
        found, missed = search(self._listed(), self._mark, of=self._owners())
        for pid in found:
            kill_with_group(pid)
        # What was over at the last look already, and has not been waited for, has left nothing behind since.
        is_whole = not missed - self._missed
        self._missed = missed
        is_found = bool(found) or (not is_whole and self._chase())
        self._looks = 0 if is_found else self._looks + 1
        return not is_found and (is_whole or self._looks >= LOOKS_MAX)

    def _chase(self) -> bool:
        is_found = False
        for _ in range(CHASES):
            for pid in search_newest(self._mark, of=self._owners()):
                kill_with_group(pid)
                is_found = True
        return is_found
