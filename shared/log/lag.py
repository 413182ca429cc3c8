"""How far behind a process is, for each partition that it handles: in records, and in seconds.

Every service says how far it has got; where the log ends is asked of Kafka. So the figures grow also while a service
stands still, and before anybody else notices.
"""

from __future__ import annotations

from typing import Any

from shared.log.machine.sights import Sights
from shared.log.port import Log, LogUnavailable, TopicPartition
from shared.runtime.process import Context

LOOK_EVERY_S = 2.0


async def watch_lag(context: Context[Any], log: Log) -> None:
    """Look now and then, until the process stops. While Kafka is away the figures stay as they are."""
    sights: dict[str, Sights] = {}
    while await context.pause(LOOK_EVERY_S):
        names = {name: partition_of(name) for name in list(context.health.progress.cursors)}
        for name in [name for name in sights if name not in names]:
            del sights[name]
            _forget(context, *partition_of(name))
        if not names:
            continue
        try:
            ends = await log.end_offsets(list(names.values()))
        except LogUnavailable:
            continue  # the watch of Kafka tells of it
        for name, tp in names.items():
            sight = sights.setdefault(name, Sights())
            sight.note(ends[tp], context.host.monotonic_ms())
            # The cursor of now, which may have moved while Kafka was asked; or it is somebody else's by now.
            cursor = context.health.progress.cursors.get(name)
            if cursor is not None:
                _show(context, tp, max(0, ends[tp] - cursor), sight.behind_ms(cursor, context.host.monotonic_ms()))


def partition_of(name: str) -> TopicPartition:
    """The partition of a cursor's name."""
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)


def _show(context: Context[Any], tp: TopicPartition, records: int, behind_ms: int) -> None:
    topic, partition = tp[0], str(tp[1])
    context.telemetry.lag.labels(topic, partition).set(records)
    context.telemetry.lag_seconds.labels(topic, partition).set(behind_ms / 1000)


def _forget(context: Context[Any], topic: str, partition: int) -> None:
    for gauge in (context.telemetry.lag, context.telemetry.lag_seconds):
        gauge.remove(topic, str(partition))
