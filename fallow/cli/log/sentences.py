"""Decisions in plain English: one sentence for each kind of effect, so that the log can be read as a story."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fallow.cli.output.counts import counted
from fallow.cli.output.durations import duration, moment, setting, window
from fallow.cli.quota.words import quota_rules
from fallow.shared.client.port import is_of_a_stranger
from fallow.shared.cluster.model.file_in_force import refuses_file
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.lease import patience_ms
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.job_ids import parted
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, RunStatus, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.operations import CellPolicy, Quota, claimed
from fallow.shared.events.reasons import CancelReason, ClearReason, FailReason, RefuseCode, RequeueReason

NODES_NAMED_MAX = 4

_WEIGHT = Quota(tenant="any", gpu_type="any").weight
"""The weight of a quota that names none."""

CLEARED = {
    ClearReason.STARTED: "it has started",
    ClearReason.REPLACED: "the newest plan names no start for it",
    ClearReason.NODES_GONE: "nodes that were kept for it take no new work",
    ClearReason.HELD: "it is held, or waits for other jobs again",
    ClearReason.LAPSED: "queueing has not confirmed it in time",
}
"""Why a planned start does not hold any more."""

LET_GO = {
    ClearReason.STARTED: "it starts there",
    ClearReason.REPLACED: "others make other room for it",
    ClearReason.NODES_GONE: "nodes of it take no new work",
    ClearReason.HELD: "it does not wait for it any more",
    ClearReason.LAPSED: "it was not free in time",
}
"""Why room is held no more."""

Sentence = Callable[[Any], str]


def gpus(milli: int) -> str:
    """`8 GPUs`, `1 GPU`, `0.25 GPU`."""
    if milli % GPU:
        return f"{milli / GPU:g} GPU"
    return counted(milli // GPU, "GPU")


def of_job(spec: JobSpec) -> str:
    """What a job wants: `4 workers of 8 GPUs`."""
    each = gpus(spec.resources.gpu_milli)
    if spec.workers_min is not None and spec.workers_min < spec.workers:
        return f"{spec.workers_min} to {spec.workers} workers of {each}"
    return f"{counted(spec.workers, 'worker')} of {each}"


def devices(numbers: Iterable[int]) -> str:
    """Device numbers with runs drawn together: `0-3,6`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def places(workers: tuple[WorkerPlace, ...]) -> str:
    """Where workers are: `16 GPUs on node-1 (0-7), node-2 (0-7)`; only the first few nodes are named."""
    by_node: dict[str, list[int]] = {}
    for place in workers:
        by_node.setdefault(place.node, []).extend(place.devices)
    named = [f"{node} ({devices(held)})" for node, held in list(by_node.items())[:NODES_NAMED_MAX]]
    more = len(by_node) - len(named)
    rest = f" and {counted(more, 'more node')}" if more > 0 else ""
    return f"{gpus(sum(place.gpu_milli for place in workers))} on {', '.join(named)}{rest}"


def _text(words: str) -> str:
    return f" ({words})" if words else ""


def _enqueued(effect: e.JobEnqueued) -> str:
    spec = effect.spec
    queue = f" in queue {spec.queue}" if spec.queue else ""
    whose = "" if parted(spec.id)[0] else f" of {spec.tenant}"
    return f"Job {spec.id}{whose} is accepted and waits{queue}: {of_job(spec)}, priority {spec.priority}."


def _cancelled(effect: e.JobCancelled) -> str:
    return f"Job {effect.job} is cancelled{_BECAUSE[effect.reason].format(effect.because_of)}."


_BECAUSE = {
    CancelReason.ASKED: "",
    CancelReason.DEPENDENCY_FAILED: ": job {}, for which it waited, did not end well",
    CancelReason.DEPENDENCY_UNKNOWN: ": it waited for job {}, which the cell does not know or its tenant does not own",
}


_FAILED = {
    FailReason.RETRIES_EXHAUSTED: ("a worker failed", "; no retry is left"),
    FailReason.NODE_FAULTS: ("nodes failed it again and again", "; its nodes are at fault, and not the job"),
    FailReason.RUN_TIME_LIMIT: ("it ran longer than it may", ""),
}
"""What is told where nothing more is known, and what is said behind the cause."""


