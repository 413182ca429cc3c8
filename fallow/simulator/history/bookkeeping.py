"""I1 to I5 in the log: takes each decision into the books, and says which promise an effect breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, NodeRole, NodeStatus, WorkerPlace
from fallow.shared.events.reasons import StopReason
from fallow.simulator.history import books as b
from fallow.simulator.history.books import Books, JobPage, NodePage, OverPage
from fallow.simulator.history.evidence import Violation
from fallow.simulator.history.log_form import InForce
from fallow.simulator.history.rules.queues import planned, rooms, waits
from fallow.simulator.history.rules.queues.queue_rules import ages_in, rules_in, waiting_max_in
from fallow.simulator.history.rules.requests import refusals
from fallow.simulator.history.rules.runs import arrays, ends, maintenance
from fallow.simulator.history.rules.runs.singly import starts_again_ms, wrong_resizing, wrong_settling, wrong_start
from fallow.simulator.history.rules.runs.whereabouts import scattered, unwanted_company, wrong_node
from fallow.simulator.history.rules.tenants import owners

NOTHING: Mapping[type, Callable[[Any], None]] = {}


class Bookkeeper:
    """Feed it every decision in force. It goes on behind a violation as well as it can."""

    def __init__(self, cell: str) -> None:
        self.books = Books(cell)
        self.found: list[Violation] = []
        self._where = ""
        self._table: dict[type, Callable[[Any], None]] = {
            e.JobEnqueued: self._enqueued,
            e.JobUpdated: self._updated,
            e.JobStarted: self._started,
            e.JobRunning: self._running,
            e.JobResizing: self._resizing,
            e.JobResized: self._resized,
            e.WorkersSettled: self._settled,
            e.JobStopping: self._stopping,
            e.JobPreempted: self._preempted,
            e.JobRequeued: self._requeued,
            e.JobFinished: self._finished,
            e.JobFailed: self._failed,
            e.JobCancelled: self._cancelled,
            e.JobRefused: self._refused,
            e.JobDeferred: self._deferred,
            e.HeadBlocked: self._is_head,
            e.HeadCleared: self._is_no_head,
            e.JobHeld: self._held,
            e.JobReleased: self._released,
            e.JobReady: self._ready,
            e.WaitShortened: self._wait_shortened,
            e.ReservationSet: lambda effect: self._say_if("PLAN", planned.planned(self.books, effect)),
            e.ReservationCleared: lambda effect: self._say_if("PLAN", planned.unplanned(self.books, effect)),
            e.RoomHeld: self._room_held,
            e.RoomReleased: lambda effect: self._say_if("ROOM", rooms.released(self.books, effect)),
            e.NodeChanged: self._node_changed,
            e.MaintenanceSet: lambda effect: maintenance.planned(self.books, effect),
            e.MaintenanceBegan: lambda effect: maintenance.began(self.books, effect),
            e.DeviceChanged: self._device_changed,
            e.LeaseExpired: self._lease_expired,
            e.NodeSilent: lambda effect: self._silence(effect, is_silent=True),
            e.NodeHeard: lambda effect: self._silence(effect, is_silent=False),
            e.NodeRemoved: self._node_removed,
            e.NodeLent: self._lent,
            e.NodeLoanDraining: self._loan_draining,
            e.NodeReclaimed: self._reclaimed,
            e.QuotaSet: self._quota_set,
            e.QuotaRemoved: self._quota_removed,
            e.PolicySet: self._policy_set,
            e.CellFileSet: self._cell_file_set,
        }

    def take(
        self,
        entry: InForce,
        before: Mapping[type, Callable[[Any], None]] = NOTHING,
        behind: Callable[[e.AnyEffect, Books], None] | None = None,
    ) -> None:
        """Take in one decision. `before` has what is called when an effect of that kind comes next; `behind` is called
        when an effect is in the books.
        """
        decision = entry.decision
        self._where = f"{self.books.cell}, version {decision.version}, offset {entry.offset}"
        self.books.version, self.books.at_ms = decision.version, decision.at_ms
        for effect in decision.effects:
            kind = type(effect)
            if kind in before:
                before[kind](effect)
            note = self._table.get(kind)
            if note is not None:
                note(effect)
            if behind is not None:
                behind(effect, self.books)
        for wrong in arrays.not_whole(self.books):
            self._say("I2", wrong)
        for wrong in planned.forgotten(self.books) if entry.does_what_is_due else ():
            self._say("PLAN", wrong)
        for wrong in rooms.forgotten(self.books) if entry.does_what_is_due or self.books.yielding else ():
            self._say("ROOM", wrong)
        self._loans_are_back()

    def _found_here(self, wrong: str | None) -> None:
        if wrong is not None:
            self._say("I2", wrong)

    def _say(self, invariant: str, text: str) -> None:
        self.found.append(Violation(invariant, text, self._where))

    # Jobs that wait.

    def _enqueued(self, effect: e.JobEnqueued) -> None:
        books, job_id = self.books, effect.spec.id
        over = books.over.get(job_id)
        if job_id in books.jobs:
            self._say("I2", f"job {job_id} is accepted while it is {books.jobs[job_id].status}")
        elif over is not None and books.is_remembered(over):
            self._say("I2", f"job {job_id} is accepted again after it was {over.status}")
        books.over.pop(job_id, None)
        page = books.jobs[job_id] = JobPage(effect.spec, effect.submit_ms, effect.digest)
        page.not_before_ms = effect.spec.not_before_ms or 0
        page.status = waits.status_without_hold(books, page)
        self._found_here(arrays.enqueued(books, page))
        self._found_here(owners.of_a_stranger(effect.spec))

    def _page(self, job_id: str, what: str, *statuses: str) -> JobPage | None:
        """The page of a job that is in one of these statuses; without one any that is not over."""
        page = self.books.jobs.get(job_id)
        if page is None:
            over = self.books.over.get(job_id)
            self._say(
                "I2", f"job {job_id} {what} and " + (f"was {over.status} before" if over else "never was accepted")
            )
        elif statuses and page.status not in statuses:
            self._say("I2", f"job {job_id} {what} while it is {page.status}")
        return page

    def _of_attempt(self, effect: e.AttemptEffect, what: str, *statuses: str) -> JobPage | None:
        page = self._page(effect.job, what, *statuses)
        if page is not None and page.attempt != effect.attempt:
            self._say("I6", f"attempt {effect.attempt} of job {effect.job} {what}, its attempt is {page.attempt}")
        return page

    def _updated(self, effect: e.JobUpdated) -> None:
        page = self._page(effect.job, "is updated")
        if page is None:
            return
        if page.spec.tenant != effect.tenant:
            self._say("I2", f"job {effect.job} of {page.spec.tenant} is updated by {effect.tenant}")
            return
        workers, fewest, limit_ms = effect.workers, effect.workers_min, effect.max_run_ms
        page.spec = replace(
            page.spec, priority=effect.priority, workers=workers, workers_min=fewest, max_run_ms=limit_ms
        )
        if page.attempt and not page.spec.gang and page.status in b.WAITS:
            page.not_before_ms = starts_again_ms(self.books, page)

    def _deferred(self, effect: e.JobDeferred) -> None:
        page = self._page(effect.job, "is deferred", *b.WAITS)
        if page is not None:
            page.deferred = effect.code

    def _is_head(self, effect: e.HeadBlocked) -> None:
        page = self._page(effect.job, "is a head", b.QUEUED)
        if page is not None:
            page.head_since_ms, page.head_version = self.books.at_ms, self.books.version

    def _is_no_head(self, effect: e.HeadCleared) -> None:
        page = self._page(effect.job, "is no head", b.QUEUED)
        if page is not None:
            page.head_since_ms = None

    def _held(self, effect: e.JobHeld) -> None:
        page = self._page(effect.job, "is held", b.QUEUED, b.AWAITING, b.HELD)
        if page is None:
            return
        if page.status == b.HELD and (effect.reason or not page.held_why):
            self._say("I2", f"job {effect.job} is held while it is {page.status}")
        page.status, page.held_why, page.head_since_ms = b.HELD, effect.reason, None

    def _released(self, effect: e.JobReleased) -> None:
        page = self._page(effect.job, "is released", b.HELD)
        if page is not None:
            page.status, page.held_why = waits.status_without_hold(self.books, page), ""

    def _ready(self, effect: e.JobReady) -> None:
        page = self._page(effect.job, "is ready", b.AWAITING)
        if page is not None:
            page.status = waits.status_without_hold(self.books, page)
            if page.status == b.AWAITING:
                self._say("I2", f"job {effect.job} is ready while it waits for others")

    def _wait_shortened(self, effect: e.WaitShortened) -> None:
        page = self._page(effect.job, "is told of ends", b.AWAITING, b.HELD)
        if page is not None:
            self._say_if("I2", waits.told_too_early(self.books, page, effect))

    def _room_held(self, effect: e.RoomHeld) -> None:
        for wrong in rooms.held(self.books, effect):
            self._say("ROOM", wrong)

    def _refused(self, effect: e.JobRefused) -> None:
        self._found_here(owners.refused_for_nothing(self.books, effect))
        self._found_here(refusals.wrongly_refused(self.books, effect))
        self.books.refused[effect.job, effect.request] = None

    # Attempts.

    def _started(self, effect: e.JobStarted) -> None:
        books, page = self.books, self._page(effect.job, "starts", b.QUEUED)
        if page is None:
            return
        if page.room is not None:
            self._say("ROOM", f"job {effect.job} starts while room is still held for it")
        if effect.attempt != page.attempt + 1:
            self._say("I6", f"attempt {effect.attempt} of job {effect.job} follows attempt {page.attempt}")
        if books.at_ms < page.not_before_ms:
            self._say("I2", f"job {effect.job} starts at {books.at_ms}, not to start before {page.not_before_ms}")
        self._found_here(waits.too_early(books, page) or arrays.too_many(books, page))
        self._say_if("PLAN", planned.delayed_by(books, page, effect))
        self._is_whole(page, effect)
        self._takes(effect.job, page, effect.workers, effect.workers)
        page.status, page.attempt, page.deferred = b.STARTING, effect.attempt, None
        page.started_ms, page.head_since_ms = books.at_ms, None
        page.first_start_ms = books.at_ms if page.first_start_ms is None else page.first_start_ms

    def _is_whole(self, page: JobPage, effect: e.JobStarted) -> None:
        """I3: so many workers as the job can run with, numbered from 0."""
        if not page.spec.gang:
            self._say_if("I3", wrong_start(self.books, page, effect))
            return
        spec, count = page.spec, len(effect.workers)
        fewest = spec.workers if spec.workers_min is None else spec.workers_min
        if not fewest <= count <= spec.workers:
            self._say("I3", f"job {spec.id} starts with {count} workers of {fewest} to {spec.workers}")
        if [place.rank for place in effect.workers] != list(range(count)):
            self._say("I3", f"job {spec.id} starts with ranks {[place.rank for place in effect.workers]}")
        nodes = [self.books.nodes[place.node].spec for place in effect.workers if place.node in self.books.nodes]
        wrong = scattered(spec, nodes)
        self._say_if("I3", None if wrong is None else f"job {spec.id} {wrong}")

    def _takes(self, job_id: str, page: JobPage, places: tuple[WorkerPlace, ...], new: tuple[WorkerPlace, ...]) -> None:
        """Hold these places, of which some are new, and check whether those may be had."""
        books = self.books
        self._say_if("ROOM", rooms.taken_from(books, job_id, new))
        books.hold(job_id, page, places)
        types: dict[str, None] = {}
        for place in new:
            node = books.nodes.get(place.node)
            if node is None:
                self._say("I1", f"job {job_id} starts on node {place.node}, which does not exist")
                continue
            self._may_be_had(page, place, node)
            self._found_here(maintenance.outlasted(books, page, node))
            self._fits(job_id, place, node)
            types[node.spec.gpu_type] = None
        for gpu_type in types:
            self._is_within_limits(page.spec.tenant, gpu_type)

    def _may_be_had(self, page: JobPage, place: WorkerPlace, node: NodePage) -> None:
        spec, wanted = page.spec, page.spec.resources
        if node.status is not NodeStatus.READY or node.is_leaving_loan:
            self._say("I1", f"job {spec.id} starts on node {node.spec.id}, which is {node.status}")
        if node.is_another:
            self._say("I1", f"job {spec.id} starts on node {node.spec.id}, which has other hardware than the log knows")
        if node.is_silent:
            self._say("LEASE", f"job {spec.id} starts on node {node.spec.id}, of which nothing is heard")
        if spec.pools and node.pool not in spec.pools:
            self._say("I3", f"job {spec.id} starts in pool {node.pool}, which it does not accept")
        if spec.gpu_type is not None and spec.gpu_type != node.spec.gpu_type:
            self._say("I3", f"job {spec.id} starts on {node.spec.gpu_type}, it needs {spec.gpu_type}")
        wrong, company = wrong_node(spec, node.spec), unwanted_company(self.books, spec, node)
        if wrong is not None:
            self._say("I3", f"job {spec.id} {wrong}")
        if company is not None:
            self._say("I1", f"job {spec.id} {company}")
        got = (place.gpu_milli, place.cpu_milli, place.memory_mib)
        if got != (wanted.gpu_milli, wanted.cpu_milli, wanted.memory_mib):
            self._say("I3", f"worker {place.rank} of job {spec.id} gets other resources than it asked for")

    def _fits(self, job_id: str, place: WorkerPlace, node: NodePage) -> None:
        """I1: the devices exist, are healthy, and hold no more than a device; CPU and memory likewise."""
        at = f"of node {node.spec.id}"
        if len(place.devices) != max(1, place.gpu_milli // GPU) or len(dict.fromkeys(place.devices)) != len(
            place.devices
        ):
            self._say("I1", f"job {job_id} holds {place.gpu_milli} milli-GPUs on devices {list(place.devices)} {at}")
        for device in place.devices:
            if device >= node.spec.gpus or device in node.failed:
                self._say("I1", f"job {job_id} holds device {device} {at}, which is not there or failed")
            elif node.held[device] > GPU:
                self._say("I1", f"device {device} {at} holds {node.held[device]} milli-GPUs with job {job_id}")
        if place.cpu_milli and node.cpu_milli > node.spec.cpu_milli:
            self._say("I1", f"{node.cpu_milli} milli-CPUs {at} are held, it has {node.spec.cpu_milli}")
        if place.memory_mib and node.memory_mib > node.spec.memory_mib:
            self._say("I1", f"{node.memory_mib} MiB {at} are held, it has {node.spec.memory_mib}")

    def _is_within_limits(self, tenant: str, gpu_type: str) -> None:
        """I4: who uses more now does not use too much, at no level of the tree."""
        for above in self.books.ancestors(tenant, gpu_type):
            quota = self.books.quotas.get((above, gpu_type))
            if quota is None or quota.limit_milli is None:
                continue
            used = self.books.used_below(above, gpu_type)
            if used > quota.limit_milli:
                self._say("I4", f"{above} uses {used} milli-GPUs of {gpu_type}, its limit is {quota.limit_milli}")

    def _running(self, effect: e.JobRunning) -> None:
        if self._of_attempt(effect, "runs", b.STARTING) is not None:
            page = self.books.jobs[effect.job]
            page.status, page.running_ms = b.RUNNING, self.books.at_ms

    def _say_if(self, invariant: str, text: str | None) -> None:
        if text is not None:
            self._say(invariant, text)

    def _settled(self, effect: e.WorkersSettled) -> None:
        page = self._of_attempt(effect, "has workers that come or go", b.STARTING, b.RUNNING, b.STOPPING)
        if page is None:
            return
        self._say_if("I3", wrong_settling(page, effect))
        over = {*effect.done, *effect.gone}
        self.books.hold(effect.job, page, tuple(place for place in page.places if place.rank not in over))

    def _resizing(self, effect: e.JobResizing) -> None:
        known = self.books.jobs.get(effect.job)
        if known is not None and not known.spec.gang:
            self._of_attempt(effect, "is resized", b.STARTING, b.RUNNING)
            self._say_if("I3", wrong_resizing(self.books, known, effect))
            self._takes(effect.job, known, known.places + effect.add, effect.add)
            return
        page = self._of_attempt(effect, "is resized", b.RUNNING)
        if page is None:
            return
        self._takes(effect.job, page, page.places + effect.add, effect.add)
        page.status = b.RESIZING

    def _resized(self, effect: e.JobResized) -> None:
        page = self._of_attempt(effect, "is resized", b.RESIZING)
        if page is None:
            return
        fewest = page.spec.workers if page.spec.workers_min is None else page.spec.workers_min
        ranks = dict.fromkeys(place.rank for place in effect.workers)
        if len(ranks) != len(effect.workers) or len(ranks) < fewest:
            self._say("I3", f"job {effect.job} is resized to ranks {list(ranks)}, it needs {fewest} workers")
        if any(place not in page.places for place in effect.workers):
            self._say("I1", f"job {effect.job} is resized to places that it does not hold")
        self.books.hold(effect.job, page, effect.workers)
        page.status = b.RUNNING

    def _stopping(self, effect: e.JobStopping) -> None:
        page = self._of_attempt(effect, "is stopped", *b.HOLDS)
        if page is not None:
            self._found_here(ends.stopped_without_cause(self.books, page, effect))
            self._say_if("ROOM", rooms.yields(self.books, page, effect))
            page.status, page.stop_why = b.STOPPING, effect.why

    def _preempted(self, effect: e.JobPreempted) -> None:
        page = self._of_attempt(effect, "is preempted", b.STOPPING)
        if page is not None:
            self._gives_back(effect.job, page)
            page.status = b.PREEMPTED
            page.preemptions += 1

    def _requeued(self, effect: e.JobRequeued) -> None:
        page = self._page(effect.job, "is queued again", *b.HOLDS, b.PREEMPTED)
        if page is None:
            return
        if page.stop_why is StopReason.CANCELLED:
            self._say("I2", f"job {effect.job} is queued again, its tenant has cancelled it")
        self._found_here(ends.counted_wrongly(page, effect))
        self._gives_back(effect.job, page)
        page.status, page.failures, page.not_before_ms = b.QUEUED, effect.failures, effect.not_before_ms
        page.losses = effect.losses

    def _gives_back(self, job_id: str, page: JobPage) -> None:
        self.books.hold(job_id, page, ())
        page.started_ms, page.running_ms, page.stop_why = None, None, None

    # Ends.

    def _finished(self, effect: e.JobFinished) -> None:
        self._of_attempt(effect, "finishes", *b.HOLDS)
        self._ends(effect.job, b.FINISHED)

    def _failed(self, effect: e.JobFailed) -> None:
        page = self._page(effect.job, "fails", *b.HOLDS)
        self._found_here(None if page is None else ends.failed_without_cause(page, effect))
        self._ends(effect.job, b.FAILED)

    def _cancelled(self, effect: e.JobCancelled) -> None:
        page = self._page(effect.job, "is cancelled", *b.WAITS, b.STOPPING)
        self._found_here(None if page is None else waits.cancelled_without_cause(self.books, page, effect))
        self._ends(effect.job, b.CANCELLED)

    def _ends(self, job_id: str, status: str) -> None:
        books = self.books
        page = books.jobs.pop(job_id, None)
        if page is None:
            return
        books.hold(job_id, page, ())
        rooms.let_go(books, page)
        books.endings += 1
        books.over[job_id] = OverPage(page.spec.tenant, page.digest, status, books.at_ms, books.endings)
        arrays.ended(books, page, status)

    # Nodes.

    def _node_changed(self, effect: e.NodeChanged) -> None:
        spec, node = effect.spec, self.books.nodes.get(effect.spec.id)
        if node is None:
            self.books.nodes[spec.id] = NodePage(spec, effect.boot, effect.status, wanted=effect.status)
            return
        node.drain_ms = effect.drain_deadline_ms
        if effect.status is not NodeStatus.LOST:
            node.wanted = effect.status
        if any(node.held.values()) and (spec.gpus, spec.gpu_type) != (node.spec.gpus, node.spec.gpu_type):
            self._say("I1", f"node {spec.id} changes its devices while they are held")
        if effect.boot != node.boot:
            node.failed.clear()
        node.spec, node.boot, node.status = spec, effect.boot, effect.status
        node.is_another = effect.offered is not None

    def _device_changed(self, effect: e.DeviceChanged) -> None:
        node = self.books.nodes.get(effect.node)
        if node is None:
            return
        node.failed.pop(effect.device, None)
        if not effect.healthy:
            node.failed[effect.device] = None

    def _lease_expired(self, effect: e.LeaseExpired) -> None:
        node = self.books.nodes.get(effect.node)
        if node is None or node.boot != effect.boot or node.status is NodeStatus.LOST:
            self._say("LEASE", f"node {effect.node} is lost in boot {effect.boot}, in which it is not")
        if node is not None:
            node.status, node.is_silent = NodeStatus.LOST, False

    def _silence(self, effect: e.NodeSilent | e.NodeHeard, *, is_silent: bool) -> None:
        node = self.books.nodes.get(effect.node)
        if node is None or node.status is NodeStatus.LOST:
            self._say("LEASE", f"node {effect.node} is silent, or heard again, and does not live")
        else:
            node.is_silent = is_silent

    def _node_removed(self, effect: e.NodeRemoved) -> None:
        node = self.books.nodes.pop(effect.node, None)
        if node is None or node.status is not NodeStatus.LOST or node.workers or node.loan is not None:
            self._say("I1", f"node {effect.node} is forgotten while it lives, or is in use")

    # Loans.

    def _lent(self, effect: e.NodeLent) -> None:
        node = self.books.nodes.get(effect.node)
        if node is None or node.loan is not None or node.workers or node.spec.role is not NodeRole.INFERENCE:
            self._say("I5", f"node {effect.node} is lent and cannot be")
        if node is not None:
            node.loan, node.lent_to, node.loan_until_ms = effect.loan, effect.to_pool, effect.deadline_ms

    def _loan_draining(self, effect: e.NodeLoanDraining) -> None:
        node = self.books.nodes.get(effect.node)
        if node is None or node.loan != effect.loan or node.is_leaving_loan:
            self._say("I5", f"node {effect.node} is called back and is not lent")
        if node is not None:
            node.is_leaving_loan, node.loan_until_ms = True, effect.deadline_ms

    def _reclaimed(self, effect: e.NodeReclaimed) -> None:
        node = self.books.nodes.get(effect.node)
        if node is None or node.loan != effect.loan or node.workers:
            self._say("I5", f"node {effect.node} comes back from a loan and is not lent, or in use")
        if node is not None:
            node.loan = node.lent_to = node.loan_until_ms = None
            node.is_leaving_loan = False

    def _loans_are_back(self) -> None:
        """I5: back by the deadline and the time that a stop may take."""
        policy = self.books.policy
        grace_ms = policy.stop_grace_wall_ms + policy.lease_margin_wall_ms
        for node_id, node in self.books.nodes.items():
            until_ms = node.loan_until_ms
            if until_ms is not None and node.status is not NodeStatus.LOST and until_ms + grace_ms < self.books.at_ms:
                self._say("I5", f"node {node_id} was due back at {until_ms} and is not at {self.books.at_ms}")
                node.loan_until_ms = None

    # Rules.

    def _quota_set(self, effect: e.QuotaSet) -> None:
        self.books.quotas[effect.quota.tenant, effect.quota.gpu_type] = effect.quota

    def _quota_removed(self, effect: e.QuotaRemoved) -> None:
        if self.books.quotas.pop((effect.tenant, effect.gpu_type), None) is None:
            self._say("I4", f"tenant {effect.tenant} has no quota of {effect.gpu_type} to be removed")
        if any(page.spec.tenant == effect.tenant for page in self.books.jobs.values()):
            self._say("I4", f"the quota of {effect.tenant} is removed while its jobs live")

    def _cell_file_set(self, effect: e.CellFileSet) -> None:
        self.books.ages = ages_in(effect.content, self.books.cell)
        self.books.rules = rules_in(effect.content, self.books.cell)
        self.books.waiting_max = waiting_max_in(effect.content)
        self.books.cell_file = effect.content

    def _policy_set(self, effect: e.PolicySet) -> None:
        self.books.policy = effect.policy
