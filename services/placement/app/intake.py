"""What a writer reads, on its way to the service: what says nothing that belongs here is set aside as a dead letter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fallow.services.placement.app.metrics import CellMetrics
from fallow.services.placement.app.watch.input_watch import InputWatch
from fallow.services.placement.service import Input, PlacementService
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.model.config import CellPart
from fallow.shared.events.codec.encoding import TYPE_HEADER, Undecodable
from fallow.shared.events.decisions import INPUTS, input_name
from fallow.shared.events.operations import Operation, ReloadCell
from fallow.shared.events.queue import StartsPlanned
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.inputs.dead_letters import TOLD_MAX, dead_letter
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.port import Log, Record
from fallow.shared.log.reading import event_of, input_checksum
from fallow.shared.runtime.clocks import WallCellClock
from fallow.shared.runtime.process import Context

PLANS = "queue"
"""The topic of plans. It is no input, and has no cursor: a newer plan says again what an older one said."""

SET_ASIDE = "input set aside"
"""What the log of the process says of each of them, or of the first ones of many."""


class Intake:
    """Of one cell. `sources` are the inputs as decisions name them, by topic."""

    def __init__(
        self,
        context: Context[PlacementSettings],
        log: Log,
        layout: Layout,
        cell: CellPart,
        metrics: CellMetrics,
        on_reload: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_reload` is called where the cell file is to be read again: once for all the orders that came together,
        since each time holds up the cell.
        """
        self.cell = cell.name
        self.sources = {layout.topic(name): input_name(name, cell.ordinal) for name in INPUTS}
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._reload = on_reload

    async def take(self, records: list[Record], service: PlacementService, watch: InputWatch) -> None:
        """Hand over what came, once what says nothing that belongs here is set aside: all of it together, since a flood
        of bad records must not hold up the good ones.
        """
        dead: list[Dead] = []
        self._hear_plans(records, service)
        inputs = [self._input(record, dead, watch) for record in records if record.topic in self.sources]
        await self._set_aside(dead)
        if any(isinstance(item.event, ReloadCell) for item in inputs):
            await self._reload()
        service.take(inputs)

    def _hear_plans(self, records: list[Record], service: PlacementService) -> None:
        """Hand over the plans of this cell among these records; what else is in their topic is for people."""
        plans, kind = self._layout.topic(PLANS), (TYPE_HEADER, StartsPlanned.type.encode())
        for record in records:
            event = event_of(record) if record.topic == plans and kind in record.headers else None
            if isinstance(event, StartsPlanned) and event.cell == self.cell:
                service.hear_plan(event)

    def _input(self, record: Record, dead: list[Dead], watch: InputWatch) -> Input:
        """What a record says; one that says nothing that belongs here is added to `dead`."""
        source, checksum = self.sources[record.topic], input_checksum(record)
        watch.read((record.topic, record.partition), record.offset + 1, checksum)
        event = event_of(record)
        if isinstance(event, Undecodable):
            dead.append(Dead(record, event.reason, str(event)))
            return Input(source, record.offset + 1, None, checksum=checksum)
        home = event.home()
        if home is not None and home != self.cell:
            dead.append(Dead(record, DeadLetterReason.WRONG_CELL, f"cell: {home} is not {self.cell}"))
            return Input(source, record.offset + 1, None, checksum=checksum)
        return Input(
            source,
            record.offset + 1,
            event,
            len(record.value or b""),
            record,
            checksum,
            sent_ms=self._sent_ms(record) if isinstance(event, Operation) else None,
            stamped_ms=record.timestamp_ms or None,  # 0: by a log without a clock
        )

    def _sent_ms(self, record: Record) -> int | None:
        """The cell time at which the broker got the record. None where cell time goes by steps."""
        clock = self._context.clock
        return clock.at(record.timestamp_ms) if isinstance(clock, WallCellClock) else None

    async def set_strays_aside(self, service: PlacementService) -> None:
        """What the cycle could make nothing of. Its records are repeated here if the decision does not get through."""
        dead = []
        for item, stray in service.take_strays():
            assert isinstance(item.origin, Record), "every input of a node comes with its record"
            dead.append(Dead(item.origin, stray.reason, stray.text))
        await self._set_aside(dead)
        for why, count in service.take_past().items():
            self._metrics.past(why, count)

    async def _set_aside(self, dead: Sequence[Dead]) -> None:
        """Dead letters, confirmed together before the cursor passes their records."""
        if not dead:
            return
        warn, counted = self._context.logger.warning, self._context.telemetry.dead_letters
        for one in dead[:TOLD_MAX]:
            warn(SET_ASIDE, topic=one.record.topic, offset=one.record.offset, reason=one.text)
        if len(dead) > TOLD_MAX:
            warn("more inputs set aside", count=len(dead) - TOLD_MAX)
        for one in dead:
            counted.labels(one.record.topic, one.reason).inc()
        await self._log.publish(
            [dead_letter(one, service="placement", namespace=self._layout.namespace) for one in dead]
        )
