"""What the effects on jobs do to a state, and when they are refused."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Any, Never

from fallow.shared.cluster.capacity.constraints import must_not_run
from fallow.shared.cluster.fold.allocation import release, take
from fallow.shared.cluster.fold.errors import IllegalEffect, require
from fallow.shared.cluster.fold.finished_jobs import is_digest
from fallow.shared.cluster.fold.rooms import let_go
from fallow.shared.cluster.fold.spec_interning import share
from fallow.shared.cluster.model import arrays, dependencies
from fallow.shared.cluster.model.independent_workers import fewest_of, may_start_ms, paused_ranks, starting
from fallow.shared.cluster.model.job import HOLDING, NO_RUNS, WAITING, Job, JobStatus, attempt_of, resume
from fallow.shared.cluster.model.spec_bytes import spec_bytes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.run_times.learning import learn
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind, LoanStatus, NodeStatus, RunStatus, WorkerPlace
from fallow.shared.events.operations import EstimatorKind
from fallow.shared.events.reasons import STOPPED_FOR, StopReason

# To look up a member of an enumeration costs more than most of what is done with it here.
_QUEUED, _STARTING, _RUNNING = JobStatus.QUEUED, JobStatus.STARTING, JobStatus.RUNNING
_FINISHED = JobStatus.FINISHED
_LEARNED = EstimatorKind.LEARNED
_RANK, _NODE = attrgetter("rank"), attrgetter("node")
_YIELDING = frozenset(STOPPED_FOR.values())
_RESOURCES = attrgetter("gpu_milli", "cpu_milli", "memory_mib")
_READY, _DRAINING = NodeStatus.READY, LoanStatus.DRAINING
_STARTING_RUN, _RUNNING_RUN = RunStatus.STARTING, RunStatus.RUNNING


def job_of(state: CellState, job_id: str) -> Job:
    """The job that waits or runs under this id; refuses the effect if there is none."""
    job = state.jobs.get(job_id)
    if job is None:
        raise IllegalEffect(f"job {job_id} neither waits nor runs")
    return job


def current(state: CellState, effect: e.AttemptEffect) -> Job:
    """The job of an effect on its current attempt."""
    job = state.jobs.get(effect.job)
    if job is None:
        return job_of(state, effect.job)
    if job.attempt != effect.attempt:
        raise IllegalEffect(f"job {job.id} is at attempt {job.attempt}, not {effect.attempt}")
    return job


def in_status(job: Job, *allowed: JobStatus) -> None:
    """Refuse the effect unless the job is in one of these."""
    if job.status not in allowed:
        raise IllegalEffect(f"job {job.id} is {job.status}, not {' or '.join(allowed)}")


def enqueued(state: CellState, effect: e.JobEnqueued, at_ms: int) -> None:
    """A new job waits."""
    job_id, jobs = effect.spec.id, state.jobs
    if job_id in jobs or job_id in state.finished or job_id in state.arrays:
        raise IllegalEffect(f"job {job_id} exists already")
    if not is_digest(effect.digest):
        raise IllegalEffect(f"job {job_id}: {effect.digest!r} is no digest")
    share(state.kinds, effect.spec)
    state.undo_log.entries.append((dict.pop, jobs, job_id, None))
    job = jobs[job_id] = Job(effect.spec, effect.submit_ms, effect.digest, sent_ms=effect.sent_ms)
    state.entered += 1
    job.number = state.entered
    spec = effect.spec
    job.spec_bytes = spec_bytes(spec)
    _count(state, spec.tenant, 1, job.spec_bytes)
    if spec.not_before_ms is not None:
        job.not_before_ms = spec.not_before_ms
    if spec.array_of is not None:
        arrays.enter(state, job)
    if spec.after:
        dependencies.enter(state, job)
    if state.dependents:
        dependencies.drop_strangers(state, job_id, spec.tenant)
        if spec.array_of is not None and spec.array_index == 0:
            dependencies.drop_strangers(state, spec.array_of, spec.tenant)


def _count(state: CellState, tenant: str, waiting: int, text_bytes: int = 0) -> None:
    """So many more of this tenant's jobs wait, or fewer, and the specifications of its live ones take so many bytes
    more, or fewer.
    """
    entries = state.undo_log.entries
    if waiting:
        state.waiting += waiting
        of, before = state.waiting_of, state.waiting_of.get(tenant, 0)
        entries.append((_count_again, of, tenant, before))
        _count_again(of, tenant, before + waiting)
    if text_bytes:
        state.live_bytes += text_bytes
        of, before = state.live_bytes_of, state.live_bytes_of.get(tenant, 0)
        entries.append((_count_again, of, tenant, before))
        _count_again(of, tenant, before + text_bytes)


def _count_again(of: dict[str, int], tenant: str, count: int) -> None:
    """A tenant that has none is not kept."""
    if count:
        of[tenant] = count
    else:
        of.pop(tenant, None)


def updated(state: CellState, effect: e.JobUpdated, at_ms: int) -> None:
    """What may be changed of a job is changed, and that has no texts. What holds places keeps its shape."""
    job = job_of(state, effect.job)
    require(effect.tenant == job.spec.tenant, f"job {job.id} belongs to {job.spec.tenant}")
    fewest, most = effect.workers_min or effect.workers, effect.workers
    require(fewest <= most, f"job {job.id} has {most} workers, fewer than {fewest}")
    if job.status in HOLDING and job.spec.gang:
        require(fewest <= len(job.workers), f"job {job.id} runs with {len(job.workers)} workers, fewer than {fewest}")
    spec = effect.applied_to(job.spec)
    share(state.kinds, spec)
    if spec.max_run_ms != job.spec.max_run_ms:
        _ends_otherwise(state, job)
    state.undo_log.set(job, "spec", spec)
    if job.attempt and not job.spec.gang and job.status in WAITING:
        # With more or fewer replicas than before it may start once others of its ranks have waited out their pauses.
        state.undo_log.set(job, "not_before_ms", may_start_ms(job, at_ms))


def _ends_otherwise(state: CellState, job: Job) -> None:
    """When the job will be over is estimated anew: indices over its nodes that go by it are told so."""
    nodes, noted, undo = state.nodes, state.capacity.noted, state.undo_log.entries
    for node_id in dict.fromkeys([place.node for place in job.workers + job.joining]):
        undo.append((dict.__setitem__, noted, node_id, nodes[node_id]))
        noted[node_id] = nodes[node_id]


def started(state: CellState, effect: e.JobStarted, at_ms: int) -> None:
    """A gang takes all its places at once."""
    job = state.jobs.get(effect.job)
    if job is None or job.status is not _QUEUED or job.attempt + 1 != effect.attempt or job.not_before_ms > at_ms:
        _refuse_start(state, effect)
    workers = effect.workers
    if state.rooms and effect.job in state.rooms:
        raise IllegalEffect(f"job {job.id} starts while room is still held for it")
    _is_whole(job, workers, at_ms)
    if job.spec.array_of is not None:
        _count_started(state, job)
    are_allowed_there(state, job, workers)
    refusal = take(state, job.spec.tenant, effect.job, workers)
    if refusal is not None:
        raise IllegalEffect(f"job {job.id}: {refusal}")
    before = (
        job.started_ms, job.running_ms, job.first_start_ms, job.deferred, job.backfilled, job.backfilled_over,
    )  # fmt: skip
    state.undo_log.entries.append((_unstart, job, (job.status, job.attempt, job.workers, job.runs), before))
    if job.spec.gang:
        # What the nodes of these places have to say at first. Most jobs have one worker.
        is_one = len(workers) == 1
        job.runs = {workers[0].node: _STARTING_RUN} if is_one else dict.fromkeys(map(_NODE, workers), _STARTING_RUN)
    else:
        job.runs = starting(workers)
        state.undo_log.put(state.independent_jobs, effect.job, None)
    job.workers = workers
    job.attempt = effect.attempt
    job.status = _STARTING
    job.started_ms = at_ms
    job.running_ms = None
    job.deferred = None
    job.backfilled = effect.backfilled
    job.backfilled_over = effect.backfilled_over
    if job.first_start_ms is None:
        job.first_start_ms = at_ms
    _count(state, job.spec.tenant, -1)
    if state.heads or state.first_plans:
        _no_head(state, effect.job)
    if state.unacknowledged is not None:
        state.unacknowledged.enter(state, job)


def _count_started(state: CellState, job: Job) -> None:
    array = state.arrays[job.spec.array_of or ""]
    if array.is_full:
        raise IllegalEffect(f"job {job.id}: {array.holding} elements of array {array.id} run, and no more may")
    arrays.hold(state, array.id, 1)


def _unstart(job: Job, old: tuple[Any, ...], older: tuple[Any, ...]) -> None:
    """Put back what `started` changes."""
    job.status, job.attempt, job.workers, job.runs = old
    (
        job.started_ms, job.running_ms, job.first_start_ms, job.deferred, job.backfilled, job.backfilled_over,
    ) = older  # fmt: skip


def _refuse_start(state: CellState, effect: e.JobStarted) -> Never:
    job = job_of(state, effect.job)
    in_status(job, JobStatus.QUEUED)
    if effect.attempt != job.attempt + 1:
        raise IllegalEffect(f"job {job.id}: attempt {effect.attempt} follows {job.attempt}")
    raise IllegalEffect(f"job {job.id} may not start before {job.not_before_ms}")


def _is_whole(job: Job, workers: tuple[WorkerPlace, ...], at_ms: int) -> None:
    """I3: so many workers as the job can run with, each with what it needs, ranks 0 to n - 1."""
    spec = job.spec
    fewest = (spec.workers_min or spec.workers) if spec.gang else fewest_of(job)
    if not fewest <= len(workers) <= spec.workers:
        raise IllegalEffect(f"job {job.id} needs {fewest} to {spec.workers} workers, not {len(workers)}")
    if not spec.gang:
        _begin_singly(job, workers, at_ms)
        return
    if len(workers) == 1:  # as most gangs are: to make lists costs more than to look at one
        place, wanted = workers[0], spec.resources
        if place.rank:
            raise IllegalEffect(f"job {job.id}: rank {place.rank} stands where 0 belongs")
        is_what_it_wants = place.gpu_milli == wanted.gpu_milli and place.cpu_milli == wanted.cpu_milli
        if is_what_it_wants and place.memory_mib == wanted.memory_mib:
            return
    ranks = list(map(_RANK, workers))
    if ranks != _first_ranks(len(ranks)):
        wrong, rank = next((each, at) for at, each in enumerate(ranks) if each != at)
        raise IllegalEffect(f"job {job.id}: rank {wrong} stands where {rank} belongs")
    get_what_they_asked_for(job, workers)


@lru_cache(maxsize=256)
def _first_ranks(many: int) -> list[int]:
    """The ranks of so many workers."""
    return list(range(many))


def _begin_singly(job: Job, workers: tuple[WorkerPlace, ...], at_ms: int) -> None:
    """The workers of a job that is no gang have any ranks whose work is not done, in their order."""
    get_what_they_asked_for(job, workers)
    ranks = [place.rank for place in workers]
    require(ranks == sorted(set(ranks)), f"job {job.id} starts with ranks {ranks}")
    require(not set(ranks).intersection(job.done), f"job {job.id} starts a rank whose work is done")
    require(not set(ranks).intersection(paused_ranks(job, at_ms)), f"job {job.id} waits with such a rank at {at_ms}")
    require(len(ranks) <= job.spec.workers - len(job.done), f"job {job.id} starts more workers than have still to run")
    require(all(place.turn == 0 for place in workers), f"job {job.id} starts: no worker enters later")


def get_what_they_asked_for(job: Job, workers: tuple[WorkerPlace, ...]) -> None:
    """Refuse places with other resources than each worker needs."""
    wanted = _RESOURCES(job.spec.resources)
    given = list(map(_RESOURCES, workers))
    if given.count(wanted) != len(given):
        rank = next(place.rank for place in workers if _RESOURCES(place) != wanted)
        raise IllegalEffect(f"job {job.id}: worker {rank} gets other resources than it asked for")


def are_allowed_there(state: CellState, job: Job, workers: tuple[WorkerPlace, ...]) -> None:
    """Refuse places on nodes that take nothing new, or not this job."""
    nodes, pools, gpu_type = state.nodes, job.spec.pools, job.spec.gpu_type
    is_picky = job.spec.node_labels or job.spec.exclusive
    before: str | None = None
    for place in workers:
        if place.node == before:
            continue  # the workers of a gang come node by node
        before = place.node
        node = nodes.get(before)
        if node is None:
            raise IllegalEffect(f"node {place.node} does not exist")
        if node.status is not _READY or node.loan_status is _DRAINING:
            raise IllegalEffect(f"node {node.id} is {node.status} and takes nothing new")
        if node.silent_wall_ms:
            raise IllegalEffect(f"node {node.id} is silent and takes nothing new")
        if node.offered is not None:
            raise IllegalEffect(f"node {node.id} has other hardware than before and takes nothing new yet")
        if pools and (node.lent_to or node.spec.pool) not in pools:
            raise IllegalEffect(f"job {job.id} does not accept pool {node.pool}")
        if gpu_type is not None and gpu_type != node.spec.gpu_type:
            raise IllegalEffect(f"job {job.id} needs {gpu_type}, node {node.id} has {node.spec.gpu_type}")
        if is_picky or node.alone is not None or node.spec.taints:
            why = must_not_run(node, job.spec)
            if why is not None:
                raise IllegalEffect(f"job {job.id} may not run on node {node.id}, {why}")


_NUMBER = attrgetter("number")
_ORDER = {RunStatus.STARTING: 0, RunStatus.RUNNING: 1, RunStatus.STOPPING: 1}


def run_observed(state: CellState, effect: e.RunObserved, at_ms: int) -> None:
    """One node's run got on."""
    job = current(state, effect)
    in_status(job, *HOLDING)
    before = job.runs.get(effect.node)
    if before is None:
        raise IllegalEffect(f"job {job.id} has no run on node {effect.node}")
    if _ORDER.get(effect.status, 2) <= _ORDER.get(before, 2):
        raise IllegalEffect(f"a run that is {before} does not become {effect.status}")
    if state.unacknowledged is not None:
        state.unacknowledged.confirm(state, job, effect.node)
    state.undo_log.put(job.runs, effect.node, effect.status)


