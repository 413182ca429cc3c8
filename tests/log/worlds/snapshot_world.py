"""What the tests of snapshots on a log share: the topics, the writing and the reading."""

from __future__ import annotations

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.snapshots import SnapshotManifest
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, Record
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from tests.histories import CELL

TOPICS = ("decisions", "snapshots")


def layout_of(namespace: str) -> Layout:
    return Layout(namespace, {"cell-z": 0, CELL: 1})


async def snapshot(log: Log, layout: Layout, state: CellState, writer: str = "w") -> SnapshotManifest:
    catalogue = await read_catalogue(log, layout, state.cell)
    return await write_snapshot(log, layout, state, catalogue, writer=writer, wall_ms=0)


async def all_records(log: Log, layout: Layout) -> list[Record]:
    tp = layout.tp("snapshots", CELL)
    reader = log.reader({tp: (await log.begin_offsets([tp]))[tp]})
    await reader.start()
    end, records = (await log.end_offsets([tp]))[tp], []
    while reader.positions()[tp] < end:
        records.extend(await reader.poll())
    await reader.stop()
    return records
