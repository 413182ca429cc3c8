"""What a world consists of and what is asked of it, drawn from the seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fallow.shared.cluster.model.config import (
    PLACEMENTS,
    CellFile,
    CellPart,
    Limits,
    Pool,
    Queue,
    SubmissionRate,
    Tenant,
    TenantQuota,
)
from fallow.shared.events.base import Event, replace
from fallow.shared.events.fields.job_ids import full_id, own_id
from fallow.shared.events.fields.values import (
    AfterWhen,
    Dependency,
    JobKind,
    JobSpec,
    Level,
    NodeSpec,
    Position,
    Resources,
    RetryPolicy,
    VirtualRun,
)
from fallow.shared.events.operations import (
    CancelMaintenance,
    CellPolicy,
    Cordon,
    Drain,
    EstimatorKind,
    HoldJob,
    PlanMaintenance,
    ReclaimFrom,
    ReleaseJob,
    RemoveNode,
    RemoveQuota,
    SetPolicy,
    SetQuota,
    Uncordon,
)
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.simulator.draws.choosy import choosy, marked
from fallow.simulator.draws.odd import odd
from fallow.simulator.draws.wired import typed, wired, wishful
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import EPOCH_MS

ARRIVALS_MS = 9_000
TENANTS = ("ada", "bob", "cyd")
OWN_TOPICS_EVERY = 3

RUN_LIMITS_EVERY = 5
ESTIMATORS = (*[EstimatorKind.DECLARED] * 4, *[EstimatorKind.LEARNED] * 3, EstimatorKind.NONE)

DISCIPLINES = {
    "best": QueueDiscipline.BEST_EFFORT_FIFO,
    "strict": QueueDiscipline.STRICT_FIFO,
    "fill": QueueDiscipline.BACKFILL,
}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a client does. `number` names it in the search for a shorter story."""

    number: int
    at_ms: int
    client: str
    event: Event


@dataclass(frozen=True, slots=True)
class Setting:
    """A world before its first step. `nodes` are looked after by executors, `machines` have an agent each."""

    file: CellFile
    nodes: dict[str, tuple[NodeSpec, ...]]
    machines: dict[str, tuple[NodeSpec, ...]]
    items: tuple[Item, ...]


def draw_setting(engine: Engine) -> Setting:
    """Cells, pools, tenants, nodes and wishes."""
    cells, nodes = [], {}
    for number in range(1 if engine.chance.random() < 0.8 else 2):  # noqa: PLR2004 - most worlds have one cell
        cell, specs = _cell(engine, number)
        cells.append(cell)
        nodes[cell.name] = wired(engine, marked(engine, specs))
    limits = Limits(submit_skew_ms=engine.chance.choice((None, None, 5_000)))
    file = CellFile(cells=tuple(cells), tenants=_tenants(engine, nodes), limits=limits)
    items = _items(engine, file, nodes)
    machines = {cell: specs[: engine.chance.choice((0, 0, 1, 2))] for cell, specs in nodes.items()}
    left = {cell: specs[len(machines[cell]) :] for cell, specs in nodes.items()}
    return Setting(file, left, machines, items)


def another_file(engine: Engine, first: CellFile) -> CellFile:
    """What an operator might make of the cell file while the cells run: other quotas, limits and waits."""
    most = sum(pool.gpus for cell in first.cells for pool in cell.pools)
    tenants = tuple(
        tenant.model_copy(
            update={
                "quotas": tuple(
                    TenantQuota(gpu_type=quota.gpu_type, guaranteed=quota.guaranteed, limit=engine.between(2, most))
                    for quota in tenant.quotas
                )
            }
        )
        for tenant in first.tenants
    )
    wait_ms = engine.between(2_000, 6_000)
    cells = tuple(
        cell.model_copy(
            update={
                "policy": replace(cell.policy, start_timeout_wall_ms=wait_ms),
                "queues": tuple(_ages_otherwise(queue) for queue in cell.queues),
            }
        )
        for cell in first.cells
    )
    limits = Limits(submit_skew_ms=None, gpus_per_job=engine.between(2, 64))
    return CellFile(cells=cells, tenants=tenants, limits=limits)


