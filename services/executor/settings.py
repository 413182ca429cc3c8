"""What an executor needs to know, beside what every service does."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from fallow.shared.events.base import Label, Name, NodeId
from fallow.shared.events.fields.values import DEVICES_MAX, LABELS_MAX, TAINTS_MAX
from fallow.shared.runtime.settings import ServiceSettings

UIDS_FROM, UIDS_TO = 1_000, 2**32 - 2
"""The users of workers are among these: lower numbers are the system's own, and the last one is no user."""

OPEN_FILES_FEWEST = 64


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
    node_gpus: int = Field(..., ge=0, le=DEVICES_MAX, description="its GPUs")
    node_pool: Name = Field(..., description="the pool to which it belongs")
    node_labels: dict[Label, Label] = Field({}, max_length=LABELS_MAX, description="its labels, as a JSON object")
    node_taints: tuple[Label, ...] = Field((), max_length=TAINTS_MAX, description="its taints, as a JSON list")
    node_islands: tuple[int, ...] = Field((), description="sizes of its NVLink islands, as a JSON list")
    node_nics: tuple[int, ...] = Field((), description="how many GPUs share each network card, as a JSON list")
    state_dir: Path = Field(..., description="files that must outlive the agent; for its user alone")
    keep_runs: int = Field(1_000, ge=1, le=1_000_000, description="folders of runs that are over and stay")
    worker_uids: str = Field("", description="FIRST-LAST: user numbers with which workers run, for root; else its own")
    worker_open_files: int = Field(
        65_536, ge=0, le=2**30, description="files that a process may have open, 64 at least; 0: any number"
    )
    worker_processes: int = Field(
        32_768, ge=0, le=2**22, description="processes and threads of a worker; 0: any number"
    )
    worker_log_mib: int = Field(
        4_096, ge=0, le=2**30, description="how long each output of a worker may be; 0: any length"
    )
    report_every_wall_ms: int = Field(10_000, ge=10, le=600_000, description="time between two reports")

    @field_validator("worker_open_files")
    @classmethod
    def _a_program_can_begin(cls, files: int) -> int:
        if 0 < files < OPEN_FILES_FEWEST:
            # With fewer the worker ends before its program says why: its libraries cannot be opened.
            raise ValueError(f"must be 0, or {OPEN_FILES_FEWEST} at least")
        return files

    @field_validator("worker_uids")
    @classmethod
    def _uids_are_a_range(cls, text: str, info: ValidationInfo) -> str:
        keep_runs = info.data.get("keep_runs", 0)
        if text and len(uids_of(text)) <= keep_runs:
            # Folders that stay keep their users.
            raise ValueError(f"must be more numbers than keep_runs ({keep_runs})")
        return text


def uids_of(text: str) -> range:
    """The numbers FIRST-LAST. Raises ValueError."""
    first, dash, last = text.partition("-")
    are_numbers = all(each.isascii() and each.isdecimal() and len(each) <= len(str(UIDS_TO)) for each in (first, last))
    if not (dash and are_numbers and UIDS_FROM <= int(first) <= int(last) <= UIDS_TO):
        raise ValueError(f"must be FIRST-LAST, two numbers from {UIDS_FROM} to {UIDS_TO}")
    return range(int(first), int(last) + 1)
