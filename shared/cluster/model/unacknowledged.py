"""How many workers were started on each node and are not confirmed by it yet; nodes with too many take nothing new.

Kept only in a cell whose policy says how many are too many. It follows from the jobs, and is counted anew from these
when it is switched on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fallow.shared.cluster.model.job import Job, worker_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.fields.values import RunStatus, WorkerPlace

if TYPE_CHECKING:
    from fallow.shared.cluster.model.state import CellState

_STARTING = RunStatus.STARTING


@dataclass(slots=True)
class Unacknowledged:
    """`counts` has the nodes with any such worker; `full` those with `most` or more. `opened` tells that a node has
    come out of these, until a caller takes that in; `changes` counts how often a node went in or out.
    """

    most: int
    counts: dict[str, int] = field(default_factory=dict)
    full: dict[str, Node] = field(default_factory=dict)
    opened: bool = field(default=False, compare=False)
    changes: int = field(default=0, compare=False)

    def enter(self, state: CellState, job: Job) -> None:
        """Count what of this job's is starting."""
        for node in starting_on(job):
            self._add(state, node, 1)

    def leave(self, state: CellState, job: Job) -> None:
        """No longer count it: something of the job is about to change."""
        for node in starting_on(job):
            self._add(state, node, -1)

    def start(self, state: CellState, places: Sequence[WorkerPlace]) -> None:
        """These workers enter a job that is no gang."""
        for place in places:
            self._add(state, place.node, 1)

    def heard(self, state: CellState, job: Job, ranks: Iterable[int]) -> None:
        """Single workers of these ranks have started, or are over: of those that were starting that is now known."""
        for rank in ranks:
            place = worker_of(job, rank)
            if place is not None and job.runs.get(str(rank)) is _STARTING:
                self._add(state, place.node, -1)

    def confirm(self, state: CellState, job: Job, node: str) -> None:
        """A node says that its workers of this gang have started, or are over."""
        if job.runs[node] is _STARTING:
            self._add(state, node, -state.nodes[node].jobs[job.spec.id])

    def take_opened(self) -> bool:
        """Whether a node takes new work again that did not when this was asked last."""
        opened, self.opened = self.opened, False
        return opened

    def _add(self, state: CellState, node_id: str, more: int) -> None:
        count, node = self.counts.get(node_id, 0), state.nodes[node_id]
        state.undo_log.entries.append((_put, self, (node, state.capacity.noted), count))
        _put(self, (node, state.capacity.noted), count + more)


def _put(index: Unacknowledged, at: tuple[Node, dict[str, Node]], count: int) -> None:
    node, noted = at
    if count:
        index.counts[node.spec.id] = count
    else:
        index.counts.pop(node.spec.id, None)
    is_full = count >= index.most
    if is_full is node.is_full:
        return
    node.is_full = is_full
    noted[node.spec.id] = node
    index.changes += 1
    if is_full:
        index.full[node.spec.id] = node
    else:
        del index.full[node.spec.id]
        index.opened = True


def starting_on(job: Job) -> Iterator[str]:
    """The node of each worker that is starting."""
    runs, gang = job.runs, job.spec.gang
    for place in job.workers + job.joining:
        if runs.get(place.node if gang else str(place.rank)) is _STARTING:
            yield place.node


@contextmanager
def closed(state: CellState, nodes: Sequence[Node]) -> Iterator[None]:
    """While this lasts these nodes, which may get new work, count as full: for who asks what would fit without them. It
    costs as much as so many changes of nodes; the state is the same afterwards.
    """
    noted = state.capacity.noted
    for node in nodes:
        node.is_full, noted[node.spec.id] = True, node
    try:
        yield
    finally:
        for node in nodes:
            node.is_full, noted[node.spec.id] = False, node


def count_unacknowledged(state: CellState, most: int) -> Unacknowledged | None:
    """The index for a policy that says `most`, counted from the jobs; None where it says nothing. The nodes are not
    told.
    """
    if not most:
        return None
    counts: dict[str, int] = {}
    for job in state.jobs.values():
        for node in starting_on(job):
            counts[node] = counts.get(node, 0) + 1
    full = {node: state.nodes[node] for node, count in counts.items() if count >= most}
    return Unacknowledged(most, counts, full)


def go_by(state: CellState, most: int) -> None:
    """The policy says another number."""
    before, journal, noted = state.unacknowledged, state.undo_log, state.capacity.noted
    if (0 if before is None else before.most) == most:
        return
    now = count_unacknowledged(state, most)
    journal.set(state, "unacknowledged", now)
    for node in {**(before.full if before is not None else {}), **(now.full if now is not None else {})}.values():
        is_full = now is not None and node.spec.id in now.full
        if is_full is not node.is_full:
            journal.set(node, "is_full", is_full)
            journal.entries.append((dict.__setitem__, noted, node.spec.id, node))
            noted[node.spec.id] = node
