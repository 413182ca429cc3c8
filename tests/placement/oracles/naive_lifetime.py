"""Where the policy `lifetime` lets a worker below a node go: its rule said once more, node by node, from nothing but
the jobs on each node, with arithmetic of its own.
"""

from __future__ import annotations

from math import inf

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec


def told_ms(state: CellState, spec: JobSpec) -> float | None:
    """How long a job runs by its guess, which counts up to its limit, by its limit, or by what the cell assumes."""
    known = [ms for ms in (spec.estimate_run_ms, spec.max_run_ms) if ms is not None]
    return None if spec.kind == "inference" else min(known, default=state.policy.default_run_estimate_ms or None)


def expected_ms(state: CellState, spec: JobSpec, ran_ms: int = 0) -> float | None:
    """How long a job runs in all that has run for so long, by what the cell expects of it."""
    policy = state.policy
    if policy.estimator == "none" or spec.kind == "inference":
        return None
    told = taught(state, spec) if policy.estimator == "learned" else None
    if told is None:
        return told_ms(state, spec)
    bucket, end_ms = 0, 1024
    while end_ms <= ran_ms:
        bucket, end_ms = bucket + 1, end_ms + 2 ** (10 + bucket // 4 - 2)
    return told[bucket] if bucket < len(told) else end_ms + end_ms // 2


def taught(state: CellState, spec: JobSpec) -> tuple[int, ...] | None:
    """What the cell says of the first of the kinds of a job of which it says anything, bucket by bucket."""
    size = next(size for size in range(60) if 2**size > spec.gpus_milli)
    name = "".join("0" if each.isdigit() else each for each in spec.id.split("/")[-1])
    while "00" in name:
        name = name.replace("00", "0")
    for tenant, pattern in ((spec.tenant, name.replace("0", "#")), (spec.tenant, ""), ("", "")):
        for kind, history in state.learned.get(tenant, {}).items():
            if (kind.pattern, kind.size) == (pattern, size) and history.told:
                return history.told
    return None


def ends_ms(state: CellState, job_id: str, node_id: str, now_ms: int) -> list[float]:
    """From now on, when each worker of a job on a node will be over."""
    job, found = state.jobs[job_id], list[float]()
    told = expected_ms(state, job.spec)
    is_taught = state.policy.estimator == "learned" and taught(state, job.spec) is not None
    for place in (*job.workers, *job.joining):
        if place.node != node_id:
            continue
        if job.status == "stopping":
            found.append(0)
        elif told is None or job.started_ms is None:
            found.append(inf)
        else:
            run_ms = now_ms - max(job.started_ms, place.since_ms)
            longer = run_ms // 2 + 1 if told <= run_ms else told - run_ms
            if is_taught:
                longer = (expected_ms(state, job.spec, run_ms) or 0) - run_ms
            most = inf if job.spec.max_run_ms is None else max(0, job.spec.max_run_ms - run_ms)
            found.append(min(longer, most))
    return found


def cost_on(state: CellState, spec: JobSpec, node_id: str, e: float) -> float | None:
    """The time in which the node is in use in part that the worker adds; None where it does not fit."""
    node, wants, gpus = state.nodes[node_id], spec.resources, spec.resources.gpu_milli // 1000
    usable = [at for at in range(node.spec.gpus) if not node.failed >> at & 1]
    idle = [at for at in usable if not node.held >> at & 1 and at not in node.shares]
    is_open = node.status == "ready" and not node.is_full and node.alone is None
    has_cpu = node.spec.cpu_milli - node.cpu_used >= wants.cpu_milli
    has_memory = node.spec.memory_mib - node.memory_used >= wants.memory_mib
    if not (is_open and has_cpu and has_memory and len(idle) >= gpus):
        return None
    if spec.gpu_type not in (None, node.spec.gpu_type):
        return None
    is_filled = len(idle) == gpus and not any(node.shares.get(at) for at in usable)
    if not node.held and not node.shares:
        return 0 if is_filled else e
    ends = [
        ms
        for job in node.jobs
        if state.jobs[job].spec.resources.gpu_milli
        for ms in ends_ms(state, job, node_id, now_of(state))
    ] or [inf]
    a, b = min(ends), max(ends)
    return (0 if b >= e else e - b) - (min(a, e) if is_filled else 0)


def now_of(state: CellState) -> int:
    """The cell time at which a decision is made."""
    return max(state.at_ms, state.clock_ms)


def naive_node(state: CellState, spec: JobSpec) -> str | None:
    """The node of the only worker of a training job of whole GPUs; None where it fits on none."""
    e = expected_ms(state, spec)
    if state.policy.estimator == "learned" and e is not None and spec.max_run_ms is not None:
        e = min(e, spec.max_run_ms)
    fits = []
    for node_id in sorted(state.nodes):
        cost = cost_on(state, spec, node_id, 0 if e is None else e)
        if cost is not None:
            node = state.nodes[node_id]
            fits.append((0 if e is None else cost, node.gpus_free, node_id))
    return min(fits)[2] if fits else None
