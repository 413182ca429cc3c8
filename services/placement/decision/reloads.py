"""Reloads of the cell file, each in its place among the operations.

A file is put in force behind all operations that stand before its reload, and before all that stand behind it: who set
a quota behind it was told that it is set. So a reload for which a file was read waits here, with what follows it in its
topic, until what stands before it was taken in, and then until the file is wholly in force. Only then does it count as
read: a writer that takes the cell over before that reads it again, and the file with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fallow.services.placement.decision.inbox import Inbox, Input
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.operations import ReloadCell


class Reloads:
    """Those of one cell. `source` is the input in which they stand."""

    def __init__(self, source: str, *, as_they_came: bool) -> None:
        """With `as_they_came` all inputs wait behind a reload, and not only those of its source."""
        self._source, self._holds_all = source, as_they_came
        self._held = deque[Input]()
        self._marks = deque[tuple[Input, CellFile]]()
        """The reloads among these that bring a file. The first of them is the first of all."""
        self._is_begun = self._are_only_reloads_behind = False
        self._read: tuple[CellFile, int] | None = None

    def __len__(self) -> int:
        """How many inputs are held back."""
        return len(self._held)

    def read(self, file: CellFile, behind: int) -> None:
        """This file was read, when the log had put so many in force, for the reloads that are handed over next."""
        self._read = file, behind

    def hold_back(self, inputs: Iterable[Input]) -> list[Input]:
        """Those of the inputs that wait for no file."""
        file = None if self._read is None else self._read[0]
        free = list[Input]()
        for item in inputs:
            is_here = item.source == self._source
            if file is not None and is_here and isinstance(item.event, ReloadCell):
                self._read = None
                self._mark(item, file)
            if self._marks and (is_here or self._holds_all):
                self._held.append(item)
                self._are_only_reloads_behind &= isinstance(item.event, ReloadCell)
            else:
                free.append(item)
        return free

    def _mark(self, item: Input, file: CellFile) -> None:
        """Reloads that follow each other bring a file once."""
        is_to_come = len(self._marks) > self._is_begun
        if not (is_to_come and self._are_only_reloads_behind and self._marks[-1][1] == file):
            self._marks.append((item, file))
            self._are_only_reloads_behind = True

    def take_without_order(self) -> tuple[CellFile, int] | None:
        """The file that was read where no reload came with it, and how many were in force then; once."""
        read, self._read = self._read, None
        return read

    def begin(self, inbox: Inbox) -> CellFile | None:
        """The next file that is to be put in force: all that stands before its reload was taken in."""
        if self._is_begun or not self._marks:
            return None
        if any(self._holds_all or item.source == self._source for item in inbox.others):
            return None
        self._is_begun = True
        return self._marks[0][1]

    def end(self) -> list[Input]:
        """The file that was begun is wholly in force. What is free by that: its reload, and all up to the next one."""
        if not self._is_begun:
            return []
        self._is_begun = False
        self._marks.popleft()
        free = list[Input]()
        while self._held and not (self._marks and self._held[0] is self._marks[0][0]):
            free.append(self._held.popleft())
        return free

    def forget(self) -> None:
        """They are read again, and their files with them."""
        self._held.clear()
        self._marks.clear()
        self._is_begun = False
