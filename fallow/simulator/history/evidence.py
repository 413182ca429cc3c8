"""What the history checker is given of a run: plain data, whether of a simulated world or of real processes.

*Moments* are integers that grow with true time: steps of a world, or milliseconds of one machine. None: not known, and
what needs it is not judged. They serve the checker alone; nothing that is judged has seen them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.view.rows import JobRow, NodeRow


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which (`I1` to `I9`, `ORDER` of starts, `LOG` for the log's own form), what happened,
    and where.
    """

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
    `value` None the bytes were never made, and the chain is not checked. `moment` is when the log took it. `is_forged`:
    a stranger put it there, and the cell has keys.
    """

    offset: int
    value: bytes | None
    chain: str
    moment: int | None = None
    decision: Decision | None = None
    is_forged: bool = False


class What(StrEnum):
    """What truly happened on a node, whatever any service wrote down."""

    BEGAN = "began"
    ADOPTED = "adopted"
    LEFT = "left"
    ENDED = "ended"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Happened:
    """A run began or ended on a node, or the node died with all of its runs; `devices` are all that the run uses.

    Where each worker is a run of its own, `rank` and `turn` name it. A run that is left stands still, or it is not
    known whether it does, until an executor adopts it.
    """

    moment: int
    node: str
    what: What
    job: str = ""
    attempt: int = 0
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    rank: int | None = None
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One record of the topic `jobs`, or `operations`.

    `source` and `offset` are where it lies, as `inputs` of a decision name it; `moment` is when the topic took it.
    """

    event: Event
    source: str
    offset: int
    moment: int | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """One submission that the log acknowledged to its sender: a command (`submit`, `cancel`, `update`) about a job.

    `is_dead`: it was set aside as a dead letter, which is an answer, too.
    """

    command: str
    job: str
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What one client was shown of a cell, in the order in which it asked.

    `at_least` is the version below which it wanted no answer; None: any will do, so that an older one is no fault.
    `jobs`: (status, attempt) of those that it asked for; None: there is no such job.
    """

    client: str
    version: int
    at_least: int | None = None
    jobs: Mapping[str, tuple[str, int] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """The whole view of a cell as it was read at one time, in rows as readers get them.

    `offset` is that of the last record that it shows. `used` is (tenant, GPU type) -> milli-GPUs in use, children
    included; None: not read.
    """

    version: int
    offset: int
    jobs: Mapping[str, JobRow]
    nodes: Mapping[str, NodeRow]
    used: Mapping[tuple[str, str], int] | None = None


@dataclass(frozen=True, slots=True)
class CellEvidence:
    """What is left of one cell.

    `diary` holds the lines of all nodes, those of one node in the order in which it wrote them. `happened` is in the
    order of time. `answers` are all records of the cell's partition of `jobs`. `liars` are nodes that
    said what was not so: their words are not held against the log. `is_drained`: faults have ended and there was time
    enough to finish everything. `is_damaged`: the log itself was harmed, so that the cell has to stand still.
    `forgotten_version`: of runs that were ordered by this version the diaries tell all, or nothing.
    `cut` are sources of answers (`jobs-0`) that lost their tail, and from which offset on: what stands there came
    later. `lost_answers` are those that were lost or damaged there. `dead` are admitted jobs (source, offset, job)
    that may be set aside as dead letters. `deaf` is the reign whose writer does not know that its own record was
    damaged.
    `has_all_requests`: what is neither in `answers` nor in `lost_answers` was not asked for.
    `operations` are the records of the cell's partition of that topic, `lost_operations` those that were lost or
    damaged there. `files` are the cell files by which the cell's writers may have gone, as what their JSON says,
    `on_disk` those that lay on the disk of every machine, as the log holds them: from which moment on each did.
    `late` is by how much (in moments) something may end behind the time at which it had to be over, `unaware` for how
    long after a harm to the log a writer may not have looked yet. From `quiet_from` on a writer lives at all times; the
    order of starts is judged where it is given.
    """

    cell: str
    log: Sequence[LogEntry]
    diary: Sequence[DiaryLine] = ()
    happened: Sequence[Happened] = ()
    liars: frozenset[str] = frozenset()
    answers: Sequence[Answer] = ()
    readings: Sequence[Reading] = ()
    views: Sequence[View] = ()
    is_drained: bool = False
    is_damaged: bool = False
    late: int = 0
    unaware: int = 0
    forgotten_version: int = 0
    cut: Mapping[str, int] = field(default_factory=dict)
    lost_answers: Sequence[Event] = ()
    dead: frozenset[tuple[str, int, str]] = frozenset()
    deaf: int | None = None
    quiet_from: int | None = None
    has_all_requests: bool = False
    operations: Sequence[Answer] = ()
    lost_operations: Sequence[Event] = ()
    files: Sequence[Mapping[str, Any]] = ()
    on_disk: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is left of a whole run. `wishes` are judged where every cell is drained: an answer may be on its way.

    `submissions` are all commands that tenants' topics hold (None: not known), `files` the cell files by which
    admission may have gone, as what their JSON says.
    """

    cells: Sequence[CellEvidence]
    wishes: Sequence[Wish] = ()
    submissions: Sequence[SubmitJob | CancelJob | UpdateJob] | None = None
    files: Sequence[Mapping[str, Any]] = ()
