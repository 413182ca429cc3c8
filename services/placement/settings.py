"""Settings of the placement process."""

from __future__ import annotations

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class PlacementSettings(ServiceSettings):
    """How the writer paces itself."""

    pace_wall_ms: int = Field(
        20, ge=0, le=1_000, description="the longest pause between two records, in which inputs gather under load"
    )
    poll_records: int = Field(2_000, ge=1, le=100_000, description="inputs of one topic taken at once")
