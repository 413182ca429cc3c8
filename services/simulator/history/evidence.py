"""What the history checker is given of a run: plain data, whether of a simulated world or of real processes.

*Moments* are integers that grow with true time: steps of a world, or milliseconds of one machine. None: not known, and
what needs it is not judged. They serve the checker alone; nothing that is judged has seen them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.cluster.diary import DiaryLine
from shared.events.base import Event
from shared.events.decisions import Decision


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which (`I1` to `I9`, or `LOG` for the log's own form), what happened, and where."""

    invariant: str
    text: str
    where: str = ""

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.invariant} {self.text}" + (f" ({self.where})" if self.where else "")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One record of a cell's decision log as it lies there.

    `decision` is what the bytes decode to where the run passes objects along; else the checker decodes `value`. With
    `value` None the bytes were never made, and the chain is not checked. `moment` is when the log took it.
    """

    offset: int
    value: bytes | None
    chain: str
    moment: int | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One line of a node's diary, and when it was written."""

    line: DiaryLine
    moment: int | None = None


@dataclass(frozen=True, slots=True)
class Away:
    """From `since` to before `until` (None: to the end) nothing ran on the node, whatever its diary says.

    `dies`: what ran is gone for good (its agent was killed); else it stood still and goes on (its agent was stopped).
    """

    node: str
    since: int
    until: int | None = None
    dies: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """One record of the topic `jobs`.

    `source` and `offset` are where it lies, as `inputs` of a decision name it. `origin` names the submission that it
    answers; "" where that is not known.
    """

    event: Event
    source: str
    offset: int
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """One submission that the log acknowledged to its sender: a command (`submit`, `cancel`, `update`) about a job.

    `origin` names it (`topic/partition/offset`); "" where that is not known. `moment` is when its sender was told.
    """

    command: str
    job: str
    origin: str = ""
    moment: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one client was shown of a cell at one time. `jobs`: (status, attempt) of some jobs; None: no such job."""

    client: str
    version: int
    jobs: Mapping[str, tuple[str, int] | None] | None = None


class JobShown(Protocol):
    """A row of a job, with all that a reader of the view gets of it."""

    @property
    def id(self) -> str:
        """The job's id."""


class NodeShown(Protocol):
    """A row of a node."""

    @property
    def id(self) -> str:
        """The node's id."""


@dataclass(frozen=True, slots=True)
class View:
    """The whole view of a cell as it was read at one time, in rows as readers get them.

    `offset` is that of the last record that it shows. `used` is (tenant, GPU type) -> milli-GPUs in use, children
    included; None: not read.
    """

    version: int
    offset: int
    jobs: Sequence[JobShown]
    nodes: Sequence[NodeShown]
    used: Mapping[tuple[str, str], int] | None = None


@dataclass(frozen=True, slots=True)
class CellEvidence:
    """What is left of one cell.

    `diary` holds the lines of all nodes, those of one node in the order in which it wrote them. `liars` are nodes that
    said what was not so: their words are not held against the log. `is_drained`: faults have ended and there was time
    enough to finish everything. `is_damaged`: the log itself was harmed, so that the cell has to stand still.
    `late` is by how much (in moments) a diary may lag behind what it tells. `answers` are all records of the cell's
    partition of `jobs`.
    """

    cell: str
    log: Sequence[LogEntry]
    diary: Sequence[NodeEntry] = ()
    away: Sequence[Away] = ()
    liars: frozenset[str] = frozenset()
    answers: Sequence[Answer] = ()
    readings: Sequence[Reading] = ()
    views: Sequence[View] = ()
    is_drained: bool = False
    is_damaged: bool = False
    late: int = 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is left of a whole run. `dead` are the origins of submissions that were set aside as dead letters."""

    cells: Sequence[CellEvidence]
    wishes: Sequence[Wish] = ()
    dead: frozenset[str] = frozenset()
