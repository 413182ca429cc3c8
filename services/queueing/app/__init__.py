"""The wiring of queueing: plans, and the process that takes snapshots."""

from services.queueing.app.cell import main

__all__ = ["main"]
