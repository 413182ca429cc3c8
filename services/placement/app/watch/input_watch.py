"""The inputs of a writer that have lost records: each is fenced by itself, and the cell decides on the others.

An input is fenced where its cursor lies beyond the end of its topic, or where another record stands at the last offset
that was read, or where what comes next cannot be read; `jobs`, `proposals` and `operations` also where records were
deleted before they were read. A fenced input is not read: the process is not ready for it, and a person decides from
where it goes on (`FALLOW_RESUME_INPUTS`, or `fallow log repair`). What could not be read is looked at twice a minute,
and is read on once it can be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from fallow.services.placement.app.metrics import CellMetrics
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.events.decisions import input_name
from fallow.shared.log.inputs.damage import DamageWatch, damage_at
from fallow.shared.log.inputs.fenced_input import say_fenced, say_read_again, show_fenced
from fallow.shared.log.inputs.losses import PlaceWatch, loss_met, losses_of
from fallow.shared.log.machine.losses import Loss, LossKind, Place, fences
from fallow.shared.log.port import Log, LogTruncated, TopicPartition
from fallow.shared.runtime.process import Context

LOG_LOOK_S = 5.0
"""How often a writer looks whether the log was repaired while an input is fenced."""


class InputWatch:
    """The inputs of one cell while this process writes it. `tps` names the partition of each."""

    def __init__(
        self,
        context: Context[PlacementSettings],
        log: Log,
        cell: str,
        tps: Mapping[str, TopicPartition],
        metrics: CellMetrics,
        told: dict[str, Loss],
        how_to_resume: Callable[[str, int], str],
    ) -> None:
        """`told` is what the log of the process has told of inputs that cannot be read: that is told once.
        `how_to_resume` says by which words a person has an input read on that was read to an offset.
        """
        self._how_to_resume = how_to_resume
        self._told, self._damage = told, DamageWatch(log)
        self._log_look_at_s = 0.0
        self._context, self._log, self._cell, self._metrics = context, log, cell, metrics
        self._tps = dict(tps)
        self._names = {tp: name for name, tp in self._tps.items()}
        self._watch = PlaceWatch(log)
        self._earlier: dict[TopicPartition, tuple[Place, ...]] = {}
        self.fenced: dict[str, Loss] = {}
        self.read_past: dict[str, Place] = {}
        """Fenced inputs that were read on behind the loss before it was found, and where it is seen: the state's cursor
        does not show it.
        """

    async def begin(
        self, places: Mapping[str, Place], earlier: Mapping[TopicPartition, tuple[Place, ...]]
    ) -> dict[str, int]:
        """Where each input that is whole is read on, by the places that the state has read them to. An input that the
        state has never read is to begin at offset 0: what is gone of it before was never read. `earlier` is what a
        watch of this process had not compared when it ended, where no other process has written since. Raises
        LogUnavailable.
        """
        self._earlier = dict(earlier)
        begins = await self._log.begin_offsets(list(self._tps.values()))
        losses = await losses_of(self._log, {tp: places.get(name, Place(0)) for name, tp in self._tps.items()})
        for tp, loss in losses.items():
            self._judge(self._names[tp], loss)
        starts = {name: max(places.get(name, Place(0)).next_offset, begins[tp]) for name, tp in self._tps.items()}
        for name, place in places.items():
            if name not in self.fenced:
                tp = self._tps[name]
                self._watch.read(tp, place)
                self._watch.read_earlier(tp, self._earlier.pop(tp, ()))
        if earlier:
            await self.last_look()
        return {name: start for name, start in starts.items() if name not in self.fenced}

    async def look_ahead(self, names: Collection[str], places: Mapping[str, Place]) -> None:
        """Fence those of these inputs of which what comes next cannot be read: a person has decided about them, and
        reading would find out too late. Raises LogUnavailable.
        """
        for name in [name for name in names if name not in self.fenced]:
            loss = await damage_at(self._log, self._tps[name], places.get(name, Place(0)).next_offset)
            if loss is not None:
                self._fence(name, loss)

    def read(self, tp: TopicPartition, next_offset: int, checksum: int) -> None:
        """An input was read to here."""
        if self._names[tp] not in self.fenced:
            self._watch.read(tp, Place(next_offset, checksum))

    def refused(self, error: LogTruncated) -> bool:
        """A reader was refused its position. Whether it goes on where the topic begins; else the input is fenced."""
        return self._judge(self._names[error.tp], loss_met(error))

    def look(self) -> list[str]:
        """Which inputs are fenced by what the last look at the topics has found."""
        return [self._found(loss) for loss in self._watch.lost()]

    def mended(self) -> list[str]:
        """The inputs that could not be read and can be by now: the cell is to be taken over anew."""
        names = [self._names[loss.tp] for loss in self._damage.mended()]
        for name in names:
            self._told.pop(name, None)
        return names

    @property
    def is_log_look_due(self) -> bool:
        """Whether to look now if a person has repaired the log: from where a fenced input is read on stands there."""
        now_s = asyncio.get_running_loop().time()
        if not self.fenced or now_s < self._log_look_at_s:
            return False
        self._log_look_at_s = now_s + LOG_LOOK_S
        return True

    async def last_look(self) -> None:
        """Before the cell is left: its next writer goes on behind what was read here, and would see nothing amiss."""
        for loss in await self._watch.last_look():
            self._found(loss)

    async def end(self) -> dict[TopicPartition, tuple[Place, ...]]:
        """The cell is no longer written here: what is wrong with its inputs is its next writer's to tell. What was read
        of them and not compared since.
        """
        await self._watch.stop()
        await self._damage.stop()
        for name in self.fenced:
            say_read_again(self._context, self._tps[name])
            self._metrics.fenced(name, is_fenced=False)
        read_past = {self._tps[name]: (place,) for name, place in self.read_past.items()}
        self.fenced, self.read_past = {}, {}
        return {**self._earlier, **self._watch.uncompared(), **read_past}

    def _judge(self, name: str, loss: Loss) -> bool:
        if not fences(name, loss):
            self._count(name, loss)
            return True
        self._fence(name, loss)
        return False

    def _found(self, loss: Loss) -> str:
        name = self._names[loss.tp]
        if loss.place != self._watch.newest(loss.tp):
            self.read_past[name] = loss.place
        self._fence(name, loss)
        return name

    def _fence(self, name: str, loss: Loss) -> None:
        self.fenced[name] = loss
        self._watch.forget(loss.tp)
        how = self._how_to_resume(input_name(name, loss.tp[1]), loss.next_offset)
        meanwhile = "; until then nothing new is started" if name == "nodes" else ""
        text = f"to read on from OFFSET, start placement with FALLOW_RESUME_INPUTS={how}{meanwhile}"
        self._tell(name, loss, f"cell {self._cell}: {loss}; {text}")
        self._metrics.fenced(name, is_fenced=True)

    def _tell(self, name: str, loss: Loss, reason: str) -> None:
        known = self._told.get(name)
        if loss.kind is not LossKind.UNREADABLE:
            say_fenced(self._context, loss, reason, cell=self._cell)
            return
        self._damage.put(loss)
        if known is not None and known.next_offset == loss.next_offset:
            show_fenced(self._context, loss, reason, self._cell)
        else:
            self._told[name] = loss
            say_fenced(self._context, loss, reason, cell=self._cell)

    def _count(self, name: str, loss: Loss) -> None:
        self._context.logger.error(
            "inputs were deleted unread",
            cell=self._cell,
            topic=loss.tp[0],
            partition=loss.tp[1],
            from_offset=loss.next_offset,
            to_offset=loss.begin,
        )
        self._metrics.deleted_unread(name, loss.begin - loss.next_offset)
