"""How much room one job finds in a pool, and in each unit of the network there: numbers for people."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.shared.cluster.capacity.constraints import misfit, wrong_kind
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Level, NodeSpec, NodeStatus, Wish

UNITS_TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class UnitRoom:
    """One unit of the network: `leaf-7 has 5 of 8 whole nodes`. Workers are those of the job: `now` those that fit,
    `ever` those that would fit on the nodes that are not lost if they were empty.
    """

    unit: str
    nodes: int
    nodes_whole: int
    gpus_free_milli: int
    workers_now: int
    workers_ever: int = 0


@dataclass(frozen=True, slots=True)
class PoolRoom:
    """One pool. `gpus_milli` are healthy and not lost; `gpus_free_milli` those that new work of this job's kind could
    have; `workers_ever` fit on the nodes that are not lost if they were empty. `closed` counts those that take nothing
    of it, by why, and `closed_gpus` the GPUs that are idle there, of lost nodes none; `nodes_right` have labels and
    taints that it accepts. `units` are those of `level`, the roomiest first; none where no node names one. `gpus_max`,
    `cpu_milli_max` and `memory_mib_max` are the most that any of the right nodes has that are not lost, `on_one_node`
    how many workers the roomiest node has room for.
    """

    pool: str
    nodes: int
    nodes_whole: int
    gpus_milli: int
    gpus_free_milli: int
    workers_now: int
    workers_ever: int
    gpu_types: tuple[str, ...]
    level: Level
    units: tuple[UnitRoom, ...]
    closed: tuple[tuple[str, int], ...] = ()
    nodes_right: int = 0
    gpus_max: int = 0
    cpu_milli_max: int = 0
    memory_mib_max: int = 0
    closed_gpus: tuple[tuple[str, int], ...] = ()
    on_one_node: int = 0

    def fitting(self, spec: JobSpec) -> list[tuple[int, str]]:
        """How many of the job's workers would fit now, and in which unit, the roomiest first: where all of them must be
        in one, room elsewhere is none. In the whole pool, without a name, where they may be anywhere.
        """
        wish = spec.topology
        if wish is None or wish.wish is not Wish.REQUIRED:
            found = [(self.workers_now, "")]
        elif wish.level is Level.NODE:
            found = [(self.on_one_node, "one node")]
        else:
            found = [(unit.workers_now, unit.unit) for unit in self.units[:UNITS_TOLD_MAX]]
            found = found or [(0, f"one {wish.level}")]
        return [(min(workers, spec.workers), unit) for workers, unit in found]


def pool_room(state: CellState, name: str, spec: JobSpec) -> PoolRoom:
    """What the pool has for this job now. A pool without nodes has nothing."""
    pool = state.pools.get(name)
    nodes = [] if pool is None else [state.nodes[node_id] for node_id in pool.ids]
    fitting = [node for node in nodes if spec.gpu_type in (None, node.spec.gpu_type)]
    level = _level(spec)
    by_unit: dict[str, list[Node]] = {}
    for node in fitting:
        by_unit.setdefault(_unit(node.spec, level), []).append(node)
    units = [_unit_room(unit, members, spec) for unit, members in by_unit.items() if unit]
    whole = _unit_room(name, fitting, spec)
    able = [node for node in fitting if node.status is not NodeStatus.LOST and wrong_kind(node, spec) is None]
    closed = _closed(nodes, spec)
    return PoolRoom(
        pool=name,
        nodes=whole.nodes,
        nodes_whole=whole.nodes_whole,
        gpus_milli=0 if pool is None else pool.gpus_milli,
        gpus_free_milli=whole.gpus_free_milli,
        workers_now=whole.workers_now,
        workers_ever=whole.workers_ever,
        gpu_types=tuple(dict.fromkeys(node.spec.gpu_type for node in fitting)),
        level=level,
        units=tuple(sorted(units, key=lambda unit: (-unit.workers_now, -unit.gpus_free_milli, unit.unit))),
        closed=tuple((why, len(closed[why])) for why in sorted(closed)),
        nodes_right=sum(wrong_kind(node, spec) is None for node in nodes),
        gpus_max=max((node.spec.gpus - node.failed.bit_count() for node in able), default=0),
        cpu_milli_max=max((node.spec.cpu_milli for node in able), default=0),
        memory_mib_max=max((node.spec.memory_mib for node in able), default=0),
        closed_gpus=_idle(closed),
        on_one_node=max((_now(node, spec) for node in _open(fitting, spec)), default=0),
    )


def _closed(nodes: list[Node], spec: JobSpec) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        why = _why_closed(node, spec)
        if why is not None:
            found.setdefault(why, []).append(node)
    return found


def _idle(closed: dict[str, list[Node]]) -> tuple[tuple[str, int], ...]:
    """GPUs that are idle on nodes that take nothing of the job, by why. Of a lost node nobody knows."""
    idle = {why: sum(node.gpus_free for node in closed[why]) for why in sorted(closed) if why != NodeStatus.LOST.value}
    return tuple((why, gpus) for why, gpus in idle.items() if gpus)


def _open(nodes: list[Node], spec: JobSpec) -> list[Node]:
    """Those that take new work of this kind."""
    return [node for node in nodes if node.is_schedulable and misfit(node, spec) is None]


def _why_closed(node: Node, spec: JobSpec) -> str | None:
    """Why a node takes nothing of this job, however much is free there."""
    if node.status is not NodeStatus.READY:
        return node.status.value
    if not node.is_in_service:
        return "on the way home"
    if spec.gpu_type not in (None, node.spec.gpu_type):
        return "of another GPU type"
    why = misfit(node, spec)
    if why is not None:
        return why
    if node.silent_wall_ms:
        return "of which nothing is heard"
    if node.offered is not None:
        return "with other hardware than before, until what ran there is gone"
    return "with unconfirmed starts" if node.is_full else None


def _level(spec: JobSpec) -> Level:
    wish = spec.topology
    return Level.LEAF if wish is None or wish.level is Level.NODE else wish.level


def _unit(spec: NodeSpec, level: Level) -> str:
    return getattr(spec.position, level) or ""


def _unit_room(unit: str, nodes: list[Node], spec: JobSpec) -> UnitRoom:
    open_nodes = _open(nodes, spec)
    return UnitRoom(
        unit=unit,
        nodes=len(nodes),
        nodes_whole=sum(node.gpus_free == node.spec.gpus for node in open_nodes),
        gpus_free_milli=sum(_free_milli(node, spec) for node in open_nodes),
        workers_now=sum(_now(node, spec) for node in open_nodes),
        workers_ever=sum(_ever(node, spec) for node in nodes if node.status is not NodeStatus.LOST),
    )


def _free_milli(node: Node, spec: JobSpec) -> int:
    """Whole devices, and for a share the shared ones too."""
    shared = sum(_shares(node)) if spec.resources.gpu_milli < GPU else 0
    return node.gpus_free * GPU + shared


def _shares(node: Node) -> list[int]:
    return [free for device, free in node.shares.items() if not node.closed >> device & 1]


def _now(node: Node, spec: JobSpec) -> int:
    """How many of the job's workers the node could take now."""
    if misfit(node, spec) is not None:
        return 0
    wants = spec.resources
    each = wants.gpu_milli
    if not each:
        workers = spec.workers
    elif each < GPU:
        workers = node.gpus_free * (GPU // each) + sum(free // each for free in _shares(node))
    else:
        workers = node.gpus_free // (each // GPU)
    if wants.cpu_milli:
        workers = min(workers, node.cpu_free // wants.cpu_milli)
    if wants.memory_mib:
        workers = min(workers, node.memory_free // wants.memory_mib)
    return workers


def _ever(node: Node, spec: JobSpec) -> int:
    """How many it could take empty, with the devices that are healthy."""
    return _now(Node(spec=node.spec, boot=node.boot, status=node.status, failed=node.failed), spec)