def _failed(effect: e.JobFailed) -> str:
    """What happened comes first: for it one looks."""
    unknown, behind = _FAILED[effect.reason]
    return f"Job {effect.job} has failed: {effect.text or unknown}{behind} ({effect.reason})."


def _started(effect: e.JobStarted) -> str:
    head = f", {effect.backfilled_over}" if effect.backfilled_over else ""
    past = f" past the head of its queue{head}" if effect.backfilled else ""
    return f"Job {effect.job} starts{past}, attempt {effect.attempt}: {places(effect.workers)}."


def _resizing(effect: e.JobResizing) -> str:
    parts = [f"takes {places(effect.add)}"] if effect.add else []
    parts += [f"takes {_ranks(effect.remove)} out"] if effect.remove else []
    return f"Job {effect.job} {' and '.join(parts) or 'keeps its places'}."


def _settled(effect: e.WorkersSettled) -> str:
    parts = [
        f"{_ranks(ranks)} {what}"
        for what, ranks in (("started", effect.joined), ("finished", effect.done), ("gone", effect.gone))
        if ranks
    ]
    failures = f"; {counted(effect.failures, 'failure')} so far" if effect.failures and effect.gone else ""
    avoid = _avoid(effect.avoid) if effect.gone or effect.setbacks else ""
    paused: dict[int, tuple[int, ...]] = {}
    for setback in effect.setbacks:
        if setback.until_ms:
            paused[setback.until_ms] = (*paused.get(setback.until_ms, ()), setback.rank)
    waits = "".join(f"; not before {moment(until_ms)}: {_ranks(paused[until_ms])}" for until_ms in sorted(paused))
    return f"Of job {effect.job}, {', '.join(parts) or 'no worker has changed'}{failures}{waits}{avoid}."


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {devices(ranks)}"


def _stopping(effect: e.JobStopping) -> str:
    for_job = f" for {effect.for_whom}" if effect.for_whom else ""
    why, grace = f"{effect.why}{for_job}{_text(effect.text)}", duration(effect.grace_wall_ms)
    return f"Job {effect.job} must stop within {grace}: {why}. It still holds its places."


def _preempted(effect: e.JobPreempted) -> str:
    for_job = f" for {effect.for_whom}" if effect.for_whom else ""
    return f"Job {effect.job} has made room{for_job}: {effect.why}. Its places are free."


def _requeued(effect: e.JobRequeued) -> str:
    failures = f", {counted(effect.failures, 'failure')} so far" if effect.failures else ""
    not_before = f", not before {moment(effect.not_before_ms)}" if effect.not_before_ms else ""
    why = f"{_REQUEUED[effect.reason]} ({effect.reason}{failures})"
    return f"Job {effect.job} waits again: {why}{not_before}{_avoid(effect.avoid)}."


_REQUEUED = {
    RequeueReason.WORKER_FAILED: "a worker failed",
    RequeueReason.INFRASTRUCTURE: "a node under it was lost or failed, which counts against no budget",
    RequeueReason.DRAINED: "a node under it is to be emptied, which counts against no budget",
    RequeueReason.PREEMPTED: "it has made room",
    RequeueReason.START_TIMED_OUT: "it did not start in its time",
    RequeueReason.NO_WORKER_LEFT: "no worker of it is left",
}


def _observed(effect: e.RunObserved) -> str:
    """What its node says, or what the loss of the node means for it: what still runs on a lost node is unknown."""
    is_so = "counts as stopped" if effect.status is RunStatus.STOPPED else f"is {effect.status}"
    return f"The part of job {effect.job}, attempt {effect.attempt}, on node {effect.node} {is_so}."


def _avoid(nodes: tuple[str, ...]) -> str:
    """On which nodes a job goes only if it fits nowhere else."""
    return f"; it prefers other nodes than {', '.join(nodes)}" if nodes else ""


def _refused(effect: e.JobRefused) -> str:
    if effect.code is RefuseCode.ID_USED_BEFORE:
        return f"Job {effect.job} was submitted before{_text(effect.text)}. An id is used once ({effect.code})."
    whose = _of_a_stranger(effect)
    head = f"A request ({effect.request}){whose} about job {effect.job} is refused"
    if effect.code is RefuseCode.UNKNOWN_JOB:
        return f"{head}: the cell knows no such job ({effect.code})."
    if effect.code is RefuseCode.NOT_THE_TENANTS_JOB:
        why = f"{effect.text}, a job of another tenant" if effect.text else "it belongs to another tenant"
        return f"{head}: {why} ({effect.code})."
    return f"{head}: {effect.code}{_text(effect.text)}."


