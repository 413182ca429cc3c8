"""Follows one cell's decision log: the newest snapshot, then every record, folded in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import cast

from fallow.shared.cluster.fold.fold import BehindForged, DamagedLog, LogRecord, OtherRelease, fold
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import CellFileSet
from fallow.shared.log.inputs.losses import LOOKING_WAIT_MS, PlaceWatch
from fallow.shared.log.keys.signers import asks_too_early, keys_only_in_force
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.losses import LossKind, Place
from fallow.shared.log.machine.own_records import OwnRecords
from fallow.shared.log.port import Log, LogTruncated, Outgoing, Reader, Record
from fallow.shared.log.reading import checksum_of, log_record
from fallow.shared.log.snapshots import newest_snapshot

BeforeFold = Callable[[CellState, LogRecord], None]

SURE_FOR_S = 0.4
"""A writer that has sent a record, or has looked, appends without a look for so long: a busy one looks once."""


class Follower:
    """A reader of one cell's log that holds the folded state.

    Raises DamagedLog where the log is not whole, and LogTruncated where it no longer holds what comes after the state:
    both end the process that follows, because it cannot know the truth any more.

    A record that no key of the cell proves is passed over, wherever it stands: the keys are those of the layout.
    `before_fold` is shown the state and each other record that is about to be folded into it: what a decision takes
    away can be told only before. `patient_ms` is the reader's: how long a record may be held back where no other
    process waits for this reader. `service` names the service that follows.
    """

    def __init__(
        self,
        log: Log,
        layout: Layout,
        cell: str,
        *,
        snapshots: bool = True,
        before_fold: BeforeFold | None = None,
        patient_ms: int = 0,
        service: str = "",
    ) -> None:
        self.state = CellState(cell)
        self._log, self._layout, self._snapshots, self._service = log, layout, snapshots, service
        self._before_fold, self._patient_ms = before_fold, patient_ms
        self._tp = layout.tp("decisions", cell)
        self._reader: Reader | None = None
        # A writer does not read what it appended, and so does not know the broker's stamp.
        self._watch = PlaceWatch(log, lambda record: checksum_of(record.key, record.value))
        self._last: tuple[int, bytes | None, bytes | None] | None = None
        self._own = OwnRecords()
        self._lacks_key = self._is_file_new = self._has_forged = False
        self._sure: tuple[int, int] | None = None
        self._sent_s = self._known_s = -math.inf

    @property
    def lacks_key(self) -> bool:
        """Whether it has passed over records that a key proves that the cell file in force names, and the one here
        does not: this is an older copy. The state is believed for this alone: a process with an older copy must not
        write.
        """
        return self._lacks_key

    @property
    def asks_too_early(self) -> bool:
        """Whether the cell file here asks for signatures of decisions that need none by the cell file in force: of
        those up to the state, or of one that was passed over behind it.
        """
        keys, version = self._layout.signers.of(self.state.cell), self.state.version + self._has_forged
        return asks_too_early(self.state.cell_file, keys, self.state.cell, version)

    def confirmed(self, begin: int = 0) -> CellState:
        """The state, at a place behind which no reader misses anything: where records that no key of the cell proves
        stand behind its last decision, right before the first of them. Perhaps a key is missing here, and for readers
        that have it they are decisions. `begin` is where the log begins: no reader can read what it no longer holds.

        To be read before the next record is folded: its tables are those of the state.
        """
        if self._sure is None:
            return self.state
        state = copy(self.state)
        offset, state.skipped = self._sure
        state.offset = max(offset, begin - 1)
        return state

    @property
    def is_all_forged(self) -> bool:
        """Whether the log holds decisions and no key of the cell proves any. Perhaps the key is missing here with which
        the cell began: a process that writes now begins it anew.
        """
        return self._has_forged and self.state.version == 0

    @property
    def next_offset(self) -> int:
        """The offset of the next record to fold."""
        return self.state.offset + 1

    async def start(self) -> None:
        """Load the newest snapshot, if it knows more than the state, and begin to read behind what is known.

        May be called again after LogUnavailable, also of `catch_up`: records that were folded meanwhile stay folded,
        and reading begins right behind the state, whichever it is.
        """
        await self.rest()
        if self._snapshots:
            state = await newest_snapshot(self._log, self._layout, self.state.cell, self._service)
            if state is not None and state.version > self.state.version:
                self.state, self._sure = state, None
        await self._open()

    async def stop(self) -> None:
        """Let go of the log."""
        await self._watch.stop()
        await self.rest()

    async def rest(self) -> None:
        """Read nothing until the next poll: for a writer, which knows its own records already."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()

    async def _open(self, offset: int | None = None) -> Reader:
        if self._reader is None:
            position = self.next_offset if offset is None else offset
            reader = self._log.reader({self._tp: position}, patient_ms=self._patient_ms)
            await reader.start()
            self._reader = reader
        return self._reader

    async def poll(self, wait_ms: int = 100, max_records: int = 500) -> list[Decision]:
        """Fold what has come; the decisions that extended the state, in their order."""
        if self._is_file_new:
            await self._layout.signers.renewed()
            self._is_file_new = False
        reader, accepted = await self._open(), list[Decision]()
        wait_ms = min(wait_ms, LOOKING_WAIT_MS) if self._watch.is_looking else wait_ms
        records = await reader.poll(max_records, wait_ms)
        if not records:
            self.look()
            return accepted
        entries = await self._judged(records)
        forged = self._forged_of(records, entries)
        for record, entry in zip(records, entries, strict=True):
            if not self._own.is_whole(record.offset, record.key, record.value):
                raise _not_ours(record.offset)
            if self._fold(entry):
                accepted.append(cast("Decision", entry.decision))
        # At the next poll: what is folded must reach the caller, also one that is cancelled meanwhile.
        self._is_file_new |= any(CellFileSet in map(type, each.effects) for each in accepted)
        self._lacks_key = self._lacks_key or (bool(forged) and self._would_be_proven(forged))
        if records[-1].offset == self.state.offset:
            self._last = (records[-1].offset, records[-1].key, records[-1].value)
        return accepted

    async def _judged(self, records: Sequence[Record]) -> list[LogRecord]:
        """The records as the fold takes them. Before one is passed over as forged the keys are read again: perhaps its
        writer's was added.
        """
        signers, cell, version = self._layout.signers, self.state.cell, self.state.version
        entries = [log_record(record, signers.of(cell)) for record in records]
        if any(entry.is_forged(version) for entry in entries) and await self._renewed():
            entries = [log_record(record, signers.of(cell)) for record in records]
        return entries

    async def _renewed(self) -> bool:
        """Whether there are other keys now. A call that is cancelled meanwhile reads the records at hand once more."""
        try:
            return await self._layout.signers.renewed()
        except asyncio.CancelledError:
            await self.rest()
            raise

    def _forged_of(self, records: Sequence[Record], entries: Sequence[LogRecord]) -> list[Record]:
        """Those that will be passed over as forged, each told once."""
        version, both = self.state.version, zip(records, entries, strict=True)
        forged = [record for record, entry in both if entry.offset >= self.next_offset and entry.is_forged(version)]
        if forged:
            self._layout.signers.skipped(self.state.cell, [record.offset for record in forged])
        return forged

    def _would_be_proven(self, records: Sequence[Record]) -> bool:
        """Whether a key proves one of these that only the cell file in force names."""
        unknown = keys_only_in_force(self.state.cell_file, self._layout.signers.of(self.state.cell), self.state.cell)
        version = self.state.version
        return unknown is not None and any(not log_record(each, unknown).is_forged(version) for each in records)

    def _fold(self, entry: LogRecord) -> bool:
        """Whether the record is a decision that extended the state."""
        version, is_new = self.state.version, entry.offset >= self.next_offset
        is_forged, sure = entry.is_forged(version), (self.state.offset, self.state.skipped)
        if is_new and not is_forged and self._before_fold is not None:
            self._before_fold(self.state, entry)
        self._fold_or_tell(entry)
        self._has_forged |= is_new and is_forged
        if self.state.version != version:
            self._sure = None
        elif is_new and is_forged:
            self._sure = self._sure or sure  # and stays there: a copy of an old decision proves nothing of these
        return self.state.version != version

    def _fold_or_tell(self, entry: LogRecord) -> None:
        """Fold the record. Raises BehindForged where it does not fit behind records that were passed over here."""
        try:
            fold(self.state, entry)
        except DamagedLog as error:
            if self._sure is None or isinstance(error, OtherRelease):
                raise
            first = self._sure[0] + 1
            behind = BehindForged(f"{error}. What stands from offset {first} on was passed over here: no key proved it")
            behind.offset = error.offset
            raise behind from error

    def wrote(self, message: Outgoing) -> None:
        """The state's last record is this one, which was appended and not read."""
        self._last = (self.state.offset, message.key, message.value)
        self._own.wrote(*self._last)
        self._sure = None
        self._known_s = self._sent_s

    async def before_append(self) -> None:
        """For a writer, right before it appends: whether the record that was folded last still stands at the state's
        offset. Raises DamagedLog where another one does, LogUnavailable. A reader that knows no record of that offset
        has nothing to compare.

        The offset of the next record does not tell: where the log has lost its last record and another writer has
        filled that place, it is the one behind the state. A log that ends before the state is told by the offset.
        """
        now_s = asyncio.get_running_loop().time
        offset, last = self.state.offset, self._last
        if last is not None and last[0] == offset and (asked_s := now_s()) - self._known_s >= SURE_FOR_S:
            found = await self._log.stands_before(self._tp, offset + 1)
            if found is not None and last != (found.offset, found.key, found.value):
                raise _another(offset, found.offset)
            self._known_s = asked_s
        self._sent_s = now_s()

    def look(self) -> None:
        """Whether the log still holds, at the state's own offset, the record that was folded last: asked every few
        seconds while nothing comes. Raises DamagedLog where it does not, LogTruncated where it ends before.

        A process that has read nothing since its snapshot knows no more than the offset.
        """
        offset = self.state.offset
        if offset >= 0 and self._watch.is_due:
            _, key, value = self._last if self._last is not None and self._last[0] == offset else (0, None, None)
            checksum = None if value is None else checksum_of(key, value)
            self._watch.read(self._tp, Place(offset + 1, checksum))
        for loss in self._watch.lost():
            if loss.kind is LossKind.OTHER_RECORD:
                raise DamagedLog(str(loss))
            raise LogTruncated(self._tp, asked=loss.next_offset, begin=loss.begin, end=loss.end)

    async def catch_up(self) -> None:
        """Fold to the end of the log as it is at this moment. Raises LogTruncated where it ends before the state does.

        A writer knows its records without reading them, so only here it can learn that the broker has lost some, or
        put others in their place: it reads the newest of its own again. Raises DamagedLog where one of them is another.
        """
        end = (await self._log.end_offsets([self._tp]))[self._tp]
        if end < self.next_offset:
            begin = (await self._log.begin_offsets([self._tp]))[self._tp]
            raise LogTruncated(self._tp, asked=self.next_offset, begin=begin, end=end)
        if self._own.first is not None:
            await self.rest()
        reader = await self._open_at_the_last()
        while reader.positions()[self._tp] < end:
            await self.poll()
        self._own.clear()

    async def _open_at_the_last(self) -> Reader:
        """After a rest, begin with the last record that is known, or the first that was only written: the fold tells if
        the former is not the one that was.
        """
        if self._reader is None and self.state.offset >= 0:
            begin = (await self._log.begin_offsets([self._tp]))[self._tp]
            known = self.state.offset if self._own.first is None else self._own.first
            return await self._open(max(begin, known))
        return await self._open()


def _another(offset: int, found: int) -> DamagedLog:
    """The last record up to the offset is at `found`: further back where a transaction ended in the place of ours."""
    if found == offset:
        error = DamagedLog(f"offset {offset} now holds a different record from the one that this process read or wrote")
    else:
        error = DamagedLog(f"no record stands at offset {offset} any more, the last one before it at {found}")
    error.offset = offset
    return error


def _not_ours(offset: int) -> DamagedLog:
    error = DamagedLog(f"offset {offset} now holds a different record from the one that this process wrote")
    error.offset = offset
    return error
