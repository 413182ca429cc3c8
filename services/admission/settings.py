"""Settings of the admission process."""

from __future__ import annotations

from pydantic import Field

from fallow.shared.runtime.settings import ServiceSettings


class AdmissionSettings(ServiceSettings):
    """How much admission takes at once, and how far ahead of placement it goes."""

    batch_records: int = Field(1_000, ge=1, le=100_000, description="submissions of one batch")
    jobs_behind_wall_ms: int = Field(
        2_000,
        ge=100,
        le=60_000,
        description="wall time by which placement may be behind with a cell's jobs before no more are passed on",
    )
