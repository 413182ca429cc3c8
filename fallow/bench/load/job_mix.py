"""The jobs of a load, ready to be sent: 80 % of one GPU, 15 % of a whole node, 5 % gangs over 2 to 8 whole nodes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from fallow.replay.workload import CELL, QUEUE
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import GPU, JobSpec, Resources, VirtualRun
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.machine.partitioner import partition_of

TENANT = "bench"
GPUS_PER_NODE = 8
ONE_PERCENT, NODE_PERCENT = 80, 15
GANG_NODES = (2, 8)
GPUS_MEAN = (ONE_PERCENT + NODE_PERCENT * 8 + 5 * 8 * sum(GANG_NODES) / 2) / 100
"""4 GPUs a job."""

FULL = 0.8
"""The part of all GPUs that a load keeps busy."""

RUN_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Ready:
    """A submission as it goes onto the wire. `cancel`, if any, goes out so many seconds behind it."""

    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    cancel: Ready | None = None
    cancel_after_s: float = 0.0


def run_ms_for(rate: float, nodes: int, gpus_mean: float = GPUS_MEAN, full: float = FULL) -> int:
    """The mean run, in milliseconds, with which jobs of so many GPUs at this rate (1/s) keep this part of all GPUs
    busy: 1.6 s for 5,000/s of 4 GPUs on 5,000 nodes of 8.
    """
    return min(RUN_MS_MAX, max(1, int(full * nodes * GPUS_PER_NODE / (rate * gpus_mean) * 1000)))


def rate_for(run_ms: int, nodes: int, gpus_mean: float) -> float:
    """The rate (1/s) at which jobs of so many GPUs keep all GPUs busy by runs of so many milliseconds in the mean."""
    return nodes * GPUS_PER_NODE * 1000 / (run_ms * gpus_mean)


def job_id(number: int) -> str:
    """The id of a job of the load, as its tenant calls it."""
    return f"bench-{number:08d}"


def number_of(job: str) -> int | None:
    """Which job of the load this is, whosever it is; None where it is none."""
    name, _, number = own_id(job).rpartition("-")
    return int(number) if name == "bench" and number.isdigit() else None


def jobs(first: int, count: int, run_ms: int, partitions: int, wall_ms: int, seed: int = 1) -> Iterator[Ready]:
    """So many jobs from number `first`, always the same for the same seed. Runs last from half to one and a half of
    the mean.
    """
    chance = random.Random(seed + first)  # noqa: S311 - a load, not a secret
    for number in range(first, first + count):
        event = SubmitJob(job=_spec(number, run_ms, chance))
        key = event.key().encode()
        headers = list(ce_headers(event, id=f"bench/{number}", source="fallow-bench", wall_ms=wall_ms))
        yield Ready(partition_of(key, partitions), key, encode(event), headers)


def _spec(number: int, run_ms: int, chance: random.Random) -> JobSpec:
    kind = chance.randrange(100)
    gpus = 1 if kind < ONE_PERCENT else GPUS_PER_NODE
    workers = chance.randint(*GANG_NODES) if kind >= ONE_PERCENT + NODE_PERCENT else 1
    return JobSpec(
        id=job_id(number),
        tenant=TENANT,
        queue=QUEUE,
        cell=CELL,
        workers=workers,
        resources=Resources(gpu_milli=gpus * GPU),
        run=VirtualRun(duration_ms=chance.randint(run_ms // 2, run_ms + run_ms // 2)),
    )