def running(state: CellState, effect: e.JobRunning, at_ms: int) -> None:
    """The gang is whole."""
    job, undo = current(state, effect), state.undo_log.entries
    if job.status is not _STARTING:
        in_status(job, _STARTING)
    if state.unacknowledged is not None and job.spec.gang:
        state.unacknowledged.leave(state, job)
    runs = job.runs
    were_starting = [node for node, status in runs.items() if status is _STARTING_RUN] if job.spec.gang else []
    undo.append((_start_again, job, were_starting, job.running_ms))
    for node in were_starting:
        runs[node] = _RUNNING_RUN
    job.status = _RUNNING
    job.running_ms = at_ms


def _start_again(job: Job, starting: list[str], running_ms: int | None) -> None:
    """Put back what `running` changes."""
    job.status, job.running_ms = _STARTING, running_ms
    for node in starting:
        job.runs[node] = _STARTING_RUN


def resizing(state: CellState, effect: e.JobResizing, at_ms: int) -> None:
    """The attempt takes further places, and keeps those that it shall leave until it has left them."""
    job, journal = current(state, effect), state.undo_log
    in_status(job, JobStatus.RUNNING)
    _keeps_a_gang(job, effect)
    get_what_they_asked_for(job, effect.add)
    are_allowed_there(state, job, effect.add)
    refusal = take(state, job.spec.tenant, job.id, effect.add)
    if refusal is not None:
        raise IllegalEffect(f"job {job.id}: {refusal}")
    if state.unacknowledged is not None:
        state.unacknowledged.leave(state, job)
    for place in effect.add:
        if job.runs.get(place.node) is None:
            journal.put(job.runs, place.node, RunStatus.STARTING)
    journal.set(job, "joining", effect.add)
    journal.set(job, "leaving", effect.remove)
    journal.set(job, "status", JobStatus.RESIZING)
    if state.unacknowledged is not None:
        state.unacknowledged.enter(state, job)


