"""What the nodes of a pool could hold if nothing ran there: whether a job could ever start, and on which nodes.

That goes by what a job is, not by which job it is: it is worked out once for jobs of one form, by kinds of nodes, and
again when a node comes, goes or becomes another one. Lost nodes and broken GPUs hold nothing. Nodes that take nothing
new at the moment count for whether a job could ever start, since they may do so again; for where it could be now those
do not that a person has closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import Needs
from fallow.shared.cluster.capacity.hardware import Hardware, Kind, UnitsAlike, hardware_of
from fallow.shared.cluster.capacity.node_filter_index import marks_of, needs_of
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node, mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    WORKERS_MAX,
    JobKind,
    JobSpec,
    Resources,
    TopologyRequest,
    Wish,
    WorkerPlace,
)


class Form(NamedTuple):
    """What of a job decides this in one pool: equal for jobs that could be on the same nodes, and as many of them.
    It is a part of the scheduling key (`room_of` in `queue/lines/classes.py`), and adds nothing to it.
    """

    workers: int
    resources: Resources
    gpu_type: str | None
    wish: TopologyRequest | None
    needs: Needs | None


def could_hold(state: CellState, pool: PoolCapacity, spec: JobSpec) -> bool:
    """Whether the pool's nodes would hold all workers of the job as it requires, if they were empty."""
    return _could_hold(state, pool, _form_of(state, pool, spec))


def could_hold_later(state: CellState, pool: PoolCapacity, spec: JobSpec) -> bool:
    """Whether the pool's nodes would hold the job as `could_hold` says, once no maintenance is planned any more."""
    return _could_hold(state, pool, _at_any_time(_form_of(state, pool, spec)))


def could_hold_in_unit(state: CellState, pool: PoolCapacity, gpu_type: str, spec: JobSpec) -> bool:
    """Whether a gang of any GPU type, that requires all of its workers or each slice within one unit, could have a
    worker of this type: on a node of a unit whose nodes, of whatever types, would hold these.
    """
    hardware, form = hardware_of(state, pool), _at_any_time(_form_of(state, pool, spec))
    if form.wish is None:
        return False
    name = ("in unit", form, gpu_type)
    known = hardware.remembered.get(name)
    if known is None:
        among = _in_units_that_hold(hardware, form, form.wish, _among(state, pool, form))
        able = (mask for kind, mask in hardware.kinds.items() if workers_on(kind, form.resources, gpu_type))
        known = any(mask & among for mask in able)
        hardware.remember(name, known)
    return known is True


def could_ever_start(state: CellState, job: Job) -> bool:
    """Whether any of its pools could hold the job, or enough of its workers, if they were empty."""
    return could_ever_hold(state, in_line(job))


def could_ever_hold(state: CellState, spec: JobSpec) -> bool:
    """Whether any pool could ever hold the job as it stands in line (`in_line`)."""
    if goes_to_several_pools(spec):
        return could_hold_singly(state, spec, spec.workers)
    pools = [state.pools[name] for name in spec.pools or state.pools if name in state.pools]
    return any(could_hold_later(state, pool, spec) for pool in pools)


def goes_to_several_pools(spec: JobSpec) -> bool:
    """Whether the workers with which the job starts may be in more than one pool: the replicas of a service."""
    return not spec.gang and spec.kind is JobKind.INFERENCE


def waits_for_closed(state: CellState, job: Job) -> bool:
    """Whether the job could start, but not without nodes that a person has closed."""
    return could_ever_start(state, job) and not reach_of(state, in_line(job))


def could_hold_singly(state: CellState, spec: JobSpec, workers: int) -> bool:
    """Whether all of its pools together would hold so many workers of a job that is no gang, if they were empty."""
    alone, room = replace(spec, workers=1, workers_min=None, topology=None), 0
    for pool in [state.pools[name] for name in spec.pools or state.pools if name in state.pools]:
        hardware, form = hardware_of(state, pool), _form_of(state, pool, alone)
        known = hardware.remembered.get(("room", form))
        if not isinstance(known, int):
            known = _room(_kinds_among(hardware, _among(state, pool, form)), form)
            hardware.remember(("room", form), known)
        room += known
    return room >= workers


def open_room(state: CellState, spec: JobSpec) -> int:
    """How many workers of a job that is no gang the open nodes of all of its pools would hold if they were empty."""
    return sum(_open_room(state, state.pools[name], spec) for name in spec.pools or state.pools if name in state.pools)


