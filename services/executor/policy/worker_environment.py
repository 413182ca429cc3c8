"""What a worker is told by its environment: who it is, how many there are, and where to meet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from fallow.services.executor.policy.turn import Start
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.job_ids import own_id, parted
from fallow.shared.events.fields.values import ProcessRun, WorkerPlace

PORTS_FROM, PORTS = 20_000, 10_000
"""Below the ports that systems hand out by themselves, so that a gang's port is seldom taken."""

NODES_CHARACTERS_MAX = 100_000
"""Linux starts no process of which a variable has more than 128 KiB."""

ADDRESS_LABEL = "address"
"""The label by which a node says under which address others reach it; without it that is its id."""


class Member(NamedTuple):
    """One worker of a job that is no gang, as the others may see it. `status`: starting, running, or leaving."""

    rank: int
    node: str
    address: str
    status: str


@dataclass(frozen=True, slots=True)
class Gang:
    """An attempt as all of its nodes see it: its nodes in the order of their first ranks, and where rank 0 is.

    Of a job that is no gang `workers` is how many it wants; `members` are those that it has now. `array` is that of
    which the job is an element, and its index.
    """

    workers: int
    nodes: tuple[str, ...]
    master_address: str
    master_port: int
    members: tuple[Member, ...] = ()
    array: tuple[str, int] | None = None

    def as_world(self) -> str:
        """What workers that come and go singly read of each other, as JSON."""
        return json.dumps({"wanted": self.workers, "workers": [member._asdict() for member in self.members]})


def gang_of(state: CellState, job_id: str, attempt: int) -> Gang | None:
    """The gang of a job's attempt, or None where the log has no such attempt any more."""
    job = state.jobs.get(job_id)
    if job is None or job.attempt != attempt or not job.workers:
        return None
    by_rank = sorted(job.workers, key=lambda place: place.rank)
    nodes = tuple(dict.fromkeys(place.node for place in by_rank))
    address, spec = _address(state, nodes[0]), job.spec
    array = None if spec.array_of is None else (spec.array_of, spec.array_index or 0)
    if spec.gang:
        return Gang(len(by_rank), nodes, address, master_port(job_id, attempt), array=array)
    members = tuple(_member(state, job, place) for place in by_rank)
    return Gang(spec.workers, nodes, address, master_port(job_id, attempt), members, array)


def _address(state: CellState, node_id: str) -> str:
    return state.nodes[node_id].spec.labels.get(ADDRESS_LABEL, node_id)


def _member(state: CellState, job: Job, place: WorkerPlace) -> Member:
    status = "leaving" if place.rank in job.leaving else job.runs[str(place.rank)].value
    return Member(place.rank, place.node, _address(state, place.node), status)


def master_port(job_id: str, attempt: int) -> int:
    """The port of a gang's meeting place, the same on all of its nodes; another one for each attempt."""
    return PORTS_FROM + crc32(f"{job_id}/{attempt}".encode()) % PORTS


def worker_environment(
    order: Start, run: ProcessRun, gang: Gang, place: WorkerPlace, inherited: Mapping[str, str], world: str = ""
) -> dict[str, str]:
    """A worker's whole environment. Of what is inherited from the agent its own settings are left out: they may hold
    passwords. What Fallow says comes last, since a job must not mistake its rank. `world` is the file in which workers
    that come and go find each other.
    """
    devices = ",".join(str(device) for device in place.devices)
    tenant, job = parted(order.job)
    here = sorted(order.places, key=lambda other: other.rank)
    said = {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(gang.workers),
        "LOCAL_RANK": str(here.index(place)),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "GROUP_RANK": str(gang.nodes.index(order.node)),
        "MASTER_ADDR": gang.master_address,
        "MASTER_PORT": str(gang.master_port),
    }
    return {
        **{name: value for name, value in inherited.items() if not name.startswith("FALLOW_")},
        **run.env,
        **said,
        **{f"FALLOW_{name}": said[name] for name in _ALSO_OURS},
        "FALLOW_JOB": job,
        **({"FALLOW_TENANT": tenant} if tenant else {}),
        "FALLOW_ATTEMPT": str(order.attempt),
        "FALLOW_NODE": order.node,
        **_nodes_of(gang),
        "FALLOW_GPUS": devices,
        "FALLOW_GPU_MILLI": str(place.gpu_milli),
        "CUDA_VISIBLE_DEVICES": devices,
        **({} if run.checkpoint_dir is None else {"FALLOW_CHECKPOINT_DIR": run.checkpoint_dir}),
        **_element_of(gang),
        **({"FALLOW_WORLD_FILE": world, "FALLOW_TURN": str(order.turn)} if gang.members else {}),
    }


def _element_of(gang: Gang) -> dict[str, str]:
    """The array and the place in it, of an element of one."""
    if gang.array is None:
        return {}
    array, index = gang.array
    return {"FALLOW_ARRAY_ID": own_id(array), "FALLOW_ARRAY_INDEX": str(index)}


def _nodes_of(gang: Gang) -> dict[str, str]:
    """The names of the gang's nodes; nothing where a variable could not hold them: then no worker would start."""
    names = ",".join(gang.nodes)
    return {"FALLOW_NODES": names} if len(names) <= NODES_CHARACTERS_MAX else {}


_ALSO_OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
