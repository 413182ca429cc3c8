"""What a simulated process writes to its log, as far as the world listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Hears = Mapping[str, Callable[..., None]]
"""For each event of interest what to do with its fields."""


class HeardLogger:
    """A logger of structlog's form that writes nothing."""

    def __init__(self, hears: Hears) -> None:
        self._hears = hears

    def debug(self, event: str, **fields: Any) -> None:
        """One line of any level."""
        heard = self._hears.get(event)
        if heard is not None:
            heard(**fields)

    info = warning = error = exception = critical = debug

    def bind(self, **_fields: Any) -> HeardLogger:
        """This logger: the service of these lines is known already."""
        return self
