"""The wiring of the projector: the log, Redis, and one task for each owned cell."""

from fallow.services.projector.app.wiring import main

__all__ = ["main"]
