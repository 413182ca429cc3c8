"""The nodes' diaries: one file of JSON lines for each slot, written before anybody hears of what stands there.

Of two executors that both believe they own a slot for a moment only one may write: the one that took the slot's *reign*
last. The reign is a number in a file of the slot; a writer whose number is no longer there has lost the slot, whatever
it was told.

A slot's nodes share a file because thousands of them write at all times: a turn costs one write for each slot, and not
one for each node.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.executor.policy.desired import RunKey
from services.executor.policy.past import key_of
from services.executor.service import slot_of
from shared.cluster.diary import DiaryLine
from shared.events.encoding import encode

SEQ_PER_MS = 1_000
SEQ_PER_REIGN = 1_000_000_000
"""More than what the agents of one reign will ever say, so that the next one's numbers are above theirs."""

_READ = msgspec.json.Decoder(DiaryLine).decode


@dataclass(frozen=True, slots=True)
class Reign:
    """A slot whose diary this process may write until another takes it: what it wrote to say so, and its open files."""

    text: bytes
    claim: int
    diary: int


class Diaries:
    """The diaries of one cell's nodes below `data_dir`, as one process writes them."""

    def __init__(self, data_dir: Path, cell: str, slots: int) -> None:
        self._cell, self._slots = cell, slots
        self._diaries = data_dir / "diaries"
        self._reigns = data_dir / "reigns"
        self._own: dict[int, Reign] = {}
        self._slot_of: dict[str, int] = {}
        for folder in (self._diaries, self._reigns):
            folder.mkdir(parents=True, exist_ok=True)

    def take(self, slot: int, wall_ms: int) -> int:
        """Take the slot's reign: nobody else writes its nodes' diaries from now on. A number above all sequence numbers
        before.

        It counts from the wall clock where there is no former reign on this disk: another disk may have had one.
        """
        self.let_go(slot)
        claim = os.open(self._reigns / f"{self._cell}-{slot}-of-{self._slots}", os.O_RDWR | os.O_CREAT, 0o644)
        with _locked(claim):
            before = int(os.pread(claim, 32, 0) or b"0")
            seq = max(before + SEQ_PER_REIGN, wall_ms * SEQ_PER_MS)
            text = b"%020d" % seq
            os.pwrite(claim, text, 0)
        diary = os.open(self._path(slot), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._own[slot] = Reign(text, claim, diary)
        return seq

    def let_go(self, slot: int) -> None:
        """Write this slot's diary no more; harmless where it was never taken."""
        own = self._own.pop(slot, None)
        if own is not None:
            os.close(own.claim)
            os.close(own.diary)

    def lost(self) -> list[int]:
        """The slots that were taken here and whose reign is somebody else's by now."""
        return [slot for slot, own in self._own.items() if os.pread(own.claim, 32, 0) != own.text]

    def write(self, lines: Sequence[DiaryLine]) -> list[int]:
        """Append these lines to their nodes' diaries. The slots whose reign is somebody else's: nothing was written for
        these.
        """
        by_slot: dict[int, list[bytes]] = {}
        known = self._slot_of
        for line in lines:
            slot = known.get(line.node)
            if slot is None:
                slot = known[line.node] = slot_of(line.node, self._slots)
            by_slot.setdefault(slot, []).append(encode(line))
        return [slot for slot, texts in by_slot.items() if not self._write_slot(slot, b"\n".join(texts) + b"\n")]

    def _write_slot(self, slot: int, text: bytes) -> bool:
        own = self._own.get(slot)
        if own is None:
            return False
        with _locked(own.claim):
            if os.pread(own.claim, 32, 0) != own.text:
                return False
            while text:
                text = text[os.write(own.diary, text) :]
        return True

    def read(self, slot: int, jobs: Container[str]) -> defaultdict[str, list[DiaryLine]]:
        """What the slot's nodes wrote down, by node, without the ended runs of other jobs than these: a diary tells
        of every run that ever was. A line that a crash tore is cut off: nobody has heard of it.

        Only for whoever holds the reign. Raises msgspec.DecodeError for a line that no agent wrote.
        """
        runs: dict[tuple[str, RunKey], list[DiaryLine]] = {}
        for line in self._whole_lines(self._path(slot)):
            key = (line.node, key_of(line))
            if line.event == "ended" and line.job not in jobs:
                runs.pop(key, None)
            else:
                runs.setdefault(key, []).append(line)
        found: defaultdict[str, list[DiaryLine]] = defaultdict(list)
        for (node, _), lines in runs.items():
            found[node] += lines
        return found

    def _whole_lines(self, path: Path) -> Iterator[DiaryLine]:
        if not path.exists():
            return
        whole = 0
        with path.open("rb") as text:
            for entry in text:
                if entry.endswith(b"\n"):
                    whole += len(entry)
                    yield _READ(entry)
        if whole < path.stat().st_size:
            os.truncate(path, whole)

    def _path(self, slot: int) -> Path:
        return self._diaries / f"{self._cell}-{slot}-of-{self._slots}.jsonl"


@contextmanager
def _locked(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