def _timed_out(effect: e.AttemptTimedOut) -> str:
    attempt = f"Attempt {effect.attempt} of job {effect.job}"
    if effect.what == "run":
        return f"{attempt} has run for as long as its max_run_ms allows."
    return f"{attempt} did not {effect.what} in its time."


def _reserved(effect: e.ReservationSet) -> str:
    planned = f"Job {effect.job} is planned to start at {moment(effect.start_ms)}, by estimates"
    if not effect.workers:
        return f"{planned}."
    return f"{planned}; {places(effect.workers)} are kept for it."


def _room(effect: e.RoomHeld) -> str:
    many = "1 job yields" if effect.victims == 1 else f"{effect.victims} jobs yield"
    held = f"{places(effect.workers)} are held for it until {moment(effect.until_ms)} at the latest"
    return f"To job {effect.job} {many} ({effect.cause}, proposal {effect.proposal}); {held}."


def _node(effect: e.NodeChanged) -> str:
    spec = effect.spec
    until = "" if effect.drain_deadline_ms is None else f" until {moment(effect.drain_deadline_ms)}"
    return (
        f"Node {spec.id} of pool {spec.pool} ({gpus(spec.gpus * GPU)}) is {effect.status}{until}{_text(effect.reason)}."
    )


def _device(effect: e.DeviceChanged) -> str:
    return f"Device {effect.device} of node {effect.node} is {'healthy again' if effect.healthy else 'out of use'}."


def _lent(effect: e.NodeLent) -> str:
    until = "until recalled" if effect.deadline_ms is None else f"until {moment(effect.deadline_ms)}"
    return f"Node {effect.node} is lent to pool {effect.to_pool} {until} (loan {effect.loan})."


def _loan_draining(effect: e.NodeLoanDraining) -> str:
    return f"Lent node {effect.node} must be empty by {moment(effect.deadline_ms)} (loan {effect.loan})."


def _maintenance(effect: e.MaintenanceSet) -> str:
    if effect.begin_ms is None or effect.end_ms is None:
        return f"No maintenance of node {effect.node} is planned any more."
    return f"Maintenance of node {effect.node} is planned {window(effect.begin_ms, effect.end_ms, effect.reason)}."


def _lease_expired(x: e.LeaseExpired) -> str:
    often = f", {x.flaps} times in a row" if x.flaps > 1 else ""
    return f"Node {x.node} (boot {x.boot}) is lost{often}: {x.reason or 'it was silent for too long'}."


def _heard(x: e.NodeHeard) -> str:
    often = f", {x.flaps} times in a row" if x.flaps > 1 else ""
    lapsed = f" Its lease had run out, so it had stopped its own work{often}." if x.flaps else ""
    return f"Node {x.node} is reporting again.{lapsed}"


def _failures(x: e.NodeFailures) -> str:
    if not x.jobs:
        return f"A job has ended well on node {x.node} after others failed there."
    by_node = x.by_node or (False,) * len(x.jobs)
    named = (f"{job} (by the node's own fault)" if own else job for job, own in zip(x.jobs, by_node, strict=True))
    return f"Jobs that failed in a row on node {x.node}: {', '.join(named)}."


def _held_back(effect: e.EvictionsHeld) -> str:
    silent = f"{counted(effect.silent, 'node')} silent"
    so_far = f" for {duration(effect.held_wall_ms)} so far" if effect.held_wall_ms else ""
    if not effect.lost:
        return f"{silent}; node loss paused{so_far}."
    return f"{silent}; node loss limited{so_far}, {counted(effect.lost, 'node')} lost in that time."


def _quota(effect: e.QuotaSet) -> str:
    quota = effect.quota
    limit = "no limit" if quota.limit_milli is None else f"at most {gpus(quota.limit_milli)}"
    weight = "" if quota.weight == _WEIGHT else f", weight {quota.weight}"
    below = f", below {quota.parent}" if quota.parent else ""
    rules = "".join(f", {rule}" for rule in quota_rules(quota))
    sure = f"{gpus(quota.guaranteed_milli)} of type {quota.gpu_type}"
    said = ", by the cell file" if effect.of_file else ""
    return f"Tenant {quota.tenant} is guaranteed {sure}, {limit}{weight}{below}{rules}{said}."


