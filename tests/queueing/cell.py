"""A cell as queueing sees it: a log of decisions and a topic of admitted jobs, both by hand."""

from __future__ import annotations

from typing import Any

from services.queueing.policy.row import Shown
from services.queueing.service import QueueingService
from shared.cluster.config import CellPart, Pool, Queue
from shared.cluster.fold import extend
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision, next_chain
from shared.events.encoding import encode
from shared.events.jobs import JobAdmitted
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.reasons import RequeueReason
from shared.events.values import JobSpec, NodeSpec, NodeStatus, WorkerPlace

CELL = "cell-a"
DIGEST = "0123456789abcdef" * 2
STRICT = QueueDiscipline.STRICT_FIFO
PART = CellPart(
    name=CELL,
    ordinal=0,
    pools=(Pool(name="train", gpus=8),),
    queues=(Queue(name="default"), Queue(name="strict", discipline=STRICT), Queue(name="night")),
)


class Cell:
    """The queueing service, and the log that it follows."""

    def __init__(self, most: int = 256, *, stepped: bool = False, few: int = -1) -> None:
        """`most` jobs of each class are shown; up to `few` jobs wait without any window."""
        self.state = CellState(CELL)
        self.now_ms = 0
        self.read = 0
        self.service = QueueingService(
            self.state,
            PART,
            writer="queueing-1",
            jobs_source="jobs-0",
            stepped=stepped,
            shown=Shown(most, most),
            few=few,
        )

    def decide(self, *effects: Any) -> None:
        """One record of the log: these effects, and all admitted jobs so far taken in."""
        state = self.state
        decision = Decision(
            cell=CELL,
            version=state.version + 1,
            epoch=1,
            inputs={"jobs-0": self.read},
            at_ms=max(self.now_ms, state.at_ms),
            effects=effects,
        )
        extend(state, decision, next_chain(state.chain, encode(decision)))
        self.service.take_decisions([decision], self.now_ms)

    def admit(self, *specs: JobSpec, submit_ms: int = 0) -> None:
        """Admission lets these in; the log does not know them yet."""
        for spec in specs:
            self.read += 1
            event = JobAdmitted(cell=CELL, spec=spec, submit_ms=submit_ms, digest=DIGEST)
            self.service.take_job(event, self.read)

    def enqueue(self, *specs: JobSpec, submit_ms: int = 0) -> None:
        """The log takes these in."""
        self.decide(*(e.JobEnqueued(spec=spec, submit_ms=submit_ms, digest=DIGEST) for spec in specs))

    def start(self, job: str) -> None:
        """The job starts, on a node of its own."""
        attempt, workers = self.state.jobs[job].attempt + 1, self.state.jobs[job].spec.workers
        spec = NodeSpec(id=f"node-of-{job}", pool="train", gpus=8)
        places = tuple(WorkerPlace(rank=r, node=spec.id, devices=(r,), gpu_milli=1000) for r in range(workers))
        self.decide(
            e.NodeChanged(spec=spec, boot="b", status=NodeStatus.READY),
            e.JobStarted(job=job, attempt=attempt, workers=places),
        )

    def requeue(self, job: str, not_before_ms: int) -> None:
        """The job waits again, with a pause."""
        reason = RequeueReason.WORKER_FAILED
        self.decide(e.JobRequeued(job=job, reason=reason, not_before_ms=not_before_ms, failures=1))

    def heads(self) -> list[QueueHead]:
        """The heads of the newest window, piece by piece."""
        return [head for part in self.service.window(0) for head in part.heads]

    def order(self, queue: str = "default") -> list[str]:
        """The jobs that the newest window shows of a queue."""
        return [job for head in self.heads() if head.queue == queue for job in head.jobs]

    def is_due(self) -> bool:
        """Whether a new window must be sent at once."""
        return self.service.due_in_ms(0) == 0


def spec(job: str, **fields: Any) -> JobSpec:
    """A small job."""
    return JobSpec(**{"id": job, "tenant": "ada", **fields})
