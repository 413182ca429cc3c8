"""Which nodes a job could use, and whether its workers fit there now: counted node by node from the checker's books.

It shares nothing with placement's search. Where a rule is hard to count the answer errs on one side: `fits_now` is True
only of a job that surely fits, `could_use` names only nodes that the job surely could be on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, NodeRole, NodeStatus, Wish
from fallow.simulator.history.books import Books, JobPage, NodePage
from fallow.simulator.history.rules.runs.whereabouts import LEVELS, unit_of, unwanted_company, wrong_node

Group = tuple[str, str]
"""A pool, and a GPU type in it."""

Count = Callable[[NodePage], int]
"""How many workers of a job a node holds."""


def is_of_its_kind(spec: JobSpec, node: NodePage) -> bool:
    """Whether the job accepts the node, whatever runs there and however it is."""
    if spec.pools and node.pool not in spec.pools:
        return False
    if spec.gpu_type is not None and spec.gpu_type != node.spec.gpu_type:
        return False
    return wrong_node(spec, node.spec) is None and (spec.kind is JobKind.INFERENCE or not _is_in_zone(node))


def _is_in_zone(node: NodePage) -> bool:
    named = node.spec.role is NodeRole.INFERENCE or node.spec.labels.get("zone") == "inference"
    return named and node.lent_to is None


def is_open(node: NodePage) -> bool:
    """Whether the node takes new work of any kind, now and later."""
    is_ready = node.status is NodeStatus.READY and not (node.is_silent or node.is_another or node.is_leaving_loan)
    return is_ready and node.maintenance_ms is None


def on_empty(spec: JobSpec, node: NodePage) -> int:
    """How many workers of the job the node would hold if it was empty."""
    if node.status is NodeStatus.LOST:
        return 0
    devices = [GPU] * (node.spec.gpus - len(node.failed))
    return _workers(spec, devices, node.spec.cpu_milli, node.spec.memory_mib)


def on_free(spec: JobSpec, node: NodePage) -> int:
    """How many it holds beside what is there."""
    devices = [GPU - node.held.get(device, 0) for device in range(node.spec.gpus) if device not in node.failed]
    return _workers(spec, devices, node.spec.cpu_milli - node.cpu_milli, node.spec.memory_mib - node.memory_mib)


def _workers(spec: JobSpec, free: list[int], cpu_milli: int, memory_mib: int) -> int:
    wants = spec.resources
    if wants.gpu_milli >= GPU:
        most = free.count(GPU) // (wants.gpu_milli // GPU)
    else:
        most = sum(milli // wants.gpu_milli for milli in free)
    if wants.cpu_milli:
        most = min(most, cpu_milli // wants.cpu_milli)
    if wants.memory_mib:
        most = min(most, memory_mib // wants.memory_mib)
    return max(0, most)


def fits_now(books: Books, page: JobPage) -> bool:
    """Whether all workers of a gang surely find places now, by room alone."""
    spec, busy = page.spec, _unconfirmed(books)

    def free_for(node: NodePage) -> int:
        is_shut = node.spec.id in busy or unwanted_company(books, spec, node) is not None
        return 0 if is_shut or not is_open(node) else on_free(spec, node)

    return any(_holds(spec, nodes, free_for) for nodes in groups(books, spec).values())


def could_use(books: Books, page: JobPage) -> dict[str, None]:
    """The nodes on which workers of the job could be once room is there: in pools whose open nodes hold all of it."""
    spec, found = page.spec, dict[str, None]()

    def hold(node: NodePage) -> int:
        return on_empty(spec, node) if is_open(node) else 0

    for nodes in groups(books, spec).values():
        if _holds(spec, nodes, hold):
            found |= dict.fromkeys(
                node.spec.id for node in nodes if hold(node) and _in_large_unit(spec, node, nodes, hold)
            )
    return found


def might_use(books: Books, page: JobPage) -> dict[str, None]:
    """All nodes on which the job might ever be; none where no pool could hold it: such a job blocks no other."""
    spec, found = page.spec, dict[str, None]()
    least = spec.workers if spec.gang else 1
    by_pool: dict[str, list[NodePage]] = {}
    for node in books.nodes.values():
        if is_of_its_kind(spec, node):
            by_pool.setdefault(node.pool, []).append(node)
    for nodes in by_pool.values():
        if sum(on_empty(spec, node) for node in nodes) >= least:
            found |= dict.fromkeys(node.spec.id for node in nodes)
    return found


def groups(books: Books, spec: JobSpec) -> dict[Group, list[NodePage]]:
    """The nodes that the job accepts, by pool and GPU type."""
    found: dict[Group, list[NodePage]] = {}
    for node in books.nodes.values():
        if is_of_its_kind(spec, node):
            found.setdefault((node.pool, node.spec.gpu_type), []).append(node)
    return found


def _holds(spec: JobSpec, nodes: list[NodePage], count: Count) -> bool:
    """Whether these nodes hold all workers as the job's place in the network requires."""
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED:
        return sum(map(count, nodes)) >= spec.workers
    size = wish.slice_workers or spec.workers
    slices = -(-spec.workers // size)
    return sum(room // size for room in _by_unit(spec, nodes, count).values()) >= slices


def _in_large_unit(spec: JobSpec, node: NodePage, nodes: list[NodePage], count: Count) -> bool:
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED:
        return True
    size = wish.slice_workers or spec.workers
    return _by_unit(spec, nodes, count).get(_unit(spec, node), 0) >= size


def _by_unit(spec: JobSpec, nodes: list[NodePage], count: Count) -> dict[tuple[str | None, ...], int]:
    found: dict[tuple[str | None, ...], int] = {}
    for node in nodes:
        unit = _unit(spec, node)
        if unit[0] is not None:
            found[unit] = found.get(unit, 0) + count(node)
    return found


def _unit(spec: JobSpec, node: NodePage) -> tuple[str | None, ...]:
    assert spec.topology is not None
    return unit_of(node.spec)[LEVELS.index(spec.topology.level) :]


def _unconfirmed(books: Books) -> dict[str, None]:
    """Nodes that may take nothing new until they have confirmed what was started there."""
    if not books.policy.max_unacknowledged_starts_per_node:
        return {}
    return dict.fromkeys(_nodes_of_starts(books))


def _nodes_of_starts(books: Books) -> Iterator[str]:
    for page in books.jobs.values():
        if page.places and (page.status != "running" or not page.spec.gang):
            yield from (place.node for place in page.places)