def _keeps_a_gang(job: Job, effect: e.JobResizing) -> None:
    """I3: ranks stay unique, and what is left is a number of workers that the job can run with."""
    ranks = {place.rank for place in job.workers}
    removed = set(effect.remove)
    require(len(removed) == len(effect.remove) and removed <= ranks, f"job {job.id} has no such rank to remove")
    added = {place.rank for place in effect.add}
    require(len(added) == len(effect.add) and not added & ranks, f"job {job.id} has a worker of an added rank already")
    fewest, left = job.spec.workers_min or job.spec.workers, len(ranks) - len(removed) + len(added)
    require(fewest <= left, f"job {job.id} needs {fewest} workers, {left} would be left")
    require(not added or left <= job.spec.workers, f"job {job.id} wants {job.spec.workers} workers, not {left}")


def resized(state: CellState, effect: e.JobResized, at_ms: int) -> None:
    """The attempt holds exactly these of its places."""
    job, journal = current(state, effect), state.undo_log
    in_status(job, JobStatus.RESIZING)
    held = job.workers + job.joining
    kept = {place.rank: place for place in effect.workers}
    by_rank = {place.rank: place for place in held}
    require(
        len(kept) == len(effect.workers) and all(by_rank.get(rank) == place for rank, place in kept.items()),
        f"job {job.id} does not hold all of these places",
    )
    fewest = job.spec.workers_min or job.spec.workers
    require(fewest <= len(kept), f"job {job.id} needs {fewest} workers, {len(kept)} would be left")
    if state.unacknowledged is not None:
        state.unacknowledged.leave(state, job)
    release(state, job.spec.tenant, job.id, tuple(place for place in held if place.rank not in kept))
    journal.set(job, "runs", {place.node: _ran_on(job.runs[place.node]) for place in effect.workers})
    journal.set(job, "workers", effect.workers)
    journal.set(job, "joining", ())
    journal.set(job, "leaving", ())
    journal.set(job, "status", JobStatus.RUNNING)


