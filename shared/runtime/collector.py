"""Python's garbage collector, tuned for a process that holds much and makes few cycles.

A full collection over a loaded state stops the process for hundreds of milliseconds and finds nothing. So it is off
while state is loaded, what was loaded is set aside for good, and young objects are looked at rarely.
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


@contextmanager
def loading() -> Iterator[None]:
    """No collection inside; what was made inside is not looked at again afterwards."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
