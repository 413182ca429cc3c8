"""A command is rejected for a reason that one of the cell files gives, by what was submitted. Codes that tell of the
form of a command, or of the time at which it came, are not judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import SubmitJob, UpdateJob
from fallow.simulator.history.rules.requests.as_submitted import Command, File


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
    if answer.field == "max_run_ms":
        names = {queue for cell in file["cells"] for queue in _bounds_in(cell, spec.max_run_ms)}
        return spec.max_run_ms is not None and bool(names if spec.queue is None else spec.queue in names)
    if answer.field == "resources.gpu_milli":
        return bool(spec.gpus_milli > limits["gpus_per_job"] * GPU)
    if answer.field == "workers":
        return bool(spec.workers > limits["workers_per_job"])
    return bool(spec.retry.budget > limits["retry_budget"])


def _bounds_in(cell: Mapping[str, Any], run_ms: int | None) -> list[str]:
    """The queues of a cell that let no job run for so long."""
    return [queue["name"] for queue in cell["queues"] if (queue.get("max_run_ms") or LARGEST_INTEGER) < (run_ms or 0)]


def _pools(spec: JobSpec, file: File) -> list[list[dict[str, Any]]]:
    """The pools that the job may use, whatever their GPUs, of each cell in which it may be."""
    cells = [cell for cell in file["cells"] if spec.cell in (None, cell["name"])]
    found = [[pool for pool in cell["pools"] if _is_open(pool, spec, file)] for cell in cells]
    if not spec.pools:
        role = "inference" if spec.kind is JobKind.INFERENCE else "training"
        found = [[pool for pool in pools if pool["role"] == role] or pools for pools in found]
    return [pools for pools in found if pools]


def _is_open(pool: Mapping[str, Any], spec: JobSpec, file: File) -> bool:
    of_tenant = (_tenant(file, spec.tenant) or {}).get("pools")
    return all(not names or pool["name"] in names for names in (of_tenant, spec.pools))


def _homes(spec: JobSpec, file: File) -> list[list[dict[str, Any]]]:
    """Those of them that have GPUs of its type."""
    of_type = [[pool for pool in pools if spec.gpu_type in (None, pool["gpu_type"])] for pools in _pools(spec, file)]
    return [pools for pools in of_type if pools]


def _larger_than_pool(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    """All pools that the job may use are too small, of those that can run it."""
    homes = [[pool for pool in pools if pool["driver"] == spec.run.driver] for pools in _homes(spec, file)]
    return any(pools and all(_is_too_small(pool, spec) for pool in pools) for pools in homes)


def _is_too_small(pool: Mapping[str, Any], spec: JobSpec) -> bool:
    each = spec.resources.gpu_milli
    return bool(each > pool["gpus_per_node"] * GPU or _together(spec) * each > _usable(pool, each))


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
    return (
        (is_gang and spec.workers_min not in (None, spec.workers))
        or (not is_service and spec.spread is not None)
        or (not is_gang and spec.topology is not None)
        or bool(spec.scaling or spec.fungible or spec.heterogeneous)
        or any(all(pool["driver"] != spec.run.driver for pool in pools) for pools in _homes(spec, file))
    )


def _unknown_pool(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    names = [pool["name"] for cell in file["cells"] for pool in cell["pools"]]
    return any(pool not in names for pool in spec.pools)


def _unknown_queue(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    queue = spec.queue or (_tenant(file, spec.tenant) or {}).get("queue")
    cells = [cell for cell in file["cells"] if spec.cell in (None, cell["name"])]
    return queue is not None and any(queue not in [each["name"] for each in cell["queues"]] for cell in cells)


def _unknown_gpu_type(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    types = [[pool["gpu_type"] for pool in pools] for pools in _pools(spec, file)]
    return spec.gpu_type is not None and any(spec.gpu_type not in each for each in types)


def _pool_not_allowed(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    """A pool that the job names, or each one of the cell that it names, is not open to its tenant."""
    may_use = (_tenant(file, spec.tenant) or {}).get("pools")
    cells = [[pool["name"] for pool in cell["pools"]] for cell in file["cells"] if spec.cell in (None, cell["name"])]
    if not may_use:
        return False
    if spec.pools:
        return any(pool not in may_use for pool in spec.pools)
    return spec.cell is not None and any(all(name not in may_use for name in names) for names in cells)


def _unknown_cell(answer: JobRejected, command: Command, file: File) -> bool:
    cell = command.job.cell if isinstance(command, SubmitJob) else command.cell
    return cell is not None and all(cell != each["name"] for each in file["cells"])


def _cell_needed(answer: JobRejected, command: Command, file: File) -> bool:
    """It names neither a cell nor a pool, and its tenant may use pools of several cells."""
    is_named, tenant = _names_a_place(command), _tenant(file, answer.tenant)
    if is_named or tenant is None:
        return False
    cells = [[pool["name"] for pool in cell["pools"]] for cell in file["cells"]]
    return sum(not tenant["pools"] or any(name in tenant["pools"] for name in names) for names in cells) > 1


def _names_a_place(command: Command) -> bool:
    if isinstance(command, SubmitJob):
        return command.job.cell is not None or bool(command.job.pools)
    return command.cell is not None


def _pools_in_several_cells(answer: JobRejected, spec: JobSpec, file: File) -> bool:
    """No cell in which it may be has all of its pools."""
    cells = [[pool["name"] for pool in cell["pools"]] for cell in file["cells"] if spec.cell in (None, cell["name"])]
    return bool(spec.pools) and not any(all(pool in names for pool in spec.pools) for names in cells)


def _tenant_not_of_topic(answer: JobRejected, command: Command, file: File) -> bool:
    """It came by the own topic of another tenant: the answer is that one's."""
    tenant = command.job.tenant if isinstance(command, SubmitJob) else command.tenant
    return tenant != answer.tenant and bool((_tenant(file, answer.tenant) or {}).get("own_topic"))


