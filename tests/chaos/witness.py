"""What is left of a run on real parts: topics and diaries as evidence for the checker that judges simulated worlds,
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fallow.shared.events.base import Event
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.events.effects import JobStarted
from fallow.shared.log.port import Log, Record, TopicPartition
from fallow.shared.log.reading import event_of
from fallow.shared.view.reader import ViewReader
from fallow.simulator.history.evidence import Answer, CellEvidence, Evidence, LogEntry, Reading, View, Wish
from tests.admitted import singly
from tests.e2e.worlds.running_cell import CELL, RunningCell

POLL_RECORDS = 2_000
PAGE = 10_000


async def records(log: Log, tp: TopicPartition) -> list[Record]:
    """All records of a partition, as they lie there now."""
    end = (await log.end_offsets([tp]))[tp]
    reader = log.reader({tp: 0})
    await reader.start()
    try:
        found: list[Record] = []
        while reader.positions()[tp] < end:
            found += await reader.poll(POLL_RECORDS)
        return found
    finally:
        await reader.stop()


async def whole_view(reader: ViewReader, version: int) -> View:
    """The view, once it has reached this version and stands still."""
    nodes = await reader.nodes(CELL, at_least=version)
    found, after = {}, ""
    while True:
        page = await reader.jobs(CELL, limit=PAGE, after=after, at_least=version)
        found.update({row.id: row for row in page.value})
        if len(page.value) < PAGE:
            return View(page.version, page.offset, found, {row.id: row for row in nodes.value})
        after = page.value[-1].id


async def evidence_of(
    cell: RunningCell, wishes: Sequence[Wish], readings: Sequence[Reading], view: View | None
) -> Evidence:
    """Everything that a stranger can read of the cell, when it is at rest."""
    decisions = await records(cell.log, cell.layout.tp("decisions", CELL))
    jobs = await records(cell.log, cell.layout.tp("jobs", CELL))
    of_cell = CellEvidence(
        CELL,
        [LogEntry(record.offset, record.value, _chain(record), record.timestamp_ms) for record in decisions],
        diary=cell.diary(),
        answers=[
            Answer(event, f"jobs-{record.partition}", record.offset)
            for record in jobs
            for event in singly(event_of(record))
            if isinstance(event, Event)
        ],
        readings=readings,
        views=[] if view is None else [view],
        is_drained=True,
        forgotten_version=cell.forgotten_version(),
    )
    return Evidence([of_cell], wishes)


def _chain(record: Record) -> str:
    return dict(record.headers).get(CHAIN_HEADER, b"").decode("ascii", "replace")


def doubled(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Jobs that were started twice in one attempt."""
    seen: dict[tuple[str, int], None] = {}
    found: dict[str, None] = {}
    for decision in decisions:
        for effect in decision.effects:
            if isinstance(effect, JobStarted):
                if (effect.job, effect.attempt) in seen:
                    found[effect.job] = None
                seen[effect.job, effect.attempt] = None
    return tuple(found)


def longest_gap_s(decisions: Sequence[Record], begin_ms: int, end_ms: int) -> float:
    """The longest time without a decision between two wall times, by Kafka's own stamps."""
    stamps = [begin_ms, *(r.timestamp_ms for r in decisions if begin_ms <= r.timestamp_ms <= end_ms), end_ms]
    return max(later - earlier for earlier, later in pairwise(stamps)) / 1000
