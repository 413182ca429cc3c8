"""The nodes' diaries: one file of JSON lines for each node, written before anybody hears of what stands there.

Of two executors that both believe they own a slot for a moment only one may write: the one that took the slot's *reign*
last. The reign is a number in a file of the slot; a writer whose number is no longer there has lost the slot, whatever
it was told.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.executor.service import slot_of
from shared.cluster.diary import DiaryLine
from shared.events.encoding import encode
from shared.events.value import read_valid

SEQ_PER_MS = 1_000
SEQ_PER_REIGN = 1_000_000_000
"""More than what the agents of one reign will ever say, so that the next one's numbers are above theirs."""


class Diaries:
    """The diaries of one cell's nodes below `data_dir`, as one process writes them."""

    def __init__(self, data_dir: Path, cell: str, slots: int) -> None:
        self._slots = slots
        self._diaries = data_dir / "diaries"
        self._reigns = data_dir / "reigns"
        self._cell = cell
        self._own: dict[int, bytes] = {}
        for folder in (self._diaries, self._reigns):
            folder.mkdir(parents=True, exist_ok=True)

    def take(self, slot: int, wall_ms: int) -> int:
        """Take the slot's reign: nobody else writes its nodes' diaries from now on. A number above all sequence numbers
        before.

        It counts from the wall clock where there is no former reign on this disk: another disk may have had one.
        """
        with self._locked(slot) as file:
            before = int(os.pread(file, 32, 0) or b"0")
            seq = max(before + SEQ_PER_REIGN, wall_ms * SEQ_PER_MS)
            text = b"%020d" % seq
            os.pwrite(file, text, 0)
        self._own[slot] = text
        return seq

    def write(self, lines: Sequence[DiaryLine]) -> list[int]:
        """Append these lines to their nodes' diaries. The slots whose reign is somebody else's: nothing was written for
        these.
        """
        by_slot: dict[int, dict[str, list[bytes]]] = {}
        for line in lines:
            nodes = by_slot.setdefault(slot_of(line.node, self._slots), {})
            nodes.setdefault(line.node, []).append(encode(line))
        return [slot for slot, nodes in by_slot.items() if not self._write_slot(slot, nodes)]

    def _write_slot(self, slot: int, nodes: dict[str, list[bytes]]) -> bool:
        with self._locked(slot) as file:
            if os.pread(file, 32, 0) != self._own.get(slot):
                return False
            for node, lines in nodes.items():
                self._append(node, b"\n".join(lines) + b"\n")
        return True

    def _append(self, node: str, text: bytes) -> None:
        # Opened for each batch: there may be more nodes than a process may have files, and opening costs a microsecond.
        file = os.open(self._diaries / f"{node}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            while text:
                text = text[os.write(file, text) :]
        finally:
            os.close(file)

    def read(self, node: str) -> list[DiaryLine]:
        """Everything that the node wrote down. A line that a crash tore is cut off: nobody has heard of it.

        Only for whoever holds the reign. Raises ValueError for a line that no agent wrote.
        """
        path = self._diaries / f"{node}.jsonl"
        if not path.exists():
            return []
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(path, whole)
        return [read_valid(DiaryLine, line) for line in text[:whole].splitlines()]

    @contextmanager
    def _locked(self, slot: int) -> Iterator[int]:
        file = os.open(self._reigns / f"{self._cell}-{slot}-of-{self._slots}", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)  # closing lets the lock go
