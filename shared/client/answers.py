"""What became of jobs, followed through the news: from admission's answer to the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from fallow.shared.client.port import News
from fallow.shared.cluster.model.arrays import element_id
from fallow.shared.events import effects as e
from fallow.shared.events.fields.job_ids import digest_of, full_id
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import PendingReason


class Stage(StrEnum):
    """How far a job has got. Each is past all that stand before it, but a job that runs may wait again."""

    UNANSWERED = "unanswered"
    WAITING = "waiting"
    STARTED = "started"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    REFUSED = "refused"


OVER = frozenset({Stage.FINISHED, Stage.FAILED, Stage.CANCELLED, Stage.REJECTED, Stage.REFUSED})
BAD = frozenset({Stage.FAILED, Stage.CANCELLED, Stage.REJECTED, Stage.REFUSED})
TURNED_AWAY = frozenset({Stage.REJECTED, Stage.REFUSED})
_NOT_ACCEPTED = TURNED_AWAY | {Stage.UNANSWERED}

_STAGES: dict[type[e.Effect], Stage] = {
    e.JobEnqueued: Stage.WAITING,
    e.JobRequeued: Stage.WAITING,
    e.JobStarted: Stage.STARTED,
    e.JobRunning: Stage.RUNNING,
    e.JobFinished: Stage.FINISHED,
    e.JobFailed: Stage.FAILED,
    e.JobCancelled: Stage.CANCELLED,
}

_WAITS: dict[type[e.Effect], PendingReason] = {
    e.JobHeld: PendingReason.HELD,
    e.JobRequeued: PendingReason.BACKOFF,
}
"""Effects that say by themselves why a job waits from then on."""

_MOVES_ON = (e.JobStarted, e.JobReleased, e.JobReady, e.JobFinished, e.JobFailed, e.JobCancelled)
"""After one of these no earlier reason counts."""

ENOUGH: dict[Stage, frozenset[Stage]] = {
    Stage.WAITING: frozenset({Stage.WAITING, Stage.STARTED, Stage.RUNNING}),
    Stage.STARTED: frozenset({Stage.STARTED, Stage.RUNNING}),
    Stage.RUNNING: frozenset({Stage.RUNNING}),
}


SUBMIT = "submit"


def is_no_to(event: e.Effect | JobRejected, command: str, tenant: str | None) -> bool:
    """Whether this is a no to such a command of this tenant, or of any if it is None. Others may name the same job, in
    commands that are not valid, too.
    """
    if isinstance(event, JobRejected):
        return event.command == command and tenant in {None, event.tenant}
    if isinstance(event, e.JobRefused):
        return event.request == command and (event.tenant is None or tenant in {None, event.tenant})
    return False


@dataclass(slots=True)
class Progress:
    """The stages of the jobs that are followed, in their order."""

    stages: dict[str, Stage] = field(default_factory=dict)
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: dict[str, e.JobRefused | JobRejected] = field(default_factory=dict)
    """The no to each job, or whole array, that was turned away."""
    waits: dict[str, PendingReason] = field(default_factory=dict)
    """Why each job waits, as far as the news told."""
    tenants: dict[str, str] = field(default_factory=dict)
    """Whose each job or array is, where that is known."""
    digests: dict[str, str] = field(default_factory=dict)
    """What was submitted as each job, where that is known: it tells this submission from another one of the same id."""
    earlier: dict[str, Stage] = field(default_factory=dict)
    """How far those are, as the news told, that were there before and are not of this submission."""

    @classmethod
    def of(cls, jobs: Iterable[str]) -> Progress:
        """The progress of these jobs before any answer."""
        return cls(dict.fromkeys(jobs, Stage.UNANSWERED))

    @classmethod
    def of_specs(cls, specs: Iterable[JobSpec]) -> Progress:
        """The progress of these submissions before any answer, each job named in full. An array is followed in its
        elements.
        """
        found = cls()
        for spec in specs:
            job = full_id(spec.tenant, spec.id)
            elements = tuple(element_id(job, index) for index in range(spec.array or 0))
            found.stages.update(dict.fromkeys(elements or (job,), Stage.UNANSWERED))
            found.tenants.update(dict.fromkeys((job, *elements), spec.tenant))
            found.digests.update(dict.fromkeys(elements or (job,), digest_of(spec)))
            if elements:
                found.arrays[job] = elements
        return found

    def take(self, news: News) -> bool:
        """Take in one piece of news; whether it moved one of the jobs to another stage.

        That a job of this content is accepted answers its submission, and so does a no to it. Whatever else happens to
        a job that is not accepted is of one that was there before: it is noted among those, and moves nothing. A no to
        another command, or to another tenant that names the same id, does not touch the job, and neither does any no
        once the job is accepted.
        """
        job, event = news.job, news.event
        if job is None or (job not in self.stages and job not in self.arrays):
            return False
        if isinstance(event, e.JobRefused | JobRejected):
            is_answer = is_no_to(event, SUBMIT, self.tenants.get(job))
            return is_answer and self._turned_away(job, event)
        if job in self.arrays:
            return False
        self._note_wait(job, event)
        stage = _STAGES.get(type(event))
        if stage is None or stage is self.stages[job]:
            return False
        if self.stages[job] in _NOT_ACCEPTED and not self._accept(job, event):
            self.earlier[job] = stage
            return False
        self.stages[job] = stage
        return True

    def _accept(self, job: str, event: e.Effect) -> bool:
        """Whether this says that what was submitted as the job is accepted, by this submission or by the same again; an
        earlier no was to another one then.
        """
        if not isinstance(event, e.JobEnqueued) or self.digests.get(job, event.digest) != event.digest:
            return False
        self.reasons.pop(event.spec.array_of or job, None)
        return True

    def _note_wait(self, job: str, event: e.Effect) -> None:
        code = event.code if isinstance(event, e.JobDeferred) else _WAITS.get(type(event))
        if isinstance(event, e.JobEnqueued) and event.spec.hold:
            code = PendingReason.HELD
        if code is not None:
            self.waits[job] = code
        elif isinstance(event, _MOVES_ON):
            self.waits.pop(job, None)

    def _turned_away(self, job: str, event: e.JobRefused | JobRejected) -> bool:
        """The answer to a job, or to a whole array, is a no."""
        followed = self.arrays.get(job, (job,))
        if self.stages[followed[0]] is not Stage.UNANSWERED:
            return False
        stage = Stage.REJECTED if isinstance(event, JobRejected) else Stage.REFUSED
        self.reasons[job] = event
        self.stages.update(dict.fromkeys(followed, stage))
        return True

    def have(self, goal: Stage) -> bool:
        """Whether every job is over, or as far as the goal: WAITING, STARTED or RUNNING; any other is to be over."""
        return all(self.is_at(stage, goal) for stage in self.stages.values())

    @property
    def turned_away(self) -> bool:
        """Whether a job was rejected or refused."""
        return any(stage in TURNED_AWAY for stage in self.stages.values())

    @staticmethod
    def is_at(stage: Stage, goal: Stage) -> bool:
        """Whether a job in this stage is as far as the goal."""
        return stage in OVER or stage in ENOUGH.get(goal, ())

    def at(self, stage: Stage) -> list[str]:
        """The jobs in this stage, in their order."""
        return [job for job, its in self.stages.items() if its is stage]
