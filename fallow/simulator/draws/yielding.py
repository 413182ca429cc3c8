"""Worlds in which jobs yield: what their cells allow, and wishes of which many have to wait."""

from __future__ import annotations

from fallow.shared.cluster.model.config import CellFile, PreemptRule
from fallow.shared.events.base import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, VirtualRun, Wish
from fallow.shared.events.operations import PreemptionMode
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.draws.choosy import can_hold
from fallow.simulator.draws.wired import grants
from fallow.simulator.draws.workload import Item, Setting

YIELDING_EVERY, YIELDING_FIRST = 5, 3
"""In so many worlds one has jobs that yield, and a client that proposes it."""

LONGER = 5
"""So many times as long jobs run where they yield."""

Nodes = dict[str, tuple[NodeSpec, ...]]
"""The nodes by cell."""


def with_yielding(file: CellFile, seed: int) -> CellFile:
    """This file; in some worlds, by their seed, running jobs yield to waiting ones. No chance is drawn for it, so
    that all else stays as it is.
    """
    if seed % YIELDING_EVERY != YIELDING_FIRST:
        return file
    turn = seed // YIELDING_EVERY
    mode = PreemptionMode.RECLAIM if turn % 8 == 3 else PreemptionMode.ALL  # noqa: PLR2004 - one of eight
    preempt = (PreemptRule.LOWER_OR_NEWER_EQUAL, PreemptRule.LOWER)[turn % 2]
    numbers = {"preemption": mode, "preempt_grace_wall_ms": 600, "hold_lapse_ms": (1_500, 6_000)[turn % 3 == 0]}
    cells = tuple(
        cell.model_copy(
            update={
                "policy": replace(cell.policy, **numbers),
                "queues": tuple(queue.model_copy(update={"preempt": preempt}) for queue in cell.queues),
            }
        )
        for cell in file.cells
    )
    least_ms = (None, 400, 0)[turn % 3]
    tenants = tuple(
        tenant.model_copy(
            update={"quotas": tuple(q.model_copy(update={"min_run_ms": least_ms}) for q in tenant.quotas)}
        )
        for tenant in file.tenants
    )
    return file.model_copy(update={"cells": cells, "tenants": tenants})


def with_long_runs(setting: Setting, seed: int) -> tuple[Item, ...]:
    """The wishes of a world. Where jobs yield they are for whole GPUs, as far as these can be had, and for long runs,
    so that others wait. Some jobs are not preemptible, or write checkpoints.
    """
    if seed % YIELDING_EVERY != YIELDING_FIRST:
        return setting.items
    nodes = {cell: specs + setting.machines[cell] for cell, specs in setting.nodes.items()}
    return tuple(_with_long_run(item, nodes) for item in setting.items)


def _with_long_run(item: Item, nodes: Nodes) -> Item:
    event = item.event
    if not isinstance(event, SubmitJob) or not isinstance(event.job.run, VirtualRun):
        return item
    job, number, known = event.job, item.number, event.job.run
    run_ms, fail_ms = known.duration_ms, known.fail_at_ms
    run = replace(
        known,
        duration_ms=None if run_ms is None else run_ms * LONGER,
        fail_at_ms=None if fail_ms is None else fail_ms * LONGER,
    )
    wants = job.resources
    if wants.gpu_milli < GPU and _can_be_had(replace(job, resources=replace(wants, gpu_milli=GPU)), nodes):
        wants = replace(wants, gpu_milli=GPU)
    job = replace(
        job,
        run=run,
        resources=wants,
        priority=(0, -3, 5, 0, 2)[number % 5],
        max_run_ms=None if job.max_run_ms is None else job.max_run_ms * LONGER,
        preemptible=number % 7 != 0,
        checkpoint_interval_ms=(None, 300, 1_000)[number % 3],
        min_run_ms=(0, 0, 0, 900)[number % 4],
    )
    return Item(item.number, item.at_ms, item.client, replace(event, job=job))


def _can_be_had(job: JobSpec, nodes: Nodes) -> bool:
    """Whether each cell to which the job may come could hold it when empty, as its wish requires."""
    where = [specs for cell, specs in nodes.items() if job.cell in (None, cell)]
    there = [specs for specs in where if not job.pools or any(spec.pool in job.pools for spec in specs)]
    is_required = job.topology is not None and job.topology.wish is Wish.REQUIRED
    return all(can_hold(specs, job) and (not is_required or grants(specs, job)) for specs in there)
