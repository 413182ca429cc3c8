"""What the metrics service needs to know, beside what every service does."""

from __future__ import annotations

from pydantic import Field

from fallow.shared.runtime.settings import ServiceSettings


class MetricsSettings(ServiceSettings):
    """Read from FALLOW_<NAME>."""

    tenants_named: int = Field(200, ge=0, le=10_000, description="tenants with metric series of their own")
    check_budget_percent: int = Field(1, ge=0, le=50, description="of its time, for checks of the whole state")
