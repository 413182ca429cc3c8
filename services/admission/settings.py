"""Settings of the admission process."""

from __future__ import annotations

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class AdmissionSettings(ServiceSettings):
    """How much admission takes at once."""

    batch_records: int = Field(1_000, ge=1, le=100_000, description="submissions of one batch")
