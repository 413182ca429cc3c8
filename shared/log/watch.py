"""Watches whether Kafka answers and has the topics that a process reads, so that the process says what it waits for
even while it has nothing to write: a reader of a topic that is gone gets nothing, and no error.
"""

from __future__ import annotations

from typing import Any

from fallow.shared.log.port import Log, LogUnavailable
from fallow.shared.log.reading import SUBMISSIONS, name_of
from fallow.shared.runtime.process import Context

ASK_EVERY_S = 2.0
SUBJECT = "kafka"


async def watch_log(context: Context[Any], log: Log, topic: str) -> None:
    """Ask now and then, until the process stops; readiness and one line at each change tell the answer."""
    what, told, pause = f"Kafka at {context.settings.kafka}", "", context.back_off()
    while await context.pause(pause.next_s() if told else ASK_EVERY_S):
        try:
            reason = await _missing(context, log, topic)
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


async def _missing(context: Context[Any], log: Log, topic: str) -> str:
    """Which topics of which the process says how far it has come are not there, "" where all are; tenants' own topics
    come and go. Raises LogUnavailable.
    """
    read = {name.rpartition("/")[0] for name in context.health.progress.cursors}
    names = sorted(name for name in read if name_of(name) != SUBMISSIONS or name.endswith(f".{SUBMISSIONS}"))
    counts = await log.partition_counts([topic, *names])
    gone = [name for name in names if not counts[name]]
    return f"it has no topic {', '.join(gone)}. Run: fallow topics create" if gone else ""
