"""Reads job and node traces (CSV, also gzipped) into commands and nodes.

What each column means stands in `columns.py`. A job of which no workers are told, and that is larger than a node, is
split into the fewest equal workers that fit into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path

from msgspec.structs import force_setattr
from pydantic import ValidationError

from fallow.replay.columns import JOBS, NODES, needed_of
from fallow.replay.names import job_ids, label, node_ids, tenant_names
from fallow.replay.workload import PRIORITY_MAX, Timed, Workload, WorkloadError, cell_file_for, uniform_nodes
from fallow.shared.digits import is_written_with_digits
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.value import build_valid
from fallow.shared.events.fields.values import GPU, WORKERS_MAX, JobKind, JobSpec, NodeSpec, Resources, VirtualRun
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.events.validation.rules_told import LINE_RULE, rule_broken
from fallow.shared.runtime.files.table import Table
from fallow.shared.runtime.files.text_file import TextFileError, must_be_file
from fallow.shared.runtime.files.unread import READING_FAILS, unpacked, why_unread

JOB_COLUMNS, NODE_COLUMNS = needed_of(JOBS), needed_of(NODES)
JOB_NAMES, NODE_NAMES = ("job_id", "tenant", "gpu_type", "kind"), ("node_id", "gpu_type")
MS_PER_S = 1000
MIB_PER_GIB = 1024
NUMBER_MAX = 10**12
"""No trace needs a larger number, and in our units it is still one that every reader keeps exactly."""

POOL = "train"

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace, in our units. `duration_ms` None: it runs until it is cancelled."""

    id: str
    tenant: str
    submit_ms: int
    kind: JobKind
    gpu_type: str
    workers: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    duration_ms: int | None
    is_split: bool = True
    """False: its file tells no workers, and the one that stands here has all of its GPUs."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a trace and those that run already at its beginning, both in the order of their files."""

    jobs: tuple[TraceJob, ...]
    carried: tuple[TraceJob, ...] = ()


def read_trace(jobs: Path, carry: Path | None = None, limit: int | None = None) -> Trace:
    """Both files. `limit`: only so many of the earliest jobs. Raises WorkloadError with file, line, field, value and
    rule.
    """
    ids, tenants, seen = job_ids(), tenant_names(), dict[tuple[str, str], str]()
    is_one_name = carry is not None and carry.name == jobs.name

    def read(path: Path) -> Iterator[TraceJob]:
        for number, row in rows_of(path, JOB_COLUMNS):
            where = f"{path if is_one_name else path.name} line {number}"
            _must_be_printable(row, where, JOB_NAMES)
            _must_be_once(row, where, (row["tenant"], row["job_id"]), seen)
            yield _job(row, where, ids.fresh(row["job_id"]), tenants.name(row["tenant"]))

    carried = tuple(read(carry)) if carry is not None else ()
    ordered = sorted(read(jobs), key=lambda job: (job.submit_ms, job.id))
    return Trace(tuple(ordered[:limit]), carried)


def read_nodes(path: Path) -> tuple[NodeSpec, ...]:
    """The nodes of a file that have GPUs, one pool for each GPU type. Raises WorkloadError."""
    ids, pools, seen = node_ids(), tenant_names(POOL), dict[tuple[str, str], str]()
    nodes = []
    for number, row in rows_of(path, NODE_COLUMNS):
        where = f"{path.name} line {number}"
        _must_be_printable(row, where, NODE_NAMES)
        _must_be_once(row, where, ("", row["node_id"]), seen)
        gpus = _whole(row, "gpus", where)
        node_id = ids.fresh(row["node_id"])
        if gpus > 0:
            nodes.append(_node(row, where, node_id, pools.name(row.get("gpu_type", ""))))
    if not nodes:
        raise WorkloadError(f"{path}: no node has a GPU")
    return tuple(nodes)


def workload_of(trace: Trace, nodes: tuple[NodeSpec, ...], discipline: QueueDiscipline, *, typed: bool) -> Workload:
    """What is fed: the carried jobs at time 0 before all others, with the highest priority and in the order of their
    file; then the trace by (time, id). `typed`: jobs keep their GPU type, and what they need of CPU and memory; else,
    on nodes that were only counted, each runs anywhere.
    """
    tenants = list(dict.fromkeys(job.tenant for job in (*trace.carried, *trace.jobs)))
    trace = _split(trace, nodes, typed=typed)
    first = [Timed(0, command_of(job, typed=typed, priority=PRIORITY_MAX, submit_ms=0)) for job in trace.carried]
    rest = [Timed(job.submit_ms, command_of(job, typed=typed, submit_ms=job.submit_ms)) for job in trace.jobs]
    return Workload(
        commands=(*first, *rest),
        nodes=nodes,
        cell_file=cell_file_for(nodes, tenants or ["default"], discipline),
        carried=frozenset(full_id(job.tenant, job.id) for job in trace.carried),
        endless=frozenset(
            full_id(job.tenant, job.id) for job in (*trace.carried, *trace.jobs) if job.duration_ms is None
        ),
    )


