"""Queueing of one cell: follows the log and what admission passes on, and publishes the heads of the queues.

A job enters its line when admission admits it, before placement has it in the log, so that both can work on it at the
same time.
What the log then says of the job is final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from services.queueing.policy.limited import Limited
from services.queueing.policy.line import Line, Place
from services.queueing.policy.parts import in_parts
from services.queueing.policy.row import Shown
from shared.cluster.config import CellPart, Queue
from shared.cluster.due import ROOM_LEAST, DueHeap
from shared.cluster.few import FEW_WAITING
from shared.cluster.file_in_force import part_in_force
from shared.cluster.job import JobStatus
from shared.cluster.maintenance import longest_run_ms
from shared.cluster.singly import in_line, lacks, may_go_on, next_pause_end_ms
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision
from shared.events.jobs import AdmittedJob, JobAdmitted, JobsAdmitted
from shared.events.queue import QueueOrder, QueueOrdered
from shared.events.values import JobSpec

SHOWN = Shown(64, 4_000)
"""A window shows no more jobs of one equivalence class: if these do not fit, the others do not either."""

SHOWN_STEPPED = Shown(256, 256)
"""With a stepped clock it does not matter how long a window is under way, and every run is to be the same."""

SHOWN_IN_ALL = 4_000
"""Where there are so many classes that a window would show more, it shows fewer of each, but not less than two: it is
made and sent at every change.
"""

RESEND_WALL_MS = 1_000

LineName = tuple[str, str]
"""(queue, tenant); no tenant where the queue has one line for all."""


class Waiting(NamedTuple):
    """A job in a line: where it stands, and what of the job was known when it entered."""

    line: Line
    place: Place
    digest: str
    submit_ms: int
    number: int
    spec: JobSpec


def _waits_for_more_than_room(spec: JobSpec) -> bool:
    """Whether a new job stands in no line until the log says that it may."""
    return spec.not_before_ms is not None or bool(spec.after) or spec.array is not None


class QueueingService:
    """The lines of one cell. `state` is the folded one; after each fold the shell hands over the decisions.

    `resumes` counts how often a person has decided from where `jobs` is read on: then the shell goes to `jobs_offset`.
    """

    def __init__(
        self,
        state: CellState,
        cell: CellPart,
        *,
        writer: str,
        jobs_source: str,
        stepped: bool = False,
        shown: Shown | None = None,
        few: int = FEW_WAITING,
    ) -> None:
        """`cell`: as the process's own file has it; the file that is in force goes before it.

        `few`: up to how many waiting jobs no window is published.
        """
        self.state, self._writer, self._jobs_source, self._stepped = state, writer, jobs_source, stepped
        self._shown, self._few = shown or (SHOWN_STEPPED if stepped else SHOWN), few
        self._go_by(part_in_force(state.cell_file, cell))
        self._lines: dict[LineName, Line] = {}
        self._lines_room = ROOM_LEAST
        self._in_order: list[Line] | None = None
        self._waiting: dict[str, Waiting] = {}
        self._number = 0
        self._early: deque[tuple[int, str]] = deque()
        self._asleep = DueHeap[tuple[int, str]]()
        self._limited = Limited()
        self._by_length = bool(state.closing)
        self._jobs_offset = state.inputs.get(jobs_source, 0)
        self.resumes = 0
        self._window = 0
        self._changed = True
        self._sent_ms: int | None = None
        self._enter_all(state.at_ms)

    def _go_by(self, part: CellPart) -> None:
        self._part = part
        self._queues = {queue.name: queue for queue in part.queues}
        self._numbers = {queue.name: number for number, queue in enumerate(part.queues)}
        self._first_queue = part.queues[0].name

    def _enter_all(self, now_ms: int) -> None:
        """Every job of the log comes to where it waits."""
        for job_id in sorted(self.state.jobs):
            self._look_at(job_id, now_ms)
            self._limited.know(self.state.jobs[job_id].spec)
        self._settle_arrays()

    @property
    def jobs_offset(self) -> int:
        """The next record of `jobs` to be taken in."""
        return self._jobs_offset

    def take_job(self, event: object, next_offset: int) -> None:
        """One record of `jobs`. Only an admitted job that the log does not know yet matters here."""
        self._jobs_offset = max(self._jobs_offset, next_offset)
        if next_offset <= self.state.inputs.get(self._jobs_source, 0) or not self.reads_ahead:
            return
        if isinstance(event, JobAdmitted):
            self._take_new(event, next_offset)
        elif isinstance(event, JobsAdmitted):
            for job in event.jobs:
                self._take_new(job, next_offset)

    def _take_new(self, event: JobAdmitted | AdmittedJob, next_offset: int) -> None:
        spec = event.spec
        if (
            spec.id not in self.state.jobs
            and spec.id not in self.state.over
            and spec.id not in self._waiting
            and not spec.hold
            and not _waits_for_more_than_room(spec)
        ):
            self._number = max(self._number, self.state.entered) + 1  # as it will have it, if none is refused
            self._enter(spec, event.submit_ms, self._number, event.digest)
            self._early.append((next_offset, spec.id))

    def take_decisions(self, decisions: Iterable[Decision], now_ms: int) -> None:
        """Decisions that the state has just been folded over."""
        for decision in decisions:
            for effect in decision.effects:
                follow = self._FOLLOW.get(type(effect))
                if follow is not None:
                    follow(self, effect, now_ms)
            if self._limited:
                self._limited.follow(decision, self.state.jobs)
        self._settle_arrays()
        self._drop_refused()

    def _settle_arrays(self) -> None:
        """Let as many elements of each array stand in line as may start now."""
        for array_id in self._limited.take_touched():
            array = self.state.arrays.get(array_id)
            most = 0 if array is None or array.most_running is None else max(0, array.most_running - array.holding)
            leave, enter = self._limited.settle(array_id, most)
            for job_id in leave:
                self._drop(job_id)
            for job_id in enter:
                job = self.state.jobs[job_id]
                self._enter(in_line(job), job.submit_ms, job.number, job.digest)

    def _begins(self, _: e.WriterStarted, _now_ms: int) -> None:
        """With a new writer the lines are shown anew."""
        self._changed = True

    def _reloads(self, effect: e.CellFileSet, now_ms: int) -> None:
        """Another cell file is in force: where its queues are others, all jobs stand in line anew."""
        part = part_in_force(effect, self._part)
        if part.queues == self._part.queues:
            return
        jobs, waiting = self.state.jobs, self._waiting
        early = [waiting[job_id] for _, job_id in self._early if job_id in waiting and job_id not in jobs]
        self._go_by(part)
        self._lines, self._waiting, self._in_order = {}, {}, None
        self._asleep, self._limited = DueHeap(), Limited()
        self._enter_all(now_ms)
        for job in early:
            self._enter(job.spec, job.submit_ms, job.number, job.digest)
        self._changed = True

    def _starts(self, effect: e.JobStarted, now_ms: int) -> None:
        self._leave(effect.job)
        if self.state.singly and effect.job in self.state.singly:
            self._look_at(effect.job, now_ms)

    def _enters(self, effect: e.JobEnqueued, now_ms: int) -> None:
        if effect.spec.array_of is not None:
            self._limited.know(effect.spec)
        if self._by_length:
            self._leave(effect.spec.id)  # it may have come before the lines were parted
        self._look_at(effect.spec.id, now_ms)

    def _is_updated(self, effect: e.JobUpdated, now_ms: int) -> None:
        """It may stand elsewhere from now on."""
        self._leave(effect.spec.id)
        self._look_at(effect.spec.id, now_ms)

    def _changes(self, effect: e.JobEffect, now_ms: int) -> None:
        self._look_at(effect.job, now_ms)

    def _maintains(self, _: e.NodeEffect, now_ms: int) -> None:
        """While there are nodes that only short jobs may use, jobs are alike only if they are as long."""
        if self._by_length is not bool(self.state.closing):
            self._by_length = not self._by_length
            for job_id in [job_id for job_id in self._waiting if job_id in self.state.jobs]:
                self._leave(job_id)
                self._look_at(job_id, now_ms)

    def _resumes(self, effect: e.InputResumed, _now_ms: int) -> None:
        """A person decided from where jobs are read on: those that stand in no log are not read before that again."""
        if effect.input == self._jobs_source:
            self._jobs_offset = effect.to_offset
            self.resumes += 1
            while self._early:
                _, job_id = self._early.popleft()
                if job_id not in self.state.jobs:
                    self._leave(job_id)

    _FOLLOW: ClassVar[dict[type[e.Effect], Callable[[QueueingService, Any, int], None]]] = {
        e.WriterStarted: _begins,
        e.CellFileSet: _reloads,
        e.JobEnqueued: _enters,
        e.JobUpdated: _is_updated,
        e.JobStarted: _starts,
        e.JobResizing: _changes,
        e.WorkersSettled: _changes,
        e.JobStopping: _changes,
        e.JobRequeued: _changes,
        e.JobHeld: _changes,
        e.JobReleased: _changes,
        e.JobReady: _changes,
        e.JobFailed: _changes,
        e.JobCancelled: _changes,
        e.MaintenanceSet: _maintains,
        e.MaintenanceBegan: _maintains,
        e.InputResumed: _resumes,
    }
    """The effects that let a job into a line or out of it. All others happen to jobs that do not wait, or change
    nothing of where they stand. A job that is no gang stands in its line also while it runs and lacks workers.
    """

    def _look_at(self, job_id: str, now_ms: int) -> None:
        """Bring one job's place in the lines to what the log says of it."""
        job = self.state.jobs.get(job_id)
        if job is None or (job.status is not JobStatus.QUEUED and not lacks(job)):
            self._leave(job_id)
            return
        pause_end_ms = next_pause_end_ms(job, now_ms)
        if pause_end_ms is not None:
            self._asleep.push((pause_end_ms, job_id), self._sleeps)
        if not may_go_on(job, now_ms):
            self._leave(job_id)
        else:
            known = self._waiting.get(job_id)
            if known is not None and (
                (known.submit_ms, known.number, known.digest) != (job.submit_ms, job.number, job.digest)
                or not job.spec.gang
            ):
                self._leave(job_id)  # the log knows another job under this id, or now it needs less
            spec = job.spec
            if spec.array_of is None or spec.array_most_running is None or job.status is not JobStatus.QUEUED:
                self._enter(in_line(job), job.submit_ms, job.number, job.digest)
            else:
                self._limited.add(spec.array_of, self._line(spec).place(spec, job.submit_ms, job.number)[1])

    def _sleeps(self, entry: tuple[int, str]) -> bool:
        job = self.state.jobs.get(entry[1])
        return job is not None and (
            job.not_before_ms == entry[0] or any(setback.until_ms == entry[0] for setback in job.setbacks)
        )

    def _enter(self, spec: JobSpec, submit_ms: int, number: int, digest: str) -> None:
        """Put a job into its line."""
        if spec.id not in self._waiting:
            line = self._line(spec)
            place = line.place(spec, submit_ms, number)
            if self._by_length:
                place = line.among_alike(place, longest_run_ms(self.state, spec))
            self._changed |= line.add(place)
            self._waiting[spec.id] = Waiting(line, place, digest, submit_ms, number, spec)

    def _leave(self, job_id: str) -> None:
        """Take a job out of its line."""
        if self._limited and job_id in self._limited.array_of:
            self._limited.remove(job_id)
        self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        known = self._waiting.pop(job_id, None)
        if known is not None:
            self._changed |= known.line.remove(known.place)

    def _line(self, spec: JobSpec) -> Line:
        name = spec.queue or self._first_queue
        queue = self._queues.get(name)
        if queue is None:
            # A queue that the file no longer has: its jobs still wait, behind those of all others.
            queue = self._queues[name] = Queue(name=name)
        line_of = (name, spec.tenant if queue.order is QueueOrder.FAIR_SHARE else "")
        line = self._lines.get(line_of)
        if line is None:
            if len(self._lines) > self._lines_room:
                self._let_go_of_empty()
            line = self._lines[line_of] = Line(queue, self._shown, line_of[1] or None)
            self._in_order = None
        return line

    def _lines_in_order(self) -> list[Line]:
        """As the cell file has the queues, then those that it no longer has; of one queue by tenant."""
        if self._in_order is None:
            last = len(self._numbers)
            names = sorted(self._lines, key=lambda line: (self._numbers.get(line[0], last), line))
            self._in_order = [self._lines[name] for name in names]
        return self._in_order

    def _let_go_of_empty(self) -> None:
        """Tenants come and go: lines in which nobody waits are let go of when there may be more of them than others."""
        self._lines = {name: line for name, line in self._lines.items() if line.waiting}
        self._lines_room = ROOM_LEAST + 2 * len(self._lines)

    def _drop_refused(self) -> None:
        """Placement has passed these records of `jobs`: a job that is not in the log now was refused."""
        read = self.state.inputs.get(self._jobs_source, 0)
        while self._early and self._early[0][0] <= read:
            _, job_id = self._early.popleft()
            if job_id not in self.state.jobs:
                self._leave(job_id)

    @property
    def early(self) -> int:
        """How many jobs stand in lines that placement has not taken in yet."""
        return len(self._early)

    def wake(self, now_ms: int) -> None:
        """Let jobs whose pause is over into their lines."""
        while self._asleep.is_due(now_ms):
            _, job_id = self._asleep.pop()
            self._look_at(job_id, now_ms)
        self._settle_arrays()

    def next_cell_ms(self) -> int | None:
        """When the next pause ends."""
        first = self._asleep.first
        return None if first is None else first[0]

    @property
    def waiting(self) -> int:
        """How many jobs stand in lines."""
        return len(self._waiting)

    def waiting_by_queue(self) -> dict[str, int]:
        """How many jobs stand in each line."""
        found = dict.fromkeys(self._queues, 0)
        for (queue, _), line in self._lines.items():
            found[queue] += line.waiting
        return found

    @property
    def reads_ahead(self) -> bool:
        """Whether jobs enter their lines before the log has them. While few wait no window is published, and most jobs
        have started by the time that the log is read.
        """
        return self._stepped or not self.are_few

    @property
    def are_few(self) -> bool:
        """Whether so few jobs wait that no window is published."""
        return self.state.waiting + len(self._early) <= self._few

    def due_in_ms(self, wall_ms: int) -> int | None:
        """How long until a window must be sent, 0 for now, None for not before something changes."""
        if self.are_few:
            self._changed = True  # the next one is sent at once, when more wait again
            return None
        if self._changed or self._sent_ms is None:
            return 0
        if not self._waiting or self._stepped:
            return None
        return max(0, self._sent_ms + RESEND_WALL_MS - wall_ms)

    def window(self, wall_ms: int) -> list[QueueOrdered]:
        """The newest window, in its parts. Sent again while jobs wait, for readers that missed it."""
        self._window += 1
        self._changed = False
        self._sent_ms = wall_ms
        lines = [line for line in self._lines_in_order() if line.waiting]
        classes = sum(len(line.rows) for line in lines)
        enough = max(2, SHOWN_IN_ALL // classes) if classes and not self._stepped else SHOWN_IN_ALL
        parts = in_parts([line.head(enough) for line in lines])
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
