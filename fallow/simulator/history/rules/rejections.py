"""A command is rejected for a reason that one of the cell files gives, by what was submitted. Codes that tell of the
form of a command, or of the time at which it came, are not judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import SubmitJob, UpdateJob
from fallow.shared.events.values import GPU, JobKind, JobSpec
from fallow.simulator.history.rules.as_submitted import Command

File = Mapping[str, Any]


def rejected_for_nothing(
    answer: JobRejected, said: Mapping[str, Sequence[Command]], files: Sequence[File]
) -> str | None:
    """Why this rejection has no reason, or None. What cannot be read is not among what was said: that of it may be
    anything.
    """
    commands, holds = said.get(answer.job, ()), _HOLDS.get(answer.code)
    if not commands or holds is None or not files:
        return None
    if any(holds(answer, command, file) for command in commands for file in files):
        return None
    return f"the {answer.command} of job {answer.job} is rejected for {answer.code}, which does not hold"


def _tenant(file: File, name: str | None) -> dict[str, Any] | None:
    return next((each for each in file["tenants"] if each["name"] == name), None)


def _line(file: File, name: str | None) -> list[dict[str, Any]]:
    """The tenant and those above it."""
    found: list[dict[str, Any]] = []
    tenant = _tenant(file, name)
    while tenant is not None and tenant not in found:
        found.append(tenant)
        tenant = _tenant(file, tenant["parent"])
    return found


def _spec(command: Command) -> JobSpec | None:
    return command.job if isinstance(command, SubmitJob) else None


def _of_spec(holds: Callable[[JobRejected, JobSpec, File], bool]) -> Callable[[JobRejected, Command, File], bool]:
    def of_command(answer: JobRejected, command: Command, file: File) -> bool:
        spec = _spec(command)
        return spec is not None and holds(answer, spec, file)

    return of_command


def _together(spec: JobSpec) -> int:
    """How many workers must start together."""
    is_whole = spec.kind is not JobKind.INFERENCE and (spec.gang or spec.workers == 1)
    return spec.workers_min or (spec.workers if is_whole else 1)


def _over_tenant_limit(answer: JobRejected, command: Command, file: File) -> bool:
    """A priority above the ceiling; or more GPUs than the tenant may ever use of some type, by its limits or since
    others keep back what is theirs.
    """
    line = _line(file, answer.tenant)
    if answer.field.endswith("priority"):
        priority = command.job.priority if isinstance(command, SubmitJob) else None
        priority = command.changes.priority if isinstance(command, UpdateJob) else priority
        ceilings = [each["max_priority"] for each in line if each["max_priority"] is not None]
        return priority is not None and any(priority > most for most in ceilings)
    spec = _spec(command)
    if spec is None:
        return False
    milli = _together(spec) * spec.resources.gpu_milli
    if answer.wanted != -(-milli // GPU) or answer.allowed is None or answer.allowed * GPU >= milli:
        return False
    quotas = [quota for each in file["tenants"] for quota in each["quotas"]]
    limits = [quota["limit"] for each in line for quota in each["quotas"] if quota["limit"] is not None]
    return any(milli > limit * GPU for limit in limits) or any(quota["guaranteed"] for quota in quotas)


def _over_job_limit(answer: JobRejected, command: Command, file: File) -> bool:
    limits = file["limits"]
    if isinstance(command, UpdateJob):
        return bool((command.changes.workers or 0) > limits["workers_per_job"])
    spec = _spec(command)
    if spec is None:
        return False
    if answer.field == "resources.gpu_milli":
        return bool(spec.gpus_milli > limits["gpus_per_job"] * GPU)
    if answer.field == "workers":
        return bool(spec.workers > limits["workers_per_job"])
    return bool(spec.retry.budget > limits["retry_budget"])


def _larger_than_pool(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    """Some pool that the job accepts is too small: which of the others it may use goes by more than this."""
    pools = [pool for cell in file["cells"] for pool in cell["pools"] if not spec.pools or pool["name"] in spec.pools]
    each, workers = spec.resources.gpu_milli, _together(spec)
    return any(each > pool["gpus_per_node"] * GPU or workers * each > _usable(pool, each) for pool in pools)


def _usable(pool: Mapping[str, Any], each: int) -> int:
    """Milli-GPUs of an empty pool that workers of this size can have."""
    if not each:
        return 0
    if each < GPU:
        return int(pool["gpus"]) * (GPU // each) * each
    gpus = each // GPU
    nodes, rest = divmod(pool["gpus"], pool["gpus_per_node"])
    return int(nodes * (pool["gpus_per_node"] // gpus) + rest // gpus) * each


def _unsupported(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    is_service = spec.kind is JobKind.INFERENCE
    is_gang = not is_service and (spec.gang or spec.workers == 1)
    drivers = [pool["driver"] for cell in file["cells"] for pool in cell["pools"]]
    return (
        (is_gang and spec.workers_min not in (None, spec.workers))
        or (not is_service and spec.spread is not None)
        or (not is_gang and spec.topology is not None)
        or bool(spec.scaling or spec.fungible or spec.heterogeneous)
        or any(driver != spec.run.driver for driver in drivers)
    )


def _unknown_pool(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    names = [pool["name"] for cell in file["cells"] for pool in cell["pools"]]
    return any(pool not in names for pool in spec.pools)


def _unknown_queue(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    queues = [[queue["name"] for queue in cell["queues"]] for cell in file["cells"]]
    return spec.queue is not None and any(spec.queue not in names for names in queues)


def _unknown_gpu_type(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    return spec.gpu_type is not None


def _unknown_cell(answer: JobRejected, command: Command, file: File) -> bool:
    cell = command.job.cell if isinstance(command, SubmitJob) else command.cell
    return cell is not None and all(cell != each["name"] for each in file["cells"])


def _submits_too_many(answer: JobRejected, command: Command, file: File) -> bool:
    """Its tenant has a limit; for whom no tenant answers there is one in any case."""
    tenant = _tenant(file, answer.tenant)
    return tenant is None or tenant["own_topic"] or tenant["submissions"] is not None


_HOLDS: dict[RejectCode, Callable[[JobRejected, Command, File], bool]] = {
    RejectCode.OVER_TENANT_LIMIT: _over_tenant_limit,
    RejectCode.OVER_JOB_LIMIT: _over_job_limit,
    RejectCode.LARGER_THAN_POOL: _of_spec(_larger_than_pool),
    RejectCode.UNSUPPORTED: _of_spec(_unsupported),
    RejectCode.UNKNOWN_POOL: _of_spec(_unknown_pool),
    RejectCode.UNKNOWN_QUEUE: _of_spec(_unknown_queue),
    RejectCode.UNKNOWN_GPU_TYPE: _of_spec(_unknown_gpu_type),
    RejectCode.UNKNOWN_CELL: _unknown_cell,
    RejectCode.UNKNOWN_TENANT: lambda answer, _, file: _tenant(file, answer.tenant) is None,
    RejectCode.POOL_NOT_ALLOWED: lambda answer, _, file: bool((_tenant(file, answer.tenant) or {}).get("pools")),
    RejectCode.TENANT_NOT_OF_TOPIC: lambda _, __, file: any(each["own_topic"] for each in file["tenants"]),
    RejectCode.TOO_MANY_SUBMISSIONS: _submits_too_many,
    RejectCode.SUBMIT_TIME_TOO_FAR: lambda _, __, file: file["limits"]["submit_skew_ms"] is not None,
}