def _not_done(effect: e.ProposalRefused) -> str:
    if refuses_file(effect):
        return f"The cell file is not in force in all it says: {effect.code}{_text(effect.text)}."
    return f"A request about {effect.proposal} is refused: {effect.code}{_text(effect.text)}."


def _policy(effect: e.PolicySet) -> str:
    shipped = CellPolicy()
    other = [
        f"{name} = {setting(name, getattr(effect.policy, name))}"
        for name in CellPolicy.__struct_fields__
        if getattr(effect.policy, name) != getattr(shipped, name)
    ]
    told = "all settings are as shipped." if not other else f"{', '.join(other)}; all other settings are as shipped."
    return f"The cell's policy is set: {told}{_leases(effect)}"


def _leases(effect: e.PolicySet) -> str:
    if effect.longest_patience_ms > patience_ms(effect.policy):
        return f" Nodes still go by a longer lease: they may be silent for {duration(effect.longest_patience_ms)}."
    return " Every node goes by its lease now." if effect.longest_patience_ms else ""


def _repaired(effect: e.LogRepaired) -> str:
    dropped = f"; {counted(effect.snapshots, 'contradicting snapshot')} discarded" if effect.snapshots else ""
    last = effect.end - 1
    gone = f"offsets {effect.good_until} to {last} were" if last > effect.good_until else f"offset {last} was"
    what = f"{gone} discarded" if last >= effect.good_until else f"it continues from offset {effect.end}"
    return f"{claimed(effect.by) if effect.by else 'An operator'} repaired the log: {what}{dropped}."


def _updated(effect: e.JobUpdated) -> str:
    most, fewest = effect.workers, effect.workers_min
    many = counted(most, "worker") if fewest is None or fewest == most else f"{fewest} to {most} workers"
    limit = "" if effect.max_run_ms is None else f", at most {duration(effect.max_run_ms)}"
    return f"Job {effect.job} now has {many} and priority {effect.priority}{limit}."


SENTENCES: dict[type[e.Effect], Sentence] = {
    e.WriterStarted: lambda x: f"{x.writer} writes from here on (epoch {x.epoch}).",
    e.JobEnqueued: _enqueued,
    e.JobUpdated: _updated,
    e.JobStarted: _started,
    e.RunObserved: _observed,
    e.JobRunning: lambda x: f"Job {x.job} runs, attempt {x.attempt}.",
    e.JobResizing: _resizing,
    e.JobResized: lambda x: f"Job {x.job} runs with {counted(len(x.workers), 'worker')}: {places(x.workers)}.",
    e.WorkersSettled: _settled,
    e.JobStopping: _stopping,
    e.JobPreempted: _preempted,
    e.JobRequeued: _requeued,
    e.JobFinished: lambda x: f"Job {x.job} has finished, attempt {x.attempt}.",
    e.JobFailed: _failed,
    e.JobCancelled: _cancelled,
    e.JobRefused: _refused,
    e.AttemptTimedOut: _timed_out,
    e.JobDeferred: lambda x: f"Job {x.job} goes on waiting: {x.code}.",
    e.JobHeld: lambda x: f"Job {x.job} is held back{_text(x.reason)}.",
    e.JobReleased: lambda x: f"Job {x.job} is no longer held.",
    e.JobReady: lambda x: f"Job {x.job} waits for no other job any more.",
    e.WaitShortened: lambda x: f"Job {x.job} does not wait for {', '.join(x.over)} any more.",
    e.ReservationSet: _reserved,
    e.ReservationCleared: lambda x: f"Job {x.job} has no planned start any more: {CLEARED[x.reason]}.",
    e.RoomHeld: _room,
    e.RoomReleased: lambda x: f"No room is held for job {x.job} any more: {LET_GO[x.reason]}.",
    e.HeadBlocked: lambda x: (
        f"Job {x.job} is a head of its queue: it does not fit. "
        "A queue that backfills lets others pass it for a time (backfill_wait_ms; longer with a planned start)."
    ),
    e.HeadCleared: lambda x: f"Job {x.job} is no longer a head of its queue.",
    e.NodeChanged: _node,
    e.MaintenanceSet: _maintenance,
    e.MaintenanceBegan: lambda x: f"Maintenance of node {x.node} has begun: it is emptied.",
    e.DeviceChanged: _device,
    e.LeaseExpired: _lease_expired,
    e.NodeFailures: _failures,
    e.NodeSilent: lambda x: f"Node {x.node} has been silent for {duration(x.silent_wall_ms)} and gets no new work.",
    e.NodeRemoved: lambda x: f"Node {x.node} was removed from the cell.",
    e.EvictionsHeld: _held_back,
    e.EvictionsResumed: lambda _: "Few nodes are silent: each is declared lost when its lease runs out.",
    e.NodeHeard: _heard,
    e.NodeLent: _lent,
    e.NodeLoanDraining: _loan_draining,
    e.NodeReclaimed: lambda x: f"Node {x.node} is back at home (loan {x.loan}).",
    e.QuotaSet: _quota,
    e.QuotaRemoved: lambda x: f"Tenant {x.tenant} has no quota of {x.gpu_type} any more.",
    e.PolicySet: _policy,
    e.CellFileSet: lambda x: f"The cell goes by the cell file {x.digest[:8]} ({counted(len(x.content), 'character')}).",
    e.ProposalRefused: _not_done,
    e.LogRepaired: _repaired,
    e.InputResumed: lambda x: f"Input {x.input} was read to {x.from_offset}, and is read on from {x.to_offset}.",
    e.InputFenced: lambda x: (
        f"Input {x.input} had been read to {x.from_offset}, but its topic lost records at {x.to_offset}; "
        "it is not read further until a person decides (fallow log repair)."
    ),
}
"""Every kind of effect; a test holds it against the language."""


