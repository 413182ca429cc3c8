"""What became of each job and each attempt of a simulated trace: the rows from which every figure follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.submissions import SubmitJob

JOB_COLUMNS = (
    "job_id", "tenant", "carried", "gpus_milli", "submit_ms", "start_ms", "end_ms", "state", "attempts", "preemptions",
)  # fmt: skip
PLACEMENT_COLUMNS = ("job_id", "attempt", "start_ms", "end_ms", "rank", "node", "devices", "gpu_milli")

_ENDS: dict[type[e.Effect], str] = {e.JobFinished: "finished", e.JobFailed: "failed", e.JobCancelled: "cancelled"}


@dataclass(slots=True)
class Attempt:
    """From its start until its GPUs were free again (None: they are not). Workers that come and go one by one have
    times of their own in `held`: a place, and from when until when.
    """

    number: int
    start_ms: int
    end_ms: int | None = None
    held: list[tuple[WorkerPlace, int, int | None]] = field(default_factory=list)

    def enter(self, workers: Sequence[WorkerPlace], at_ms: int) -> None:
        """These workers have their places from now on."""
        self.held += [(place, at_ms, None) for place in workers]

    def leave(self, ranks: Collection[int], at_ms: int) -> None:
        """The places of these ranks are free again."""
        self.held = [
            (place, begin_ms, at_ms if end_ms is None and place.rank in ranks else end_ms)
            for place, begin_ms, end_ms in self.held
        ]


@dataclass(slots=True)
class JobStory:
    """One submitted job: its tenant's own `id`, the `state` last known, the `code` why it was turned away if it was."""

    id: str
    tenant: str
    gpus_milli: int
    submit_ms: int
    is_carried: bool
    state: str = "rejected"
    end_ms: int | None = None
    attempts: list[Attempt] = field(default_factory=list)
    preemptions: int = 0
    code: str = ""


class Books:
    """Keeps a story for each job (by its name in full), in the order of submission."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobStory] = {}

    def submitted(self, command: SubmitJob, answer: Event | Undecodable, *, is_carried: bool) -> None:
        """A job came to admission, which gave this answer."""
        spec, job = command.job, command.key()
        story = JobStory(own_id(job), spec.tenant, spec.gpus_milli, command.submit_ms or 0, is_carried)
        if isinstance(answer, JobAdmitted):
            story.state = "waiting"
        else:
            story.code = str(answer.reason if isinstance(answer, Undecodable) else getattr(answer, "code", answer.type))
        self.jobs.setdefault(job, story)

    def rejections(self) -> dict[str, int]:
        """How many jobs were turned away, by code."""
        codes = Counter(job.code for job in self.jobs.values() if job.state == "rejected")
        return {code: codes[code] for code in sorted(codes)}

    def follow(self, _: CellState, decision: Decision) -> None:
        """The next decision."""
        at_ms, jobs = decision.at_ms, self.jobs
        for effect in decision.effects:
            kind = type(effect)
            if kind is e.JobStarted:
                story = jobs[effect.job]  # type: ignore[union-attr]  # said by the line above
                story.attempts.append(Attempt(effect.attempt, at_ms))  # type: ignore[union-attr]
                story.attempts[-1].enter(effect.workers, at_ms)  # type: ignore[union-attr, arg-type]
                story.state = "running"
            elif kind is e.JobResizing:
                jobs[effect.job].attempts[-1].enter(effect.add, at_ms)  # type: ignore[union-attr]
            elif kind is e.WorkersSettled:
                jobs[effect.job].attempts[-1].leave((*effect.done, *effect.gone), at_ms)  # type: ignore[union-attr]
            elif kind in _ENDS:
                story = self._let_go(effect.job, at_ms)  # type: ignore[union-attr]
                story.state, story.end_ms = _ENDS[kind], at_ms
            elif kind is e.JobRequeued:
                self._let_go(effect.job, at_ms).state = "waiting"  # type: ignore[union-attr]
            elif kind is e.JobPreempted:
                self._let_go(effect.job, at_ms).preemptions += 1  # type: ignore[union-attr]

    def _let_go(self, job: str, at_ms: int) -> JobStory:
        story = self.jobs[job]
        if story.attempts and story.attempts[-1].end_ms is None:
            story.attempts[-1].end_ms = at_ms
            story.attempts[-1].leave([place.rank for place, _, _ in story.attempts[-1].held], at_ms)
        return story

    def job_rows(self) -> Iterator[tuple[object, ...]]:
        """jobs.csv: an empty field where there is nothing to say."""
        for job in self.jobs.values():
            start_ms = job.attempts[0].start_ms if job.attempts else ""
            end_ms = "" if job.end_ms is None else job.end_ms
            yield (job.id, job.tenant, int(job.is_carried), job.gpus_milli, job.submit_ms, start_ms, end_ms, job.state,
                   len(job.attempts), job.preemptions)  # fmt: skip

    def placement_rows(self) -> Iterator[tuple[object, ...]]:
        """placements.csv: a row for each worker of each attempt; devices are parted by `+`."""
        for job in self.jobs.values():
            for attempt in job.attempts:
                for place, begin_ms, end_ms in attempt.held:
                    devices, until_ms = "+".join(map(str, place.devices)), "" if end_ms is None else end_ms
                    yield (job.id, attempt.number, begin_ms, until_ms, place.rank, place.node, devices,
                           place.gpu_milli)  # fmt: skip
