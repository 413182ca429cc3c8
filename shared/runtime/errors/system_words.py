"""What the system says of an error, for people: without its number and the names of Python."""

from __future__ import annotations

import os
import re

_NUMBER = re.compile(r"\[Errno -?\d+\] ")


def words_of_system(error: Exception) -> str:
    """`Connection refused`, `No such file or directory`. "" where nothing is said, as of a wait that was too long."""
    reason, number = getattr(error, "reason", None), getattr(error, "errno", None)
    if isinstance(error, OSError) and isinstance(reason, str):  # of TLS, whose numbers are not the system's
        return reason.replace("_", " ").lower()
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return getattr(error, "strerror", None) or _NUMBER.sub("", str(error))