def _ran_on(status: RunStatus) -> RunStatus:
    """Who resizes is running: a node that was still starting has started."""
    return RunStatus.RUNNING if status is RunStatus.STARTING else status


def stopping(state: CellState, effect: e.JobStopping, at_ms: int) -> None:
    """The attempt shall stop. Only a cancel may overtake another reason."""
    job, journal = current(state, effect), state.undo_log
    if job.status is JobStatus.STOPPING:
        require(
            effect.why is StopReason.CANCELLED and job.stop_why is not effect.why, f"job {job.id} is stopping already"
        )
    else:
        in_status(job, JobStatus.STARTING, JobStatus.RUNNING, JobStatus.RESIZING)
    _ends_otherwise(state, job)
    journal.set(job, "status", JobStatus.STOPPING)
    journal.set(job, "stop_why", effect.why)
    journal.set(job, "stop_for", effect.for_whom)
    journal.set(job, "stop_text", effect.text)
    journal.set(job, "stop_grace_wall_ms", effect.grace_wall_ms)
    journal.set(job, "stopping_ms", at_ms)
    journal.set(job, "avoid", effect.avoid)
    if effect.why in _YIELDING and effect.for_whom:
        # Those that live no more ask for nothing again: so the list stays short.
        journal.set(job, "yielded_to", (*(each for each in job.yielded_to if each in state.jobs), effect.for_whom))


