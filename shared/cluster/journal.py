"""The undo log of a state: checkpoint, try, then commit or roll back.

Everything that changes a state goes through here. While no checkpoint is open nothing is recorded, so a reader that
only folds pays for the assignment alone. Old values are kept, not inverse operations: there is nothing to get wrong on
the way back.
"""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Journal:
    """Old values of what changed since the first open checkpoint."""

    __slots__ = ("_entries", "_open")

    def __init__(self) -> None:
        self._entries: list[tuple[Any, Any, Any, bool]] = []
        self._open = 0

    def set(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name = value`."""
        if self._open:
            self._entries.append((owner, name, getattr(owner, name), False))
        setattr(owner, name, value)

    def change(self, owner: Any, **values: Any) -> None:
        """Several attributes of `owner` at once. What is the same object already is left alone."""
        for name, value in values.items():
            old = getattr(owner, name)
            if old is not value:
                if self._open:
                    self._entries.append((owner, name, old, False))
                setattr(owner, name, value)

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """`table[key] = value`."""
        if self._open:
            self._entries.append((table, key, table.get(key, _MISSING), True))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """`del table[key]`; the key must be there."""
        if self._open:
            self._entries.append((table, key, table[key], True))
        del table[key]

    def checkpoint(self) -> int:
        """Open a checkpoint. Each must be ended by `commit` or `rollback`, the newest first."""
        self._open += 1
        return len(self._entries)

    def rollback(self, mark: int) -> None:
        """Restore every value to what it was at the checkpoint."""
        entries = self._entries
        while len(entries) > mark:
            owner, key, old, is_table = entries.pop()
            if not is_table:
                setattr(owner, key, old)
            elif old is _MISSING:
                del owner[key]
            else:
                owner[key] = old
        self._close()

    def commit(self, mark: int) -> None:
        """Keep what was done since the checkpoint. An outer checkpoint can still undo it."""
        if mark > len(self._entries):
            raise ValueError(f"checkpoint {mark} was ended before: the journal holds {len(self._entries)} entries")
        self._close()

    def _close(self) -> None:
        if self._open < 1:
            raise ValueError("no checkpoint is open")
        self._open -= 1
        if not self._open:
            self._entries.clear()
