"""A state as rows of JSON text and back: the form of snapshots, and of comparing two states byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from shared.cluster.job import WAITING, Job, JobStatus
from shared.cluster.node import Node
from shared.cluster.quota import charge
from shared.cluster.state import CellState
from shared.events.effects import ReservationSet
from shared.events.operations import CellPolicy, Quota

K = TypeVar("K", int, str)
V = TypeVar("V")

_JOB = msgspec.json.Decoder(Job)
_NODE = msgspec.json.Decoder(Node)
_RESERVATION = msgspec.json.Decoder(ReservationSet)
_POLICY = msgspec.json.Decoder(CellPolicy)
_QUOTA = msgspec.json.Decoder(Quota)
_ENCODE = msgspec.json.Encoder().encode


def rows_of(state: CellState) -> Iterator[str]:
    """The state in rows `[section, ...]`, in a total order. Equal states give equal rows; indices are left out."""
    yield _row("cell", [state.cell, state.version, state.epoch, state.offset, state.chain, state.at_ms, state.skipped])
    yield _row("inputs", sorted(state.inputs.items()))
    yield f'["policy",{_text(state.policy)}]'
    for account in sorted(state.quotas):
        yield f'["quota",{_text(state.quotas[account])}]'
    for node_id in sorted(state.nodes):
        yield f'["node",{_text(_node_in_order(state.nodes[node_id]))}]'
    for job_id in sorted(state.jobs):
        yield f'["job",{_text(_job_in_order(state.jobs[job_id]))}]'
    yield _row("over", [state.over_first, state.over_next])
    for over in state.over.in_order():
        yield _row("gone", [over.id, over.tenant, over.digest, over.status.value, over.over_ms])
    for job_id in sorted(state.reservations):
        yield f'["reservation",{_text(state.reservations[job_id])}]'


def _text(value: object) -> str:
    return _ENCODE(value).decode()


def _node_in_order(node: Node) -> Node:
    """The node with its tables sorted: an undone change leaves the same content in another order."""
    is_in_order = len(node.jobs) <= 1 and len(node.shares) <= 1
    return node if is_in_order else replace(node, jobs=_in_order(node.jobs), shares=_in_order(node.shares))


def _job_in_order(job: Job) -> Job:
    return job if len(job.runs) <= 1 else replace(job, runs=_in_order(job.runs))


def _in_order(table: dict[K, V]) -> dict[K, V]:
    return {key: table[key] for key in sorted(table)}


def _row(section: str, content: Any) -> str:
    return json.dumps([section, content], separators=(",", ":"))


def state_from(rows: Iterable[str]) -> CellState:
    """The state that these rows were made of. Raises ValueError on an unknown section."""
    state = CellState("")
    for row in rows:
        read_row(state, row)
    count_rest(state)
    return state


def read_row(state: CellState, row: str) -> None:
    """Put one row into a state that is being read. Raises ValueError on an unknown section."""
    section = row[2 : row.index('"', 2)]
    read = _READ.get(section)
    if read is None:
        raise ValueError(f"snapshot section {section!r} is not known to this version")
    read(state, row[len(section) + 4 : -1])


def _cell(state: CellState, text: str) -> None:
    state.cell, state.version, state.epoch, state.offset, state.chain, state.at_ms, state.skipped = json.loads(text)


def _inputs(state: CellState, text: str) -> None:
    state.inputs = dict(json.loads(text))


def _policy(state: CellState, text: str) -> None:
    state.policy = _POLICY.decode(text)


def _quota(state: CellState, text: str) -> None:
    quota = _QUOTA.decode(text)
    state.quotas[quota.tenant, quota.gpu_type] = quota


def _node(state: CellState, text: str) -> None:
    node = _NODE.decode(text)
    state.nodes[node.id] = node


def _job(state: CellState, text: str) -> None:
    job = _JOB.decode(text)
    state.jobs[job.id] = job


def _over(state: CellState, text: str) -> None:
    state.over.start_at(json.loads(text)[0])


def _gone(state: CellState, text: str) -> None:
    job_id, tenant, digest, status, over_ms = json.loads(text)
    state.over.add(state.journal.entries, job_id, tenant, digest, JobStatus(status), over_ms)


def _reservation(state: CellState, text: str) -> None:
    reservation = _RESERVATION.decode(text)
    state.reservations[reservation.job] = reservation


_READ = {
    "cell": _cell,
    "inputs": _inputs,
    "policy": _policy,
    "quota": _quota,
    "node": _node,
    "job": _job,
    "over": _over,
    "gone": _gone,
    "reservation": _reservation,
}


def count_rest(state: CellState) -> None:
    """Everything that follows from the rest: the indices, the use, the number of waiting jobs."""
    undo = state.journal.entries
    state.capacity.void()
    for job in state.jobs.values():
        state.waiting += job.status in WAITING
        for place in job.workers + job.joining:
            gpu_type = state.nodes[place.node].spec.gpu_type
            charge(undo, state.quotas, state.usage, (job.spec.tenant, gpu_type), place.gpu_milli)
    state.journal.trim()


def digest_of(state: CellState) -> str:
    """A hash over the rows: equal for equal states, whatever the order in which they came about."""
    hashed = blake2b(digest_size=16)
    for row in rows_of(state):
        hashed.update(row.encode())
        hashed.update(b"\n")
    return hashed.hexdigest()