def preempted(state: CellState, effect: e.JobPreempted, at_ms: int) -> None:
    """The attempt has made room."""
    job = current(state, effect)
    in_status(job, JobStatus.STOPPING)
    _give_back(state, job)
    state.undo_log.set(job, "preemptions", job.preemptions + 1)
    state.undo_log.set(job, "status", JobStatus.PREEMPTED)


def requeued(state: CellState, effect: e.JobRequeued, at_ms: int) -> None:
    """The job waits again."""
    job, journal = job_of(state, effect.job), state.undo_log
    in_status(job, *HOLDING, JobStatus.PREEMPTED)
    _give_back(state, job)
    journal.set(job, "failures", effect.failures)
    journal.set(job, "losses", effect.losses)
    journal.set(job, "avoid", effect.avoid)
    journal.set(job, "not_before_ms", effect.not_before_ms)
    journal.set(job, "status", JobStatus.QUEUED)
    _count(state, job.spec.tenant, 1)


def _give_back(state: CellState, job: Job) -> None:
    if job.workers or job.joining or job.id in state.independent_jobs:
        if state.unacknowledged is not None:
            state.unacknowledged.leave(state, job)
        if job.spec.array_of is not None:
            arrays.hold(state, job.spec.array_of, -1)
        if state.independent_jobs and job.id in state.independent_jobs:
            state.undo_log.drop(state.independent_jobs, job.id)
        release(state, job.spec.tenant, job.id, job.workers + job.joining)
    state.undo_log.entries.append((resume, job, None, attempt_of(job)))
    job.workers = job.joining = job.leaving = ()
    job.runs = NO_RUNS
    job.started_ms = job.running_ms = job.stop_why = None
    job.stop_for, job.stop_text, job.stop_grace_wall_ms, job.stopping_ms = "", "", 0, None
    job.backfilled, job.backfilled_over = False, ""
    job.turns = 0


