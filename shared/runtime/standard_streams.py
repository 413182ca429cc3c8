"""Standard streams that the starter of the process has closed."""

from __future__ import annotations

import os
import sys

LOWEST = 3
"""The first number of a file that is no standard stream."""


def open_missing_streams() -> None:
    """What is missing of the standard streams leads nowhere from now on, also for programs that take this process's
    place: a file that is opened later would get its number, and with it the words of every writer to that stream, and
    the event loop ends the process when it closes a file of such a number.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < LOWEST:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
