"""A service that does next to nothing, for tests of what runs services."""

import asyncio

from fallow.shared.runtime.process import Context, serve
from fallow.shared.runtime.settings import ServiceSettings


class TinySettings(ServiceSettings):
    fail_after_ms: int = 0
    ready_after_ms: int = 0
    ignore_stop: bool = False
    fenced: bool = False


class DamagedLog(Exception):
    """Has the name of the error that fences a process."""


async def main(context: Context[TinySettings]) -> None:
    context.logger.info("tiny says hello")
    await context.pause(context.settings.ready_after_ms / 1000)
    context.health.handled("fallow.jobs", 0, 7)
    context.health.progress.version["cell-a"] = 3
    context.health.ready()
    if context.settings.fenced:
        raise DamagedLog("a record is missing")
    if context.settings.fail_after_ms:
        await asyncio.sleep(context.settings.fail_after_ms / 1000)
        raise ValueError("tiny broke an invariant")
    await context.stopping.wait()
    if context.settings.ignore_stop:
        await asyncio.sleep(60)


if __name__ == "__main__":
    serve("tiny", main, TinySettings)
