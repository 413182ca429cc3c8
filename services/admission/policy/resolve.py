"""Where a job belongs: its cell, its pools and its queue, as its tenant and its own wishes have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.fields.values import JobKind, JobSpec, NodeRole
from fallow.shared.events.reasons import RejectCode

NAMED_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a command is turned away: the code, and the field, value and rule; the numbers where there are any."""

    code: RejectCode
    field: str = ""
    value: str = ""
    rule: str = ""
    wanted: int | None = None
    allowed: int | None = None
    cell: str | None = None


@dataclass(frozen=True, slots=True)
class Home:
    """Where the job will wait and may run."""

    cell: CellPart
    queue: str
    pools: tuple[Pool, ...]
    pool_names: tuple[str, ...] = field(init=False)
    """The pools, in the order in which they are tried. Made once: a home is remembered for many jobs."""
    line: Queue = field(init=False)
    """The queue as the cell file has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool_names", tuple(pool.name for pool in self.pools))
        object.__setattr__(self, "line", next(line for line in self.cell.queues if line.name == self.queue))


def tenant_of(file: CellFile, name: str) -> Tenant | Rejection:
    """The tenant of this name."""
    for tenant in file.tenants:
        if tenant.name == name:
            return tenant
    rule = f"is not in the cell file{_there(tenant.name for tenant in file.tenants)}"
    return Rejection(RejectCode.UNKNOWN_TENANT, "tenant", name, rule)


def cell_of(file: CellFile, tenant: Tenant, named: str | None, pools: tuple[str, ...] = ()) -> CellPart | Rejection:
    """The cell that is named, or holds the pools that are named, or is the only one of the tenant's."""
    if named is not None:
        found = [cell for cell in file.cells if cell.name == named]
        rule = f"is not a cell of the cell file{_there(cell.name for cell in file.cells)}"
        return found[0] if found else Rejection(RejectCode.UNKNOWN_CELL, "cell", named, rule)
    wanted = pools or tenant.pools
    cells = [cell for cell in file.cells if not wanted or any(pool.name in wanted for pool in cell.pools)]
    if len(cells) == 1:
        return cells[0]
    if pools and cells:
        return Rejection(RejectCode.POOLS_IN_SEVERAL_CELLS, "pools", ", ".join(pools), "must lie in one cell")
    return Rejection(RejectCode.CELL_NEEDED, "cell", "", "must be named: the tenant may use several cells")


def cell_of_cancel(file: CellFile, name: str, named: str | None) -> CellPart | Rejection:
    """The cell in which a tenant's job is to end. One that the file does not name any more may have jobs left, in any
    cell: which one it is has to be named where there are several.
    """
    tenant = tenant_of(file, name)
    if isinstance(tenant, Rejection) and named is None and len(file.cells) > 1:
        return replace(tenant, rule=f"{tenant.rule}; to cancel a job of it, name the cell of the job")
    return cell_of(file, Tenant(name=name) if isinstance(tenant, Rejection) else tenant, named)


def home_of(file: CellFile, tenant: Tenant, spec: JobSpec) -> Home | Rejection:
    """Cell, queue and pools of a job."""
    for name in spec.pools:
        if all(pool.name != name for cell in file.cells for pool in cell.pools):
            pools = [pool for cell in file.cells for pool in cell.pools]
            meant = f"{name} is a GPU type: gpu_type" if any(pool.gpu_type == name for pool in pools) else ""
            rule = f"is not a pool of the cell file{_there((pool.name for pool in pools), meant)}"
            return Rejection(RejectCode.UNKNOWN_POOL, "pools", name, rule)
        if tenant.pools and name not in tenant.pools:
            return Rejection(RejectCode.POOL_NOT_ALLOWED, "pools", name, f"is not open to tenant {tenant.name}")
    cell = cell_of(file, tenant, spec.cell, spec.pools)
    if isinstance(cell, Rejection):
        return cell
    chosen = _pools(cell, tenant, spec)
    if isinstance(chosen, Rejection):
        return chosen
    queue = spec.queue or tenant.queue or cell.default_queue
    if all(known.name != queue for known in cell.queues):
        rule = f"is not a queue of cell {cell.name}{_there(known.name for known in cell.queues)}"
        return Rejection(RejectCode.UNKNOWN_QUEUE, "queue", queue, rule)
    return Home(cell, queue, chosen)


def _pools(cell: CellPart, tenant: Tenant, spec: JobSpec) -> tuple[Pool, ...] | Rejection:
    """In the job's own order, else in the file's; without a wish, inference tries inference pools first, and a job that
    takes any GPU type those of which the cell has the most: scarce ones are left to jobs that name them.
    """
    by_name, gpus = {pool.name: pool for pool in cell.pools}, cell.gpus_by_type
    if spec.pools:
        chosen = [by_name[name] for name in spec.pools if name in by_name]
        if len(chosen) < len(spec.pools):
            return Rejection(RejectCode.POOLS_IN_SEVERAL_CELLS, "pools", ", ".join(spec.pools), "must lie in one cell")
    else:
        chosen = [pool for pool in cell.pools if not tenant.pools or pool.name in tenant.pools]
        role = NodeRole.INFERENCE if spec.kind is JobKind.INFERENCE else NodeRole.TRAINING
        if not chosen:
            rule = f"has no pool that is open to tenant {tenant.name}"
            return Rejection(RejectCode.POOL_NOT_ALLOWED, "cell", cell.name, rule)
        own = [pool for pool in chosen if pool.role is role]
        chosen = own or chosen
    if spec.gpu_type is not None:
        may_use, chosen = chosen, [pool for pool in chosen if pool.gpu_type == spec.gpu_type]
        if not chosen:
            meant = f"{spec.gpu_type} is a pool: pools" if any(pool.name == spec.gpu_type for pool in may_use) else ""
            types = _there((pool.gpu_type for pool in may_use), meant)
            rule = f"is in none of the pools that the job may use in cell {cell.name}{types}"
            return Rejection(RejectCode.UNKNOWN_GPU_TYPE, "gpu_type", spec.gpu_type, rule)
    elif not spec.pools:
        chosen.sort(key=lambda pool: -gpus[pool.gpu_type])
    return tuple(chosen)


def _there(names: Iterable[str], meant: str = "") -> str:
    """The names that there are instead, as many as one reads: ` (there are a, b and 7 more)`; before them what was
    probably meant.
    """
    known, shown = list(dict.fromkeys(names)), list[str]()
    for name in known:
        if len(", ".join([*shown, name])) > NAMED_CHARACTERS_MAX:
            break
        shown.append(name)
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    there = f"{'there is' if len(known) == 1 else 'there are'} {', '.join(shown)}{more}" if shown else ""
    told = "; ".join(filter(None, (meant, there)))
    return f" ({told})" if told else ""
