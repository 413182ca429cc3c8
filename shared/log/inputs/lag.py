"""How far behind a process is, for each partition that it handles: in records, and in seconds.

Every service says how far it has got; where the log ends is asked of Kafka. So the figures grow also while a service
stands still, and before its readers notice.

What a transaction leaves behind takes offsets, and is nothing that a process could be behind. What stands behind an
open transaction no reader can read, however far the process has come: that is told by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fallow.shared.log.machine.sights import Sights
from fallow.shared.log.port import Log, LogUnavailable, TopicPartition
from fallow.shared.runtime.process import Context

LOOK_EVERY_S = 2.0

OPEN_MS_MAX = 60_000
"""Kafka ends a transaction by itself after a minute, unless its producer has asked for more or is blocked."""


@dataclass(slots=True)
class _Watched:
    """One partition. It had no record between `at[0]`, the cursor, and `at[1]`, the end, when `is_empty`. A transaction
    is open at offset `open_at` since `open_ms`.
    """

    sights: Sights = field(default_factory=Sights)
    at: tuple[int, int] = (0, 0)
    is_empty: bool = False
    open_at: int | None = None
    open_ms: int = 0

    def looked(self, cursor: int, end: int) -> bool:
        """Whether nothing has moved since the last look."""
        has_moved, self.at = self.at != (cursor, end), (cursor, end)
        self.is_empty = self.is_empty and not has_moved
        return not has_moved

    def note_open(self, end: int, written: int, now_ms: int) -> int:
        """For how long the transaction is open at which reading ends; 0 where none is."""
        open_at = end if written > end else None
        if open_at != self.open_at:
            self.open_at, self.open_ms = open_at, now_ms
        return 0 if open_at is None else now_ms - self.open_ms


async def watch_lag(context: Context[Any], log: Log) -> None:
    """Look now and then, until the process stops. While Kafka is away the figures stay as they are."""
    watched: dict[str, _Watched] = {}
    while await context.pause(LOOK_EVERY_S):
        names = {name: partition_of(name) for name in list(context.health.progress.cursors)}
        for name in [name for name in watched if name not in names]:
            del watched[name]
            _forget(context, *partition_of(name))
        if not names:
            continue
        for name in names:
            watched.setdefault(name, _Watched())
        try:
            await _look(context, log, names, watched)
        except LogUnavailable:
            continue  # the watch of Kafka tells of it


async def _look(
    context: Context[Any], log: Log, names: Mapping[str, TopicPartition], watched: Mapping[str, _Watched]
) -> None:
    """Raises LogUnavailable."""
    ends, written = await log.end_offsets(list(names.values())), await log.written_ends(list(names.values()))
    cursors, now_ms = context.health.progress.cursors, context.host.monotonic_ms()
    stuck = dict[TopicPartition, int]()
    for name, tp in names.items():
        seen, cursor = watched[name], cursors.get(name)
        seen.sights.note(ends[tp], now_ms)
        _show_open(context, tp, seen.note_open(ends[tp], written[tp], now_ms))
        if cursor is not None and seen.looked(cursor, ends[tp]) and cursor < ends[tp] and not seen.is_empty:
            stuck[tp] = cursor
    found = await log.first_from(stuck) if stuck else {}
    for name, tp in names.items():
        seen, cursor = watched[name], cursors.get(name)
        if tp in stuck:
            seen.is_empty = tp not in found or found[tp].offset >= ends[tp]
        # The cursor of now, which may have moved while Kafka was asked; or it belongs to another process by now.
        if cursor is not None:
            cursor = ends[tp] if seen.is_empty and cursor == seen.at[0] else cursor
            _show(context, tp, max(0, ends[tp] - cursor), seen.sights.behind_ms(cursor, context.host.monotonic_ms()))


def partition_of(name: str) -> TopicPartition:
    """The partition of a cursor's name."""
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)


def _show(context: Context[Any], tp: TopicPartition, records: int, behind_ms: int) -> None:
    topic, partition = tp[0], str(tp[1])
    context.telemetry.lag.labels(topic, partition).set(records)
    context.telemetry.lag_seconds.labels(topic, partition).set(behind_ms / 1000)


def _show_open(context: Context[Any], tp: TopicPartition, open_ms: int) -> None:
    topic, partition = tp
    context.telemetry.open_transaction.labels(topic, str(partition)).set(open_ms / 1000)
    text = f"{topic}/{partition}: a transaction is open for {open_ms // 1000} s, nothing behind it can be read"
    context.health.noted(_note(topic, partition), text if open_ms > OPEN_MS_MAX else None)


def _forget(context: Context[Any], topic: str, partition: int) -> None:
    telemetry = context.telemetry
    for gauge in (telemetry.lag, telemetry.lag_seconds, telemetry.open_transaction):
        gauge.remove(topic, str(partition))
    context.health.noted(_note(topic, partition))


def _note(topic: str, partition: int) -> str:
    return f"transaction in {topic}/{partition}"
