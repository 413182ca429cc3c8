"""A state as rows of JSON text and back: the form of snapshots, and of comparing two states byte for byte.

The rows of a table stand in its own order: nodes as they joined, jobs as they came. Who goes on from a snapshot walks
them as who has folded the log, and so decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeVar, get_type_hints

import msgspec

from fallow.shared.cluster.fold.finished_jobs import is_digest
from fallow.shared.cluster.fold.rooms import hold
from fallow.shared.cluster.fold.spec_interning import share
from fallow.shared.cluster.model.arrays import ArrayJob
from fallow.shared.cluster.model.dependencies import index
from fallow.shared.cluster.model.job import HOLDING, WAITING, FinishedJob, Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.spec_bytes import spec_bytes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import go_by
from fallow.shared.cluster.quota.fair_use import Used
from fallow.shared.cluster.quota.quota import charge
from fallow.shared.cluster.quota.rules import contradiction
from fallow.shared.cluster.run_times.history import RunHistory
from fallow.shared.cluster.run_times.learning import Kind
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.codec.ranges import ONE_BY_ONE_MAX, places_of, ranges_of
from fallow.shared.events.effects import CellFileSet, EvictionsHeld, ReservationSet, RoomHeld
from fallow.shared.events.fields.values import WorkerRange
from fallow.shared.events.operations import CellPolicy, Quota

K = TypeVar("K", int, str)
V = TypeVar("V")

_CELL = msgspec.json.Decoder(tuple[str, int, int, int, str, int, int])
_INPUTS = msgspec.json.Decoder(tuple[tuple[str, int, int | None], ...])
_RESUMES = msgspec.json.Decoder(tuple[tuple[str, int, int, int], ...])
_ENTERED = _PATIENCE = msgspec.json.Decoder(int)
_POLICY = msgspec.json.Decoder(CellPolicy)
_CELL_FILE = msgspec.json.Decoder(tuple[int, CellFileSet])
_QUOTA = msgspec.json.Decoder(Quota)
_QUOTA_OF_FILE = msgspec.json.Decoder(tuple[Quota, bool])
_OVER = msgspec.json.Decoder(tuple[int, int, int])
_GONE = msgspec.json.Decoder(FinishedJob)
_HEAD = msgspec.json.Decoder(tuple[str, int])
_EVICTIONS = msgspec.json.Decoder(EvictionsHeld)
_RESERVATION = msgspec.json.Decoder(ReservationSet)
_ROOM = msgspec.json.Decoder(RoomHeld)
_USED = msgspec.json.Decoder(tuple[str, str, int, int, int])
_RAN = msgspec.json.Decoder(tuple[str, Kind, RunHistory])
_ENCODE = msgspec.json.Encoder().encode


def _told_of(cls: type, *more: tuple[str, Any, Any]) -> Callable[[Any], Any]:
    """What makes of a `cls` something to write, from which the fields with their default are left out: most jobs of a
    large cell have waited since they came. So are those that make no two of them differ, for they follow from others.
    It has these fields more, by name, type and default.
    """
    told_fields = [each for each in fields(cls) if each.compare]
    columns: list[Any] = [
        (each.name, Any, msgspec.field(default_factory=dict) if each.default is MISSING else each.default)
        if each.default is not MISSING or each.default_factory is not MISSING
        else (each.name, Any)
        for each in told_fields
    ]
    row: Callable[..., Any] = msgspec.defstruct(cls.__name__, [*columns, *more], omit_defaults=True)
    values = attrgetter(*(each.name for each in told_fields))
    tables = [number for number, each in enumerate(told_fields) if each.default_factory is not MISSING]

    def told(value: Any) -> Any:
        found = values(value)
        for number in tables:
            if len(found[number]) > 1:
                found = (*found[:number], _in_order(found[number]), *found[number + 1 :])
        return row(*found)

    return told


def _in_order(table: dict[K, V]) -> dict[K, V]:
    """The table sorted: nobody goes by the order of what is on one node, or of the runs of one job, and an undone
    change may leave the same content in another one.
    """
    return {key: table[key] for key in sorted(table)}


_RANGES: tuple[str, Any, Any] = ("ranges", tuple[WorkerRange, ...], ())
"""The workers of a job that has many, in place of `workers`."""

_told_of_node, _told_of_few, _told_of_array = _told_of(Node), _told_of(Job, _RANGES), _told_of(ArrayJob)


def _told_of_job(job: Job) -> Any:
    told = _told_of_few(job)
    if len(job.workers) > ONE_BY_ONE_MAX:
        told.workers, told.ranges = (), ranges_of(job.workers)
    return told


def _fields_of(cls: Callable[..., Any], *more: tuple[str, Any, Any]) -> Callable[[str], dict[str, Any]]:
    """What reads the fields of a `cls` from what `_told_of` made of it. A field that it does not have is an error, as
    in every record of which the truth is made.
    """
    hints = get_type_hints(cls)
    columns: list[Any] = []
    for each in fields(cls):  # type: ignore[arg-type]  # a dataclass
        if not each.compare:
            continue
        column: Any = (each.name, hints[each.name])
        if each.default is not MISSING:
            column = (*column, each.default)
        elif each.default_factory is not MISSING:
            column = (*column, msgspec.field(default_factory=each.default_factory))
        columns.append(column)
    row = msgspec.defstruct("Row", [*columns, *more], forbid_unknown_fields=True, gc=False)
    decode, as_dict = msgspec.json.Decoder(row).decode, msgspec.structs.asdict
    return lambda text: as_dict(decode(text))


_node_fields, _job_fields, _array_fields = _fields_of(Node), _fields_of(Job), _fields_of(ArrayJob)
_many_fields, _HAS_RANGES = _fields_of(Job, _RANGES), '"ranges":['


def _job_of_many(text: str) -> Job:
    fields = _many_fields(text)
    ranges = fields.pop("ranges")
    return Job(**{**fields, "workers": places_of(ranges)} if ranges else fields)


def rows_of(state: CellState) -> Iterator[str]:
    """The state in rows `[section, ...]`, those of a section in the order of its table. Equal states that came about by
    the same log give equal rows. Indices are left out; when they are made anew they may stand in another order, so
    nobody goes by that. What tenants used is sorted, for it follows from such an index.
    """
    yield _row("cell", (state.cell, state.version, state.epoch, state.offset, state.chain, state.at_ms, state.skipped))
    yield _row("inputs", [(name, read, state.input_checksums.get(name)) for name, read in state.inputs.items()])
    if state.input_resumes:
        yield _row("resumes", [(*resume, times) for resume, times in state.input_resumes.items()])
    if state.entered:
        yield _row("entered", state.entered)
    yield _row("policy", state.policy)
    longest = (("patience", state.longest_patience_ms), ("named", state.longest_named_ms))
    yield from (_row(section, longest_ms) for section, longest_ms in longest if longest_ms)
    if state.cell_file is not None:
        yield _row("file", (state.cell_files, state.cell_file))
    for account, quota in state.quotas.items():
        is_as_set = state.quotas_of_file.get(account)
        yield _row("quota", quota) if is_as_set is None else _row("quota_of_file", (quota, is_as_set))
    yield from (_row("node", _told_of_node(node)) for node in state.nodes.values())
    yield from (_row("job", _told_of_job(job)) for job in state.jobs.values())
    yield from (_row("array", _told_of_array(array)) for array in state.arrays.values())
    yield _row("over", (state.over_first, state.over_next, state.finished.forgotten_ms))
    for over in state.finished.in_order():
        yield _row("gone", over)
    yield from (_row("reservation", reservation) for reservation in state.reservations.values())
    yield from (_row("room", room) for room in state.rooms.values())
    for tenant, gpu_type in sorted(state.fair.used):
        yield _row("used", (tenant, gpu_type, *state.fair.used[tenant, gpu_type]))
    if state.evictions is not None:
        yield _row("evictions", state.evictions)
    yield from (_row("head", each) for each in state.heads.items())
    yield from (_row("first_plan", each) for each in state.first_plans.items())
    if state.lessons:
        yield _row("lessons", state.lessons)
    for tenant in sorted(state.learned):
        for kind in sorted(state.learned[tenant]):
            yield _row("ran", (tenant, kind, state.learned[tenant][kind]))


def _row(section: str, content: Any) -> str:
    return _ENCODE((section, content)).decode()


class DamagedRow(ValueError):
    """A row that no state was written as, or that does not go with the others. One line says what is wrong."""


def state_from(rows: Iterable[str]) -> CellState:
    """The state that these rows were made of. Raises DamagedRow."""
    state = CellState("")
    for row in rows:
        read_row(state, row)
    count_rest(state)
    return state


def read_row(state: CellState, row: str) -> None:
    """Put one row into a state that is being read. Raises DamagedRow, also on an unknown section."""
    section = row[2 : row.find('"', 2)]
    at = len(section) + 4
    read = _READ.get(section)
    if read is None:
        raise DamagedRow(f"snapshot section {shorten(section)!r} is not known to this version")
    if row[:2] != '["' or row[at - 2 : at] != '",' or row[-1] != "]":
        raise DamagedRow(f"a row of section {section} is cut")
    try:
        read(state, row[at:-1])
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError) as error:
        raise DamagedRow(f"a row of section {section}: {shorten(str(error))}") from error


def _cell(state: CellState, text: str) -> None:
    state.cell, state.version, state.epoch, state.offset, state.chain, state.at_ms, state.skipped = _CELL.decode(text)


def _inputs(state: CellState, text: str) -> None:
    rows = _INPUTS.decode(text)
    state.inputs = {name: offset for name, offset, _ in rows}
    state.input_checksums = {name: checksum for name, _, checksum in rows if checksum is not None}


def _resumes(state: CellState, text: str) -> None:
    state.input_resumes = {(name, read, start): times for name, read, start, times in _RESUMES.decode(text)}


def _entered(state: CellState, text: str) -> None:
    state.entered = _ENTERED.decode(text)


def _policy(state: CellState, text: str) -> None:
    state.policy = _POLICY.decode(text)


def _patience(state: CellState, text: str) -> None:
    state.longest_patience_ms = _PATIENCE.decode(text)


def _named(state: CellState, text: str) -> None:
    state.longest_named_ms = _PATIENCE.decode(text)


def _file(state: CellState, text: str) -> None:
    state.cell_files, state.cell_file = _CELL_FILE.decode(text)


def _quota(state: CellState, text: str) -> None:
    quota = _QUOTA.decode(text)
    state.quotas[quota.tenant, quota.gpu_type] = quota


def _quota_of_file(state: CellState, text: str) -> None:
    quota, is_as_set = _QUOTA_OF_FILE.decode(text)
    state.quotas[quota.tenant, quota.gpu_type] = quota
    state.quotas_of_file[quota.tenant, quota.gpu_type] = is_as_set


def _node(state: CellState, text: str) -> None:
    node = Node(**_node_fields(text))
    state.nodes[node.id] = node
    if node.maintenance_ms is not None and not node.in_maintenance:
        state.maintenance_starts[node.id] = node.maintenance_ms[0]
    if node.silent_wall_ms:
        state.silent[node.id] = None
    if node.offered is not None:
        state.offers[node.id] = None


def _job(state: CellState, text: str) -> None:
    job = _job_of_many(text) if _HAS_RANGES in text else Job(**_job_fields(text))
    if not is_digest(job.digest):
        raise ValueError(f"{job.digest!r} is no digest")
    share(state.kinds, job.spec)
    state.jobs[job.id] = job


def _array(state: CellState, text: str) -> None:
    array = ArrayJob(**_array_fields(text))
    if not is_digest(array.digest):
        raise ValueError(f"{array.digest!r} is no digest")
    state.arrays[array.id] = array


def _evictions(state: CellState, text: str) -> None:
    state.evictions = _EVICTIONS.decode(text)


def _over(state: CellState, text: str) -> None:
    first, _, forgotten_ms = _OVER.decode(text)
    state.finished.start_at(first, forgotten_ms)


def _gone(state: CellState, text: str) -> None:
    over = _GONE.decode(text)
    if not is_digest(over.digest):
        raise ValueError(f"{over.digest!r} is no digest")
    state.finished.add(state.undo_log.entries, *over)
    state.undo_log.trim()  # of what is read nothing is ever undone


def _reservation(state: CellState, text: str) -> None:
    reservation = _RESERVATION.decode(text)
    state.reservations[reservation.job] = reservation


def _room(state: CellState, text: str) -> None:
    room = _ROOM.decode(text)
    state.rooms[room.job] = room


def _head(state: CellState, text: str) -> None:
    job_id, since_ms = _HEAD.decode(text)
    state.heads[job_id] = since_ms


def _first_plan(state: CellState, text: str) -> None:
    job_id, start_ms = _HEAD.decode(text)
    state.first_plans[job_id] = start_ms


def _used(state: CellState, text: str) -> None:
    tenant, gpu_type, *used = _USED.decode(text)
    state.fair.used[tenant, gpu_type] = Used(*used)


def _lessons(state: CellState, text: str) -> None:
    state.lessons = _ENTERED.decode(text)


def _ran(state: CellState, text: str) -> None:
    tenant, kind, history = _RAN.decode(text)
    state.learned.setdefault(tenant, {})[kind] = history


_READ = {
    "lessons": _lessons,
    "ran": _ran,
    "cell": _cell,
    "inputs": _inputs,
    "resumes": _resumes,
    "entered": _entered,
    "policy": _policy,
    "patience": _patience,
    "named": _named,
    "file": _file,
    "quota": _quota,
    "quota_of_file": _quota_of_file,
    "node": _node,
    "job": _job,
    "array": _array,
    "over": _over,
    "gone": _gone,
    "evictions": _evictions,
    "reservation": _reservation,
    "room": _room,
    "used": _used,
    "head": _head,
    "first_plan": _first_plan,
}


def count_rest(state: CellState) -> None:
    """Everything that follows from the rest: the indices, the use, the number of waiting jobs. Raises DamagedRow where
    jobs are on nodes that are not there, or tenants are above themselves.
    """
    state.capacity.void()
    state.tree.void()
    for quota in state.quotas.values():
        wrong = contradiction(state.quotas, quota)
        if wrong is not None:
            raise DamagedRow(f"quota of {shorten(quota.tenant)}: {shorten(wrong)}")
    for job in state.jobs.values():
        if job.status in WAITING:
            state.waiting += 1
            state.waiting_of[job.spec.tenant] = state.waiting_of.get(job.spec.tenant, 0) + 1
        job.spec_bytes = spec_bytes(job.spec)
        if job.spec_bytes:
            state.live_bytes += job.spec_bytes
            state.live_bytes_of[job.spec.tenant] = state.live_bytes_of.get(job.spec.tenant, 0) + job.spec_bytes
        if job.spec.after:
            index(state, job)
        if not job.spec.gang and job.status in HOLDING:
            state.independent_jobs[job.id] = None
        if job.spec.array_of is not None and job.spec.array_of not in state.arrays:
            raise DamagedRow(f"job {shorten(job.id)} is of array {shorten(job.spec.array_of)}, which is not there")
        for place in job.workers + job.joining:
            node = state.nodes.get(place.node)
            if node is None:
                raise DamagedRow(f"job {shorten(job.id)} is on node {shorten(place.node)}, which is not there")
            account = (job.spec.tenant, node.spec.gpu_type)
            charge(state.undo_log.entries, state.tree, account, place.gpu_milli)
        state.undo_log.trim()
    _hold_rooms(state)
    go_by(state, state.policy.max_unacknowledged_starts_per_node)
    state.undo_log.trim()
    state.fair.begin(state.policy.fair_half_life_ms, state.usage)


def _hold_rooms(state: CellState) -> None:
    for room in state.rooms.values():
        if any(place.node not in state.nodes for place in room.workers) or room.job not in state.jobs:
            raise DamagedRow(f"room is held for job {shorten(room.job)} where there is none")
        hold(state, state.jobs[room.job], room.workers)
        state.undo_log.trim()


def digest_of(state: CellState) -> str:
    """A hash over the rows: equal where the same log led to equal states, whatever was tried and undone meanwhile, and
    whether it was folded from its beginning or from a snapshot.
    """
    hashed = blake2b(digest_size=16)
    for row in rows_of(state):
        hashed.update(row.encode())
        hashed.update(b"\n")
    return hashed.hexdigest()
