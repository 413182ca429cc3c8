"""The wiring of the executor: the log, the clocks, the diaries and the health of one process."""

from fallow.services.executor.app.wiring import main

__all__ = ["main"]
