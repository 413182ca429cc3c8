"""The newest whole window on the queues."""

from __future__ import annotations

from shared.events.queue import QueueHead, QueueOrdered


class Windows:
    """Puts the parts of windows together and keeps the newest whole one until a newer whole one replaces it."""

    def __init__(self) -> None:
        self.heads: tuple[QueueHead, ...] = ()
        self._seen: tuple[str, int] = ("", -1)
        self._parts: dict[int, QueueOrdered] = {}
        self._of: tuple[str, int] = ("", -1)

    def take(self, event: QueueOrdered) -> bool:
        """Whether a new window is whole now. A window of a writer that is not newer than its last is ignored."""
        writer, number = self._seen
        if event.writer == writer and event.window <= number:
            return False
        if (event.writer, event.window) != self._of:
            self._of, self._parts = (event.writer, event.window), {}
        self._parts[event.part] = event
        if any(part not in self._parts for part in range(event.parts)):
            return False
        self._seen = self._of
        self.heads = tuple(head for part in range(event.parts) for head in self._parts[part].heads)
        self._parts = {}
        return True
