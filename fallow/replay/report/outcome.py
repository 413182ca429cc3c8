"""What came of a run, found by reading the topics and the nodes' diaries: no counter of a service is asked.

Feed it every record of the submissions, of `jobs`, of the dead letters and every accepted decision; then ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fallow.replay.report.job_history import JobRow, Stretch, holds_of
from fallow.shared.cluster.checks.run_journal import DiaryLine, Orders, check_diaries
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.job_ids import full_id, own_id
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.submissions import SubmitJob

SUBMIT = SubmitJob.type


@dataclass(slots=True)
class Outcome:
    """Everything that was said about each submitted job. `base_ms` is the cell time at which the day or the trace
    began; `carried` are jobs that ran already then. All jobs are named in full, but for the `id` of a row: that is its
    tenant's own.
    """

    base_ms: int = 0
    carried: frozenset[str] = frozenset()
    rows: dict[str, JobRow] = field(default_factory=dict)
    answered: dict[str, None] = field(default_factory=dict)
    enqueued: dict[str, None] = field(default_factory=dict)
    over: dict[str, str] = field(default_factory=dict)
    double_allocations: list[str] = field(default_factory=list)
    orders: Orders = field(default_factory=Orders)
    used: dict[tuple[str, int], int] = field(default_factory=dict)
    _holding: dict[str, Stretch] = field(default_factory=dict)
    _places: dict[str, dict[int, WorkerPlace]] = field(default_factory=dict)
    _valid: dict[str, None] = field(default_factory=dict)

    def take_submission(self, type_: str, key: str, event: Event | Undecodable) -> None:
        """One record of a submissions topic; `key` is the job as its sender named it there."""
        if isinstance(event, SubmitJob):
            self._valid[event.key()] = None
            if event.job.array is None:
                self._describe(event.job, event.submit_ms)
        elif type_ == SUBMIT:
            self.rows.setdefault(key, JobRow(own_id(key), is_carried=key in self.carried))

    def take_answer(self, event: Event | Undecodable) -> None:
        """One record of `jobs`."""
        if isinstance(event, JobRejected) and "submit" in event.command.lower():
            self.answered[event.job] = None

    def take_dead_letter(self, key: str) -> None:
        """One dead letter that was a submission of the job `key`."""
        self.answered[key] = None

    def take_decision(self, decision: Decision) -> None:
        """One accepted decision, in the order of the log."""
        self.orders.take(decision)
        at_ms = decision.at_ms - self.base_ms
        for effect in decision.effects:
            match effect:
                case e.JobEnqueued():
                    self.enqueued[effect.spec.id] = None
                    if effect.spec.array_of is not None:
                        self.answered[effect.spec.array_of] = None
                    self._describe(effect.spec, effect.submit_ms)
                case e.JobRefused(request="submit"):
                    self.answered[effect.job] = None
                case e.JobStarted():
                    self._start(effect, at_ms)
                case e.JobResizing():
                    self._enter(effect.job, effect.add, at_ms)
                case e.WorkersSettled():
                    self._leave(effect.job, (*effect.done, *effect.gone), at_ms)
                case e.JobRequeued() | e.JobFinished() | e.JobFailed() | e.JobCancelled():
                    self._end(effect, at_ms)
                case e.JobPreempted():
                    self.rows[effect.job].preemptions += 1

    def take_diaries(self, lines: Iterable[DiaryLine]) -> None:
        """All lines of all diaries, those of a node in its order: two runs on one device, or a run begun twice."""
        offences = check_diaries(self.orders, lines)
        found = (offence.text for offence in offences if offence.invariant == "I1" or "begun twice" in offence.text)
        self.double_allocations.extend(found)

    def lost(self, live: Iterable[str]) -> list[str]:
        """Valid submitted jobs without an answer, and enqueued ones that are neither over nor in the final state,
        whose jobs are `live`.
        """
        in_state = frozenset(live)
        unanswered = [job for job in self._valid if job not in self.answered and job not in self.enqueued]
        vanished = [job for job in self.enqueued if job not in self.over and job not in in_state]
        return unanswered + vanished

    def settle(self, live: Iterable[str]) -> list[JobRow]:
        """All rows with their final states, in the order of submission; `live` are the jobs of the final state."""
        in_state = frozenset(live)
        for job, row in self.rows.items():
            row.final_state = self._final_state(job, is_live=job in in_state)
        return sorted(self.rows.values(), key=lambda row: (row.submit_ms, row.id))

    def _final_state(self, job: str, *, is_live: bool) -> str:
        if job in self.over:
            return self.over[job]
        if job in self.enqueued:
            return ("running" if job in self._holding else "waiting") if is_live else "lost"
        return "rejected" if job in self.answered else "lost"

    def _describe(self, spec: JobSpec, submit_ms: int | None) -> None:
        job = full_id(spec.tenant, spec.id)
        row = self.rows.setdefault(job, JobRow(own_id(job)))
        row.tenant, row.kind, row.gpus_milli = spec.tenant, spec.kind.value, spec.gpus_milli
        row.is_carried = job in self.carried
        if submit_ms is not None:
            row.submit_ms = submit_ms - self.base_ms

    def _start(self, effect: e.JobStarted, at_ms: int) -> None:
        stretch = Stretch(at_ms, holds_of(effect.workers))
        if effect.job in self._holding:
            self.double_allocations.append(f"job {effect.job} starts while it runs")
        self.rows[effect.job].stretches.append(stretch)
        self._holding[effect.job] = stretch
        self._places[effect.job] = {}
        self._occupy(effect.job, effect.workers)

    def _enter(self, job: str, workers: Sequence[WorkerPlace], at_ms: int) -> None:
        """Further workers of a job that is no gang."""
        self._holding[job].enter(workers, at_ms)
        self._occupy(job, workers)

    def _leave(self, job: str, ranks: Iterable[int], at_ms: int) -> None:
        """The places of these workers are free."""
        places = self._places.get(job, {})
        for place in [places.pop(rank) for rank in ranks if rank in places]:
            self._holding[job].leave(place, at_ms)
            self._free(place)

    def _occupy(self, job: str, workers: Sequence[WorkerPlace]) -> None:
        self._places[job].update((place.rank, place) for place in workers)
        for hold in holds_of(workers):
            for device in hold.devices:
                held = self.used[hold.node, device] = self.used.get((hold.node, device), 0) + hold.milli_each
                if held > GPU:
                    text = f"device {device} of {hold.node} holds {held} milli-GPUs with job {job}"
                    self.double_allocations.append(text)

    def _free(self, place: WorkerPlace) -> None:
        for hold in holds_of((place,)):
            for device in hold.devices:
                self.used[hold.node, device] -= hold.milli_each

    def _end(self, effect: e.JobRequeued | e.JobFinished | e.JobFailed | e.JobCancelled, at_ms: int) -> None:
        stretch = self._holding.pop(effect.job, None)
        if stretch is not None:
            stretch.end_ms = at_ms
            for place in self._places.pop(effect.job).values():
                self._free(place)
        if not isinstance(effect, e.JobRequeued):
            self.over[effect.job] = effect.kind.removeprefix("Job").lower()
