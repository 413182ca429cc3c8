"""The wiring of metrics: the log, the figures, and one task for each owned cell."""

from fallow.services.metrics.app.wiring import main

__all__ = ["main"]