def sentence(effect: e.Effect, at_ms: int | None = None) -> str:
    """The effect as one sentence. A job that waits again may start at `at_ms`, the time of its decision, as a rule:
    then no time is told.
    """
    if isinstance(effect, e.JobRequeued) and at_ms is not None and effect.not_before_ms <= at_ms:
        effect = replace(effect, not_before_ms=0)
    return SENTENCES[type(effect)](effect)


def node_at(effect: e.NodeChanged, at_ms: int) -> str:
    """What a node is, as of this cell time: one that is drained by now has no time left to tell."""
    if effect.drain_deadline_ms is None or effect.drain_deadline_ms > at_ms:
        return _node(effect)
    return f"{_node(replace(effect, drain_deadline_ms=None)).removesuffix('.')}; its jobs are stopped at once."


def stands(status: str) -> str:
    """`is running`, `has failed`: how a job stands."""
    return "has failed" if status == JobStatus.FAILED else f"is {status}"


def heading(decision: Decision) -> str:
    """What stands above a decision's sentences."""
    return f"version {decision.version}, {moment(decision.at_ms)}, epoch {decision.epoch}"


def nothing_changed(decision: Decision) -> str:
    """What is told of a decision without effects: up to where its writer has read requests and reports that change
    nothing, such as a second submission of the same job.
    """
    read = ", ".join(f"{name} to {offset}" for name, offset in sorted(decision.inputs.items()))
    return f"Nothing changed; inputs were read: {read}." if read else "Nothing changed."


_VERBS = ("is ", "must ", "names ", "stands ")
"""Rules that begin with one of these go on from the field and its value."""

_REJECTED = {"submit": "Job", "cancel": "The cancel of job", "update": "The update of job"}
"""What is rejected, by its command. A job itself lives on when an update or a cancel of it is rejected."""


def _of_a_stranger(event: e.JobRefused | JobRejected) -> str:
    """Whose request it was, where it was about another tenant's job."""
    return f" of tenant {event.tenant}" if is_of_a_stranger(event) else ""


def rejection(event: JobRejected) -> str:
    """Admission's no as one sentence."""
    at = " ".join(part for part in (event.field, f"`{event.value}`" if event.value else "") if part)
    numbers = "" if event.wanted is None else f" (wanted {event.wanted}, allowed {event.allowed})"
    between = " " if event.rule.startswith(_VERBS) else ": "
    said = between.join(part for part in (at, event.rule) if part)
    about = f"{_REJECTED.get(event.command, f'A request ({event.command}) about job')} {event.job}"
    return f"{about}{_of_a_stranger(event)} is rejected ({event.code}){f': {said}' if said else ''}{numbers}."
