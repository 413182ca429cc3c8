"""The nodes' diaries: one file of JSON lines for each slot, written before any reader hears of what stands there.

Of two executors that both believe they own a slot for a moment only one may write: the one that took the slot's *reign*
last. The reign is a number in a file of the slot; a writer whose number is no longer there has lost the slot, whatever
it was told.

A slot's nodes share a file because thousands of them write at all times: a turn costs one write for each slot, and not
one for each node.

A file that has grown is written anew (`forget`): with all of every run that is not over, all of those of which its
newest lines tell, and nothing of the others. So it is bounded by what lives, and for a while it can be compared with
the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from fallow.services.executor.files import Files
from fallow.services.executor.policy.desired import RunKey
from fallow.services.executor.policy.journal_recovery import key_of
from fallow.services.executor.service import slot_of
from fallow.shared.cluster.checks.run_journal import HORIZON_BEGINS, DiaryHorizon, DiaryLine
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.nodes import SEQ_LEAD_WALL_MS, SEQ_PER_MS
from fallow.shared.events.validation.unknown_fields import must_be_text

Read = TypeVar("Read")

SEQ_PER_REIGN = 1_000_000
"""A second of the clock, and more than what a node says while its numbers are ahead of the clock."""

SEQ_BEGIN_MAX = LARGEST_INTEGER // 2
"""A reign begins no further than this, which the clock reaches in the year 2112: a clock that is wrong once, or a file
that is damaged, leaves numbers enough.
"""

FOLDER = "diaries"

REIGN_BYTES = 32
"""More than a reign's number takes."""

GROWN_BYTES = 4_000_000
"""Some 12,000 runs: to write the file anew takes a tenth of a second, in which the process does nothing else."""

SHOWN_BYTES = 60
"""Of a line that cannot be read so much is shown."""

_READ = msgspec.json.Decoder(DiaryLine).decode


class DiaryUnreadable(Exception):
    """A diary holds a line that no agent wrote: what the nodes have begun is not known."""

    def __init__(self, name: str, number: int, entry: bytes) -> None:
        shown = repr(entry[:SHOWN_BYTES])[1:]
        super().__init__(
            f"{name}, line {number}: {shown} is no line of a diary, which tells what the node has begun: "
            "end the workers of the node, move the file away, and start again"
        )


class Lives(NamedTuple):
    """What the log knows at a version: runs of these jobs, and begun runs on these nodes, are not over for good."""

    version: int
    jobs: Container[str]
    nodes: Container[str]


@dataclass(slots=True)
class Reign:
    """A slot whose diary this process may write until another takes it: what it wrote to say so, its open files, how
    long the diary is, at which length it has grown, and how much of it outlives a loss of power; None: not even that it
    was taken.
    """

    text: bytes
    claim: int
    diary: int
    size_bytes: int
    grown_bytes: int
    certain_bytes: int | None = None


