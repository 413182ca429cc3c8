"""Settings of the admission process."""

from __future__ import annotations

from pydantic import Field

from fallow.services.admission.policy.rates import OF_NO_TENANT
from fallow.shared.cluster.model.config import SubmissionRate
from fallow.shared.runtime.settings import ServiceSettings


class AdmissionSettings(ServiceSettings):
    """How much admission takes at once, and how far ahead of placement it goes."""

    batch_records: int = Field(1_000, ge=1, le=100_000, description="submissions of one batch")
    of_no_tenant_per_s: int = Field(
        OF_NO_TENANT.per_s, ge=1, le=1_000_000, description="submissions a second for which no tenant answers"
    )
    of_no_tenant_burst: int = Field(
        OF_NO_TENANT.at_once, ge=1, le=100_000_000, description="how many of these may come at once, after a pause"
    )
    jobs_behind_wall_ms: int = Field(
        2_000,
        ge=100,
        le=60_000,
        description="wall time by which placement may be behind with a cell's jobs before no more are passed on",
    )

    @property
    def of_no_tenant(self) -> SubmissionRate:
        """The two as a limit."""
        return SubmissionRate(per_s=self.of_no_tenant_per_s, burst=self.of_no_tenant_burst)
