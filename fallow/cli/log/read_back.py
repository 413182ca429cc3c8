"""Reads everything that a run wrote, from the first record to the last: topics and diaries. The log is verified on
the way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from fallow.cli.verify.verification import check_lines, forgotten_version, read_all_diaries
from fallow.cli.verify.verify import LogCheck
from fallow.replay.report.outcome import Outcome
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import TYPE_HEADER
from fallow.shared.events.decisions import Decision
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Record, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import event_of, header

READ_ONCE = 2_000
"""Records that are asked for at a time."""

IDLE_POLLS_MAX = 100


class LogOverflowed(Exception):
    """A partition no longer begins at its first record, so the fate of the jobs can no longer be told."""


async def read_back(log: Log, layout: Layout, cell: str, diaries: Path, outcome: Outcome) -> LogCheck:
    """Tell the outcome all that there is to know, and check the log from its beginning and the diaries against it.

    After an offence against the log the decisions that follow are not taken in. Raises LogOverflowed, LogUnavailable,
    DiaryError.
    """
    topics = layout.submission_topics
    async for record in records_of(log, [tp for topic in topics for tp in await partitions_of(log, topic)]):
        key = (record.key or b"").decode("utf-8", "replace")
        outcome.take_submission(header(record, TYPE_HEADER), key, event_of(record))
    async for record in records_of(log, [layout.tp("jobs", cell)]):
        outcome.take_answer(event_of(record))
    async for record in records_of(log, [(layout.topic("dead-letters"), 0)]):
        if header(record, "origin_topic").startswith(layout.topic("submissions")):
            outcome.take_dead_letter(header(record, "origin_key"))
    check = await _read_decisions(log, layout, cell, outcome)
    told = read_all_diaries([diaries], cell)
    outcome.take_diaries(told.lines)
    check_lines(check, told, dict(check.orders.running), forgotten=forgotten_version(diaries, cell))
    return check


async def _read_decisions(log: Log, layout: Layout, cell: str, outcome: Outcome) -> LogCheck:
    check = LogCheck(CellState(cell), layout.signers.of(cell))
    end = 0
    async for record in records_of(log, [layout.tp("decisions", cell)]):
        version, end = check.state.version, record.offset + 1
        check.take(record)
        if check.state.version != version:
            decision = event_of(record)
            assert isinstance(decision, Decision), "only a decision changes the version"
            outcome.take_decision(decision)
    check.finish(end)
    return check


async def partitions_of(log: Log, topic: str) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [(topic, number) for number in range(await log.partitions(topic))]


async def records_of(log: Log, tps: Sequence[TopicPartition]) -> AsyncIterator[Record]:
    """All records of these partitions up to where they end now, each partition in its order. Raises LogOverflowed,
    LogUnavailable.
    """
    begins, ends = await log.begin_offsets(tps), await log.end_offsets(tps)
    cut = [tp for tp in tps if begins[tp] != 0]
    if cut:
        raise LogOverflowed(f"{cut[0][0]}/{cut[0][1]} begins at offset {begins[cut[0]]}, not at 0")
    async for record in records_between(log, {tp: 0 for tp in tps if ends[tp] > 0}, ends):
        yield record


async def records_between(
    log: Log, wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> AsyncGenerator[Record, None]:
    """The records from these offsets on, up to these ends. Raises LogUnavailable, LogTruncated."""
    if not wanted:
        return
    reader, idle = log.reader(wanted), 0
    await reader.start()
    try:
        while not _are_read(reader.positions(), ends, wanted):
            records = await reader.poll(READ_ONCE)
            idle = 0 if records else idle + 1
            if idle > IDLE_POLLS_MAX:
                raise LogUnavailable(f"{next(iter(wanted))[0]}: nothing comes before its end")
            for record in records:
                if record.offset < ends[record.topic, record.partition]:
                    yield record
    finally:
        await reader.stop()


async def all_records(log: Log, tp: TopicPartition, start: int, end: int) -> AsyncIterator[Record]:
    """The records of a partition between these offsets, without those that cannot be read. Raises LogUnavailable,
    LogTruncated.
    """
    while start < end:
        try:
            async with aclosing(records_between(log, {tp: start}, {tp: end})) as records:
                async for record in records:
                    start = record.offset + 1
                    yield record
            break
        except UnreadableRecords as error:
            start = max(error.begin, start + 1)


def _are_read(
    at: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]
) -> bool:
    return all(at[tp] >= ends[tp] for tp in wanted)