def _submits_too_many(answer: JobRejected, command: Command, file: File) -> bool:
    """Its tenant has a limit; what no tenant answers for has one in any case."""
    tenant = _tenant(file, answer.tenant)
    return tenant is None or tenant["submissions"] is not None


def _submit_time_too_far(answer: JobRejected, command: Command, file: File) -> bool:
    """By the distance that the answer tells: when the command came is not known here."""
    most = file["limits"]["submit_skew_ms"]
    is_told = isinstance(command, SubmitJob) and command.submit_ms is not None
    return is_told and most is not None and answer.wanted is not None and answer.wanted > most == answer.allowed


_HOLDS: dict[RejectCode, Callable[[JobRejected, Command, File], bool]] = {
    RejectCode.OVER_TENANT_LIMIT: _over_tenant_limit,
    RejectCode.OVER_JOB_LIMIT: _over_job_limit,
    RejectCode.LARGER_THAN_POOL: _of_spec(_larger_than_pool),
    RejectCode.UNSUPPORTED: _of_spec(_unsupported),
    RejectCode.UNKNOWN_POOL: _of_spec(_unknown_pool),
    RejectCode.UNKNOWN_QUEUE: _of_spec(_unknown_queue),
    RejectCode.UNKNOWN_GPU_TYPE: _of_spec(_unknown_gpu_type),
    RejectCode.UNKNOWN_CELL: _unknown_cell,
    RejectCode.CELL_NEEDED: _cell_needed,
    RejectCode.POOLS_IN_SEVERAL_CELLS: _of_spec(_pools_in_several_cells),
    RejectCode.UNKNOWN_TENANT: lambda answer, _, file: _tenant(file, answer.tenant) is None,
    RejectCode.POOL_NOT_ALLOWED: _of_spec(_pool_not_allowed),
    RejectCode.TENANT_NOT_OF_TOPIC: _tenant_not_of_topic,
    RejectCode.TOO_MANY_SUBMISSIONS: _submits_too_many,
    RejectCode.SUBMIT_TIME_TOO_FAR: _submit_time_too_far,
}
