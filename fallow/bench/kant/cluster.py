"""A week of jobs on 8,000 GPUs, made from a seed: 1,000 nodes of 8, leaf groups of 32 nodes, spines of 8 leaf groups.

Jobs want 1 to 2,048 GPUs, a power of two; up to 8 on one node, else whole nodes. They come evenly through the week (a
Poisson process), and want 105 % of the GPU time that there is: some job always waits, so it is the scheduler that
decides how much of the cluster is in use. Durations are log-normal within the class (sigma 1.2), at least a minute and
at most three days.

How many jobs each class has and how long they run is after what Acme tells of Kalos (most jobs small and short, most
GPU time in jobs of hundreds of GPUs), up to the classes that Kant reports. Jobs below a node hold so much of the GPU
time (some 2 %) that under `spread`, which is how Kubernetes places by default, as many nodes are fragmented as Kant
tells of before E-Binpack: 8.5 %.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from fallow.replay.workload import Timed, Workload, cell_file_for
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, Position, Resources, VirtualRun
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob

NODES, GPUS_PER_NODE, NODES_PER_LEAF, LEAVES_PER_SPINE = 1_000, 8, 32, 8
LOAD = 1.05
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
WEEK_MS = 7 * DAY_MS
SIGMA = 1.2
DURATION_MS_LEAST, DURATION_MS_MAX = MINUTE_MS, 3 * DAY_MS
TENANTS = ("pretrain", "align", "evaluate", "vision", "speech", "research")
POOL = "train"


class Class(NamedTuple):
    """Jobs of one size: how many of 1,000 jobs, and the median of their durations in minutes."""

    gpus: int
    jobs: int
    minutes: int


CLASSES = (
    Class(1, 300, 90),
    Class(2, 80, 90),
    Class(4, 60, 90),
    Class(8, 220, 60),
    Class(16, 110, 60),
    Class(32, 80, 60),
    Class(64, 60, 60),
    Class(128, 40, 90),
    Class(256, 25, 90),
    Class(512, 15, 90),
    Class(1_024, 7, 120),
    Class(2_048, 3, 120),
)


def cluster(nodes: int = NODES, nodes_per_leaf: int = NODES_PER_LEAF) -> tuple[NodeSpec, ...]:
    """So many nodes with their places in the network."""
    return tuple(
        NodeSpec(
            id=f"node-{number + 1:05d}",
            pool=POOL,
            gpus=GPUS_PER_NODE,
            position=Position(
                leaf=f"leaf-{number // nodes_per_leaf + 1:04d}",
                spine=f"spine-{number // nodes_per_leaf // LEAVES_PER_SPINE + 1:02d}",
            ),
        )
        for number in range(nodes)
    )


def week(seed: int) -> Workload:
    """The jobs of this seed."""
    chance, nodes = random.Random(seed), cluster()  # noqa: S311 - a load is no secret
    wanted_ms, drafts = 0, list[tuple[int, int]]()
    offered_ms = round(LOAD * len(nodes) * GPUS_PER_NODE * WEEK_MS)
    while wanted_ms < offered_ms:
        size = chance.choices(CLASSES, weights=[each.jobs for each in CLASSES])[0]
        run_ms = round(size.minutes * MINUTE_MS * chance.lognormvariate(0.0, SIGMA))
        run_ms = min(max(run_ms, DURATION_MS_LEAST), DURATION_MS_MAX)
        drafts.append((size.gpus, run_ms))
        wanted_ms += size.gpus * run_ms
    times = sorted(chance.randrange(WEEK_MS) for _ in drafts)
    jobs = [_job(chance, number, *draft) for number, draft in enumerate(drafts, 1)]
    return Workload(
        commands=tuple(
            Timed(at_ms, SubmitJob(job=job, submit_ms=at_ms)) for at_ms, job in zip(times, jobs, strict=True)
        ),
        nodes=nodes,
        cell_file=cell_file_for(nodes, TENANTS, QueueDiscipline.BEST_EFFORT_FIFO),
    )


def _job(chance: random.Random, number: int, gpus: int, run_ms: int) -> JobSpec:
    return JobSpec(
        id=f"job-{number:06d}",
        tenant=chance.choice(TENANTS),
        pools=(POOL,),
        workers=max(1, gpus // GPUS_PER_NODE),
        resources=Resources(gpu_milli=min(gpus, GPUS_PER_NODE) * GPU),
        run=VirtualRun(duration_ms=run_ms),
    )