def finished(state: CellState, effect: e.JobFinished, at_ms: int) -> None:
    """The job ended well."""
    job = current(state, effect)
    if job.status not in HOLDING:
        in_status(job, *HOLDING)
    _end(state, job, _FINISHED, at_ms)


def failed(state: CellState, effect: e.JobFailed, at_ms: int) -> None:
    """The job ended badly."""
    job = job_of(state, effect.job)
    in_status(job, *HOLDING)
    _end(state, job, JobStatus.FAILED, at_ms)


def cancelled(state: CellState, effect: e.JobCancelled, at_ms: int) -> None:
    """The job ended by its tenant's wish: at once while it waits, else when it has stopped."""
    job = job_of(state, effect.job)
    in_status(job, *WAITING, JobStatus.STOPPING)
    _end(state, job, JobStatus.CANCELLED, at_ms)


def _end(state: CellState, job: Job, status: JobStatus, at_ms: int) -> None:
    undo, spec, over = state.undo_log.entries, job.spec, state.finished
    _learn(state, job, at_ms)
    _count(state, spec.tenant, -1 if job.status in WAITING else 0, -job.spec_bytes)
    if job.workers or (state.independent_jobs and spec.id in state.independent_jobs):
        if state.unacknowledged is not None:
            state.unacknowledged.leave(state, job)
        release(state, spec.tenant, spec.id, job.workers + job.joining if job.joining else job.workers)
        if state.independent_jobs and spec.id in state.independent_jobs:
            state.undo_log.drop(state.independent_jobs, spec.id)
        if spec.array_of is not None:
            arrays.hold(state, spec.array_of, -1)
    if spec.after and (job.waits_for or spec.id in state.dependencies_resolved):
        dependencies.leave(state, job)
    if state.undo_log.is_first_of(state.jobs):
        undo.append((_put_in_order, state.jobs, None, None))
    undo.append((dict.__setitem__, state.jobs, spec.id, job))
    del state.jobs[spec.id]
    if spec.id in state.reservations:
        state.undo_log.drop(state.reservations, spec.id)
    if state.rooms and spec.id in state.rooms:
        let_go(state, job)
    if state.heads or state.first_plans:
        _no_head(state, spec.id)
    over.add(undo, spec.id, spec.tenant, job.digest, status, at_ms, job.came_ms)
    if state.dependents:
        dependencies.end(state, spec.id)
    if spec.array_of is not None:
        _leave_array(state, spec.array_of, status, at_ms)
    _forget(state, at_ms)