class Diaries:
    """The diaries of one cell's nodes among these files, as one process writes them."""

    def __init__(self, files: Files, cell: str, slots: int, grown_bytes: int = GROWN_BYTES) -> None:
        """A diary of at least `grown_bytes` has grown; a quarter of these tell of the runs that are kept."""
        self._files, self._cell, self._slots, self._grown_bytes = files, cell, slots, grown_bytes
        self._own: dict[int, Reign] = {}
        self._slot_of: dict[str, int] = {}

    def take(self, slot: int, wall_ms: int) -> int:
        """Take the slot's reign: no other process writes its nodes' diaries from now on. A number above all sequence
        numbers before.

        It counts from the wall clock where that is ahead: of no former reign on this disk, since another disk may have
        had one. It never goes back, however far the former one is ahead: this clock may be the wrong one, and readers
        may have taken what was said. Where no reader takes such numbers, the agents learn it (shared/events/nodes.py).
        """
        self.let_go(slot)
        files = self._files
        claim = files.open(self._claim(slot))
        with files.locked(claim):
            former = files.read_begin(claim, REIGN_BYTES)
            before = int(former) if former.isdigit() else 0  # a loss of power leaves less, or nothing
            clock = (wall_ms + SEQ_LEAD_WALL_MS) * SEQ_PER_MS
            seq = min(max(before + SEQ_PER_REIGN, clock), SEQ_BEGIN_MAX)
            text = b"%020d" % seq
            files.write_begin(claim, text)
        diary = files.open(self._name(slot), to_append=True)
        self._own[slot] = Reign(text, claim, diary, files.size_bytes(diary), self._grown_bytes)
        return seq

    def let_go(self, slot: int) -> None:
        """Write this slot's diary no more; harmless where it was never taken."""
        own = self._own.pop(slot, None)
        if own is not None:
            self._files.close(own.claim)
            self._files.close(own.diary)

    def lost(self) -> list[int]:
        """The slots that were taken here and whose reign belongs to another process by now."""
        return [slot for slot, own in self._own.items() if not self._reigns(own)]

    def _reigns(self, own: Reign) -> bool:
        """Whether no other process has taken the slot since; certain only as long as its claim is locked."""
        return self._files.read_begin(own.claim, REIGN_BYTES) == own.text

    def write(self, lines: Sequence[DiaryLine]) -> list[int]:
        """Append these lines to their nodes' diaries. Returns the slots whose reign belongs to another process: nothing
        was written for these.
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
        with self._files.locked(own.claim):
            if not self._reigns(own):
                return False
            own.size_bytes += len(text)
            self._files.append(own.diary, text)
        return True

    async def sync(self) -> None:
        """What was written outlives a loss of power: to be called before others hear of it."""
        for slot, own in [*self._own.items()]:
            if own.certain_bytes is None:
                await self._files.sync(self._claim(slot), own.claim)
            diary, size_bytes = own.diary, own.size_bytes
            if self._own.get(slot) is own and own.certain_bytes != size_bytes:
                await self._files.sync(self._name(slot), diary)
                if own.diary == diary:
                    own.certain_bytes = size_bytes

    def grown(self) -> list[int]:
        """The slots that were taken here and whose diary has grown."""
        return [slot for slot, own in self._own.items() if own.size_bytes >= own.grown_bytes]

    def forget(self, slot: int, lives: Lives) -> bool:
        """Write the slot's diary anew, without the runs that are over for good and not of late. False: its reign is
        another process's, and nothing was done.

        The new file takes the place of the old one when all of it is on the disk: a crash leaves one of the two, whole.
        No other process writes meanwhile, and the next owner of the reign opens the file behind this.
        """
        own = self._own.get(slot)
        if own is None:
            return False
        files, name = self._files, self._name(slot)
        with files.locked(own.claim):
            if not self._reigns(own):
                return False
            text = _without_past(name, files.read(name), self._cell, lives, self._grown_bytes // 4)
            files.replace(name, text)
            files.close(own.diary)
            own.diary = files.open(name, to_append=True)
        own.size_bytes, own.grown_bytes = len(text), max(self._grown_bytes, 2 * len(text))
        own.certain_bytes = None if own.certain_bytes is None else len(text)
        return True

    def read(self, slot: int, jobs: Container[str]) -> defaultdict[str, list[DiaryLine]]:
        """What the slot's nodes wrote down, by node, without the ended runs of other jobs than these: a diary tells
        of every run that ever was. A line that a crash tore is cut off: no reader has heard of it.

        Only for the owner of the reign. Raises DiaryUnreadable, OSError.
        """
        runs: dict[tuple[str, RunKey], list[DiaryLine]] = {}
        for line in self._whole_lines(self._name(slot)):
            key = (line.node, key_of(line))
            if line.event == "ended" and line.job not in jobs:
                runs.pop(key, None)
            else:
                runs.setdefault(key, []).append(line)
        found: defaultdict[str, list[DiaryLine]] = defaultdict(list)
        for (node, _), lines in runs.items():
            found[node] += lines
        return found

    def _whole_lines(self, name: str) -> Iterator[DiaryLine]:
        text = self._files.read(name)
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            self._files.cut(name, whole)
        for number, entry in enumerate(text[:whole].split(b"\n")[:-1], start=1):
            if not entry.startswith(HORIZON_BEGINS):
                yield _read(name, number, entry, _READ)

    def _claim(self, slot: int) -> str:
        return f"reigns/{self._cell}-{slot}-of-{self._slots}"

    def _name(self, slot: int) -> str:
        return f"{FOLDER}/{self._cell}-{slot}-of-{self._slots}.jsonl"


class _Brief(msgspec.Struct, gc=False):
    """Of a line only which run it is about, and whether that has ended: a file has tens of thousands."""

    node: str
    job: str
    attempt: int
    event: str
    rank: int | None = None
    turn: int = 0


_READ_BRIEF = msgspec.json.Decoder(_Brief).decode


def _read(name: str, number: int, entry: bytes, read: Callable[[bytes], Read]) -> Read:
    try:
        must_be_text(entry)
        return read(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DiaryUnreadable(name, number, entry) from error


def _without_past(name: str, text: bytes, cell: str, lives: Lives, kept_bytes: int) -> bytes:
    """The whole lines of a diary that tell of a run that is not over for good, or that is told of in the newest bytes;
    behind a line that says by which version what was forgotten was over.
    """
    lines = [line + b"\n" for line in text.split(b"\n")[:-1]]
    if lines and lines[0].startswith(HORIZON_BEGINS):
        del lines[0]
    runs, is_open = list[tuple[Any, ...]](), dict[tuple[Any, ...], bool]()
    for number, line in enumerate(lines, start=1):
        read = _read(name, number, line, _READ_BRIEF)
        run = (read.node, read.job, read.attempt, read.rank, read.turn)
        runs.append(run)
        is_open[run] = read.event != "ended"
    kept, newer_bytes, jobs, nodes = dict[tuple[Any, ...], None](), 0, lives.jobs, lives.nodes
    for run, line in zip(reversed(runs), reversed(lines), strict=True):
        newer_bytes += len(line)
        if newer_bytes > kept_bytes:
            break
        kept[run] = None
    for run, goes_on in is_open.items():
        if run[1] in jobs or (goes_on and run[0] in nodes):
            kept[run] = None
    horizon = encode(DiaryHorizon(forgotten_version=lives.version, cell=cell)) + b"\n"
    return horizon + b"".join([line for run, line in zip(runs, lines, strict=True) if run in kept])