def _ages_otherwise(queue: Queue) -> Queue:
    aging_ms = 0 if queue.aging_ms else 1_000
    return queue.model_copy(update={"aging_ms": aging_ms, "aging_max_ms": 2 * aging_ms})


def _cell(engine: Engine, number: int) -> tuple[CellPart, tuple[NodeSpec, ...]]:
    kinds = engine.chance.choice((("best", "strict"), ("fill", "strict"), ("fill", "best")))
    queues = tuple(_queue(engine, f"{kind}-{number}", DISCIPLINES[kind]) for kind in kinds[: engine.between(1, 2)])
    pools, nodes, gpus = [], list[NodeSpec](), engine.chance.choice((2, 4, 8))
    for letter in "ab"[: engine.between(1, 2)]:
        kind, count = "h100" if letter == "a" else "a100", engine.between(2, 4)
        pool = Pool(name=f"pool-{number}{letter}", gpu_type=kind, gpus=gpus * count, gpus_per_node=gpus)
        pools.append(pool)
        nodes += [_node(pool, at) for at in range(count)]
    policy = CellPolicy(
        start_timeout_wall_ms=4_000,
        stop_grace_wall_ms=800,
        node_lease_wall_ms=5_000,
        lease_margin_wall_ms=1_500,
        unknown_dependency_ms=4_000,
        placement=engine.chance.choice(PLACEMENTS),
        backfill_wait_ms=engine.chance.choice((0, 1_000, 600_000)),
        max_unacknowledged_starts_per_node=engine.chance.choice((0, 0, 1, 3)),
        fair_half_life_ms=engine.chance.choice((0, 0, 2_000, 60_000)),
        breaker_wait_wall_ms=engine.chance.choice((500, 2_000, 300_000)),
        breaker_nodes_per_minute=engine.chance.choice((60, 600)),
        max_pending_jobs=engine.chance.choice((1_000_000, 1_000_000, 1_000_000, 6)),
        remove_lost_ms=engine.chance.choice((1, 0, 3_000, 86_400_000)),
        reservation_ttl_ms=5_000,
    )
    policy = replace(policy, live_bytes_max=250 * policy.max_pending_jobs)
    cell = CellPart(name=f"cell-{number}", ordinal=number, pools=tuple(pools), queues=queues, policy=policy)
    return cell, tuple(nodes)


def _queue(engine: Engine, name: str, discipline: QueueDiscipline) -> Queue:
    aging_ms = engine.chance.choice((0, 0, 1_000))
    order = engine.chance.choice((QueueOrder.FIFO, QueueOrder.FIFO, QueueOrder.FAIR_SHARE))
    return Queue(name=name, discipline=discipline, order=order, aging_ms=aging_ms, aging_max_ms=2 * aging_ms)


def _node(pool: Pool, number: int) -> NodeSpec:
    return NodeSpec(
        id=f"{pool.name}-n{number}",
        pool=pool.name,
        gpu_type=pool.gpu_type,
        gpus=pool.gpus_per_node,
        cpu_milli=64_000,
        memory_mib=64_000,
        position=Position(leaf=f"leaf-{number // 2}"),
    )


