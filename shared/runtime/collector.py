"""Python's garbage collector, tuned for a process that holds much and makes few cycles.

A full collection over a loaded state stops the process for hundreds of milliseconds and finds nothing. So it is off
while state is loaded, what a start has loaded is set aside for good, and young objects are looked at rarely.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 50_000
MIDDLE_ROUNDS = 20
OLD_ROUNDS = 50


def tune_collector() -> None:
    """Sets aside what start-up made, and collects rarely from now on."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_ROUNDS, OLD_ROUNDS)


_set_aside: set[str] = set()


@contextmanager
def loading(what: str) -> Iterator[None]:
    """No collection inside. What was made inside is not looked at again, but only the first time that this is loaded:
    what is set aside while it is in use stays for ever when it is not, so each load would leave the one before it.
    """
    gc.disable()
    try:
        yield
    finally:
        if what not in _set_aside:
            _set_aside.add(what)
            gc.freeze()
        gc.enable()