def could_hold_one_more(state: CellState, job: Job) -> bool:
    """Whether any open node would hold a worker more of a job that runs, beside those that it has there, if nothing
    else ran on it.
    """
    return bool(without(reach_of(state, in_line(job)), full_of_own(state, job)))


def full_of_own(state: CellState, job: Job) -> Reach:
    """The nodes that would hold no worker of a job that runs beside those that it has there, if nothing else ran on
    them.
    """
    found: Reach = {}
    own: dict[str, list[WorkerPlace]] = {}
    for place in job.workers:
        own.setdefault(place.node, []).append(place)
    for node_id, places in own.items():
        node = state.nodes[node_id]
        if not _room_beside(node, places, job.spec.resources):
            bit = 1 << state.pools[node.pool].number(node_id)
            found[node.pool] = found.get(node.pool, 0) | bit
    return found


def _room_beside(node: Node, own: Sequence[WorkerPlace], wants: Resources) -> int:
    """How many workers more a node holds beside these, if nothing else ran there. What of these is on broken GPUs takes
    nothing of the healthy ones.
    """
    healthy, has = node.all_devices & ~node.failed, node.spec
    on = [mask_of(place.devices) & healthy for place in own]
    if wants.gpu_milli < GPU:
        room = _by_gpus(healthy.bit_count(), wants.gpu_milli) - sum(1 for devices in on if devices)
    else:
        room = _by_gpus(healthy.bit_count() - sum(devices.bit_count() for devices in on), wants.gpu_milli)
    if wants.cpu_milli:
        room = min(room, (has.cpu_milli - sum(place.cpu_milli for place in own)) // wants.cpu_milli)
    if wants.memory_mib:
        room = min(room, (has.memory_mib - sum(place.memory_mib for place in own)) // wants.memory_mib)
    return max(0, room)


Reach = dict[str, int]
"""The nodes of each pool on which a worker of a job could be, as masks over the pools' numbers."""


def reach_of(state: CellState, spec: JobSpec) -> Reach:
    """Where a worker of the job could be if nothing ran there, whatever maintenance is planned: on nodes that no person
    has closed, since it is unknown when these open again. For a gang that is nowhere in a pool that could not hold all
    of it on such nodes, nor in a unit of the network whose open nodes could not hold what it requires in one. One that
    is no gang could be nowhere if all of its pools together do not hold as many workers on open nodes as it needs at
    least: it stands here as it does in line (`in_line`).
    """
    pools = [(name, state.pools[name]) for name in spec.pools or state.pools if name in state.pools]
    if not spec.gang and sum(_open_room(state, pool, spec) for _, pool in pools) < spec.workers:
        return {}
    return {name: found for name, pool in pools if (found := _reach(state, pool, spec))}


def meet(one: Reach, other: Reach) -> bool:
    """Whether any node is in both."""
    return any(mask & other.get(name, 0) for name, mask in one.items())


def together(one: Reach, other: Reach) -> Reach:
    """The nodes that are in either."""
    return {**one, **{name: mask | one.get(name, 0) for name, mask in other.items()}}


def without(one: Reach, other: Reach) -> Reach:
    """The nodes of the one that are not in the other."""
    return {name: left for name, mask in one.items() if (left := mask & ~other.get(name, 0))}


def marks_of_reach(state: CellState) -> list[object]:
    """Where this is what it was, so is the reach of every job."""
    return [hardware_of(state, pool).mark for pool in state.pools.values()]


def _reach(state: CellState, pool: PoolCapacity, spec: JobSpec) -> int:
    hardware, form = hardware_of(state, pool), _at_any_time(_form_of(state, pool, spec))
    name = ("reach", form, spec.gang)
    known = hardware.remembered.get(name)
    if isinstance(known, int):
        return known
    if spec.gang and not (_could_hold(state, pool, form) and _could_hold_on_open(state, pool, form)):
        hardware.remember(name, 0)
        return 0
    among = _among(state, pool, form) & ~hardware.closed
    if form.wish is not None:
        among = _in_units_that_hold(hardware, form, form.wish, among)
    found = sum(mask for kind, mask in hardware.kinds.items() if _on(kind, form)) & among
    hardware.remember(name, found)
    return found


def _in_units_that_hold(hardware: Hardware, form: Form, wish: TopologyRequest, among: int) -> int:
    """Those of these nodes in a unit where they would hold what is required in one."""
    slice_ = min(wish.slice_workers or form.workers, form.workers)
    least = form.workers % slice_ or slice_  # the last slice may be a smaller one
    able = 0
    for units in _units(hardware, form, among):
        if _room(units.kinds, form) >= least:
            able |= units.nodes << units.first
    return able


def _open_room(state: CellState, pool: PoolCapacity, spec: JobSpec) -> int:
    """How many workers of a job that is no gang the pool's open nodes would hold if they were empty, whatever
    maintenance is planned.
    """
    alone = replace(spec, workers=1, workers_min=None, topology=None)
    hardware, form = hardware_of(state, pool), _at_any_time(_form_of(state, pool, alone))
    name = ("open room", form)
    known = hardware.remembered.get(name)
    if not isinstance(known, int):
        known = _room(_kinds_among(hardware, _among(state, pool, form) & ~hardware.closed), form)
        hardware.remember(name, known)
    return known


def _form_of(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Form:
    wish = spec.topology if spec.topology is not None and spec.topology.wish is Wish.REQUIRED else None
    return Form(
        workers=spec.workers,
        resources=spec.resources,
        gpu_type=spec.gpu_type,
        wish=wish,
        needs=needs_of(state, pool, spec),
    )


def _at_any_time(form: Form) -> Form:
    """The form of a job when no maintenance is planned."""
    return form if form.needs is None else form._replace(needs=form.needs._replace(shut=()))


def _could_hold(state: CellState, pool: PoolCapacity, form: Form) -> bool:
    hardware = hardware_of(state, pool)
    known = hardware.remembered.get(form)
    if known is None:
        known = _holds(hardware, form, _among(state, pool, form))
        hardware.remember(form, known)
    return known is True


def _could_hold_on_open(state: CellState, pool: PoolCapacity, form: Form) -> bool:
    """Whether the pool could hold it without the nodes that a person has closed: when these open again is unknown."""
    hardware = hardware_of(state, pool)
    return not hardware.closed or _holds(hardware, form, _among(state, pool, form) & ~hardware.closed)


def _among(state: CellState, pool: PoolCapacity, form: Form) -> int:
    """The nodes whose labels, taints and zone are right."""
    if form.needs is None:
        return (1 << len(pool.ids)) - 1
    return marks_of(state, pool).members(state, form.needs)


def _holds(hardware: Hardware, form: Form, among: int) -> bool:
    if form.wish is None:
        return _room(_kinds_among(hardware, among), form) >= form.workers
    rooms = [(_room(units.kinds, form), units.many) for units in _units(hardware, form, among)]
    slice_ = form.wish.slice_workers
    if slice_ is None or slice_ >= form.workers:
        return max((room for room, _ in rooms), default=0) >= form.workers
    whole, rest = divmod(form.workers, slice_)
    slices = sum(room // slice_ * many for room, many in rooms)
    # The smaller slice goes beside whole ones that fill no unit, or takes the place of one.
    return slices > whole or (slices == whole and (not rest or any(room % slice_ >= rest for room, _ in rooms)))


def _kinds_among(hardware: Hardware, among: int) -> dict[Kind, int]:
    """How many of these nodes are of which kind."""
    return {kind: (mask & among).bit_count() for kind, mask in hardware.kinds.items()}


def _units(hardware: Hardware, form: Form, among: int) -> list[UnitsAlike]:
    """The units of the level that the job requires, with those of their nodes that are among these."""
    assert form.wish is not None, "it was asked for one"
    return hardware.in_units(form.wish.level, among)


def _room(kinds: Mapping[Kind, int], form: Form) -> int:
    """How many workers so many nodes of each kind hold when they are empty."""
    return sum(_on(kind, form) * nodes for kind, nodes in kinds.items())


def _on(kind: Kind, form: Form) -> int:
    """How many workers one node of this kind holds when it is empty."""
    return workers_on(kind, form.resources, form.gpu_type)


def workers_on(kind: Kind, wants: Resources, gpu_type: str | None) -> int:
    """How many workers that need so much one node of this kind holds when it is empty; `gpu_type` None: of any type."""
    if gpu_type not in (None, kind.gpu_type):
        return 0
    room = _by_gpus(kind.gpus, wants.gpu_milli)
    if wants.cpu_milli:
        room = min(room, kind.cpu_milli // wants.cpu_milli)
    if wants.memory_mib:
        room = min(room, kind.memory_mib // wants.memory_mib)
    return room


def _by_gpus(gpus: int, each_milli: int) -> int:
    """How many workers fit by GPUs alone. Workers without GPUs are limited by CPUs and memory only."""
    if each_milli >= GPU:
        return gpus // (each_milli // GPU)
    return gpus * (GPU // each_milli) if each_milli else WORKERS_MAX
