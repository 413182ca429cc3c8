"""Settings of the queueing process."""

from __future__ import annotations

from pydantic import Field

from fallow.shared.events.snapshots import CHUNK_BYTES_MAX
from fallow.shared.runtime.settings import ServiceSettings


class QueueingSettings(ServiceSettings):
    """How often plans are made, and when a snapshot is due."""

    plan_every_wall_ms: int = Field(
        1_000, ge=10, le=3_600_000, description="the least time between two plans of a cell"
    )
    snapshot_versions: int = Field(5_000, ge=1, le=10**9, description="a snapshot after so many versions")
    snapshot_wall_ms: int = Field(
        300_000, ge=100, le=30 * 86_400_000, description="or after so long, if the version changed at all"
    )
    snapshot_chunk_bytes: int = Field(
        CHUNK_BYTES_MAX, ge=2_000, le=CHUNK_BYTES_MAX, description="the size of one record of a snapshot at most"
    )
