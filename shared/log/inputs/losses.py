"""Asks the log, now and then, whether it still holds what was read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from fallow.shared.log.machine.losses import Loss, LossKind, Place, loss_of
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, Record, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import input_checksum

LOOK_EVERY_S = 5.0
LAST_LOOK_S = 1.0
PLACES_MAX = 100
"""So many looks in a row may fail before the oldest place that none of them has compared is forgotten."""

LOOKING_WAIT_MS = 100
"""While a look is under way, a task that waits for news waits no longer than this before it asks what was found."""

ChecksumOf = Callable[[Record], int]


async def losses_of(
    log: Log, places: Mapping[TopicPartition, Place], checksum_of: ChecksumOf = input_checksum
) -> dict[TopicPartition, Loss]:
    """The partitions of these that do not continue what was read. Raises LogUnavailable.

    The beginnings are asked for last: a record that is deleted by its age during the look is no loss.
    """
    ends = await log.end_offsets(list(places))
    last = {tp: p.next_offset for tp, p in places.items() if p.checksum is not None and p.next_offset <= ends[tp]}
    found = await log.last_before(last)
    begins = await log.begin_offsets(list(places))
    checksums = {tp: checksum_of(record) for tp, record in found.items()}
    losses = {tp: loss_of(tp, p, begins[tp], ends[tp], checksums.get(tp)) for tp, p in places.items()}
    return {tp: loss for tp, loss in losses.items() if loss is not None}


class OtherRecord(LogTruncated):
    """A reader met another record right before its position than the one that was read there."""

    def __init__(self, tp: TopicPartition, next_offset: int) -> None:
        super().__init__(tp, asked=next_offset, begin=next_offset - 1, end=next_offset)


def loss_met(error: LogTruncated) -> Loss:
    """The loss that a reader met when its position was refused."""
    if isinstance(error, OtherRecord):
        return Loss(LossKind.OTHER_RECORD, error.tp, error.asked, error.begin, error.end)
    if isinstance(error, UnreadableRecords):
        return Loss(LossKind.UNREADABLE, error.tp, error.asked, error.begin, error.end, why=error.why)
    kind = LossKind.DELETED_UNREAD if error.asked < error.begin else LossKind.BEYOND_END
    return Loss(kind, error.tp, error.asked, error.begin, error.end)


class PlaceWatch:
    """Looks every five seconds, beside other work, whether partitions still hold what was read from them.

    Each look is at the newest place, and where that is whole at the one that was the newest at the look before; the
    first look at the first place. So a topic that was cut below that place is found out even when it has been filled
    and read on since. A look that fails compares nothing: its places are left to the next one.
    """

    def __init__(self, log: Log, checksum_of: ChecksumOf = input_checksum) -> None:
        self._log, self._checksum_of = log, checksum_of
        self._read: dict[TopicPartition, Place] = {}
        self._remembered: dict[TopicPartition, tuple[Place, ...]] = {}
        self._next: dict[TopicPartition, Place] = {}
        self._look: asyncio.Task[dict[TopicPartition, Loss]] | None = None
        self._look_at_s: float | None = None

    def read(self, tp: TopicPartition, place: Place) -> None:
        """The partition was read to here."""
        if tp not in self._read:
            self._remembered[tp] = (place,)
        self._read[tp] = place

    def read_earlier(self, tp: TopicPartition, places: tuple[Place, ...]) -> None:
        """The partition, which is read on from where it was told last, was read to these places before, and no look has
        compared them since.
        """
        self._remembered[tp] = (*places, *self._remembered[tp])[-PLACES_MAX:]

    def uncompared(self) -> dict[TopicPartition, tuple[Place, ...]]:
        """The places of each partition that the next look compares."""
        return {tp: _with(self._remembered[tp], place) for tp, place in self._read.items()}

    def newest(self, tp: TopicPartition) -> Place | None:
        """The place to which the partition was read; None where it is not looked at."""
        return self._read.get(tp)

    def forget(self, tp: TopicPartition) -> None:
        """Look at this partition no more, until it is read again."""
        self._remembered.pop(tp, None)
        for places in (self._read, self._next):
            places.pop(tp, None)

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way: what it finds is told by the next call of `lost`."""
        return self._look is not None

    @property
    def is_due(self) -> bool:
        """Whether the next call of `lost` begins a look."""
        now_s = asyncio.get_running_loop().time()
        if self._look_at_s is None:
            self._look_at_s = now_s + LOOK_EVERY_S
        return self._look is None and now_s >= self._look_at_s

    def lost(self) -> list[Loss]:
        """What the last look has found, once. Begins a look when one is due. While the log is away nothing is found."""
        if self.is_due:
            self._look = self._begun()
        if self._look is None or not self._look.done():
            return []
        look, self._look = self._look, None
        self._look_at_s = asyncio.get_running_loop().time() + LOOK_EVERY_S
        try:
            losses = look.result()
        except LogUnavailable:
            for tp, place in self._next.items():
                self._remembered[tp] = _with(self._remembered[tp], place)
            return []
        # A partition that was forgotten during the look, and perhaps begun anew, is not the one that was looked at.
        self._remembered |= {tp: (place,) for tp, place in self._next.items()}
        return [loss for tp, loss in losses.items() if tp in self._next]

    def _begun(self) -> asyncio.Task[dict[TopicPartition, Loss]]:
        self._next = dict(self._read)
        look = self._losses(self._next.copy(), self._remembered.copy())
        return asyncio.create_task(look, name="look at what was read")

    async def _losses(
        self, newest: Mapping[TopicPartition, Place], remembered: Mapping[TopicPartition, tuple[Place, ...]]
    ) -> dict[TopicPartition, Loss]:
        losses = await self._lost_at(newest)
        for number in range(max(map(len, remembered.values()), default=0)):
            places = {tp: older[number] for tp, older in remembered.items() if number < len(older)}
            losses |= await self._lost_at(
                {tp: place for tp, place in places.items() if tp not in losses and place != newest.get(tp)}
            )
        return losses

    async def _lost_at(self, places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, Loss]:
        """What was read may be deleted by its age: only a reader that has not read it yet has lost it."""
        losses = await losses_of(self._log, places, self._checksum_of) if places else {}
        return {tp: loss for tp, loss in losses.items() if loss.kind is not LossKind.DELETED_UNREAD}

    async def last_look(self) -> list[Loss]:
        """What a look right now finds, before the reader leaves; nothing where the log does not answer soon."""
        await self.stop()
        if not self._read:
            return []
        self._look = self._begun()
        await asyncio.wait([self._look], timeout=LAST_LOOK_S)
        return self.lost()

    async def stop(self) -> None:
        """Let a look that is under way go."""
        look, self._look = self._look, None
        if look is not None:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)


def _with(places: tuple[Place, ...], newest: Place) -> tuple[Place, ...]:
    """These and the newest one, each once."""
    return places if places and places[-1] == newest else (*places, newest)[-PLACES_MAX:]