def _split(trace: Trace, nodes: tuple[NodeSpec, ...], *, typed: bool) -> Trace:
    """Split jobs without a worker count into workers that fit into a node, of their type where types count."""
    largest = max(node.gpus for node in nodes)
    of_type: dict[str, int] = {}
    for node in nodes if typed else ():
        of_type[node.gpu_type] = max(node.gpus, of_type.get(node.gpu_type, 0))

    def split(job: TraceJob) -> TraceJob:
        gpus, rest = divmod(job.gpu_milli, GPU)
        fits = of_type.get(job.gpu_type, largest)
        if job.is_split or gpus <= fits or rest:
            return job
        workers = fewest_workers(gpus, fits)
        return replace(job, workers=workers, gpu_milli=gpus // workers * GPU)

    return Trace(tuple(map(split, trace.jobs)), tuple(map(split, trace.carried)))


@lru_cache(maxsize=100_000)
def fewest_workers(gpus: int, fits: int) -> int:
    """Into how many equal workers of at most so many GPUs a job is split; 1 where they would be too many."""
    fewest = -(-gpus // fits)
    return next((workers for workers in range(fewest, min(gpus, WORKERS_MAX) + 1) if gpus % workers == 0), 1)


def counted_nodes(count: int, gpus_per_node: int) -> tuple[NodeSpec, ...]:
    """`--nodes N`: equal nodes in one pool."""
    if count < 1 or gpus_per_node < 1:
        raise WorkloadError(f"--nodes {count} --gpus-per-node {gpus_per_node}: both must be at least 1")
    return tuple(uniform_nodes(count, gpus_per_node, pool=POOL))


def command_of(job: TraceJob, *, typed: bool, submit_ms: int, priority: int = 0) -> SubmitJob:
    """The job as its submitter would send it.

    A service has no end of its own: what ends by itself in the trace is sent as training, whatever it was.
    What the language does not allow (no GPU at all, 1.5 GPUs for one worker) is sent as it is: to turn it away is
    admission's work, and the outcome counts it.
    """
    needs = {
        "gpu_milli": job.gpu_milli,
        "cpu_milli": job.cpu_milli if typed else 0,
        "memory_mib": job.memory_mib if typed else 0,
    }
    resources = Resources()
    for name, value in needs.items():
        force_setattr(resources, name, value)  # unchecked: what can never be is admission's to turn away
    spec = JobSpec(
        id=job.id,
        tenant=job.tenant,
        kind=job.kind if job.duration_ms is None else JobKind.TRAINING,
        priority=priority,
        gpu_type=(job.gpu_type or None) if typed else None,
        workers=job.workers,
        resources=resources,
        run=VirtualRun(duration_ms=job.duration_ms),
    )
    return SubmitJob(job=spec, submit_ms=submit_ms)


def rows_of(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV file with their line numbers. Raises WorkloadError when it cannot be read or lacks a column."""
    try:
        must_be_file(path, may_be_pipe=True)
        with unpacked(path) as packed, TextIOWrapper(packed, encoding="utf-8") as file:
            table = Table(file)
            missing = [column for column in needed if column not in table.columns]
            if missing:
                there = f"there are {', '.join(table.columns)}" if table.columns else "it has none"
                raise WorkloadError(f"{path}: column {missing[0]} is missing; {shorten(there)}")
            for row in table:
                short = [column for column in needed if column not in row]
                if short:
                    where = f"{path.name} line {table.line_num}"
                    raise WorkloadError(f"{where}: {short[0]} is missing: the row ends before")
                yield table.line_num, row
    except TextFileError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except READING_FAILS as error:
        raise WorkloadError(f"{path}: cannot be read: {why_unread(error)}") from error


def _must_be_printable(row: Row, where: str, fields: tuple[str, ...]) -> None:
    for field in fields:
        if not row.get(field, "").isprintable():
            raise WorkloadError(f"{where}: {field} = {shorten(repr(row[field]))}: {LINE_RULE}")


def _must_be_once(row: Row, where: str, key: tuple[str, str], seen: dict[tuple[str, str], str]) -> None:
    """Raises WorkloadError where another row has this name: later rows could mean either."""
    if key in seen:
        field = "job_id" if "job_id" in row else "node_id"
        raise WorkloadError(f"{where}: {field} = {shorten(repr(key[1]))}: {seen[key]} has it already")
    seen[key] = where


def _job(row: Row, where: str, job_id: str, tenant: str) -> TraceJob:
    gpus = _number(row, "gpus", where)
    each = _per_worker(row, where)
    told = int(gpus / each) if each else 1
    workers = _whole(row, "workers", where, empty=max(1, told))
    _must_agree(row, where, gpus, each, workers)
    per_worker = each or gpus / max(1, workers)
    return TraceJob(
        id=job_id,
        tenant=tenant,
        submit_ms=_scaled(row, "submit_s", where, MS_PER_S),
        kind=JobKind.INFERENCE if row.get("kind") == JobKind.INFERENCE else JobKind.TRAINING,
        gpu_type=label(row.get("gpu_type") or ""),
        workers=workers,
        gpu_milli=int(per_worker * GPU) if gpus else 0,
        cpu_milli=_whole(row, "cpu_milli", where, empty=0),
        memory_mib=_whole(row, "memory_mib", where, empty=0),
        duration_ms=_scaled(row, "duration_s", where, MS_PER_S) if row["duration_s"] else None,
        is_split=bool(row.get("workers") or each),
    )


def _per_worker(row: Row, where: str) -> Decimal:
    """The GPUs of each worker, or 0 where the row tells none."""
    each = _number(row, "gpus_per_worker", where, empty=Decimal(0))
    if 0 < each * GPU < 1:
        shown = shorten(repr(row["gpus_per_worker"]))
        raise WorkloadError(f"{where}: gpus_per_worker = {shown}: must be 0 or at least 0.001")
    return each


def _must_agree(row: Row, where: str, gpus: Decimal, each: Decimal, workers: int) -> None:
    """Raises WorkloadError where the workers of a job have not the GPUs that it has in all: it would run as another."""
    if not gpus or not each or workers * each == gpus:
        return
    if row.get("workers"):
        rule = f"{workers} workers of {each} GPUs (gpus_per_worker) have {workers * each} in all"
    else:
        rule = f"must be a multiple of gpus_per_worker, {each}"
    raise WorkloadError(f"{where}: gpus = {shorten(repr(row['gpus']))}: {rule}")


def _node(row: Row, where: str, node_id: str, pool: str) -> NodeSpec:
    try:
        return build_valid(
            NodeSpec,
            id=node_id,
            pool=pool,
            gpu_type=label(row.get("gpu_type") or "") or "gpu",
            gpus=_whole(row, "gpus", where),
            cpu_milli=_scaled(row, "cpus", where, GPU, empty=Decimal(0)),
            memory_mib=_scaled(row, "memory_gib", where, MIB_PER_GIB, empty=Decimal(0)),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shorten(".".join(str(part) for part in first["loc"]))
        raise WorkloadError(f"{where}: {field} = {shorten(repr(first['input']))}: {rule_broken(first)}") from error


def _number(row: Row, field: str, where: str, *, empty: Decimal | None = None) -> Decimal:
    text = row.get(field) or ""
    if not text and empty is not None:
        return empty
    try:
        value = Decimal(text if is_written_with_digits(text.strip(), float) else "")
    except InvalidOperation as error:
        raise WorkloadError(f"{where}: {field} = {shorten(repr(text))}: must be a number") from error
    if not value.is_finite() or not 0 <= value <= NUMBER_MAX:
        raise WorkloadError(f"{where}: {field} = {shorten(repr(text))}: must be from 0 to {NUMBER_MAX}")
    return value


def _scaled(row: Row, field: str, where: str, factor: int, *, empty: Decimal | None = None) -> int:
    return int((_number(row, field, where, empty=empty) * factor).to_integral_value())


def _whole(row: Row, field: str, where: str, *, empty: int | None = None) -> int:
    value = _number(row, field, where, empty=None if empty is None else Decimal(empty))
    if value != value.to_integral_value():
        raise WorkloadError(f"{where}: {field} = {shorten(repr(row[field]))}: must be a whole number")
    return int(value)
