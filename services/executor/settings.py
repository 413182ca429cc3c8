"""What an executor needs to know, beside what every service does."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class ExecutorSettings(ServiceSettings):
    """Read from FALLOW_<NAME>."""

    nodes_file: Path = Field(..., description='the virtual nodes, one JSON line each: {"cell": ..., "node": ...}')
    data_dir: Path = Field(..., description="the nodes' diaries; executors of one machine share it")
    report_every_wall_ms: int = Field(10_000, ge=10, le=600_000, description="time between two reports of a node")
