"""What a start is told under: tenant, pool and size class. Sums over groups give each of the three, and the cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import JobStarted
from fallow.shared.events.fields.values import WorkerPlace

FORGOTTEN = "_forgotten"
"""The tenant of a job that began and ended long before the first look; no name of a tenant."""

NO_POOL = "_none"
"""The pool of a place on an unknown node; no name of a pool."""


class Group(NamedTuple):
    """Starts of one kind."""

    tenant: str
    pool: str
    size_class: str


def tenant_of(state: CellState, job_id: str) -> str:
    """Whose job it is or was."""
    job = state.jobs.get(job_id)
    if job is not None:
        return job.spec.tenant
    over = state.finished.get(job_id)
    return FORGOTTEN if over is None else over.tenant


def pool_of(state: CellState, place: WorkerPlace) -> str:
    """The pool in which the place's node works now."""
    node = state.nodes.get(place.node)
    return NO_POOL if node is None else node.lent_to or node.spec.pool


def as_it_is(tenant: str) -> str:
    """Every tenant under its own name, however many there are."""
    return tenant


class Whose:
    """Tenant and pool of a start. Several want to know of each start, one after the other; it is found out once.

    `named` says under which name a tenant's figures are kept.
    """

    __slots__ = ("_effect", "_found", "named")

    def __init__(self, named: Callable[[str], str] = as_it_is) -> None:
        self.named = named
        self._effect: JobStarted | None = None
        self._found = (FORGOTTEN, NO_POOL)

    def start(self, state: CellState, effect: JobStarted) -> tuple[str, str]:
        """The tenant, and the pool of its first worker."""
        if effect is not self._effect:
            self._effect = effect
            self._found = (self.tenant(state, effect.job), pool_of(state, effect.workers[0]))
        return self._found

    def tenant(self, state: CellState, job_id: str) -> str:
        """Under which name the figures of the job's tenant are kept."""
        return self.named(tenant_of(state, job_id))
