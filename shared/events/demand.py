"""Topic `demand`: what the inference services need. Written by their autoscalers, read by loaning."""

from __future__ import annotations

from fallow.shared.events.base import CellEvent, Count, Millis, Name


class InferenceDemand(CellEvent, type="fallow.inference.demand.v1", topic="demand"):
    """An inference pool's load in thousandths of its capacity, and the servers it needs now and by forecast."""

    pool: Name
    at_ms: Millis
    load_milli: Count
    servers_needed: Count
    forecast_ms: Millis | None = None
    servers_forecast: Count | None = None

    def key(self) -> str:
        """The pool."""
        return self.pool
