"""What an executor needs to know, beside what every service does."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from fallow.shared.events.base import Label, Name, NodeId
from fallow.shared.events.values import DEVICES_MOST
from fallow.shared.runtime.settings import ServiceSettings


class ExecutorSettings(ServiceSettings):
    """Read from FALLOW_<NAME>."""

    nodes_file: Path = Field(..., description='the virtual nodes, one JSON line each: {"cell": ..., "node": ...}')
    data_dir: Path = Field(..., description="the nodes' diaries; executors of one machine share it")
    report_every_wall_ms: int = Field(10_000, ge=10, le=600_000, description="time between two reports of a node")
    records_by_node: bool = Field(
        False, description="each node's words in records of their own, as agents write them: to measure what that costs"
    )
    look_every_wall_ms: int = Field(100, ge=1, le=1_000, description="reports that are due within this go together")


class AgentSettings(ServiceSettings):
    """What a node agent needs to know. Read from FALLOW_<NAME>; `fallow agent` sets them from its options."""

    node: NodeId = Field(..., description="the node's id: in practice its host name")
    node_gpus: int = Field(..., ge=0, le=DEVICES_MOST, description="its GPUs")
    node_pool: Name = Field(..., description="the pool to which it belongs")
    node_labels: dict[Label, Label] = Field({}, description="its labels, as a JSON object")
    node_taints: tuple[Label, ...] = Field((), description="its taints, as a JSON list")
    node_islands: tuple[int, ...] = Field((), description="sizes of its NVLink islands, as a JSON list")
    node_nics: tuple[int, ...] = Field((), description="how many GPUs share each network card, as a JSON list")
    state_dir: Path = Field(..., description="files that must outlive the agent; for its user alone")
    keep_runs: int = Field(1_000, ge=1, le=1_000_000, description="folders of runs that are over and stay")
    report_every_wall_ms: int = Field(10_000, ge=10, le=600_000, description="time between two reports")
