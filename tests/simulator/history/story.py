"""A run told by hand: decisions, what happened on nodes, what clients were told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.fields.value import replace as changed
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.jobs import JobAdmitted
from fallow.simulator.history.evidence import Answer, CellEvidence, Evidence, Happened, LogEntry, What, Wish
from fallow.simulator.history.judge import judge
from tests.cluster.worlds.examples import DIGEST, enqueued, node, place, started

CELL = "cell-a"


@dataclass
class Story:
    """What is told goes into the evidence in the order of telling; each thing takes one moment."""

    log: list[LogEntry] = field(default_factory=list)
    diary: list[DiaryLine] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    wishes: list[Wish] = field(default_factory=list)
    version: int = 0
    chain: str = CHAIN_START
    moment: int = 0

    def decide(self, *effects: Any, at_ms: int = 0, **fields: Any) -> Story:
        """A decision that extends the ones before."""
        self.version += 1
        known = {"cell": CELL, "version": self.version, "epoch": 1, "at_ms": at_ms}
        value = encode(Decision(**{**known, **fields}, effects=effects))
        self.chain = next_chain(self.chain, value)
        return self.record(value, self.chain)

    def record(self, value: bytes, chain: str) -> Story:
        """Any bytes in the decision log."""
        self.moment += 1
        self.log.append(LogEntry(len(self.log), value, chain, self.moment))
        return self

    def begins(self, job: str, on: str, *devices: int, attempt: int = 1) -> Story:
        """A run begins and its node writes it down."""
        self.writes("started", job, on, *devices, attempt=attempt)
        return self.happens(What.BEGAN, job, on, *devices, attempt=attempt)

    def ends(self, job: str, on: str, *devices: int, attempt: int = 1, status: RunStatus = RunStatus.FINISHED) -> Story:
        """A run ends and its node writes it down."""
        self.writes("ended", job, on, *devices, attempt=attempt, status=status)
        return self.happens(What.ENDED, job, on, *devices, attempt=attempt)

    def happens(self, what: What, job: str, on: str, *devices: int, attempt: int = 1) -> Story:
        """Something happens on a node, whatever it writes down."""
        self.moment += 1
        self.happened.append(Happened(self.moment, on, what, job, attempt, devices, 1000 if devices else 0))
        return self

    def writes(self, event: Any, job: str, on: str, *devices: int, attempt: int = 1, status: Any = None) -> Story:
        """A node writes something down, whether it is so or not."""
        line = DiaryLine(
            node=on,
            job=job,
            attempt=attempt,
            event=event,
            devices=devices,
            gpu_milli=1000,
            status=status,
            cell_ms=0,
            wall_ms=self.moment,
        )
        self.diary.append(line)
        return self

    def worker_begins(self, job: str, on: str, rank: int, device: int, turn: int = 0) -> Story:
        """A single worker of a job that is no gang begins, and its node writes it down."""
        return self._worker("started", What.BEGAN, (job, on, rank, device, turn))

    def worker_ends(self, job: str, on: str, rank: int, device: int, turn: int = 0) -> Story:
        """A worker's end, because it was told to stop."""
        return self._worker("ended", What.ENDED, (job, on, rank, device, turn))

    def _worker(self, event: Any, what: What, worker: tuple[str, str, int, int, int]) -> Story:
        job, on, rank, device, turn = worker
        self.writes(event, job, on, device, status=RunStatus.STOPPED if event == "ended" else None)
        self.diary[-1] = changed(self.diary[-1], rank=rank, turn=turn)
        self.happens(what, job, on, device)
        self.happened[-1] = replace(self.happened[-1], rank=rank, turn=turn)
        return self

    def answered(self, event: Event) -> Story:
        """A record of `jobs`."""
        self.answers.append(Answer(event, "jobs-0", len(self.answers)))
        return self

    def evidence(self, **more: Any) -> CellEvidence:
        """All of it."""
        told = CellEvidence(CELL, self.log, diary=self.diary, happened=self.happened, answers=self.answers)
        return replace(told, **more)

    def broken(self, **more: Any) -> list[str]:
        """The promises that the checker finds broken."""
        return [violation.invariant for violation in judge(Evidence([self.evidence(**more)], self.wishes))]

    def texts(self, **more: Any) -> list[str]:
        """What the checker says."""
        return [violation.text for violation in judge(Evidence([self.evidence(**more)], self.wishes))]


def admitted(job: str, **spec: Any) -> JobAdmitted:
    """What admission says of the job that `enqueued` takes in."""
    return JobAdmitted(cell=CELL, spec=enqueued(job, **spec).spec, submit_ms=0, digest=DIGEST)


def two_nodes() -> Story:
    """A cell of two nodes with two devices each."""
    return Story().decide(e.WriterStarted(epoch=1, writer="one"), node("n1", gpus=2), node("n2", gpus=2))


def with_gang() -> Story:
    """A gang of two that has started, one worker on each node."""
    gang = started("gang", place(0, "n1", 0), place(1, "n2", 0))
    return two_nodes().decide(enqueued("gang", workers=2), gang).begins("gang", "n1", 0).begins("gang", "n2", 0)


def finished_gang() -> Story:
    """A gang from its submission to its end."""
    story = with_gang().decide(e.JobRunning(job="gang", attempt=1)).ends("gang", "n1", 0).ends("gang", "n2", 0)
    return story.decide(e.JobFinished(job="gang", attempt=1))
