"""What may happen next in a cell: each move asks the state and answers with effects that are legal, or with none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fallow.shared.cluster.model.dependencies import breaker, ended, is_ready
from fallow.shared.cluster.model.independent_workers import fewest_of, paused_ranks
from fallow.shared.cluster.model.job import HOLDING, WAITING, Job, JobStatus
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.rules import contradiction
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    AfterWhen,
    Dependency,
    JobSpec,
    LoanStatus,
    NodeRole,
    NodeSpec,
    NodeStatus,
    ProcessRun,
    Resources,
    RunStatus,
    Setback,
    VirtualRun,
    WorkerPlace,
)
from fallow.shared.events.operations import CellPolicy, EstimatorKind, Quota
from fallow.shared.events.reasons import (
    CancelReason,
    ClearReason,
    FailReason,
    PendingReason,
    PreemptionCause,
    ProposalCode,
    RefuseCode,
    RequeueReason,
    StopReason,
)
from tests.cluster.worlds.places import find_places

if TYPE_CHECKING:
    from tests.cluster.worlds.histories import Historian

Effects = list[e.Effect]

TENANTS = ("ada", "bob", "eve")
PARENTS = ("lab", "firm")
POOLS = (
    ("train-a", "a100", 8, NodeRole.TRAINING),
    ("train-b", "h100", 4, NodeRole.TRAINING),
    ("serve", "a100", 8, NodeRole.INFERENCE),
)
GPU_MILLIS = (250, 300, 700, 1000, 1000, 2000, 4000, 8000)
RUNS = (VirtualRun(), ProcessRun(argv=("sleep", "9")), ProcessRun(argv=("train",), env={"SEED": "17", "MODE": ""}))
DIGEST = "0123456789abcdef" * 2
NODES_MAX = 14
LIVE_JOBS_MAX = 25


def node_arrives(world: Historian, at_ms: int) -> Effects:
    if len(world.state.nodes) >= NODES_MAX:
        return []
    pool, gpu_type, gpus, role = world.random.choice(POOLS)
    spec = NodeSpec(
        id=world.name("node"),
        pool=pool,
        gpu_type=gpu_type,
        gpus=gpus,
        cpu_milli=world.random.choice((16_000, 64_000)),
        memory_mib=world.random.choice((10_000, 100_000)),
        role=role,
    )
    return [e.NodeChanged(spec=spec, boot=world.name("boot"), status=NodeStatus.READY)]


def node_changes(world: Historian, at_ms: int) -> Effects:
    node = world.one_of(world.state.nodes.values())
    if node is None:
        return []
    is_back = node.status is NodeStatus.LOST
    pool, offered = node.spec.pool, None
    if node.is_used and world.random.random() < 0.3:
        offered = replace(node.spec, gpus=world.random.choice((2, 4, 16)))
    if not node.is_used and world.random.random() < 0.2:
        pool = world.random.choice(POOLS)[0]
    return [
        e.NodeChanged(
            spec=replace(node.spec, pool=pool),
            boot=world.name("boot") if is_back and world.random.random() < 0.5 else node.boot,
            status=world.random.choice((NodeStatus.READY, NodeStatus.READY, NodeStatus.CORDONED, NodeStatus.DRAINING)),
            reason="a person said so",
            offered=offered,
            quarantined=world.random.random() < 0.2,
            quarantined_until_ms=world.random.choice((None, at_ms + 1_000)),
        )
    ]


def maintenance_moves(world: Historian, at_ms: int) -> Effects:
    """A plan, its beginning, or its end."""
    node = world.one_of(world.state.nodes.values())
    if node is None:
        return []
    if node.maintenance_ms is None:
        return [e.MaintenanceSet(node=node.id, begin_ms=at_ms + 5, end_ms=at_ms + 9_000, reason="fan")]
    if node.status is not NodeStatus.LOST and world.random.random() < 0.5:
        return [e.MaintenanceBegan(node=node.id)]
    return [e.MaintenanceSet(node=node.id)]


def device_changes(world: Historian, at_ms: int) -> Effects:
    node = world.one_of(world.state.nodes.values())
    if node is None:
        return []
    device = world.random.randrange(node.spec.gpus)
    return [e.DeviceChanged(node=node.id, device=device, healthy=world.random.random() < 0.6)]


def lease_expires(world: Historian, at_ms: int) -> Effects:
    """The node is lost, and with it the attempts of all its jobs."""
    node = world.one_of(node for node in world.state.nodes.values() if node.status is not NodeStatus.LOST)
    if node is None:
        return []
    jobs = [world.state.jobs[job_id] for job_id in node.jobs]
    requeued = [requeue(job, RequeueReason.INFRASTRUCTURE, at_ms) for job in jobs]
    flaps = world.random.randrange(3)
    return [e.LeaseExpired(node=node.id, boot=node.boot, flaps=flaps, rests_until_ms=at_ms * flaps), *requeued]


def jobs_fail_on_a_node(world: Historian, at_ms: int) -> Effects:
    node = world.one_of(world.state.nodes.values())
    if node is None:
        return []
    jobs = () if node.failed_jobs and world.random.random() < 0.4 else (*node.failed_jobs, world.name("failed"))[-5:]
    by_node = tuple(world.random.random() < 0.5 for _ in jobs) if world.random.random() < 0.5 else ()
    return [e.NodeFailures(node=node.id, jobs=jobs, by_node=by_node)]


def node_falls_silent_or_speaks(world: Historian, at_ms: int) -> Effects:
    node = world.one_of(node for node in world.state.nodes.values() if node.status is not NodeStatus.LOST)
    if node is None:
        return []
    if node.silent_wall_ms and world.random.random() < 0.6:
        return [e.NodeHeard(node=node.id, flaps=at_ms % 3, rests_until_ms=at_ms if at_ms % 3 else 0)]
    return [
        e.NodeSilent(node=node.id, boot=node.boot, silent_wall_ms=node.silent_wall_ms + 7_500, held_wall_ms=at_ms % 3)
    ]


def lost_node_is_forgotten(world: Historian, at_ms: int) -> Effects:
    gone = [
        node
        for node in world.state.nodes.values()
        if node.status is NodeStatus.LOST and not node.is_used and node.loan is None
    ]
    kept = {place.node for kept in world.state.reservations.values() for place in kept.workers}
    node = world.one_of(node for node in gone if node.id not in kept)
    return [] if node is None else [e.NodeRemoved(node=node.id)]


def evictions_are_held_or_resumed(world: Historian, at_ms: int) -> Effects:
    held = world.state.evictions
    if held is not None and world.random.random() < 0.5:
        return [e.EvictionsResumed()]
    wall_ms = 0 if held is None else held.held_wall_ms + 10_000
    return [e.EvictionsHeld(silent=world.random.randint(3, 9), held_wall_ms=wall_ms, lost=wall_ms // 10_000)]


def requeue(job: Job, reason: RequeueReason, not_before_ms: int) -> e.Effect:
    failures = job.failures + (reason is RequeueReason.WORKER_FAILED)
    avoid = tuple(dict.fromkeys(place.node for place in job.workers))[:1]
    return e.JobRequeued(job=job.id, reason=reason, not_before_ms=not_before_ms, failures=failures, avoid=avoid)


def job_arrives(world: Historian, at_ms: int) -> Effects:
    if len(world.state.jobs) >= LIVE_JOBS_MAX:
        return []
    workers = world.random.choice((1, 1, 1, 2, 3, 4, 6))
    is_elastic = world.random.random() < 0.4
    spec = JobSpec(
        id=world.name("job"),
        tenant=world.random.choice(TENANTS),
        priority=world.random.randint(-1, 1),
        pools=world.random.choice(((), (), ("train-a",), ("train-b", "train-a"))),
        gpu_type=world.random.choice((None, None, "a100")),
        workers=workers,
        workers_min=world.random.randint(1, workers) if is_elastic else None,
        gang=world.random.random() > 0.25,
        not_before_ms=at_ms + world.random.randrange(9_000) if world.random.random() < 0.1 else None,
        after=some_to_wait_for(world) if world.random.random() < 0.2 else (),
        run=world.random.choice(RUNS),
        resources=Resources(
            gpu_milli=world.random.choice(GPU_MILLIS),
            cpu_milli=world.random.choice((0, 1_000, 6_000)),
            memory_mib=world.random.choice((0, 500, 3_000)),
        ),
    )
    if world.random.random() < 0.1:
        return array_arrives(replace(spec, array=world.random.randint(1, 4)), at_ms, world.random.choice((None, 1)))
    arrived: Effects = [e.JobEnqueued(spec=spec, submit_ms=at_ms, digest=DIGEST)]
    return [*arrived, e.JobHeld(job=spec.id)] if world.random.random() < 0.1 else arrived


def array_arrives(spec: JobSpec, at_ms: int, most: int | None) -> Effects:
    elements = (
        replace(spec, id=f"{spec.id}.{index}", array_of=spec.id, array_index=index, array_max_running=most)
        for index in range(spec.array or 1)
    )
    return [e.JobEnqueued(spec=element, submit_ms=at_ms, digest=DIGEST) for element in elements]


def some_to_wait_for(world: Historian) -> tuple[Dependency, ...]:
    """Live ones, one that is over, one that nobody knows."""
    known = [*world.state.jobs, *world.state.arrays, *list(world.state.finished)[-2:], "nobody"]
    chosen = world.random.sample(known, min(len(known), world.random.choice((1, 1, 3))))
    return tuple(Dependency(job=each, when=world.random.choice(list(AfterWhen))) for each in chosen)


def waits_end(world: Historian, at_ms: int) -> Effects:
    """Whoever waits for nobody any more is ready, and is told of an end if others are awaited; for whom it ended badly,
    is cancelled.
    """
    state = world.state
    told = (follower for waited in state.ends_untold for follower in state.dependents[waited])
    job = state.jobs.get(world.one_of(sorted({*state.dependencies_resolved, *told})) or "")
    if job is None:
        return []
    because_of, over = breaker(state, job), ended(state, job)
    if because_of:
        return [e.JobCancelled(job=job.id, reason=CancelReason.DEPENDENCY_FAILED, because_of=because_of)]
    if over and (job.status is JobStatus.HELD or not is_ready(state, job) or world.random.random() < 0.2):
        return [e.WaitShortened(job=job.id, over=over[: world.random.choice((1, 3))])]
    return [e.JobReady(job=job.id)] if is_ready(state, job) and job.status is JobStatus.AWAITING else []


def job_starts(world: Historian, at_ms: int) -> Effects:
    waiting = [job for job in world.state.jobs.values() if job.status is JobStatus.QUEUED]
    arrays = world.state.arrays
    full = [array.id for array in arrays.values() if array.is_full]
    job = world.one_of(job for job in waiting if job.not_before_ms <= at_ms and job.spec.array_of not in full)
    if job is None:
        return []
    ranks = [rank for rank in range(job.spec.workers) if rank not in {*job.done, *paused_ranks(job, at_ms)}]
    count = world.random.randint(fewest_of(job), len(ranks)) if len(ranks) >= fewest_of(job) else 0
    places = find_places(world.state, job.spec, ranks[:count], world.random) if count else None
    if places is None:
        return [e.JobDeferred(job=job.id, code=another_code(world, job))]
    over = world.random.choice(("", "", *world.state.heads))
    started = e.JobStarted(
        job=job.id, attempt=job.attempt + 1, workers=places, backfilled=bool(over), backfilled_over=over
    )
    kept = job.id in world.state.reservations
    if job.id in world.state.rooms:
        return [e.RoomReleased(job=job.id, reason=ClearReason.STARTED), started]
    return [started, e.ReservationCleared(job=job.id, reason=ClearReason.STARTED)] if kept else [started]


def another_code(world: Historian, job: Job) -> PendingReason:
    return world.random.choice([code for code in PendingReason if code is not job.deferred])


def run_gets_on(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(*HOLDING)
    if job is None or not job.spec.gang:
        return []
    later = {
        RunStatus.STARTING: [RunStatus.RUNNING, RunStatus.FAILED],
        RunStatus.RUNNING: [RunStatus.FINISHED, RunStatus.STOPPED],
        RunStatus.STOPPING: [RunStatus.STOPPED],
    }
    node = world.random.choice(list(job.runs))
    status = world.one_of(later.get(job.runs[node], []))
    return [] if status is None else [e.RunObserved(job=job.id, attempt=job.attempt, node=node, status=status)]


def job_runs(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(JobStatus.STARTING)
    return [] if job is None else [e.JobRunning(job=job.id, attempt=job.attempt)]


def job_resizes(world: Historian, at_ms: int) -> Effects:
    running = [job for job in world.state.jobs.values() if job.status is JobStatus.RUNNING]
    job = world.one_of(job for job in running if job.spec.workers_min is not None and job.spec.gang)
    if job is None:
        return []
    ranks = [place.rank for place in job.workers]
    remove = world.random.sample(ranks, world.random.randint(0, len(ranks) - (job.spec.workers_min or 1)))
    room = job.spec.workers - len(ranks) + len(remove)
    unused = [rank for rank in range(job.spec.workers + 8) if rank not in ranks]
    add = find_places(world.state, job.spec, unused[: world.random.randint(0, max(0, room))], world.random)
    return [e.JobResizing(job=job.id, attempt=job.attempt, add=add or (), remove=tuple(sorted(remove)))]


def job_is_resized(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(JobStatus.RESIZING)
    if job is None:
        return []
    stay = [place for place in job.workers if place.rank not in job.leaving]
    return [e.JobResized(job=job.id, attempt=job.attempt, workers=(*stay, *job.joining))]


def workers_enter_or_leave(world: Historian, at_ms: int) -> Effects:
    going = [job for job in world.state.jobs.values() if job.status in (JobStatus.STARTING, JobStatus.RUNNING)]
    job = world.one_of(job for job in going if not job.spec.gang)
    if job is None:
        return []
    held = [place.rank for place in job.workers]
    staying = [rank for rank in held if rank not in job.leaving]
    remove = world.random.sample(staying, world.random.randint(0, len(staying)))
    room = job.spec.workers - len(job.done) - len(staying) + len(remove)
    closed = {*held, *job.done, *paused_ranks(job, at_ms)}
    unused = [rank for rank in range(job.spec.workers) if rank not in closed]
    most = unused[: world.random.randint(0, max(0, room))]
    found = find_places(world.state, job.spec, most, world.random) or ()
    add = tuple(replace(place, turn=job.turns + 1, since_ms=at_ms) for place in found)
    return [e.JobResizing(job=job.id, attempt=job.attempt, add=add, remove=tuple(sorted(remove)))]


def workers_settle(world: Historian, at_ms: int) -> Effects:
    job = world.one_of(job for job in world.state.jobs.values() if not job.spec.gang and job.status in HOLDING)
    if job is None:
        return []
    said: dict[str, list[int]] = {"joined": [], "done": [], "gone": []}
    for place in job.workers:
        is_starting = job.runs[str(place.rank)] is RunStatus.STARTING
        what = world.random.choice(("joined" if is_starting else "", "done", "gone", "", ""))
        said.get(what, []).append(place.rank)
    failures = job.failures + len(said["gone"])
    settled = e.WorkersSettled(
        job=job.id,
        attempt=job.attempt,
        joined=tuple(said["joined"]),
        done=tuple(said["done"]),
        gone=tuple(said["gone"]),
        failures=failures,
        losses=job.losses + 1,
        avoid=job.avoid,
        setbacks=tuple(
            Setback(rank=rank, until_ms=world.random.choice((0, at_ms + 500)), failures=world.random.randint(0, 2))
            for rank in sorted(said["gone"])
            if world.random.random() < 0.7
        ),
    )
    if len(said["done"]) + len(said["gone"]) < len(job.workers):
        return [settled]
    if job.status is JobStatus.STOPPING:
        return [settled, *job_has_stopped_of(world, job, at_ms)]
    if len(job.done) + len(said["done"]) == job.spec.workers:
        return [e.JobFinished(job=job.id, attempt=job.attempt)]
    again = e.JobRequeued(job=job.id, reason=RequeueReason.NO_WORKER_LEFT, not_before_ms=at_ms + 500, failures=failures)
    return [settled, again]


def job_stops(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(JobStatus.STARTING, JobStatus.RUNNING, JobStatus.RESIZING)
    if job is None:
        return []
    why = world.random.choice(list(StopReason))
    stop = e.JobStopping(job=job.id, attempt=job.attempt, why=why, for_whom="someone", grace_wall_ms=30_000)
    return [replace(stop, text="exit code 1")]


def job_is_cancelled_while_it_stops(world: Historian, at_ms: int) -> Effects:
    stopping = [job for job in world.state.jobs.values() if job.status is JobStatus.STOPPING]
    job = world.one_of(job for job in stopping if job.stop_why is not StopReason.CANCELLED)
    if job is None:
        return []
    return [e.JobStopping(job=job.id, attempt=job.attempt, why=StopReason.CANCELLED, grace_wall_ms=0)]


def job_has_stopped(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(JobStatus.STOPPING)
    return [] if job is None else job_has_stopped_of(world, job, at_ms)


def job_has_stopped_of(world: Historian, job: Job, at_ms: int) -> Effects:
    if job.stop_why is StopReason.CANCELLED:
        return [e.JobCancelled(job=job.id)]
    if job.stop_why is StopReason.RUN_TIME_LIMIT:
        return [e.JobFailed(job=job.id, reason=FailReason.RUN_TIME_LIMIT, text="ran too long")]
    preempted = e.JobPreempted(job=job.id, attempt=job.attempt, why=job.stop_why or StopReason.PRIORITY)
    return [preempted, requeue(job, RequeueReason.PREEMPTED, at_ms + world.random.randrange(4_000))]


def job_ends(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(JobStatus.RUNNING)
    if job is None:
        return []
    if world.random.random() < 0.2:
        return [requeue(job, RequeueReason.WORKER_FAILED, at_ms + 2_000)]
    return [e.JobFinished(job=job.id, attempt=job.attempt)]


def attempt_times_out(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(JobStatus.STARTING)
    if job is None:
        return []
    timed_out = e.AttemptTimedOut(job=job.id, attempt=job.attempt, what="start")
    return [timed_out, requeue(job, RequeueReason.START_TIMED_OUT, at_ms)]


def waiting_job_is_cancelled(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(*WAITING)
    return [] if job is None else [e.JobCancelled(job=job.id)]


def job_is_held_or_released(world: Historian, at_ms: int) -> Effects:
    job = world.job_in(*WAITING)
    if job is None:
        return []
    is_held = job.status is JobStatus.HELD
    return [e.JobReleased(job=job.id) if is_held else e.JobHeld(job=job.id)]


def job_is_updated(world: Historian, at_ms: int) -> Effects:
    job = world.one_of(world.state.jobs.values())
    if job is None:
        return []
    return [e.JobUpdated.of(replace(job.spec, priority=world.random.randint(-5, 5)))]


def request_is_refused(world: Historian, at_ms: int) -> Effects:
    return [
        e.JobRefused(job="nobody", request="CancelJob", code=RefuseCode.UNKNOWN_JOB),
        e.ProposalRefused(proposal="p-1", code=ProposalCode.DOES_NOT_HELP),
        e.InputResumed(input="queue-9", from_offset=world.state.inputs.get("queue-9", 0), to_offset=at_ms % 7),
        e.InputFenced(
            input="queue-8",
            from_offset=world.state.inputs.get("queue-8", 0),
            to_offset=at_ms % 7,
            checksum=at_ms % 5 or None,
        ),
    ]


def reservation_comes_or_goes(world: Historian, at_ms: int) -> Effects:
    kept = world.one_of(world.state.reservations)
    if kept is not None and world.random.random() < 0.5:
        return [e.ReservationCleared(job=kept, reason=ClearReason.REPLACED)]
    job = world.job_in(JobStatus.QUEUED)
    if job is None:
        return []
    places = find_places(world.state, job.spec, list(range(job.spec.workers)), world.random)
    return [] if places is None else [e.ReservationSet(job=job.id, workers=places, start_ms=at_ms + 60_000)]


def room_comes_or_goes(world: Historian, at_ms: int) -> Effects:
    """Room of free places and of such as others hold still."""
    state = world.state
    held = world.one_of(state.rooms)
    if held is not None and world.random.random() < 0.5:
        return [e.RoomReleased(job=held, reason=world.random.choice([*ClearReason]))]
    job = world.job_in(JobStatus.QUEUED)
    if job is None or job.id in state.rooms or not job.spec.gang or job.spec.exclusive:
        return []
    places = find_places(state, job.spec, list(range(job.spec.workers)), world.random)
    others = [place for other in state.jobs.values() for place in other.workers if not _has_room(state, place)]
    wants = job.spec.resources
    alike = [place for place in others if (place.gpu_milli, place.cpu_milli) == (wants.gpu_milli, wants.cpu_milli)]
    if len(alike) >= job.spec.workers and wants.gpu_milli >= GPU:
        taken = alike[: job.spec.workers]
        places = tuple(
            replace(place, rank=rank, memory_mib=wants.memory_mib, turn=0, since_ms=0)
            for rank, place in enumerate(taken)
        )
    if places is None:
        return []
    cause, until_ms = world.random.choice([*PreemptionCause]), at_ms + 60_000
    held_now = e.RoomHeld(job=job.id, cause=cause, workers=tuple(places), victims=1, until_ms=until_ms, proposal="p-1")
    return [held_now]


def _has_room(state: CellState, place: WorkerPlace) -> bool:
    node = state.nodes[place.node]
    return bool(node.room & sum(1 << device for device in place.devices))


def head_comes_or_goes(world: Historian, at_ms: int) -> Effects:
    head = world.one_of(world.state.heads)
    if head is not None and world.random.random() < 0.5:
        return [e.HeadCleared(job=head)]
    job = world.job_in(JobStatus.QUEUED)
    return [] if job is None or job.id in world.state.heads else [e.HeadBlocked(job=job.id)]


def loan_moves(world: Historian, at_ms: int) -> Effects:
    node = world.one_of(node for node in world.state.nodes.values() if node.spec.role is NodeRole.INFERENCE)
    return [] if node is None else loan_step(world, node, at_ms)


def loan_step(world: Historian, node: Node, at_ms: int) -> Effects:
    if node.loan is None:
        lent = e.NodeLent(node=node.id, loan=world.name("loan"), to_pool="train-a", deadline_ms=at_ms + 90_000)
        return [] if node.is_used else [lent]
    if node.loan_status is LoanStatus.LENT and world.random.random() < 0.3:
        return [e.NodeLoanDraining(node=node.id, loan=node.loan, deadline_ms=at_ms + 30_000)]
    is_empty = not node.is_used and node.loan_status is LoanStatus.DRAINING
    return [e.NodeReclaimed(node=node.id, loan=node.loan)] if is_empty else []


def quota_is_removed(world: Historian, at_ms: int) -> Effects:
    """One that no job that lives needs, and no tenant below it."""
    state = world.state
    parents = {(quota.parent, quota.gpu_type) for quota in state.quotas.values()}
    tenants = {job.spec.tenant for job in state.jobs.values()}
    free = [account for account in sorted(state.quotas) if account not in parents and account[0] not in tenants]
    account = world.one_of(iter(free))
    return [] if account is None else [e.QuotaRemoved(tenant=account[0], gpu_type=account[1])]


def quota_is_set(world: Historian, at_ms: int) -> Effects:
    """Any limit, also one below what is in use: nobody is evicted by it."""
    limit = world.random.choice((None, 4_000, 16_000, 40_000))
    quota = Quota(
        tenant=world.random.choice(TENANTS + PARENTS),
        gpu_type=world.random.choice(("a100", "h100")),
        guaranteed_milli=world.random.choice((0, 0, 2_000, 4_000)),
        limit_milli=limit,
        lends=world.random.random() < 0.8,
        borrows=world.random.random() < 0.8,
        parent=world.random.choice((None, *PARENTS)),
        borrow_limit_milli=world.random.choice((None, None, 3_000, 12_000)),
        lend_limit_milli=world.random.choice((None, None, 1_000)),
    )
    is_right = contradiction(world.state.quotas, quota) is None
    return [e.QuotaSet(quota=quota, of_file=world.random.random() < 0.5)] if is_right else []


def policy_is_set(world: Historian, at_ms: int) -> Effects:
    finished_jobs_max, finished_jobs_ttl_ms = (
        world.random.choice((2, 20, 1000)),
        world.random.choice((5_000, 1_000_000)),
    )
    most, half_life_ms = world.random.choice((0, 1, 4)), world.random.choice((0, 10, 500, 100_000))
    policy = CellPolicy(
        finished_jobs_max=finished_jobs_max,
        finished_jobs_ttl_ms=finished_jobs_ttl_ms,
        max_unacknowledged_starts_per_node=most,
        fair_half_life_ms=half_life_ms,
        estimator=world.random.choice((*EstimatorKind, EstimatorKind.LEARNED)),
    )
    return [e.PolicySet(policy=policy)]


def log_is_repaired(world: Historian, at_ms: int) -> Effects:
    return [e.LogRepaired(by="ada", good_until=world.state.offset + 1, end=world.state.offset + 1)]


def cell_file_is_set(world: Historian, at_ms: int) -> Effects:
    return [e.CellFileSet(digest=f"{world.random.randrange(16**32):032x}", content="{}")]


def writer_takes_over(world: Historian, at_ms: int) -> Effects:
    return [e.WriterStarted(epoch=world.state.epoch + world.random.randint(1, 3), writer="placement-2")]


MOVES: dict[Callable[[Historian, int], Effects], int] = {
    node_arrives: 8,
    node_changes: 5,
    maintenance_moves: 3,
    device_changes: 4,
    lease_expires: 2,
    node_falls_silent_or_speaks: 4,
    jobs_fail_on_a_node: 2,
    lost_node_is_forgotten: 2,
    evictions_are_held_or_resumed: 2,
    job_arrives: 25,
    waits_end: 20,
    job_starts: 30,
    run_gets_on: 6,
    job_runs: 15,
    job_resizes: 8,
    job_is_resized: 8,
    workers_enter_or_leave: 8,
    workers_settle: 10,
    job_stops: 6,
    job_is_cancelled_while_it_stops: 1,
    job_has_stopped: 14,
    job_ends: 6,
    attempt_times_out: 1,
    waiting_job_is_cancelled: 2,
    job_is_held_or_released: 4,
    job_is_updated: 3,
    request_is_refused: 1,
    reservation_comes_or_goes: 4,
    room_comes_or_goes: 6,
    head_comes_or_goes: 4,
    loan_moves: 8,
    quota_is_set: 4,
    quota_is_removed: 1,
    policy_is_set: 1,
    cell_file_is_set: 1,
    log_is_repaired: 1,
    writer_takes_over: 1,
}
"""Every move, and how often it is tried."""
