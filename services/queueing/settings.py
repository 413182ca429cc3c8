"""Settings of the queueing process."""

from __future__ import annotations

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class QueueingSettings(ServiceSettings):
    """How often windows go out."""

    window_wall_ms: int = Field(20, ge=0, le=1_000, description="the least time between two windows of a cell")
