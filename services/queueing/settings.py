"""Settings of the queueing process."""

from __future__ import annotations

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class QueueingSettings(ServiceSettings):
    """How often plans are made."""

    plan_every_wall_ms: int = Field(
        1_000, ge=10, le=3_600_000, description="the least time between two plans of a cell"
    )
