"""Topic `proposals`: changes that loaning would make. Placement checks each on the newest state and accepts or refuses
it.
"""

from __future__ import annotations

import re
from typing import Annotated, get_args

from msgspec import Meta

from fallow.shared.events.base import LANGUAGE, Attempt, CellEvent, Count, JobId, Millis, Name, NodeId, Text, Value
from fallow.shared.events.codec.ranges import places_of
from fallow.shared.events.fields.values import WORKERS_MAX, WorkerPlace, WorkerRange
from fallow.shared.events.reasons import PreemptionCause

_ID = re.compile(get_args(JobId)[1].pattern[1:-1])


class Proposal(CellEvent):
    """What every proposal says: its id, the version it was computed on (evidence, not a condition), and why."""

    proposal: JobId
    version: Count
    why: Text = ""

    def __post_init__(self) -> None:
        if _ID.fullmatch(self.proposal) is None:  # its refusal names it in the log
            raise ValueError("proposal: is no id")

    def key(self) -> str:
        """The proposal."""
        return self.proposal


class Victim(Value):
    """An attempt that would have to stop."""

    job: JobId
    attempt: Attempt


class LoanProposed(Proposal, type=f"fallow.loan.proposed.{LANGUAGE}", topic="proposals"):
    """Lend these inference nodes to a training pool until `deadline_ms`."""

    loan: JobId
    nodes: Annotated[tuple[NodeId, ...], Meta(min_length=1)]
    to_pool: Name
    deadline_ms: Millis | None = None


class ReclaimProposed(Proposal, type=f"fallow.loan.reclaim-proposed.{LANGUAGE}", topic="proposals"):
    """Take these lent nodes back by `deadline_ms`, stopping `victims` and shrinking `shrinks`."""

    loan: JobId
    nodes: Annotated[tuple[NodeId, ...], Meta(min_length=1)]
    victims: tuple[Victim, ...] = ()
    shrinks: tuple[Resize, ...] = ()
    deadline_ms: Millis


VICTIMS_MAX = 1_000
"""So many jobs yield to one at most."""

PLACES_MAX = 10_000
"""In so many ranges its places are told at most: a range is all of its workers on one node."""


class PreemptionProposed(Proposal, type=f"fallow.job.preemption-proposed.{LANGUAGE}", topic="proposals"):
    """Stop these attempts by the rule `cause`, so that the waiting job `preemptor` can start in just these places once
    they are gone. They are all of the job's workers, as ranges.
    """

    preemptor: JobId
    cause: PreemptionCause
    victims: Annotated[tuple[Victim, ...], Meta(min_length=1, max_length=VICTIMS_MAX)]
    places: Annotated[tuple[WorkerRange, ...], Meta(min_length=1, max_length=PLACES_MAX)]

    @property
    def workers(self) -> tuple[WorkerPlace, ...]:
        """The places one by one."""
        return places_of(self.places)


class Resize(Value):
    """An elastic job's new number of workers: places to add, ranks to take away."""

    job: JobId
    attempt: Attempt
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)]
    add: tuple[WorkerPlace, ...] = ()
    remove: tuple[Count, ...] = ()


class ResizeProposed(Proposal, type=f"fallow.job.resize-proposed.{LANGUAGE}", topic="proposals"):
    """Grow or shrink these elastic jobs together."""

    resizes: Annotated[tuple[Resize, ...], Meta(min_length=1)]


class MigrationProposed(Proposal, type=f"fallow.job.migration-proposed.{LANGUAGE}", topic="proposals"):
    """Stop this attempt and start it again in these places, to put fragments together."""

    victim: Victim
    places: Annotated[tuple[WorkerPlace, ...], Meta(min_length=1)]
