"""A day in the life of a cell, made from a seed: the same options give the same jobs.

Sizes are powers of two from 1 to 256 GPUs, most of them small; durations are log-normal, so that a few long jobs hold
much of the cluster; work arrives around noon, when more is wanted than there is. Of the training jobs some are
cancelled by their tenants, some fail once or twice and are tried again, and a few fail for good. Inference jobs come
in the morning and run until they are cancelled at the end of the day.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from fallow.replay.workload import Timed, Workload, WorkloadError, cell_file_for, uniform_nodes
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import (
    GPU,
    JobKind,
    JobSpec,
    NodeRole,
    NodeSpec,
    Resources,
    RetryPolicy,
    VirtualRun,
)
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import CancelJob, SubmitJob

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
SUBMISSIONS_END_MS = 22 * HOUR_MS
"""No job is submitted after this, so that the day can come to its end."""

GPUS_PER_NODE = 8
TENANTS = ("vision", "language", "speech", "robotics", "search")
TENANT_WEIGHTS = (30, 30, 15, 15, 10)
SIZE_WEIGHTS = {1: 420, 2: 130, 4: 130, 8: 170, 16: 75, 32: 42, 64: 20, 128: 9, 256: 5}
"""How often a training job wants so many GPUs, in thousandths."""

LOAD = 0.80
"""GPU-hours that all training jobs want, as a part of what their pool has in a day."""

NOON_MS, NOON_WIDTH_MS, NIGHT_LEVEL = 12 * HOUR_MS, 3 * HOUR_MS, 0.12
SPREAD_OF_DURATIONS = 1.3
DURATION_MS_LEAST, DURATION_MS_MAX = MINUTE_MS, 6 * HOUR_MS
ENDS_MS_MAX = DAY_MS + 90 * MINUTE_MS
"""A job that starts at once ends by then: the evening brings no long jobs, so that the day comes to its end."""

INFERENCE_SHARE = 0.03
CANCELLED, FAILS_FOR_GOOD, FAILS_AND_RETRIES = 0.05, 0.015, 0.07
BACKOFF_MS = 2 * MINUTE_MS

Chosen = TypeVar("Chosen")


@dataclass(frozen=True, slots=True)
class Draft:
    """A training job before its duration fits the load: `weight` is its part of it."""

    id: str
    tenant: str
    submit_ms: int
    gpus: int
    weight: float


def generate(*, count: int, nodes: int, seed: int) -> Workload:
    """A day of `count` jobs for so many nodes of 8 GPUs. Raises WorkloadError for numbers that make no day."""
    if count < 1:
        raise WorkloadError(f"--count {count}: must be at least 1")
    if nodes < 1:
        raise WorkloadError(f"--nodes {nodes}: must be at least 1")
    chance = random.Random(seed)  # noqa: S311 - a generated day is no secret
    specs = day_nodes(nodes)
    inference = _inference_jobs(chance, max(1, round(count * INFERENCE_SHARE)) if count > 1 else 0, specs)
    training = _training_jobs(chance, count - len(inference), specs)
    commands = [*inference, *training]
    commands += _cancels_of_inference(inference)
    commands += _cancels_of_training(chance, training)
    commands.sort(key=lambda timed: (timed.at_ms, own_id(timed.command.key()), timed.command.type))
    return Workload(
        commands=tuple(commands),
        nodes=specs,
        cell_file=cell_file_for(specs, TENANTS, QueueDiscipline.BEST_EFFORT_FIFO),
        endless=frozenset(timed.command.key() for timed in inference),
    )


def day_nodes(count: int) -> tuple[NodeSpec, ...]:
    """Three quarters of the nodes for training, the rest for inference."""
    inference = count // 4
    training = count - inference
    return (
        *uniform_nodes(training, GPUS_PER_NODE, pool="train"),
        *uniform_nodes(inference, GPUS_PER_NODE, pool="infer", role=NodeRole.INFERENCE, first=training + 1),
    )


def _training_jobs(chance: random.Random, count: int, nodes: Sequence[NodeSpec]) -> list[Timed]:
    gpus = sum(node.gpus for node in nodes if node.pool == "train")
    drafts = [_draft(chance, number, gpus) for number in range(1, count + 1)]
    wanted_ms = sum(draft.gpus * draft.weight for draft in drafts)
    unit_ms = LOAD * gpus * DAY_MS / wanted_ms if wanted_ms else 0.0
    return [Timed(draft.submit_ms, _training_job(chance, draft, unit_ms)) for draft in drafts]


def _draft(chance: random.Random, number: int, gpus: int) -> Draft:
    sizes = {size: weight for size, weight in SIZE_WEIGHTS.items() if size <= max(1, gpus * 2 // 3)}
    return Draft(
        id=f"train-{number:05d}",
        tenant=_choose(chance, dict(zip(TENANTS, TENANT_WEIGHTS, strict=True))),
        submit_ms=_moment(chance),
        gpus=_choose(chance, sizes),
        weight=min(chance.lognormvariate(0.0, SPREAD_OF_DURATIONS), 12.0),
    )


def _moment(chance: random.Random) -> int:
    """A time of the day, by rejection: as likely as the work of that hour is."""
    while True:
        at_ms = chance.randrange(SUBMISSIONS_END_MS)
        bell = math.exp(-(((at_ms - NOON_MS) / NOON_WIDTH_MS) ** 2) / 2)
        if chance.random() < NIGHT_LEVEL + (1 - NIGHT_LEVEL) * bell:
            return at_ms


def _training_job(chance: random.Random, draft: Draft, unit_ms: float) -> SubmitJob:
    max_ms = min(DURATION_MS_MAX, ENDS_MS_MAX - draft.submit_ms)
    duration_ms = min(max(int(draft.weight * unit_ms), DURATION_MS_LEAST), max_ms)
    run, retry = _run_of(chance, duration_ms)
    return SubmitJob(
        job=JobSpec(
            id=draft.id,
            tenant=draft.tenant,
            priority=10 if chance.random() < 0.1 else 0,  # noqa: PLR2004 - one job in ten is urgent
            pools=("train",),
            workers=max(1, draft.gpus // GPUS_PER_NODE),
            resources=Resources(gpu_milli=min(draft.gpus, GPUS_PER_NODE) * GPU),
            run=run,
            retry=retry,
        ),
        submit_ms=draft.submit_ms,
    )


def _run_of(chance: random.Random, duration_ms: int) -> tuple[VirtualRun, RetryPolicy]:
    fate, fail_at_ms = chance.random(), int(duration_ms * chance.uniform(0.1, 0.9))
    if fate < FAILS_FOR_GOOD:
        return VirtualRun(duration_ms=duration_ms, fail_at_ms=fail_at_ms), RetryPolicy(budget=1, backoff_ms=BACKOFF_MS)
    if fate < FAILS_FOR_GOOD + FAILS_AND_RETRIES:
        times = chance.choice((1, 1, 1, 2))
        run = VirtualRun(duration_ms=duration_ms, fail_at_ms=fail_at_ms, fail_attempts=times)
        return run, RetryPolicy(budget=3, backoff_ms=BACKOFF_MS)
    return VirtualRun(duration_ms=duration_ms), RetryPolicy(budget=1, backoff_ms=BACKOFF_MS)


def _inference_jobs(chance: random.Random, count: int, nodes: Sequence[NodeSpec]) -> list[Timed]:
    """So many services of 1 to 8 replicas, smaller ones as their pool fills up."""
    pool = "infer" if any(node.pool == "infer" for node in nodes) else "train"
    free = sum(node.gpus for node in nodes if node.pool == pool)
    jobs = []
    for number in range(1, count + 1):
        each = chance.choice((1, 1, 2, 4))
        replicas = min(chance.choice((1, 2, 4, 8)), max(1, free // (8 * each)))
        free = max(0, free - replicas * each)
        spec = JobSpec(
            id=f"serve-{number:04d}",
            tenant=_choose(chance, dict(zip(TENANTS, TENANT_WEIGHTS, strict=True))),
            kind=JobKind.INFERENCE,
            priority=100,
            pools=(pool,),
            workers=replicas,
            resources=Resources(gpu_milli=each * GPU),
            run=VirtualRun(),
        )
        at_ms = chance.randrange(HOUR_MS, 10 * HOUR_MS)
        jobs.append(Timed(at_ms, SubmitJob(job=spec, submit_ms=at_ms)))
    return jobs


def _cancels_of_inference(jobs: Sequence[Timed]) -> list[Timed]:
    return [Timed(DAY_MS, _cancel(timed.command, "the day is over")) for timed in jobs]


def _cancels_of_training(chance: random.Random, jobs: Sequence[Timed]) -> list[Timed]:
    """Some are cancelled soon after their submission (mostly while they wait), some later."""
    return [
        Timed(timed.at_ms + chance.randrange(MINUTE_MS, 2 * HOUR_MS), _cancel(timed.command, "changed my mind"))
        for timed in jobs
        if chance.random() < CANCELLED
    ]


def _cancel(submit: object, reason: str) -> CancelJob:
    assert isinstance(submit, SubmitJob), "only submissions are cancelled"
    return CancelJob(job=submit.job.id, tenant=submit.job.tenant, reason=reason)


def _choose(chance: random.Random, weights: dict[Chosen, int]) -> Chosen:
    return chance.choices(list(weights), weights=list(weights.values()))[0]