def _learn(state: CellState, job: Job, at_ms: int) -> None:
    """How long the job ran tells of others, where the cell goes by that."""
    if state.policy.estimator is _LEARNED and job.started_ms is not None and job.spec.kind is not JobKind.INFERENCE:
        learn(state, job.spec, at_ms - job.started_ms)


def _put_in_order(jobs: dict[str, Job], _: None, __: None) -> None:
    """The jobs stand as they came, also those that are put back. Their numbers tell: with each job that ends to note
    the ids of all would cost too much.
    """
    for job in sorted(jobs.values(), key=_NUMBER):
        jobs[job.spec.id] = jobs.pop(job.spec.id)


def _leave_array(state: CellState, array_id: str, status: JobStatus, at_ms: int) -> None:
    """An element is over. With the last one the array is, which is remembered as a job would be."""
    array = arrays.leave(state, array_id, status)
    if array is not None:
        undo, outcome = state.undo_log.entries, array.outcome
        state.finished.add(undo, array.id, array.tenant, array.digest, outcome, at_ms, array.came_ms)
        dependencies.end(state, array.id)


def _forget(state: CellState, at_ms: int) -> None:
    """Remember a bounded number of jobs for a bounded time; at most two are forgotten per job that ends, so that no
    step is long. One is remembered until all who wait for it know that it is over.
    """
    over, policy = state.finished, state.policy
    too_old_ms, jobs_max = at_ms - policy.finished_jobs_ttl_ms, policy.finished_jobs_max
    for _ in range(2):
        remembered = over.next - over.first
        if not remembered or (over.oldest_ms >= too_old_ms and remembered <= jobs_max):
            return
        if state.ends_untold and over.id_of(over.first) in state.ends_untold:
            return
        over.forget(state.undo_log.entries)


def timed_out(state: CellState, effect: e.AttemptTimedOut, at_ms: int) -> None:
    """Said for the audit trail; what follows from it are effects of their own. A late stop is awaited no more."""
    job = current(state, effect)
    in_status(job, *HOLDING)
    if effect.what == "stop" and job.stopping_ms is not None:
        state.undo_log.set(job, "stopping_ms", None)


def deferred(state: CellState, effect: e.JobDeferred, at_ms: int) -> None:
    """A waiting job has a new reason to wait."""
    job = job_of(state, effect.job)
    in_status(job, *WAITING)
    require(job.deferred is not effect.code, f"job {job.id} waits for {effect.code} already")
    state.undo_log.set(job, "deferred", effect.code)


