"""Topic `queue`: who is next, as queueing sees it. Placement goes by its own lines, and drops these records."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from shared.events.base import CellEvent, Count, JobId, Name, Value


class QueueDiscipline(StrEnum):
    """How a queue lets jobs past one that does not fit (Kant 3.2): none, all, or all until that one has waited long."""

    STRICT_FIFO = "strict-fifo"
    BEST_EFFORT_FIFO = "best-effort-fifo"
    BACKFILL = "backfill"


class QueueOrder(StrEnum):
    """Whose job of a queue is next: the oldest of the highest priority, or one of the tenant with the least share."""

    FIFO = "fifo"
    FAIR_SHARE = "fair-share"


class QueueHead(Value):
    """The head of one queue, in order: of each equivalence class at most the first few jobs.

    `cuts` are positions in `jobs` behind which a job of the same class was left out: it comes before what follows, so
    behind a cut a reader does not see the whole order. `waiting` counts all waiting jobs of the queue.

    A queue in fair-share order has one head for each of its tenants, side by side, which names the `tenant`. Whose turn
    it is goes by their shares, which no window tells.
    """

    queue: Name
    discipline: QueueDiscipline
    jobs: tuple[JobId, ...]
    cuts: tuple[Count, ...] = ()
    waiting: Count = 0
    tenant: Name | None = None


class QueueOrdered(CellEvent, type="fallow.queue.ordered.v1", topic="queue"):
    """A window on the cell's queues, or part `part` of `parts` of one. `window` grows with each new window of a writer.

    It was made from the records of `jobs` before `jobs_offset` and from version `version` of the state. Queues are in
    the order in which they are walked.
    """

    writer: str
    window: Count
    part: Count = 0
    parts: Annotated[int, Meta(ge=1, le=1000)] = 1
    jobs_offset: Count
    version: Count
    heads: tuple[QueueHead, ...] = ()
