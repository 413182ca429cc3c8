"""What became of records that were sent to a running cell: answers and dead letters, as any reader of the topics sees
them.
"""

from __future__ import annotations

from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.log.port import Record
from fallow.shared.log.reading import event_of, header
from tests.admitted import singly
from tests.e2e.worlds.running_cell import CELL, RunningCell


async def records_of(cell: RunningCell, topic: str) -> list[Record]:
    """Everything that a topic's (or the cell's) partition holds now."""
    name = cell.layout.topic(topic)
    tp = (name, 0) if topic == "dead-letters" else cell.layout.tp(topic, CELL)
    end = (await cell.log.end_offsets([tp]))[tp]
    reader, found = cell.log.reader({tp: 0}), list[Record]()
    await reader.start()
    while reader.positions()[tp] < end:
        found += await reader.poll()
    await reader.stop()
    return found


async def answers(cell: RunningCell) -> list[Event | Undecodable]:
    """What admission published."""
    return [event for record in await records_of(cell, "jobs") for event in singly(event_of(record))]


async def letters(cell: RunningCell) -> list[Record]:
    """The dead letters."""
    return await records_of(cell, "dead-letters")


def reason(letter: Record) -> str:
    """Why it was set aside."""
    return header(letter, "reason")