def held(state: CellState, effect: e.JobHeld, at_ms: int) -> None:
    """A waiting job may not start. One that no person holds may be held by a person, too: from then on it is theirs."""
    job = job_of(state, effect.job)
    if not (job.held_why and not effect.reason):
        in_status(job, JobStatus.QUEUED, JobStatus.AWAITING)
    state.undo_log.set(job, "status", JobStatus.HELD)
    state.undo_log.set(job, "held_why", effect.reason)
    _no_head(state, job.id)
    if not job.broken_by:
        dependencies.forget_ripe(state, job)


def released(state: CellState, effect: e.JobReleased, at_ms: int) -> None:
    """A held job may start again, when what it waits for is over."""
    job = job_of(state, effect.job)
    in_status(job, JobStatus.HELD)
    state.undo_log.set(job, "held_why", "")
    is_ready = dependencies.is_ready(state, job)
    if is_ready:
        dependencies.leave(state, job)
    state.undo_log.set(job, "status", JobStatus.QUEUED if is_ready else JobStatus.AWAITING)


def ready(state: CellState, effect: e.JobReady, at_ms: int) -> None:
    """A job has nobody to wait for any more."""
    job = job_of(state, effect.job)
    in_status(job, JobStatus.AWAITING)
    require(dependencies.is_ready(state, job), f"job {job.id} still waits for {', '.join(job.waits_for)}")
    dependencies.leave(state, job)
    state.undo_log.set(job, "status", JobStatus.QUEUED)


def wait_shortened(state: CellState, effect: e.WaitShortened, at_ms: int) -> None:
    """A job is told of ends, and goes on waiting."""
    job = job_of(state, effect.job)
    in_status(job, JobStatus.AWAITING, JobStatus.HELD)
    ended = dependencies.ended(state, job)
    for job_id in effect.over:
        require(job_id in ended, f"job {job.id} does not wait for {job_id}, or that one is not over")
    require(len(set(effect.over)) == len(effect.over) > 0, f"job {job.id} is told of {len(effect.over)} ends")
    require(not dependencies.breaker(state, job), f"job {job.id} can never be ready")
    dependencies.shorten(state, job, effect.over)
    if job.status is JobStatus.AWAITING and not job.waits_for:
        state.undo_log.put(state.dependencies_resolved, job.id, None)


def reservation_set(state: CellState, effect: e.ReservationSet, at_ms: int) -> None:
    """Places are kept for a waiting job."""
    job = job_of(state, effect.job)
    in_status(job, JobStatus.QUEUED)
    for place in effect.workers:
        require(place.node in state.nodes, f"node {place.node} does not exist")
    state.undo_log.put(state.reservations, job.id, effect)
    if effect.workers and effect.first_ms is not None and job.id not in state.first_plans:
        state.undo_log.put(state.first_plans, job.id, effect.first_ms)


def reservation_cleared(state: CellState, effect: e.ReservationCleared, at_ms: int) -> None:
    """Nothing is kept for a job any more."""
    require(effect.job in state.reservations, f"job {effect.job} has no reservation")
    state.undo_log.drop(state.reservations, effect.job)


def head_blocked(state: CellState, effect: e.HeadBlocked, at_ms: int) -> None:
    """A waiting job is the first that does not fit, from now on."""
    in_status(job_of(state, effect.job), JobStatus.QUEUED)
    require(effect.job not in state.heads, f"job {effect.job} is a head already")
    state.undo_log.put(state.heads, effect.job, at_ms)


def head_cleared(state: CellState, effect: e.HeadCleared, at_ms: int) -> None:
    """Another job came before it."""
    require(effect.job in state.heads, f"job {effect.job} is no head")
    state.undo_log.drop(state.heads, effect.job)


def _no_head(state: CellState, job_id: str) -> None:
    """Who starts, is held or is over is waited for no more, and another plan would be a first one."""
    if job_id in state.heads:
        state.undo_log.drop(state.heads, job_id)
    if job_id in state.first_plans:
        state.undo_log.drop(state.first_plans, job_id)


def nothing(state: CellState, effect: e.Effect, at_ms: int) -> None:
    """An effect that only tells."""
