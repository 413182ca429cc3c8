"""A cell on its way from one Kafka to another: what of it is taken along, and how it is put down where nothing is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from fallow.cli.cell.archive import SUBMISSIONS, Archive, Unread
from fallow.cli.log.read_back import partitions_of, records_between
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import INPUTS, input_name
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import ORIGIN, Catalogue
from fallow.shared.log.port import Log, Record, TopicPartition
from fallow.shared.log.snapshots import read_catalogue, write_snapshot

OF_A_CELL = (*INPUTS, "queue", "decisions", "snapshots")
TRIES_MAX = 5
PUBLISH_AT_ONCE = 1_000


class NotMovable(Exception):
    """The cell cannot be taken along, or not be put down there, as things are. Nothing was changed."""


class Departure:
    """Reads all that a cell is. `committed` is how far admission has come; `tenants` have submission topics too."""

    def __init__(
        self, log: Log, layout: Layout, cell: str, committed: Mapping[TopicPartition, int], tenants: Sequence[str]
    ) -> None:
        self._log, self._layout, self._cell, self._committed = log, layout, cell, committed
        self._tenants = tenants

    async def collect(self) -> tuple[CellState, tuple[Unread, ...]]:
        """The state at the end of the log, and everything that is published and not in it. Raises NotMovable while the
        cell is being written; LogUnavailable, DamagedLog.
        """
        follower = Follower(self._log, self._layout, self._cell)
        try:
            await follower.start()
            for _ in range(TRIES_MAX):
                await follower.catch_up()
                version = follower.state.version
                unread = [*await self._unread_inputs(follower.state), *await self._unread_submissions()]
                await follower.catch_up()
                if follower.state.version == version == 0:
                    raise NotMovable(f"cell {self._cell} has not begun: its log holds no decision")
                if follower.state.version == version:
                    return follower.state, tuple(unread)
        finally:
            await follower.stop()
        raise NotMovable(f"cell {self._cell} is being written: stop its services first")

    async def _unread_inputs(self, state: CellState) -> list[Unread]:
        tps = [self._layout.tp(name, self._cell) for name in INPUTS]
        cursors = {tp: state.inputs.get(input_name(name, tp[1]), 0) for name, tp in zip(INPUTS, tps, strict=True)}
        return [record async for record in self._from(cursors)]

    async def _unread_submissions(self) -> list[Unread]:
        """Only admission knows in which cell the job of a submission would be at home."""
        tps = await submission_partitions(self._log, self._layout, self._tenants)
        cursors = {tp: self._committed.get(tp, 0) for tp in tps}
        found = [record async for record in self._from(cursors)]
        if found and len(self._layout.ordinals) > 1:
            text = f"{len(found)} submissions are not answered yet, and may be another cell's: let admission finish"
            raise NotMovable(text)
        return found

    async def _from(self, cursors: Mapping[TopicPartition, int]) -> AsyncIterator[Unread]:
        """Partition by partition, so that the order within each is the order of the file."""
        begins, ends = await self._log.begin_offsets(list(cursors)), await self._log.end_offsets(list(cursors))
        for tp, cursor in cursors.items():
            first = max(cursor, begins[tp])
            if first >= ends[tp]:
                continue
            async with aclosing(records_between(self._log, {tp: first}, ends)) as records:
                async for record in records:
                    yield self._unread(record)

    def _unread(self, record: Record) -> Unread:
        topic = record.topic.removeprefix(f"{self._layout.namespace}.")
        return Unread(topic, record.key, record.value, record.headers)


async def submission_partitions(log: Log, layout: Layout, tenants: Sequence[str]) -> list[TopicPartition]:
    """Where submissions stand: those of all, then each tenant's own. Raises LogUnavailable."""
    topics = [layout.topic(name) for name in (SUBMISSIONS, *(f"{SUBMISSIONS}.{tenant}" for tenant in tenants))]
    return [tp for topic in topics for tp in await partitions_of(log, topic)]


async def refuse_where_something_is(log: Log, layout: Layout, cell: str) -> None:
    """Raises NotMovable where the cell has any record already; LogUnavailable, also for a topic that is not there."""
    tps = [layout.tp(name, cell) for name in OF_A_CELL]
    ends = await log.end_offsets(tps)
    for topic, partition in tps:
        if ends[topic, partition]:
            raise NotMovable(f"cell {cell} is not empty here: {topic}/{partition} holds records")


async def arrive(log: Log, layout: Layout, archive: Archive, *, writer: str, wall_ms: int) -> CellState:
    """Put the cell down: first what it has not read, then its state, whose manifest comes last. The state as it is
    here. Raises LogUnavailable: then the cell's topics hold a part of it, and must be emptied before another try.
    """
    state = archive.state
    for topic in {record.topic: None for record in archive.unread}:
        await log.partitions(layout.topic(topic))  # before anything is written: raises where it is not there
    # Here nothing has been read yet, neither of the log nor of the inputs.
    state.offset, state.skipped = -1, 0
    state.inputs, state.input_checksums, state.input_resumes = {}, {}, {}
    records = [record.outgoing(layout.namespace, _partition(layout, state.cell, record)) for record in archive.unread]
    for first in range(0, len(records), PUBLISH_AT_ONCE):
        await log.publish(records[first : first + PUBLISH_AT_ONCE])
    catalogue: Catalogue = await read_catalogue(log, layout, state.cell)
    await write_snapshot(log, layout, state, catalogue, writer=writer, wall_ms=wall_ms, more_slots=(ORIGIN,))
    return state


def _partition(layout: Layout, cell: str, record: Unread) -> int | None:
    return layout.ordinals[cell] if record.topic in INPUTS else None
