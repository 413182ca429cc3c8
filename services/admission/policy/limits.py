"""The limits that never change by themselves: what no pool can ever hold, what no tenant may ever have, what is not
built in.
"""

from __future__ import annotations

from fallow.services.admission.policy.ceilings import at_least
from fallow.services.admission.policy.resolve import Home, Rejection
from fallow.shared.cluster.capacity.gang_bytes import GANG_BYTES_MAX, fewest_bytes, max_workers
from fallow.shared.cluster.model.config import CellFile, Pool
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import JobChanges


def is_gang(spec: JobSpec) -> bool:
    """Whether the job enters whole: a service's replicas never do, and of a single worker there is no other way."""
    return spec.kind is not JobKind.INFERENCE and (spec.gang or spec.workers == 1)


def unsupported(spec: JobSpec) -> Rejection | None:
    """What the language can say and this version does not do. Better refused than silently ignored."""
    gang = is_gang(spec)
    asked = {
        "workers_min": gang and spec.workers_min not in (None, spec.workers),
        "spread": spec.kind is not JobKind.INFERENCE and spec.spread is not None,
        "topology": not gang and spec.topology is not None,
        "scaling": bool(spec.scaling),
        "fungible": spec.fungible,
        "heterogeneous": spec.heterogeneous,
    }
    for field, is_asked in asked.items():
        if is_asked:
            return Rejection(RejectCode.UNSUPPORTED, field, "", "is not supported by this version")
    return None


def with_driver(spec: JobSpec, home: Home) -> Rejection | Home:
    """This home with those of its pools whose nodes can run the job's driver; a rejection if there is none."""
    pools = tuple(pool for pool in home.pools if pool.driver == spec.run.driver)
    if pools:
        return Home(home.cell, home.queue, pools)
    rule = "is not supported by any pool that the job may use"
    return Rejection(RejectCode.UNSUPPORTED, "run.driver", spec.run.driver, rule)


def over_job_limits(file: CellFile, spec: JobSpec) -> Rejection | None:
    """The limits that the cell file sets for any single job."""
    limits, gpus, each = file.limits, -(-spec.gpus_milli // GPU), spec.resources.gpu_milli
    in_all = f"{gpus} GPUs in all its workers, a job may have {limits.gpus_per_job}"
    checks = (
        ("workers", spec.workers, spec.workers, limits.workers_per_job, ""),
        ("resources.gpu_milli", each, gpus, limits.gpus_per_job, in_all),
        ("retry.budget", spec.retry.budget, spec.retry.budget, limits.retry_budget, ""),
    )
    for field, value, wanted, allowed, rule in checks:
        if wanted > allowed:
            told = rule or f"a job may have {allowed}"
            return Rejection(RejectCode.OVER_JOB_LIMIT, field, str(value), told, wanted, allowed)
    return None


def over_run_time(spec: JobSpec, home: Home) -> Rejection | None:
    """A limit above that of the job's queue."""
    rule = home.line.over_max_run(spec.max_run_ms)
    if not rule:
        return None
    wanted, allowed = spec.max_run_ms, home.line.max_run_ms
    return Rejection(RejectCode.OVER_JOB_LIMIT, "max_run_ms", str(wanted), rule, wanted, allowed)


def over_one_record(spec: JobSpec, pools: tuple[Pool, ...]) -> Rejection | None:
    """Workers that must start together start in one record, which takes only so many. Whatever the nodes of these pools
    are called, it would have no room for them.
    """
    workers, gpu_milli = at_least(spec), spec.resources.gpu_milli
    widest = max(pool.gpus_per_node for pool in pools)
    size_bytes = fewest_bytes(workers, gpu_milli, widest)
    if size_bytes <= GANG_BYTES_MAX:
        return None
    allowed = max_workers(gpu_milli, widest)
    rule = f"their places need {size_bytes} bytes at least, the record in which they start takes {GANG_BYTES_MAX}"
    return Rejection(RejectCode.TOO_LARGE, "workers", str(workers), rule, workers, allowed)


def over_update_limits(file: CellFile, changes: JobChanges) -> Rejection | None:
    """The rejection of an update that makes a job exceed the limits, or None."""
    wanted, allowed = changes.workers, file.limits.workers_per_job
    if wanted is None or wanted <= allowed:
        return None
    rule = f"a job may have {allowed}"
    return Rejection(RejectCode.OVER_JOB_LIMIT, "changes.workers", str(wanted), rule, wanted, allowed)


def never_fits(spec: JobSpec, home: Home) -> Rejection | tuple[Pool, ...]:
    """The pools of the job's that could hold it if they were empty, or as much of it as must start together; a
    rejection if there is none.
    """
    worker_gpus = -(-spec.resources.gpu_milli // GPU)
    wide = [pool for pool in home.pools if worker_gpus <= pool.gpus_per_node]
    if not wide:
        allowed = max((pool.gpus_per_node for pool in home.pools), default=0)
        rule = f"one worker's GPUs must fit one node, which has at most {allowed} (gpu_milli {allowed * GPU})"
        value = str(spec.resources.gpu_milli)
        return Rejection(RejectCode.LARGER_THAN_POOL, "resources.gpu_milli", value, rule, worker_gpus, allowed)
    room = {pool.name: _workers(pool, spec) for pool in wide}
    workers = at_least(spec)
    large = tuple(pool for pool in wide if workers <= room[pool.name])
    if not large:
        allowed = max(room.values())
        rule = f"the largest pool ever holds {allowed} such workers"
        return Rejection(RejectCode.LARGER_THAN_POOL, "workers", str(workers), rule, workers, allowed)
    return large


def _workers(pool: Pool, spec: JobSpec) -> int:
    """How many workers the pool holds when it is whole and empty."""
    if spec.resources.gpu_milli < GPU:
        return pool.gpus * (GPU // spec.resources.gpu_milli)
    gpus = spec.resources.gpu_milli // GPU
    nodes, rest = divmod(pool.gpus, pool.gpus_per_node)
    return nodes * (pool.gpus_per_node // gpus) + rest // gpus


def submit_time_too_far(file: CellFile, submit_ms: int, came_ms: int) -> Rejection | None:
    """A job that claims to wait since before it came would jump the queue; one of the future would be out of order."""
    allowed = file.limits.submit_skew_ms
    if allowed is None or abs(submit_ms - came_ms) <= allowed:
        return None
    rule = f"must be within {allowed} ms of the cell time at which it came, {came_ms}"
    return Rejection(
        RejectCode.SUBMIT_TIME_TOO_FAR, "submit_ms", str(submit_ms), rule, abs(submit_ms - came_ms), allowed
    )
