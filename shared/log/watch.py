"""Watches whether Kafka answers, so that a process says what it waits for even while it has nothing to write."""

from __future__ import annotations

from typing import Any

from fallow.shared.log.port import Log, LogUnavailable
from fallow.shared.runtime.process import Context

ASK_EVERY_S = 2.0
SUBJECT = "kafka"


async def watch_log(context: Context[Any], log: Log, topic: str) -> None:
    """Ask now and then, until the process stops; readiness and one line at each change tell the answer."""
    what, is_away, pause = f"Kafka at {context.settings.kafka}", False, context.back_off()
    while await context.pause(pause.next_s() if is_away else ASK_EVERY_S):
        try:
            await log.partitions(topic)
        except LogUnavailable as error:
            if context.stopping.is_set():
                return
            context.health.not_ready(f"waiting for {what}: {error}", SUBJECT)
            if not is_away:
                context.logger.warning("waiting", what=what, reason=str(error))
            is_away = True
        else:
            if is_away:
                context.logger.info("found", what=what)
                pause.reset()
            context.health.ready(SUBJECT)
            is_away = False
