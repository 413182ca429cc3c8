"""Where each worker of a job was, and whether it is there still."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fallow.shared.events.effects import (
    Effect,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobPreempted,
    JobRequeued,
    JobResized,
    JobResizing,
    JobStarted,
    WorkersSettled,
)
from fallow.shared.events.fields.values import WorkerPlace

HELD, LEAVING, TAKEN_OUT, FINISHED, GONE, OVER = "held", "leaving", "taken out", "finished", "gone", "over"
"""What became of a place: it is held; held until the worker that is taken out has left; left; its worker ended well, or
in any other way; or the attempt as a whole is over.
"""

_ENDS = (JobRequeued, JobPreempted, JobFinished, JobFailed, JobCancelled)


@dataclass(slots=True)
class Stay:
    """One worker in one place, during one attempt."""

    attempt: int
    place: WorkerPlace
    state: str = HELD

    @property
    def is_there(self) -> bool:
        """Whether the place is held still."""
        return self.state in (HELD, LEAVING)


def stays_of(story: Iterable[Effect]) -> list[Stay]:
    """All places that the job got, in the order of its story."""
    found: list[Stay] = []
    for effect in story:
        held = [stay for stay in found if stay.is_there]
        if isinstance(effect, JobStarted):
            found += [Stay(effect.attempt, place) for place in effect.workers]
        elif isinstance(effect, JobResizing):
            _mark(held, effect.remove, LEAVING)
            found += [Stay(effect.attempt, place) for place in effect.add]
        elif isinstance(effect, WorkersSettled):
            _mark(held, effect.done, FINISHED)
            _mark((stay for stay in held if stay.state == LEAVING), effect.gone, TAKEN_OUT)
            _mark((stay for stay in held if stay.state == HELD), effect.gone, GONE)
        elif isinstance(effect, JobResized):
            kept = {(place.rank, place.node) for place in effect.workers}
            for stay in held:
                stay.state = HELD if (stay.place.rank, stay.place.node) in kept else TAKEN_OUT
        elif isinstance(effect, _ENDS):
            for stay in held:
                stay.state = OVER
    return found


def _mark(stays: Iterable[Stay], ranks: tuple[int, ...], state: str) -> None:
    for stay in stays:
        if stay.place.rank in ranks:
            stay.state = state
