"""The scheduling key of a job: two jobs of one queue with the same key start or wait alike, in the same state.

This is the only one. `room_of` is the part that says whether there is room, `class_of` is the whole of it. What else
goes by a part of a job takes less of the same: `ask_of` here three fields of the room, `Form` (`fit/empty_capacity.py`)
what decides in one pool, and `ResourceRequest` (`policy/frag_aware/demand.py`) what one worker costs.
"""

from __future__ import annotations

from fallow.services.placement.search.open_longest import tells_no_time
from fallow.shared.cluster.capacity.maintenance import longest_run_ms
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec

Key = tuple[object, ...]

_QUEUED = JobStatus.QUEUED


WORKERS = 2
"""Where in the key of a room stands how many workers must have it at once."""


TENANT, ARRAY = 1, 4
"""Where in the key of a class stand whose it is, and of which array that may have so many at once, or None."""


STEPS_OF_RUN_TIMES = 4
"""Run times are told apart in so many steps from each to its double."""


def room_of(state: CellState, spec: JobSpec) -> Key:
    """What decides whether there is room for a job, whichever tenant's it is. In a cell that has nodes that only short
    jobs may use, how long it may run decides, too, and whether it has said so. What keeps the workers of a job that is
    no gang from entering is not told apart by quota and room, so its room is its tenant's own.
    """
    wants = spec.resources
    key = (
        spec.pools,
        spec.gpu_type,
        spec.workers,
        wants.gpu_milli,
        wants.cpu_milli,
        wants.memory_mib,
        spec.kind,
        spec.topology,
        spec.spread,
        spec.node_labels,
        spec.tolerations,
        spec.exclusive,
        None if spec.gang else (spec.tenant, spec.preemptible),
    )
    return (*key, tells_no_time(spec), longest_run_ms(state, spec)) if state.maintenance_starts else key


def _step_of(run_ms: int) -> int:
    """Run times of one step are alike for the classes of a line; each job goes by its own all the same."""
    bits = max(run_ms.bit_length() - 1, 2)
    return bits * STEPS_OF_RUN_TIMES + (run_ms >> (bits - 2)) % STEPS_OF_RUN_TIMES


def ask_of(room: Key) -> tuple[tuple[str, ...], str | None, int]:
    """What a worker wants of one node: the pools, the GPU type, and how many whole GPUs."""
    pools, gpu_type, _, gpu_milli = room[:4]
    assert isinstance(pools, tuple), "so `room_of` makes it"
    assert isinstance(gpu_milli, int), "the same"
    return tuple(sorted(set(pools))), None if gpu_type is None else str(gpu_type), gpu_milli // GPU


def class_of(need: object, job: Job, spec: JobSpec, run_ms: int | None = None) -> Key:
    """The whole key: what stands for the room (one thing for all jobs that need the same, which is quickly told from
    others), and whose job it is, with what its quota goes by. `spec` is the job as its line knows it: its fewest
    workers stand in the room's key. `run_ms` is how long it runs by its estimate, where nodes are kept for planned
    starts: about that long decides then, too.
    """
    is_queued = job.status is _QUEUED
    array = spec.array_of if is_queued and spec.array_max_running is not None else None
    key = (need, spec.tenant, spec.priority, spec.preemptible, array, is_queued)
    return key if run_ms is None else (*key, _step_of(run_ms))
