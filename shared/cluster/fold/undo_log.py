"""The undo log of a state: checkpoint, try, then commit or roll back.

Everything that changes a state leaves here what it was before. Old values are kept, not inverse operations: there is
nothing to get wrong on the way back. A table gets its order back, too: who walks it afterwards decides as one who has
never tried anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Entry = tuple[Callable[[Any, Any, Any], object], Any, Any, Any]
"""What puts an old value back, and the three things that it is called with: owner, place, value."""


class UndoLog:
    """Old values of what changed since the first open checkpoint, newest last.

    Code that runs for every effect appends to `entries` itself, one entry for all that it changes in one object: to
    call for each single value would cost more than the change.
    """

    __slots__ = ("_in_order", "_looked", "_open", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._open = 0
        self._in_order: set[int] = set()
        """The tables whose order since the newest checkpoint is noted already: once is enough, however many keys go."""
        self._looked = dict[int, dict[Any, Any]]()

    def set(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name = value`."""
        self.entries.append((setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """`table[key] = value`."""
        if key in table:
            self.entries.append((dict.__setitem__, table, key, table[key]))
        else:
            self.entries.append((dict.pop, table, key, None))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """`del table[key]`; the key must be there."""
        if self._is_to_be_ordered(table, key):
            self.entries.append((_put_in_order, table, tuple(table), None))
        self.entries.append((dict.__setitem__, table, key, table.pop(key)))

    def forget(self, table: dict[Any, Any], key: Any) -> None:
        """Take a key out of a table by whose order no rule goes, however large it is: the key comes back as its last
        one.
        """
        self.entries.append((dict.__setitem__, table, key, table.pop(key)))

    def _is_to_be_ordered(self, table: dict[Any, Any], key: Any) -> bool:
        """Whether taking this key out loses the order of the table, which is not noted yet. The last key comes back as
        the last one. Which that is, is looked up once: behind many that went from the end, the look is long.
        """
        number = id(table)
        if not self._open or number in self._in_order:
            return False
        if number not in self._looked:
            self._looked[number] = table  # held, so that no other one gets its number
            if next(reversed(table)) == key:
                return False
        return self.is_first_of(table)

    def is_first_of(self, table: dict[Any, Any]) -> bool:
        """Whether this is the first such question of the table since the newest checkpoint: who takes a key out then
        leaves an entry before that which puts the table back in order, for a key that comes back comes last.
        """
        if not self._open or id(table) in self._in_order:
            return False
        self._in_order.add(id(table))  # the entry holds the table: no other one gets its number
        return True

    def checkpoint(self) -> int:
        """Open a checkpoint. Each must be ended by `commit` or `rollback`, the newest first."""
        self.trim()
        self._forget_orders()
        self._open += 1
        return len(self.entries)

    def rollback(self, mark: int) -> None:
        """Restore every value to what it was at the checkpoint."""
        self._must_be_open(mark)
        entries = self.entries
        while len(entries) > mark:
            restore, owner, place, old = entries.pop()
            restore(owner, place, old)
        self._forget_orders()
        self._open -= 1

    def commit(self, mark: int) -> None:
        """Keep what was done since the checkpoint. An outer checkpoint can still undo it."""
        self._must_be_open(mark)
        self._forget_orders()
        self._open -= 1
        self.trim()

    def _forget_orders(self) -> None:
        self._in_order.clear()
        self._looked.clear()

    def trim(self) -> None:
        """Forget everything, if no checkpoint is open that could undo it."""
        if not self._open:
            self.entries.clear()

    def _must_be_open(self, mark: int) -> None:
        if self._open < 1:
            raise ValueError("no checkpoint is open")
        if mark > len(self.entries):
            raise ValueError(f"checkpoint {mark} was ended before: the journal holds {len(self.entries)} entries")


def _put_in_order(table: dict[Any, Any], keys: tuple[Any, ...], _: None) -> None:
    """Every key of the table is there again, in whatever order."""
    for key in keys:
        table[key] = table.pop(key)
