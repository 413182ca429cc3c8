"""Watches whether Kafka answers and has the topics that a process reads, so that the process says what it waits for
even while it has nothing to write: a reader of a topic that is gone gets nothing, and no error.

Each service says once which topics it reads (`Context.reads`), also what it reads at its start alone (`snapshots`).
Where it stands in them does not tell that: it lets go of a topic that goes. Left out are

- the tenants' own topics of submissions: admission answers all others without them, and notes which are missing;
- topics that are only written: what cannot be written is told by its writer.
"""

from __future__ import annotations

from typing import Any

from fallow.shared.log.port import Log, LogUnavailable, no_topics
from fallow.shared.runtime.process import Context

ASK_EVERY_S = 2.0
SUBJECT = "kafka"


async def watch_log(context: Context[Any], log: Log) -> None:
    """Ask now and then, until the process stops; readiness and one line at each change tell the answer."""
    what, told, pause = f"Kafka at {context.settings.kafka}", "", context.back_off()
    while await context.pause(pause.next_s() if told else ASK_EVERY_S):
        try:
            reason = await _missing(context, log)
        except LogUnavailable as error:
            reason = str(error)
        if context.stopping.is_set():
            return
        if reason:
            context.health.not_ready(f"waiting for {what}: {reason}", SUBJECT)
            if reason != told:
                context.logger.warning("waiting", what=what, reason=reason)
        else:
            context.health.ready(SUBJECT)
            if told:
                context.logger.info("found", what=what)
                pause.reset()
        told = reason


async def _missing(context: Context[Any], log: Log) -> str:
    """Which topics that the process reads are not there, "" where all are. Raises LogUnavailable."""
    counts = await log.partition_counts([f"{context.settings.namespace}.{name}" for name in sorted(context.reads)])
    gone = [topic for topic, count in counts.items() if not count]
    return no_topics(gone) if gone else ""
