"""The wiring of loaning: the log, and for each owned cell one fold, from which it proposes who yields."""

from fallow.services.loaning.app.wiring import main

__all__ = ["main"]
