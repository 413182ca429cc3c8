"""What became of jobs, followed through the news: from admission's answer to the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from shared.client.port import News
from shared.cluster.arrays import element_id
from shared.events import effects as e
from shared.events.jobs import JobRejected
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec


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

_STAGES: dict[type[e.Effect | JobRejected], Stage] = {
    JobRejected: Stage.REJECTED,
    e.JobEnqueued: Stage.WAITING,
    e.JobRequeued: Stage.WAITING,
    e.JobStarted: Stage.STARTED,
    e.JobRunning: Stage.RUNNING,
    e.JobFinished: Stage.FINISHED,
    e.JobFailed: Stage.FAILED,
    e.JobCancelled: Stage.CANCELLED,
}

_WAITS: dict[type[e.Effect | JobRejected], DeferCode] = {
    e.JobHeld: DeferCode.HELD,
    e.JobRequeued: DeferCode.BACKOFF,
}
"""Effects that say by themselves why a job waits from then on."""

_MOVES_ON = (e.JobStarted, e.JobReleased, e.JobReady, e.JobFinished, e.JobFailed, e.JobCancelled)
"""After one of these no earlier reason counts."""

ENOUGH: dict[Stage, frozenset[Stage]] = {
    Stage.WAITING: frozenset({Stage.WAITING, Stage.STARTED, Stage.RUNNING}),
    Stage.STARTED: frozenset({Stage.STARTED, Stage.RUNNING}),
    Stage.RUNNING: frozenset({Stage.RUNNING}),
}


@dataclass(slots=True)
class Progress:
    """The stages of the jobs that are followed, in their order."""

    stages: dict[str, Stage] = field(default_factory=dict)
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: dict[str, e.JobRefused | JobRejected] = field(default_factory=dict)
    """The no to each job, or whole array, that was turned away."""
    waits: dict[str, DeferCode] = field(default_factory=dict)
    """Why each job waits, as far as the news told."""

    @classmethod
    def of(cls, jobs: Iterable[str]) -> Progress:
        """Nobody has answered for these jobs yet."""
        return cls(dict.fromkeys(jobs, Stage.UNANSWERED))

    @classmethod
    def of_specs(cls, specs: Iterable[JobSpec]) -> Progress:
        """The same for these submissions: an array is followed in its elements."""
        found = cls()
        for spec in specs:
            elements = tuple(element_id(spec.id, index) for index in range(spec.array or 0))
            found.stages.update(dict.fromkeys(elements or (spec.id,), Stage.UNANSWERED))
            if elements:
                found.arrays[spec.id] = elements
        return found

    def take(self, news: News) -> bool:
        """Take in one piece of news; whether it moved one of the jobs to another stage.

        A refusal is the answer only to a job that has none: an accepted job is not touched by a refused request.
        """
        job = news.job
        if job in self.arrays and isinstance(news.event, e.JobRefused | JobRejected):
            return self._turned_away(job, news.event)
        if job is None or job not in self.stages:
            return False
        self._note_wait(job, news.event)
        stage = _STAGES.get(type(news.event))
        if isinstance(news.event, e.JobRefused) and self.stages[job] is Stage.UNANSWERED:
            stage = Stage.REFUSED
        if stage is None or stage is self.stages[job]:
            return False
        self.stages[job] = stage
        if isinstance(news.event, e.JobRefused | JobRejected):
            self.reasons[job] = news.event
        return True

    def _note_wait(self, job: str, event: e.Effect | JobRejected) -> None:
        code = event.code if isinstance(event, e.JobDeferred) else _WAITS.get(type(event))
        if isinstance(event, e.JobEnqueued) and event.spec.hold:
            code = DeferCode.HELD
        if code is not None:
            self.waits[job] = code
        elif isinstance(event, _MOVES_ON):
            self.waits.pop(job, None)

    def _turned_away(self, array: str, event: e.JobRefused | JobRejected) -> bool:
        """The answer to a whole array is a no."""
        elements = self.arrays[array]
        if self.stages[elements[0]] is not Stage.UNANSWERED:
            return False
        stage = Stage.REJECTED if isinstance(event, JobRejected) else Stage.REFUSED
        self.reasons[array] = event
        self.stages.update(dict.fromkeys(elements, stage))
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
