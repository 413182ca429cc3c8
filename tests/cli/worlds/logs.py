"""Writes decision logs for tests: honest ones, which the model has checked, and dishonest ones, which it has not."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.shared.cluster.fold.fold import extend, seal
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.decisions import CHAIN_HEADER, Decision, next_chain
from fallow.shared.events.effects import (
    AnyEffect,
    JobEnqueued,
    JobFinished,
    JobRunning,
    JobStarted,
    NodeChanged,
    QuotaSet,
    WriterStarted,
)
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import Quota
from fallow.shared.log.port import Record

DIGEST = "0" * 32


class LogWriter:
    """Appends decisions with right versions and chains. `write` asks the model first, `write_unchecked` does not."""

    def __init__(self, cell: str = "main", topic: str = "t.decisions") -> None:
        self.state = CellState(cell)
        self.records: list[Record] = []
        self._topic = topic
        self._chain_before = self.state.chain

    def write(self, *effects: AnyEffect, at_ms: int | None = None) -> Record:
        decision, record = self._next(effects, at_ms)
        self._chain_before = self.state.chain
        extend(self.state, decision, chain_of(record))
        return self._keep(record)

    def write_unchecked(self, *effects: AnyEffect, at_ms: int | None = None) -> Record:
        decision, record = self._next(effects, at_ms)
        seal(self.state, decision, chain_of(record))
        return self._keep(record)

    def write_stale(self) -> Record:
        """What a writer appends that has not seen the newest version."""
        decision = Decision(cell=self.state.cell, version=self.state.version, epoch=0, at_ms=self.state.at_ms)
        return self._keep(self._record(decision, next_chain(self._chain_before, encode(decision))))

    def _next(self, effects: Sequence[AnyEffect], at_ms: int | None) -> tuple[Decision, Record]:
        decision = Decision(
            cell=self.state.cell,
            version=self.state.version + 1,
            epoch=1,
            at_ms=self.state.at_ms + 1 if at_ms is None else at_ms,
            effects=tuple(effects),
        )
        return decision, self._record(decision, next_chain(self.state.chain, encode(decision)))

    def _record(self, decision: Decision, chain: str) -> Record:
        headers = ce_headers(decision, id=f"{decision.cell}/{decision.version}", source="test", wall_ms=0)
        return Record(
            self._topic,
            0,
            len(self.records),
            decision.key().encode(),
            encode(decision),
            (*headers, (CHAIN_HEADER, chain.encode())),
            0,
        )

    def _keep(self, record: Record) -> Record:
        self.state.offset = record.offset
        self.records.append(record)
        return record


def chain_of(record: Record) -> str:
    return dict(record.headers)[CHAIN_HEADER].decode()


def node(number: int, gpus: int = 8, pool: str = "training") -> NodeChanged:
    spec = NodeSpec(id=f"node-{number}", pool=pool, gpus=gpus)
    return NodeChanged(spec=spec, boot=f"node-{number}.1", status=NodeStatus.READY)


def enqueued(job: str, gpus: int = 1, workers: int = 1, tenant: str = "vision") -> JobEnqueued:
    spec = JobSpec(id=job, tenant=tenant, workers=workers, resources=Resources(gpu_milli=gpus * 1000))
    return JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST)


def place(node_number: int, *devices: int, rank: int = 0) -> WorkerPlace:
    return WorkerPlace(rank=rank, node=f"node-{node_number}", devices=devices, gpu_milli=1000 * len(devices))


def started(job: str, *places: WorkerPlace, attempt: int = 1) -> JobStarted:
    return JobStarted(job=job, attempt=attempt, workers=places)


def an_honest_log(of: str = "") -> LogWriter:
    """Two nodes; one job that has finished, one of two workers that runs, one that waits, and a stale record. What
    stands before the jobs' names: nothing, or `vision/`.
    """
    first, second, third = f"{of}first", f"{of}second", f"{of}third"
    log = LogWriter()
    log.write(WriterStarted(epoch=1, writer="placement"))
    log.write(QuotaSet(quota=Quota(tenant="vision", gpu_type="gpu", limit_milli=16_000)))
    log.write(node(0), node(1))
    log.write(enqueued(first, 2), started(first, place(0, 0, 1)))
    log.write(JobRunning(job=first, attempt=1))
    log.write_stale()
    log.write(enqueued(second, 4, workers=2))
    log.write(started(second, place(0, 2, 3, 4, 5), place(1, 0, 1, 2, 3, rank=1)))
    log.write(JobFinished(job=first, attempt=1), JobRunning(job=second, attempt=1))
    log.write(enqueued(third, 8))
    return log
