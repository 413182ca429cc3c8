"""Topic `queue`: the next jobs in each queue, and when jobs that do not fit will start, as queueing plans it.

The order tells people; what starts, placement decides. Planned starts are proposals: placement looks at each on the
newest state and puts it in force, or not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from fallow.shared.events.base import LANGUAGE, CellEvent, Count, JobId, Millis, Name, Value
from fallow.shared.events.fields.values import WorkerPlace


class QueueDiscipline(StrEnum):
    """How a queue lets jobs past one that does not fit (Kant 3.2): none, all, or all until that one has waited long."""

    STRICT_FIFO = "strict-fifo"
    BEST_EFFORT_FIFO = "best-effort-fifo"
    BACKFILL = "backfill"


class QueueOrder(StrEnum):
    """Whose job of a queue is next: the oldest of the highest priority, or one of the tenant with the least share."""

    FIFO = "fifo"
    FAIR_SHARE = "fair-share"


class QueuePlan(Value):
    """One queue. `waiting` counts all of its jobs that wait, `ready` those of them that wait for nothing but room and
    their turn: they are not held, and wait for no time, no other job and no place below the limit of an array. `next`
    are the first of these in the order of their turns, if each found room and no job of another queue started.
    """

    queue: Name
    waiting: Count
    ready: Count
    next: tuple[JobId, ...] = ()


class QueuePlanned(CellEvent, type=f"fallow.queue.planned.{LANGUAGE}", topic="queue"):
    """The queues of a cell in which jobs wait, or part `part` of `parts` of them, in the order in which they are
    served: made at `at_ms` of cell time from version `version` of the state. `plan` grows with each plan of a writer.
    """

    writer: str
    plan: Count
    part: Count = 0
    parts: Annotated[int, Meta(ge=1, le=1000)] = 1
    version: Count
    at_ms: Millis
    queues: tuple[QueuePlan, ...] = ()


STARTS_MAX = 1_000
"""So many starts are planned at once at most: the cell's policy names no more."""


class PlannedStart(Value):
    """The job would start at `start_ms` in `places`; without places it would start then, and nothing is to be kept."""

    job: JobId
    start_ms: Millis
    places: tuple[WorkerPlace, ...] = ()


class StartsPlanned(CellEvent, type=f"fallow.queue.starts-planned.{LANGUAGE}", topic="queue"):
    """When the first waiting jobs that do not fit would start, in the order of their turns: computed at `at_ms` of cell
    time from version `version` of the state. It is the whole plan: what it does not name is planned no more. `plan`
    grows with each plan of a writer.
    """

    writer: str
    plan: Count
    version: Count
    at_ms: Millis
    starts: Annotated[tuple[PlannedStart, ...], Meta(max_length=STARTS_MAX)] = ()
