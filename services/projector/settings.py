"""Settings of the projector."""

from __future__ import annotations

from pydantic import Field

from fallow.shared.runtime.settings import ServiceSettings


class ProjectorSettings(ServiceSettings):
    """How much it takes at once, and from when on its view counts as too old."""

    poll_records: int = Field(50, ge=1, le=5_000, description="decisions that are applied in one step at most")
    gather_wall_ms: int = Field(
        200, ge=0, le=60_000, description="while decisions keep coming, the view moves once in so long"
    )
    view_lag_wall_ms: int = Field(
        5_000, ge=1, le=86_400_000, description="not ready while the view is behind for longer"
    )
    view_lag_records: int = Field(10_000, ge=1, le=10**9, description="not ready while the view is behind by more")
