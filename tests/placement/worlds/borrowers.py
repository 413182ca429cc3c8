"""A flow of borrowers beside an owner: their jobs end one after the other, and others come in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fallow.shared.cluster.model.job import HOLDING, Job
from fallow.shared.events.fields.values import JobSpec
from tests.placement.worlds.world import World, admitted, finished

STEP_MS = 60_000
"""So much time goes by before each end."""


def ends_until_start(
    world: World, own: JobSpec, refill: Callable[[], None], choose: Callable[[Sequence[Job]], Job], most: int
) -> int | None:
    """How many of the borrowers' jobs end before the owner's job starts; None where it does not. `refill` lets others
    come, `choose` says which one ends.
    """
    world.tell(admitted(own, world.now_ms))
    for ends in range(most):
        world.pass_time(STEP_MS)
        running = [job for job in world.state.jobs.values() if job.status in HOLDING]
        if any(job.id == own.id for job in running):
            return ends
        if not running:
            return None
        ended = choose(running)
        world.tell(finished(ended.id, ended.workers[0].node))
        refill()
    return None
