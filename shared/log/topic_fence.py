"""Whether a topic that placement reads too is still the one that was read: for a process that reads ahead of it.

What stands in a topic that has lost records is passed over until a person has told placement from where it is read on.
"""

from __future__ import annotations

from typing import Any

from shared.log.fenced_input import say_fenced, say_read_again
from shared.log.losses import PlaceWatch, loss_met, losses_of
from shared.log.machine.losses import Loss, LossKind, Place
from shared.log.port import Log, LogTruncated, TopicPartition
from shared.runtime.process import Context


class TopicFence:
    """One cell's partition. What was deleted unread is no loss here: placement has read it, or is fenced itself."""

    def __init__(self, context: Context[Any], log: Log, cell: str, tp: TopicPartition) -> None:
        self._context, self._log, self._cell, self._tp = context, log, cell, tp
        self._watch = PlaceWatch(log)
        self.is_up = False

    async def begin(self, place: Place) -> None:
        """The state says that the topic was read to here. Raises LogUnavailable."""
        for loss in (await losses_of(self._log, {self._tp: place})).values():
            self._judge(loss)
        if not self.is_up and place.next_offset:
            self._watch.read(self._tp, place)

    def read(self, next_offset: int, checksum: int) -> None:
        """The topic was read to here."""
        self._watch.read(self._tp, Place(next_offset, checksum))

    @property
    def is_looking(self) -> bool:
        """Whether a look at the topic is under way: `look` tells what it has found."""
        return self._watch.is_looking

    def refused(self, error: LogTruncated) -> None:
        """The topic does not hold the position of its reader."""
        self._judge(loss_met(error))

    def look(self) -> None:
        """Put the fence up where the last look at the topic has found another record than the one that was read."""
        for loss in self._watch.lost():
            self._judge(loss)

    def lift(self) -> None:
        """A person has decided from where the topic is read on."""
        self.is_up = False
        self._watch.forget(self._tp)
        say_read_again(self._context, self._tp)

    async def end(self) -> None:
        """The cell is no longer worked on here."""
        await self._watch.stop()
        self.lift()

    def _judge(self, loss: Loss) -> None:
        if loss.kind is LossKind.DELETED_UNREAD:
            self._context.logger.warning("inputs were deleted unread", reason=str(loss))
            return
        self.is_up = True
        self._watch.forget(self._tp)
        reason = f"cell {self._cell}: {loss}; placement says how to go on"
        say_fenced(self._context, loss, reason, cell=self._cell)
