"""Queueing of one cell: follows the log and what admission passes on, and publishes the heads of the queues.

A job enters its line when admission admits it, before placement has it in the log, so that both can work on it at the
same time.
What the log then says of the job is final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from services.queueing.policy.line import Line
from services.queueing.policy.parts import in_parts
from shared.cluster.config import CellPart
from shared.cluster.job import JobStatus
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision
from shared.events.jobs import JobAdmitted
from shared.events.queue import QueueDiscipline, QueueOrdered
from shared.events.values import JobSpec

JOBS_OF_A_CLASS_MOST = 256
"""A window shows no more jobs of one equivalence class: if these do not fit, the others do not either."""

RESEND_WALL_MS = 1_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in a line: what it was ordered by when it entered."""

    spec: JobSpec
    submit_ms: int

    def stands_elsewhere(self, spec: JobSpec, submit_ms: int) -> bool:
        """Whether the log knows another job under this id, or a changed one."""
        return self.submit_ms != submit_ms or (self.spec is not spec and self.spec != spec)


class QueueingService:
    """The lines of one cell. `state` is the folded one; after each fold the shell hands over the decisions."""

    def __init__(
        self,
        state: CellState,
        cell: CellPart,
        *,
        writer: str,
        jobs_source: str,
        stepped: bool = False,
        class_jobs_most: int = JOBS_OF_A_CLASS_MOST,
    ) -> None:
        self.state, self._writer, self._jobs_source, self._stepped = state, writer, jobs_source, stepped
        self._class_jobs_most = class_jobs_most
        self._lines = {queue.name: Line(queue.name, queue.discipline) for queue in cell.queues}
        self._waiting: dict[str, Waiting] = {}
        self._early: deque[tuple[int, str]] = deque()
        self._asleep: list[tuple[int, str]] = []
        self._jobs_offset = state.inputs.get(jobs_source, 0)
        self._window = 0
        self._changed = True
        self._sent_ms: int | None = None
        self._first_queue = cell.queues[0].name
        for job_id in sorted(state.jobs):
            self._look_at(job_id, state.at_ms)

    @property
    def jobs_offset(self) -> int:
        """The next record of `jobs` to be taken in."""
        return self._jobs_offset

    def take_job(self, event: object, next_offset: int) -> None:
        """One record of `jobs`. Only an admitted job that the log does not know yet matters here."""
        self._jobs_offset = max(self._jobs_offset, next_offset)
        if not isinstance(event, JobAdmitted) or next_offset <= self.state.inputs.get(self._jobs_source, 0):
            return
        spec = event.spec
        if (
            spec.id not in self.state.jobs
            and spec.id not in self.state.over
            and spec.id not in self._waiting
            and not spec.hold
        ):
            self._enter(spec, event.submit_ms)
            self._early.append((next_offset, spec.id))

    def take_decisions(self, decisions: Iterable[Decision], now_ms: int) -> None:
        """Decisions that the state has just been folded over."""
        for decision in decisions:
            for effect in decision.effects:
                match effect:
                    case e.JobEnqueued() | e.JobUpdated():
                        self._look_at(effect.spec.id, now_ms)
                    case e.WriterStarted():
                        self._changed = True  # a new writer knows no window
                    case e.JobEffect():
                        self._look_at(effect.job, now_ms)
        self._drop_refused()

    def _look_at(self, job_id: str, now_ms: int) -> None:
        """Bring one job's place in the lines to what the log says of it."""
        job = self.state.jobs.get(job_id)
        if job is None or job.status is not JobStatus.QUEUED:
            self._leave(job_id)
        elif job.not_before_ms > now_ms:
            self._leave(job_id)
            heappush(self._asleep, (job.not_before_ms, job_id))
        else:
            known = self._waiting.get(job_id)
            if known is not None and known.stands_elsewhere(job.spec, job.submit_ms):
                self._leave(job_id)
            self._enter(job.spec, job.submit_ms)

    def _enter(self, spec: JobSpec, submit_ms: int) -> None:
        if spec.id not in self._waiting:
            self._changed |= self._line(spec).add(spec, submit_ms, self._class_jobs_most)
            self._waiting[spec.id] = Waiting(spec, submit_ms)

    def _leave(self, job_id: str) -> None:
        known = self._waiting.pop(job_id, None)
        if known is not None:
            line = self._line(known.spec)
            self._changed |= line.remove(known.spec, known.submit_ms, self._class_jobs_most)

    def _line(self, spec: JobSpec) -> Line:
        name = spec.queue or self._first_queue
        if name not in self._lines:
            # A queue that the file no longer has: its jobs still wait, behind those of all others.
            self._lines[name] = Line(name, QueueDiscipline.BEST_EFFORT_FIFO)
        return self._lines[name]

    def _drop_refused(self) -> None:
        """Placement has passed these records of `jobs`: a job that is not in the log now was refused."""
        read = self.state.inputs.get(self._jobs_source, 0)
        while self._early and self._early[0][0] <= read:
            _, job_id = self._early.popleft()
            if job_id not in self.state.jobs:
                self._leave(job_id)

    def wake(self, now_ms: int) -> None:
        """Let jobs whose pause is over into their lines."""
        while self._asleep and self._asleep[0][0] <= now_ms:
            _, job_id = heappop(self._asleep)
            self._look_at(job_id, now_ms)

    def next_cell_ms(self) -> int | None:
        """When the next pause ends."""
        return self._asleep[0][0] if self._asleep else None

    @property
    def waiting(self) -> int:
        """How many jobs stand in lines."""
        return len(self._waiting)

    def waiting_by_queue(self) -> dict[str, int]:
        """How many jobs stand in each line."""
        return {name: line.waiting for name, line in self._lines.items()}

    def due_in_ms(self, wall_ms: int) -> int | None:
        """How long until a window must be sent, 0 for now, None for not before something changes."""
        if self._changed or self._sent_ms is None:
            return 0
        if not self._waiting or self._stepped:
            return None
        return max(0, self._sent_ms + RESEND_WALL_MS - wall_ms)

    def window(self, wall_ms: int) -> list[QueueOrdered]:
        """The newest window, in its parts. Sent again while jobs wait, so that no lost edge can stall the cell."""
        self._window += 1
        self._changed = False
        self._sent_ms = wall_ms
        parts = in_parts([line.head(self._class_jobs_most) for line in self._lines.values() if line.waiting])
        return [
            QueueOrdered(
                cell=self.state.cell,
                writer=self._writer,
                window=self._window,
                part=number,
                parts=len(parts),
                jobs_offset=self._jobs_offset,
                version=self.state.version,
                heads=heads,
            )
            for number, heads in enumerate(parts)
        ]
