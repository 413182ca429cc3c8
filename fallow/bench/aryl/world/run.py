"""One job with all that happens to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PARTS = 10
"""Speed is counted in tenths, so that 0.7 of it is whole."""

SPLIT_PARTS = 7
"""The speed of a job on two GPU types at once (Lyra, section 7.1: at most 70 %)."""


class Where(StrEnum):
    """Where the base workers of a job are. `both`: split over training and lent servers."""

    TRAINING = "training"
    LENT = "lent"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class TraceRun:
    """What a job wants. `base_ms` is its run time with its base workers; `is_counted`: it is in the statistics."""

    id: str
    number: int
    submit_ms: int
    base_ms: int
    workers: int
    gpus_each: int
    is_counted: bool = True
    is_fungible: bool = False
    is_elastic: bool = False
    is_heterogeneous: bool = False

    @property
    def gpus(self) -> int:
        """Of its base workers."""
        return self.workers * self.gpus_each

    @property
    def gpu_ms(self) -> int:
        """Its work."""
        return self.gpus * self.base_ms

    @property
    def flexible_max(self) -> int:
        """How many workers it may have beyond its base: as many again."""
        return self.workers if self.is_elastic else 0


class Run:
    """One job while the world runs. Times are ms; None where it has not come to that."""

    __slots__ = (
        "end_ms", "flexible", "job", "lent_workers", "lost_gpu_ms", "preemptions", "rate", "resizes", "since_ms",
        "start_ms", "version", "waited_ms", "waits_since_ms", "where", "work",
    )  # fmt: skip

    def __init__(self, job: TraceRun) -> None:
        self.job = job
        self.work = job.base_ms * job.workers * PARTS
        """What was left at `since_ms`, in worker-ms of tenths."""
        self.rate = self.flexible = self.version = self.preemptions = self.resizes = 0
        self.waited_ms = self.lost_gpu_ms = 0
        self.since_ms, self.waits_since_ms = 0, job.submit_ms
        self.start_ms: int | None = None
        self.end_ms: int | None = None
        self.where: Where | None = None
        self.lent_workers = 0
        """Of its base workers, those on lent servers."""

    def begin(self, now_ms: int, where: Where, lent_workers: int) -> None:
        """It starts with its base workers."""
        self.where, self.lent_workers, self.since_ms, self.flexible = where, lent_workers, now_ms, 0
        self.start_ms = now_ms if self.start_ms is None else self.start_ms
        self.waited_ms += now_ms - self.waits_since_ms
        self._set_rate()

    def settle(self, now_ms: int) -> None:
        """Count its work up to now."""
        self.work = max(0, self.work - self.rate * (now_ms - self.since_ms))
        self.since_ms = now_ms

    def resize(self, now_ms: int, flexible: int) -> None:
        """It goes on with so many flexible workers."""
        self.settle(now_ms)
        self.flexible = flexible
        self.resizes += 1
        self._set_rate()

    def stop(self, now_ms: int, *, restart_ms: int, keeps_work: bool) -> None:
        """It is preempted and waits again; its work is lost, and a restart takes time, unless it keeps its work."""
        self.settle(now_ms)
        if not keeps_work:
            whole = (self.job.base_ms + restart_ms) * self.job.workers * PARTS
            self.lost_gpu_ms += (
                max(0, self.job.base_ms * self.job.workers * PARTS - self.work) * self.job.gpus_each // PARTS
            )
            self.work = whole
        self.where, self.flexible, self.rate = None, 0, 0
        self.waits_since_ms = now_ms
        self.preemptions += 1

    def base_ms_left(self, now_ms: int) -> int:
        """The run time with the base workers of the work that is left, rounded up."""
        return -(-max(0, self.work - self.rate * (now_ms - self.since_ms)) // (self.job.workers * PARTS))

    def due_ms(self) -> int:
        """When it ends at its present speed."""
        return self.since_ms - (-self.work // self.rate)

    def _set_rate(self) -> None:
        parts = SPLIT_PARTS if self.where is Where.BOTH else PARTS
        self.rate = (self.job.workers + self.flexible) * parts
        self.version += 1
