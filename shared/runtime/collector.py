"""Python's garbage collector, tuned for a process that holds much and makes few cycles.

A full collection over a loaded state stops the process for hundreds of milliseconds and finds nothing. So it is off
while state is loaded, what a start has loaded is set aside for good, and young objects are looked at in portions that
stop the process for moments only.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 10_000
"""A look at so many takes some 10 to 20 ms, which jobs that wait for a start wait, too; fewer at a time cost more in
all, since what a batch needs only for a moment is looked at as well.
"""

MIDDLE_ROUNDS = 10
OLD_ROUNDS = 500


def tune_collector() -> None:
    """Sets aside what start-up made, and collects rarely from now on."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_ROUNDS, OLD_ROUNDS)


class _Loads:
    """Loads that overlap, from when the first of them begins until the last one ends. Python sets aside all that there
    is at once, so they are set aside together or not at all.
    """

    def __init__(self) -> None:
        self._set_aside: set[str] = set()
        self._names: set[str] = set()
        self._open = 0
        self._may_set_aside = True

    def begin(self, what: str) -> None:
        """One more load is open."""
        gc.disable()
        self._may_set_aside = self._may_set_aside and what not in self._set_aside | self._names
        self._names.add(what)
        self._open += 1

    def end(self, *, is_whole: bool) -> None:
        """One of them is over. Its leftovers are garbage if it failed."""
        self._open -= 1
        self._may_set_aside = self._may_set_aside and is_whole
        if self._open:
            return
        if self._may_set_aside:
            gc.freeze()
            self._set_aside |= self._names
        self._names, self._may_set_aside = set(), True
        gc.enable()


_loads = _Loads()


@contextmanager
def loading(what: str) -> Iterator[None]:
    """No collection inside, nor while another load is open. `what` names what is loaded, and the service that loads it.

    What was made inside is not looked at again, but only the first time that this is loaded whole: what is set aside
    while it is in use stays for ever when it is not, so each load would leave the one before it.
    """
    is_whole = False
    _loads.begin(what)
    try:
        yield
        is_whole = True
    finally:
        _loads.end(is_whole=is_whole)
