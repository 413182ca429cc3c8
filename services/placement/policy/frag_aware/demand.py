"""What jobs usually ask for, learned from those that wait and run: how many workers want what, and where.

Nothing else is known of the load: no trace, no future. So that decisions stay the same when they are made again, what
was learned holds for an age of the cell: until twice as many jobs have come, later for some thousands of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec

JOBS_MAX = 8_192
"""So many of the newest live jobs are looked at, and so many new ones make a new age."""


class ResourceRequest(NamedTuple):
    """What one worker asks for. Two jobs of one ask are alike to the score. It is a part of the scheduling key
    (`room_of` in `queue/lines/classes.py`), and adds nothing to it.
    """

    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    gpu_type: str | None
    pools: tuple[str, ...]

    @property
    def is_share(self) -> bool:
        """Whether it wants a part of one device."""
        return 0 < self.gpu_milli < GPU

    def accepts(self, kind: Kind) -> bool:
        """Whether it may run on nodes of this kind."""
        return (not self.pools or kind.pool in self.pools) and self.gpu_type in (None, kind.gpu_type)


class Kind(NamedTuple):
    """Nodes that are the same to a job's pools and GPU type."""

    pool: str
    gpu_type: str


def ask_of(spec: JobSpec) -> ResourceRequest:
    """What a worker of this job asks for."""
    wants = spec.resources
    return ResourceRequest(wants.gpu_milli, wants.cpu_milli, wants.memory_mib, spec.gpu_type, spec.pools)


def age_of(state: CellState) -> int:
    """The age of the cell, by the jobs that ever came to it."""
    jobs = state.over_next + len(state.jobs)
    return jobs.bit_length() if jobs < JOBS_MAX else JOBS_MAX.bit_length() + jobs // JOBS_MAX


@dataclass(slots=True)
class Demand:
    """How many workers ask for what, and how many milli-GPUs the cell has of each kind of node."""

    workers: dict[ResourceRequest, int]
    gpus_milli: dict[Kind, int]
    age: int = 0

    @classmethod
    def of(cls, state: CellState) -> Demand:
        """As far as it can be seen now."""
        workers: dict[ResourceRequest, int] = {}
        for job in islice(reversed(state.jobs.values()), JOBS_MAX):
            ask = ask_of(job.spec)
            workers[ask] = workers.get(ask, 0) + job.spec.workers
        gpus: dict[Kind, int] = {}
        for node in state.nodes.values():
            kind = Kind(node.pool, node.spec.gpu_type)
            gpus[kind] = gpus.get(kind, 0) + node.spec.gpus * GPU
        return cls(workers, gpus, age_of(state))

    def at(self, kind: Kind) -> Iterable[tuple[ResourceRequest, int]]:
        """What may come to nodes of this kind, of what wants GPUs."""
        return [(ask, many) for ask, many in self.workers.items() if ask.gpu_milli and ask.accepts(kind)]

    def pressure(self, kind: Kind, scale: int) -> int:
        """How much of these nodes will be wanted by those who cannot go everywhere, when as much is wanted as the cell
        has: from 0 to `scale`. A job that accepts several kinds wants of each in proportion to its size. As long as
        little is known it counts that a job may want one GPU of each kind.
        """
        wanted = sum(ask.gpu_milli * many for ask, many in self.workers.items()) + GPU * len(self.gpus_milli)
        all_gpus, here = sum(self.gpus_milli.values()), self.gpus_milli.get(kind, 0)
        found = GPU * all_gpus * scale // (wanted * here) if 0 < here < all_gpus else 0
        for ask, many in self.at(kind):
            open_to_it = sum(gpus for other, gpus in self.gpus_milli.items() if ask.accepts(other))
            if 0 < open_to_it < all_gpus:
                found += ask.gpu_milli * many * all_gpus * scale // (wanted * open_to_it)
        return min(found, scale)