def _tenants(engine: Engine, nodes: dict[str, tuple[NodeSpec, ...]]) -> tuple[Tenant, ...]:
    most = sum(node.gpus for specs in nodes.values() for node in specs)
    names = sorted({node.pool for specs in nodes.values() for node in specs})
    types = [node.gpu_type for specs in nodes.values() for node in specs]
    tenants = []
    for number, name in enumerate(TENANTS):
        limited = engine.chance.random() < 0.5  # noqa: PLR2004 - one of two
        quotas = tuple(
            TenantQuota(gpu_type=kind, limit=engine.between(max(2, most // 3), most)) for kind in ("h100", "a100")
        )
        parent = "ada" if number and engine.chance.random() < 0.3 else None  # noqa: PLR2004 - a share
        if parent is None:
            quotas = tuple(_guaranteed(quota, int(quota.gpu_type in types)) for quota in quotas)
        pools = (engine.chance.choice(names),) if engine.between(0, 11) == 0 else ()
        rate = SubmissionRate(per_s=1, burst=2) if engine.between(0, 11) == 0 else None
        quotas = quotas if limited else ()
        tenants.append(Tenant(name=name, quotas=quotas, parent=parent, pools=pools, submissions=rate))
    return tuple(tenants)


def with_own_topics(file: CellFile, seed: int) -> CellFile:
    """This file; in every third world, by its seed, one or two tenants have a topic of their own. No chance is
    drawn for it, so that all else stays as it is.
    """
    if seed % OWN_TOPICS_EVERY:
        return file
    first = seed // OWN_TOPICS_EVERY
    names = {TENANTS[first % len(TENANTS)], TENANTS[first // 2 % len(TENANTS)]}
    tenants = [tenant.model_copy(update={"own_topic": tenant.name in names}) for tenant in file.tenants]
    return file.model_copy(update={"tenants": tuple(tenants)})


def with_run_times(file: CellFile, seed: int) -> CellFile:
    """This file; in every fifth world queues bound how long jobs run, in every second one the cell learns how long
    they do, or expects nothing. No chance is drawn for it either.
    """
    bounds = {"default_run_ms": 3_000 if seed % 2 else None, "max_run_ms": 4_500}
    estimator = ESTIMATORS[seed % len(ESTIMATORS)]
    cells = []
    for cell in file.cells:
        queues = cell.queues
        if seed % RUN_LIMITS_EVERY == 0:
            queues = tuple(queue.model_copy(update=bounds) for queue in queues)
        policy = replace(cell.policy, estimator=estimator)
        cells.append(cell.model_copy(update={"queues": queues, "policy": policy}))
    return file.model_copy(update={"cells": tuple(cells)})


def _guaranteed(quota: TenantQuota, gpus: int) -> TenantQuota:
    """With so much for sure; some lend nothing of it, some may not take back from everybody what they lend. Parents
    alone have it, no more than there is of each type, and share it with their children.
    """
    limit = quota.limit or 0
    reclaim = list(ReclaimFrom)[limit % 3]
    return quota.model_copy(update={"guaranteed": gpus, "lends": limit % 2 == 0, "reclaim": reclaim})


def _items(engine: Engine, file: CellFile, nodes: dict[str, tuple[NodeSpec, ...]]) -> tuple[Item, ...]:
    found: list[tuple[int, str, Event]] = []
    submitted: list[SubmitJob] = []
    open_to, counts = partial(_open_to, file, nodes), Counter[str]()
    for _ in range(engine.between(10, 24)):
        at_ms = engine.between(300, ARRIVALS_MS)
        job = _job(engine, file, counts)
        submitted.append(SubmitJob(job=job, submit_ms=EPOCH_MS + at_ms if engine.between(0, 3) == 0 else None))
        found.append((at_ms, job.tenant, submitted[-1]))
    if engine.between(0, 1):
        found, submitted = _with_waits(engine, found)
    if engine.between(0, 1):
        found, submitted = _by_worker(engine, found)
    if engine.between(0, 1):
        found = [(at_ms, client, _each(typed, engine, event, open_to)) for at_ms, client, event in found]
    if engine.between(0, 1) or _has_taints(nodes):
        found = [(at_ms, client, _each(choosy, engine, event, open_to)) for at_ms, client, event in found]
    if engine.between(0, 1):
        found = [(at_ms, client, _each(wishful, engine, event, open_to)) for at_ms, client, event in found]
    if engine.between(0, 1):
        found = [(at_ms, client, _odd(engine, event)) for at_ms, client, event in found]
    submitted = [event for _, _, event in found if isinstance(event, SubmitJob)]
    for submit in submitted:
        found += _afterthoughts(engine, submit)
        if submit.job.kind is JobKind.INFERENCE:
            found += _scalings(engine, submit.job)
    found += [_plan(engine, file, nodes) for _ in range(engine.between(0, 2))]
    for _ in range(engine.between(0, 4)):
        found.append(_operation(engine, file, nodes, submitted))
    found.sort(key=lambda item: item[0])
    return tuple(Item(number, *item) for number, item in enumerate(found))


def _job(engine: Engine, file: CellFile, counts: Counter[str]) -> JobSpec:
    """A tenant's next job: each numbers its own from 0, so that all of them use the same ids."""
    cell = engine.chance.choice(file.cells)
    workers = engine.chance.choice((1, 1, 1, 1, 2, 2, 3, 4))
    gpus = engine.chance.choice((1, 250, 333, 500, 999, 1000, 1000, 1000, 1000, 1000, 2000, 2000))
    fails = engine.between(0, 5) == 0
    tenant = engine.chance.choice(TENANTS)
    counts[tenant] += 1
    return JobSpec(
        id=f"job-{counts[tenant] - 1}",
        tenant=tenant,
        priority=engine.chance.choice((0, 0, 0, 5, -3)),
        cell=cell.name,
        queue=engine.chance.choice(cell.queues).name,
        pools=(engine.chance.choice(cell.pools).name,) if engine.between(0, 1) else (),
        workers=workers,
        resources=Resources(gpu_milli=gpus, cpu_milli=500, memory_mib=100),
        run=VirtualRun(
            duration_ms=engine.between(100, 3_500),
            fail_at_ms=engine.between(50, 1_500) if fails else None,
            fail_attempts=engine.between(1, 2) if fails else None,
        ),
        max_run_ms=engine.between(1_000, 6_000) if engine.between(0, 7) == 0 else None,
        retry=RetryPolicy(
            budget=engine.between(0, 3), backoff_ms=engine.chance.choice((0, 1, 300, 1_200)), backoff_max_ms=1_500
        ),
        hold=engine.between(0, 11) == 0,
    )


def _has_taints(nodes: dict[str, tuple[NodeSpec, ...]]) -> bool:
    return any(spec.taints for specs in nodes.values() for spec in specs)


def _each(
    change: Callable[[Engine, SubmitJob, tuple[NodeSpec, ...]], SubmitJob],
    engine: Engine,
    event: Event,
    open_to: Callable[[JobSpec], tuple[NodeSpec, ...]],
) -> Event:
    assert isinstance(event, SubmitJob)
    return change(engine, event, open_to(event.job))


def _open_to(file: CellFile, nodes: dict[str, tuple[NodeSpec, ...]], job: JobSpec) -> tuple[NodeSpec, ...]:
    """The nodes of the job's cell that its tenant may use; all of them where there are none, since it is rejected."""
    specs = nodes[job.cell or ""]
    pools = next(tenant.pools for tenant in file.tenants if tenant.name == job.tenant)
    if not pools:
        return specs
    found = tuple(spec for spec in specs if spec.pool in pools)
    return found if any(not job.pools or spec.pool in job.pools for spec in found) else specs


def _odd(engine: Engine, event: Event) -> Event:
    assert isinstance(event, SubmitJob)
    return odd(engine, event)


def _with_waits(
    engine: Engine, found: list[tuple[int, str, Event]]
) -> tuple[list[tuple[int, str, Event]], list[SubmitJob]]:
    """In some worlds jobs wait for a time of their own and for each other, mostly for an earlier one of their tenant,
    and now and then for one that comes later, is another tenant's, or never comes.
    """
    waiting = list[tuple[int, str, Event]]()
    submitted = [event for _, _, event in found if isinstance(event, SubmitJob)]
    for at_ms, client, event in found:
        assert isinstance(event, SubmitJob)
        job = event.job
        others = [submit.job for submit in submitted if submit is not event]
        own = [
            other.job.id
            for its_ms, _, other in found
            if isinstance(other, SubmitJob) and its_ms < at_ms and other.job.tenant == job.tenant
        ] or ["job-none"]
        if engine.between(0, 2) == 0:
            job = replace(job, not_before_ms=EPOCH_MS + at_ms + engine.between(-500, 5_000))
        if engine.between(0, 2) == 0:
            named = own if engine.between(0, 7) else [_in_full(other) for other in others] + ["job-none"]
            chosen = dict.fromkeys(engine.chance.choice(named) for _ in range(engine.between(1, 3)))
            whens = (AfterWhen.OK, AfterWhen.OK, AfterWhen.ANY)
            after = tuple(
                Dependency(job=_called(engine, job.tenant, each), when=engine.chance.choice(whens)) for each in chosen
            )
            job = replace(job, after=after)
        if engine.between(0, 1):
            job = replace(job, estimate_run_ms=engine.between(500, 5_000))
        if engine.between(0, 5) == 0:
            most = engine.chance.choice((None, 1, 2))
            job = replace(job, array=engine.chance.choice((1, 2, 3, 4, 5, 16)), array_max_running=most)
        waiting.append((at_ms, client, replace(event, job=job)))
    return waiting, [event for _, _, event in waiting if isinstance(event, SubmitJob)]


def _in_full(job: JobSpec) -> str:
    return full_id(job.tenant, job.id)


def _called(engine: Engine, tenant: str, job: str) -> str:
    """The tenant's job as it was called so far, or now and then by its other name."""
    if engine.between(0, 3):
        return job
    return own_id(job) if "/" in job else full_id(tenant, job)


def _by_worker(
    engine: Engine, found: list[tuple[int, str, Event]]
) -> tuple[list[tuple[int, str, Event]], list[SubmitJob]]:
    """In some worlds there are jobs that are no gangs, and services, of which some replicas fail at first."""
    told = list[tuple[int, str, Event]]()
    for at_ms, client, event in found:
        assert isinstance(event, SubmitJob)
        job, kind = event.job, engine.between(0, 4)
        if kind <= 1:
            workers = engine.between(1, 4)
            fewest = engine.between(1, workers) if engine.between(0, 1) else None
            job = replace(job, gang=False, workers=workers, workers_min=fewest)
        if kind == 0:
            fail_at_ms = engine.between(50, 3_000) if engine.between(0, 1) else None
            run = VirtualRun(fail_at_ms=fail_at_ms, fail_attempts=engine.between(1, 3) if fail_at_ms else None)
            spread = engine.chance.choice((None, None, Level.LEAF))
            job = replace(job, kind=JobKind.INFERENCE, spread=spread, run=run)
        told.append((at_ms, client, replace(event, job=job)))
    return told, [event for _, _, event in told if isinstance(event, SubmitJob)]


def _scalings(engine: Engine, job: JobSpec) -> list[tuple[int, str, Event]]:
    """A service is wanted larger or smaller now and then."""
    wishes = list[tuple[int, str, Event]]()
    for _ in range(engine.between(0, 3)):
        workers = engine.between(1, 5)
        changes = JobChanges(workers=workers, workers_min=engine.between(1, workers) if engine.between(0, 1) else None)
        wish = UpdateJob(job=job.id, tenant=job.tenant, cell=job.cell, changes=changes)
        wishes.append((engine.between(500, ARRIVALS_MS + 3_000), job.tenant, wish))
    return wishes


def _afterthoughts(engine: Engine, submit: SubmitJob) -> list[tuple[int, str, Event]]:
    """What a client thinks better of: a cancel, an update, the same once more, another job under the same id; and what
    others try.
    """
    job = submit.job
    at_ms, chance = engine.between(500, ARRIVALS_MS + 3_000), engine.chance.random()
    wish: Event
    if chance < 0.12:  # noqa: PLR2004 - shares of what clients do
        wish = CancelJob(job=_all_or_one(engine, job), tenant=job.tenant, cell=job.cell)
    elif chance < 0.2:  # noqa: PLR2004
        changes = JobChanges(priority=engine.between(-5, 5), max_run_ms=engine.between(500, 9_000))
        wish = UpdateJob(job=job.id, tenant=job.tenant, cell=job.cell, changes=changes)
    elif chance < 0.32:  # noqa: PLR2004
        wish = submit
    elif chance < 0.36:  # noqa: PLR2004
        wish = SubmitJob(job=replace(job, priority=job.priority + 1))
    elif chance < 0.4:  # noqa: PLR2004
        wish = _word_of_another(engine, job)
    else:
        return []
    return [(at_ms, job.tenant, wish)]


def _word_of_another(engine: Engine, job: JobSpec) -> Event:
    """A tenant, mostly a stranger, cancels the job or changes it, or means one of its own and calls it the same; or it
    wants the job's name for a job of its own.
    """
    tenant, kind = engine.chance.choice(TENANTS), engine.between(0, 5)
    if kind == 0:
        return SubmitJob(job=replace(job, id=_in_full(job), tenant=tenant))
    if kind == 1:
        return UpdateJob(job=_in_full(job), tenant=tenant, cell=job.cell, changes=JobChanges(priority=7))
    named = _all_or_one(engine, job)
    named = named if kind == 2 else full_id(job.tenant, named)  # noqa: PLR2004 - one of six
    return CancelJob(job=named, tenant=tenant, cell=job.cell)


def _all_or_one(engine: Engine, job: JobSpec) -> str:
    """The job, or of an array at times one element."""
    if job.array is None or engine.between(0, 1):
        return job.id
    return f"{job.id}.{engine.between(0, job.array - 1)}"


def _plan(engine: Engine, file: CellFile, nodes: dict[str, tuple[NodeSpec, ...]]) -> tuple[int, str, Event]:
    """Maintenance that begins soon, at times at once."""
    cell = engine.chance.choice(file.cells)
    node, at_ms = engine.chance.choice(nodes[cell.name]).id, engine.between(500, ARRIVALS_MS)
    begin_ms = EPOCH_MS + at_ms + engine.between(-500, 4_000)
    end_ms = begin_ms + engine.between(500, 3_000)
    return (
        at_ms,
        "operator",
        PlanMaintenance(cell=cell.name, node=node, begin_ms=begin_ms, end_ms=end_ms, by="operator"),
    )


def _operation(
    engine: Engine, file: CellFile, nodes: dict[str, tuple[NodeSpec, ...]], submitted: list[SubmitJob]
) -> tuple[int, str, Event]:
    cell = engine.chance.choice(file.cells)
    node = engine.chance.choice(nodes[cell.name]).id
    at_ms, kind = engine.between(1_000, ARRIVALS_MS), engine.between(0, 10)
    job = _in_full(engine.chance.choice(submitted).job)
    event: Event = Cordon(cell=cell.name, node=node, by="operator")
    match kind:
        case 2:
            deadline_ms = EPOCH_MS + at_ms + engine.between(0, 2_000)
            event = Drain(cell=cell.name, node=node, deadline_ms=deadline_ms, by="operator")
        case 3:
            event = Uncordon(cell=cell.name, node=node, by="operator")
        case 4 if file.quotas():
            quota = engine.chance.choice(file.quotas())
            lower = replace(quota, guaranteed_milli=0, limit_milli=1_000 * engine.between(1, 6))
            event = SetQuota(cell=cell.name, quotas=(lower,), by="operator")
            if at_ms % 3 == 0:
                event = RemoveQuota(cell=cell.name, tenant=quota.tenant, by="operator")
        case 5:
            event = HoldJob(cell=cell.name, job=job, by="operator")
        case 6:
            return _plan(engine, file, nodes)
        case 7:
            event = ReleaseJob(cell=cell.name, job=job, by="operator")
        case 8:
            event = CancelMaintenance(cell=cell.name, node=node, by="operator")
        case 9:
            policy = CellPolicy(placement=engine.chance.choice(PLACEMENTS))
            event = SetPolicy(cell=cell.name, policy=policy, fields=("placement",), by="operator")
        case 10:
            event = RemoveNode(cell=cell.name, node=node, by="operator")
    return at_ms, "operator", event
