"""Settings of the loaning process."""

from __future__ import annotations

from pydantic import Field

from fallow.shared.runtime.settings import ServiceSettings


class LoaningSettings(ServiceSettings):
    """How often it looks."""

    look_every_wall_ms: int = Field(
        50, ge=1, le=3_600_000, description="the least time between two looks for who may yield in a cell"
    )
