"""The wiring of queueing: the log, and for each owned cell one fold, of which plans and snapshots are made."""

from fallow.services.queueing.app.wiring import main

__all__ = ["main"]
