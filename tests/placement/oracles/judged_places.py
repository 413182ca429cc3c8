"""Whether the places that are kept for a job that waits are of use to it, told by looking at each node.

It shares no code with what chooses them: only the nodes of the state, as they are when the places are chosen, with what
is kept for those before counted as in use. It does not say which of several right choices is made.

* They are free, in one pool, on open nodes that the job could use, and no more than it needs and its owners have idle.
* If the job fits now on such nodes, the places hold all of it.
* If it does not, all of it comes together there when what is in use on these nodes ends, though all that is free and
  not kept goes to others and stays with them; else there is no other node where anything is free.

The workers that the job has already stay where they are: what they hold comes to no other worker of it. A gang that
must be in one unit of the network, or whose slices must be, counts where it is only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import Kept
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Wish, WorkerPlace

Room = Mapping[str, int]
"""How many workers of a job each of some nodes holds."""

Have = tuple[int, int, int]
"""GPUs, CPUs and memory of a node."""

NOTHING: Have = (0, 0, 0)


def wrong_places(state: CellState, spec: JobSpec, kept: Kept) -> str | None:
    """Why the job, which stands in line and is of one GPU type, could not have these places; or None."""
    milli, most = sum(place.milli for place in kept.places), max(part for _, part in kept.owners)
    if milli > min(most, spec.gpus_milli):
        return f"{milli} milli-GPUs are kept, {most} are idle and {spec.gpus_milli} needed"
    if len({place.pool for place in kept.places}) > 1:
        return "the places are in several pools"
    nodes = [state.nodes[place.node] for place in kept.places]
    if _workers_of_unit(spec) == spec.workers and len({_unit(spec, node): None for node in nodes}) > 1:
        return "the places are in several units of the network"
    for place in kept.places:
        node = state.nodes[place.node]
        if not _could_be_on(spec, node) or place.pool != node.pool:
            return f"the job may not be on {place.node}"
        if place.devices & ~_free(node) or place.share_milli > _free_milli(node, place.device):
            return f"what is kept of {place.node} is not free"
    return None


def useless_places(state: CellState, spec: JobSpec, kept: Kept, own: Sequence[WorkerPlace] = ()) -> str | None:
    """Why the job, which has its `own` workers if it runs, will not start in these places, or no worker more of it; or
    None. A part of a job, shares, and what maintenance shuts are not judged.
    """
    most = max(part for _, part in kept.owners)
    if spec.resources.gpu_milli < GPU or most < spec.gpus_milli or state.maintenance_starts:
        return None
    by_pool: dict[str, list[Node]] = {}
    for node in state.nodes.values():
        if _could_be_on(spec, node):
            by_pool.setdefault(node.pool, []).append(node)
    on = _by_node(kept)
    for pool, nodes in by_pool.items():
        if _are_together(spec, nodes, {node.id: _holds(spec, node, *_now(spec, node)) for node in nodes}):
            held = {name: _holds(spec, state.nodes[name], *have) for name, have in on.items()}
            fits = _are_together(spec, [state.nodes[name] for name in on], held)
            return None if fits else f"the job fits into {pool}, and of {spec.workers} workers its places hold {held}"
    all_of = {node.id: _all_but(node, own) for nodes in by_pool.values() for node in nodes}
    return _never_together(state, spec, on, by_pool, all_of)


def _never_together(
    state: CellState,
    spec: JobSpec,
    on: Mapping[str, Have],
    by_pool: Mapping[str, Sequence[Node]],
    all_of: Mapping[str, Have],
) -> str | None:
    """Why what is kept on these nodes will never hold a job that does not fit now. It could have `all_of` a node in the
    end.
    """
    nodes = [state.nodes[name] for name in on]
    there = {node.id: _holds(spec, node, *_to_come(node, on[node.id], all_of[node.id])) for node in nodes}
    if _are_together(spec, nodes, there):
        return None
    pools = {node.pool: None for node in nodes} or by_pool
    for part in [part for pool in pools for part in _parts(spec, by_pool[pool], nodes)]:
        if not _are_together(spec, part, {node.id: _holds(spec, node, *all_of[node.id]) for node in part}):
            continue  # it could not be there
        for node in part:
            is_kept = on.get(node.id, NOTHING)[0] == _free(node).bit_count()
            if not is_kept and _holds(spec, node, *all_of[node.id]) > there.get(node.id, 0):
                return f"of {spec.workers} workers {there} come together, and what is free on {node.id} is not kept"
    return None


def _by_node(kept: Kept) -> dict[str, Have]:
    """The GPUs, CPUs and memory that are kept on each node."""
    found: dict[str, Have] = {}
    for place in kept.places:
        gpus, cpu, memory = found.get(place.node, NOTHING)
        more = place.devices.bit_count()
        found[place.node] = (gpus + more, cpu + place.cpu_milli, memory + place.memory_mib)
    return found


def _could_be_on(spec: JobSpec, node: Node) -> bool:
    """Whether the node is open and one that the job could use."""
    labels, is_open = node.spec.labels, node.is_schedulable and node.alone is None
    for rule in spec.node_labels:
        is_not, (name, value) = "!=" in rule, rule.replace("!=", "=").split("=")
        if (labels.get(name) == value) is is_not:
            return False
    is_right = node.spec.gpu_type == spec.gpu_type and (not spec.pools or node.pool in spec.pools)
    return is_open and is_right and all(taint in spec.tolerations for taint in node.spec.taints)


def _free(node: Node) -> int:
    """The devices that are wholly free."""
    free = 0
    for device in range(node.spec.gpus):
        is_used = node.held >> device & 1 or device in node.shares
        free |= 0 if is_used or node.failed >> device & 1 else 1 << device
    return free


def _free_milli(node: Node, device: int) -> int:
    """What is free of one device."""
    if node.failed >> device & 1 or node.held >> device & 1:
        return 0
    return node.shares.get(device, GPU)


def _now(spec: JobSpec, node: Node) -> Have:
    """The GPUs, CPUs and memory that the job could have of a node now."""
    if spec.exclusive and node.jobs:
        return NOTHING
    has = node.spec
    return (_free(node).bit_count(), has.cpu_milli - node.cpu_used, has.memory_mib - node.memory_used)


def _all_but(node: Node, own: Iterable[WorkerPlace]) -> Have:
    """What it could have if nothing but its own workers was there."""
    has, here = node.spec, [place for place in own if place.node == node.id]
    taken = {device: None for place in here for device in place.devices}
    gpus = sum(1 for device in range(has.gpus) if device not in taken and not node.failed >> device & 1)
    cpu, memory = sum(place.cpu_milli for place in here), sum(place.memory_mib for place in here)
    return (gpus, has.cpu_milli - cpu, has.memory_mib - memory)


def _to_come(node: Node, kept: Have, all_of: Have) -> Have:
    """What of all this it could have when what is in use there has ended, and what is free and not kept is in use."""
    gpus, cpu, memory = all_of
    lost = _free(node).bit_count() - kept[0]
    lost_cpu, lost_memory = (
        node.spec.cpu_milli - node.cpu_used - kept[1],
        node.spec.memory_mib - node.memory_used - kept[2],
    )
    return (gpus - lost, cpu - lost_cpu, memory - lost_memory)


def _holds(spec: JobSpec, node: Node, gpus: int, cpu_milli: int, memory_mib: int) -> int:
    """How many of its workers so much of the node holds."""
    wants = spec.resources
    counts = [gpus // (wants.gpu_milli // GPU)]
    counts += [cpu_milli // wants.cpu_milli] if wants.cpu_milli else []
    counts += [memory_mib // wants.memory_mib] if wants.memory_mib else []
    return max(0, min(counts))


def _are_together(spec: JobSpec, nodes: Iterable[Node], room: Room) -> bool:
    """Whether so many workers on these nodes are all of the job, where it must be."""
    size = _workers_of_unit(spec)
    if size is None:
        return sum(room.values()) >= spec.workers
    by_unit: dict[object, int] = {}
    for node in nodes:
        unit = _unit(spec, node)
        if unit is not None and node.id in room:
            by_unit[unit] = by_unit.get(unit, 0) + room[node.id]
    slices, rest = divmod(spec.workers, size)
    many = sum(found // size for found in by_unit.values())
    return many > slices or (many == slices and any(found % size >= rest for found in by_unit.values()))


def _parts(spec: JobSpec, nodes: Sequence[Node], others: Sequence[Node]) -> list[Sequence[Node]]:
    """These nodes, by units if all of the job must be in one: then the unit of these others if there are any."""
    if _workers_of_unit(spec) != spec.workers:
        return [nodes]
    units = {_unit(spec, node): None for node in (others or nodes)}
    return [[node for node in nodes if _unit(spec, node) == unit] for unit in units]


def _workers_of_unit(spec: JobSpec) -> int | None:
    """How many workers must be in one unit; None where they may be anywhere."""
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED:
        return None
    return min(wish.slice_workers or spec.workers, spec.workers)


def _unit(spec: JobSpec, node: Node) -> object:
    """The unit of the level that the job names in which the node is; None where that has no name."""
    assert spec.topology is not None, "it names one"
    at = node.spec.position
    level = spec.topology.level
    if level is Level.NODE:
        return node.id
    assert level is Level.LEAF, "these worlds ask for no other"
    return None if at.leaf is None else (at.superspine, at.spine, at.leaf)
