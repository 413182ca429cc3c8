"""What is kept for owners, worked out from nothing: every job that waits is looked at, one after the other.

The oracle of what placement keeps by what has changed. Of placement it uses what tells whether a job could ever start,
what is claimed and where is found here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import heapify, heappop
from typing import Any

from services.placement.policy.arrays import may_start_one_more
from services.placement.policy.ever import could_ever_start, could_hold, reach_of
from services.placement.policy.filling import fill, fullest, workers_of
from services.placement.policy.fit import Room
from services.placement.policy.kept_index import KeptIndex, KeptSum, Tally, kept_in
from services.placement.policy.lines.line import Line
from services.placement.policy.lines.lines import Lines
from services.placement.policy.lines.row import Row
from services.placement.policy.owners import has_owners
from services.placement.policy.patience import PATIENCE_MS
from services.placement.policy.quota_check import is_ever_allowed
from services.placement.service import PlacementService
from shared.cluster.capacity import PoolCapacity
from shared.cluster.gpu_types import types_for
from shared.cluster.job import Job, JobStatus
from shared.cluster.kept_places import Kept, KeptPlace, KeptPlaces, taken
from shared.cluster.marks import marks_of, needs_of
from shared.cluster.masks import each_bit
from shared.cluster.node import Node, bits, lowest, mask_of
from shared.cluster.quota import over_limit
from shared.cluster.quota_room import firm_room, lineage
from shared.cluster.quota_tree import Account, Branch
from shared.cluster.singly import in_line
from shared.cluster.state import CellState
from shared.cluster.topology import numbers_of, topology_for
from shared.events.queue import QueueDiscipline, QueueOrder
from shared.events.value import replace
from shared.events.values import GPU, JobSpec, Wish
from tests.placement.judged_places import wrong_places
from tests.placement.oracle import LinesWorld

KINDS_MOST = 8

Where = tuple[object, ...]


class JudgedPlacement(PlacementService):
    """Placement of which it is asked each time whether it keeps what is worked out from nothing."""

    def _note_owners(self) -> bool:
        before = self.state.tree.kept
        is_other = super()._note_owners()
        kept, anew = self.state.tree.kept, kept_by_lines(self.state, self._lines)
        assert kept.all == anew.all
        assert (kept.nodes, kept.owners) == (anew.nodes, anew.owners)
        assert is_other is (kept.all != before.all)
        for pool in self.state.pools.values():
            assert counts(kept_in(self.state, pool)) == counts(KeptIndex(self.state, pool, kept))
        return is_other


class JudgedWorld(LinesWorld):
    """A world with such a placement."""

    placement = JudgedPlacement


def _told(places: KeptSum) -> tuple[object, ...]:
    numbers = (places.places, places.devices, places.cpu_milli, places.memory_mib, places.alone)
    return (*numbers, sorted(places.shares))


def counts(index: KeptIndex) -> dict[object, object]:
    """All that an index tells."""
    found: dict[object, object] = {}
    tables: tuple[tuple[str, dict[Any, Tally]], ...]
    tables = ("all", index.all), ("at home", index.at_home), ("below", index.below)
    for name, table in tables:
        for key, tally in table.items():
            if tally.places:
                found[name, key] = tally.of(whole=False), tally.of(whole=True)
    for node_id, on in index.on.items():
        homes = {home: _told(each) for home, each in on.by_home.items()}
        found[node_id] = _told(on.sum), homes, on.free_devices
        found[node_id, "places"] = sorted((entry.place, entry.home, entry.is_whole, entry.free) for entry in on.entries)
    return found


def kept_by_lines(state: CellState, lines: Lines) -> KeptPlaces:
    """What is kept for those who wait in these lines."""
    firsts, jobs = dict[Line, str](), list[Job]()
    for tenant in _with_idle(state, lines.tenants()):
        for row, line in lines.rows_of(tenant):
            assert row.first is not None, "somebody waits in it"
            job = state.jobs[row.first[-1]]
            if job.status is JobStatus.QUEUED and _has_turn(state, row, line, job, firsts):
                jobs.append(job)
    return kept_for(state, jobs)


def kept_for(state: CellState, jobs: Sequence[Job]) -> KeptPlaces:
    """The places that are kept for these jobs, the largest first: for one of each kind of an owner's, and for no more
    of them than its idle guarantee holds. Jobs that are not guaranteed whole come behind those that are.
    """
    book = _Book(state)
    if jobs:
        in_order = sorted(jobs, key=lambda job: (-job.spec.gpus_milli, job.submit_ms, job.number))
        for is_whole in (True, False):
            for job in in_order:
                book.keep_for(job, is_whole=is_whole)
    return KeptPlaces.of(book.close())


class _Book:
    """What is kept while it is chosen. What was chosen first counts as in use for what comes behind it."""

    def __init__(self, state: CellState) -> None:
        self._state, self._kept = state, list[Kept]()
        self._left: dict[Account, int] = {}
        self._kinds: dict[tuple[Account, Where], None] = {}
        self._number_of: dict[Account, int] = {}
        self._in_use = ExitStack()
        self._is_able: dict[str, bool] = {}
        self._types: dict[tuple[str | None, tuple[str, ...]], tuple[str, ...]] = {}

    def close(self) -> list[Kept]:
        """All that was chosen; the state is as it was."""
        self._in_use.close()
        return self._kept

    def keep_for(self, job: Job, *, is_whole: bool) -> None:
        """Keep places for this job, of the first GPU type of which its owners have something idle for it."""
        for gpu_type in self._types_for(job.spec):
            owners = self._owners(job.spec, gpu_type, is_whole=is_whole)
            if owners and self._waits_for_room(job):
                self._keep(job, gpu_type, owners, is_whole=is_whole)
                return

    def _types_for(self, spec: JobSpec) -> tuple[str, ...]:
        found = self._types.get((spec.gpu_type, spec.pools))
        if found is None:
            found = self._types[spec.gpu_type, spec.pools] = tuple(types_for(self._state, spec))
        return found

    def _owners(self, spec: JobSpec, gpu_type: str, *, is_whole: bool) -> list[tuple[Account, int]]:
        """Who keeps how much for it."""
        tree, found, need = self._state.tree, list[tuple[Account, int]](), spec.gpus_milli
        branch, where = tree.branches.get((spec.tenant, gpu_type)), _where(spec)
        if branch is None or not need:
            return found
        for above in lineage(branch):
            account = above.account
            left = self._left.get(account)
            if left is None:
                left = self._left[account] = above.idle_milli
            fits = need <= left if is_whole else left > 0
            if fits and (account, where) not in self._kinds and self._number_of.get(account, 0) < KINDS_MOST:
                found.append((account, min(need, left)))
        if found and over_limit(tree, spec.tenant, gpu_type, need) is not None:
            return []
        if found and not spec.preemptible and need > firm_room(tree, branch.account, 0):
            return []  # it may use none of what is idle there
        return found

    def _keep(self, job: Job, gpu_type: str, owners: list[tuple[Account, int]], *, is_whole: bool) -> None:
        for account, milli in owners:
            self._left[account] -= milli
            self._kinds[account, _where(job.spec)] = None
            self._number_of[account] = self._number_of.get(account, 0) + 1
        spec = replace(in_line(job), gpu_type=gpu_type)
        kept = pick(self._state, spec, owners, is_whole=is_whole)
        assert wrong_places(self._state, spec, kept) is None, (job.id, wrong_places(self._state, spec, kept))
        found = (kept, *_more(self._state, spec, job.submit_ms, kept))
        self._kept += found
        for each in found:
            self._in_use.enter_context(taken(self._state, each.places))

    def _waits_for_room(self, job: Job) -> bool:
        known = self._is_able.get(job.spec.id)
        if known is None:
            known = _waits_for_room(self._state, job) and not _waits_for_maintenance(self._state, job)
            self._is_able[job.spec.id] = known
        return known


def _where(spec: JobSpec) -> Where:
    return (spec.pools, spec.gpu_type, spec.kind, spec.node_labels, spec.tolerations, spec.topology, spec.exclusive)


def _has_turn(state: CellState, row: Row, line: Line, job: Job, firsts: dict[Line, str]) -> bool:
    """Whether the job could start now, the first of its class. In a strict line that is the first one only: to keep
    room for one behind it could keep the first from starting, and then both would wait for ever. By shares the first of
    a tenant may stand behind one of another tenant, whom it passes only with what is guaranteed to it.
    """
    if line.queue.discipline is not QueueDiscipline.STRICT_FIFO:
        return True
    if line not in firsts:
        firsts[line] = _first_of(state, line)
    is_fair = line.queue.order is QueueOrder.FAIR_SHARE
    return firsts[line] == job.spec.id and (not is_fair or _is_all_guaranteed(state, job.spec))


def _with_idle(state: CellState, tenants: Iterable[str]) -> dict[str, None]:
    """Those of the tenants to whom, or to one above whom, something is guaranteed that is idle."""
    tree, found = state.tree, dict[str, None]()
    if not has_owners(state):
        return found
    types = [gpu_type for gpu_type, cohort in tree.cohorts.items() if cohort.has_guarantees]
    for tenant in tenants:
        branches = [tree.branches.get((tenant, gpu_type)) for gpu_type in types]
        if any(_is_idle(above) for branch in branches for above in lineage(branch)):
            found[tenant] = None
    return found


def _is_idle(branch: Branch) -> bool:
    return branch.idle_milli > 0


def _first_of(state: CellState, line: Line) -> str:
    """The first job of a line that room would help; "" where there is none."""
    firsts = [row.first for row in line.rows.values() if row.first is not None]
    heapify(firsts)
    while firsts:
        job_id = heappop(firsts)[-1]
        if _waits_for_room(state, state.jobs[job_id]):
            return job_id
    return ""


def _waits_for_room(state: CellState, job: Job) -> bool:
    """Whether room on open nodes is what the job lacks: not an element whose array may have no more, nor one that could
    never be.
    """
    if job.status is JobStatus.QUEUED and not may_start_one_more(state, job.spec):
        return False
    return could_ever_start(state, job) and is_ever_allowed(state, job) and bool(reach_of(state, in_line(job)))


def _waits_for_maintenance(state: CellState, job: Job) -> bool:
    """Whether the job is a gang that no pool would hold before its planned maintenance is over, were all nodes empty:
    until then room is of no use to it. In a strict queue it keeps those behind it waiting all the same.
    """
    spec = job.spec
    pools = [state.pools[name] for name in spec.pools or state.pools if name in state.pools]
    return spec.gang and not any(could_hold(state, pool, spec) for pool in pools)


def _is_all_guaranteed(state: CellState, spec: JobSpec) -> bool:
    """Whether the whole job is guaranteed to its own tenant, of each GPU type of which room would be kept for it."""
    branches = [state.tree.branches.get((spec.tenant, gpu_type)) for gpu_type in types_for(state, spec)]
    keeping = [branch for branch in branches if branch is not None and any(map(_is_idle, lineage(branch)))]
    return all(branch.used_milli + spec.gpus_milli <= branch.guaranteed_milli for branch in keeping)


def pick(state: CellState, spec: JobSpec, owners: Sequence[tuple[Account, int]], *, is_whole: bool) -> Kept:
    """The places that are kept for a job as it stands in line, of one GPU type: in the first pool that holds all of it
    now, or else in that with most of it.
    """
    most, best = max(milli for _, milli in owners), list[KeptPlace]()
    has_room = any(pool.free_whole or pool.by_share for pool in state.pools.values())
    for name, mask in reach_of(state, spec).items() if has_room else ():
        found, holds_all = _pick_in(state, name, spec, mask)
        if sum(place.milli for place in found) > sum(place.milli for place in best) or not best:
            best = found
        if holds_all:
            best = found
            break
    return Kept(tuple(owners), tuple(_cut(best, most)), is_whole)


def _more(state: CellState, spec: JobSpec, since_ms: int, kept: Kept) -> list[Kept]:
    """What is kept on other nodes for a job that has waited since then, and for which places are kept on nodes where a
    run has gone on since before the middle of its wait, as that was when the wait had doubled last.
    """
    waited_ms, doubled_ms = max(state.at_ms, state.clock_ms) - since_ms, PATIENCE_MS
    gpus = spec.resources.gpu_milli // GPU
    fits = any(_pick_in(state, name, spec, mask)[1] for name, mask in reach_of(state, spec).items())
    if waited_ms < PATIENCE_MS or fits or not gpus:
        return []
    while 2 * doubled_ms <= waited_ms:
        doubled_ms *= 2

    def is_old(node: Node) -> bool:
        runs = [state.jobs[job_id] for job_id in node.jobs]
        endless = [run for run in runs if run.spec.max_run_ms is None and run.started_ms is not None]
        return any(run.started_ms < since_ms + doubled_ms // 2 for run in endless if run.started_ms is not None)

    on = list({place.node: state.nodes[place.node] for place in kept.places}.values())
    for name, mask in reach_of(state, spec).items():
        pool, needs = state.pools[name], needs_of(state, state.pools[name], spec)
        held = [node for node in on if node.pool == name and node.gpus_free < gpus and is_old(node)]
        among = mask if needs is None else mask & marks_of(state, pool).members(state, needs)
        nodes = [state.nodes[pool.ids[number]] for number in each_bit(among)]
        nodes = [node for node in nodes if node not in on and not is_old(node)]
        workers = min(spec.workers, sum(max(1, node.spec.gpus // gpus) for node in held))
        if workers and _in_one_unit(spec):
            there, workers = [node for node in on if node.pool == name], spec.workers
            nodes = _of_unit(state, pool, spec, nodes, there)
        places = list[KeptPlace]()
        if workers and nodes:
            numbers = sum(1 << pool.number(node.spec.id) for node in nodes)
            places = _emptiest(state, pool, spec, numbers, workers, ())
        if places:
            milli = max(milli for _, milli in kept.owners)
            return [Kept(kept.owners, tuple(_cut(places, milli)), kept.is_whole, is_more=True)]
    return []


def _in_one_unit(spec: JobSpec) -> bool:
    wish = spec.topology
    return wish is not None and wish.wish is Wish.REQUIRED and (wish.slice_workers or spec.workers) >= spec.workers


def _of_unit(
    state: CellState, pool: PoolCapacity, spec: JobSpec, nodes: Sequence[Node], but: Sequence[Node]
) -> list[Node]:
    """Those of these nodes that are in the unit with the most free devices, of the units that hold the job on them and
    have none of the others.
    """
    assert spec.topology is not None, "it wishes for that"
    topology, gpus = topology_for(state, pool, spec), spec.resources.gpu_milli // GPU
    units, room = topology.levels[spec.topology.level], topology.ranking(spec.topology.level, 1).room
    for unit in sorted(range(len(room)), key=lambda unit: -room[unit]):
        there = [pool.ids[number] for number in each_bit(numbers_of(pool, topology, units.slots(unit)))]
        here = [node for node in nodes if node.spec.id in there]
        holds = sum((node.spec.gpus - len(bits(node.failed))) // gpus for node in here) >= spec.workers
        if units.named >> unit & 1 and holds and not any(node.spec.id in there for node in but):
            return here
    return []


def _cut(places: Sequence[KeptPlace], milli: int) -> Iterator[KeptPlace]:
    """The first places, until they have so much, and no more than that."""
    for place in places:
        if milli <= 0:
            return
        if place.milli > milli:
            place = _of_size(place, milli)  # noqa: PLW2901
        milli -= place.milli
        if place.milli:
            yield place


def _of_size(place: KeptPlace, milli: int) -> KeptPlace:
    """The same with so much of it at the most: as many of its devices as that is, or so much of its share of one."""
    devices, share_milli = mask_of(lowest(place.devices, milli // GPU)), min(place.share_milli, milli)
    rest = (place.cpu_milli, place.memory_mib, place.is_alone)
    return KeptPlace(place.node, place.pool, devices, place.device, share_milli, *rest)


def _pick_in(state: CellState, name: str, spec: JobSpec, reach: int) -> tuple[list[KeptPlace], bool]:
    """The places in one pool among these nodes, and whether they hold all of the job."""
    pool = state.pools[name]
    needs = needs_of(state, pool, spec)
    among = reach if needs is None else reach & marks_of(state, pool).members(state, needs)
    among = _in_best_unit(state, pool, spec, among)
    alone = replace(spec, workers=1, workers_min=None, topology=None)
    runs = fill(Room.of(state, pool, spec, among), alone, spec.workers, fullest)
    on: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for node_id, devices, many in runs:
        on.setdefault(node_id, []).append((devices, many))
    found = [place for node_id, here in on.items() for place in _places_on(state.nodes[node_id], spec, here)]
    left = spec.workers - workers_of(runs)
    if left:
        emptiest = _emptiest if spec.resources.gpu_milli >= GPU else _emptiest_devices
        found += emptiest(state, pool, spec, among, left, on)
    return found, not left


def _in_best_unit(state: CellState, pool: PoolCapacity, spec: JobSpec, among: int) -> int:
    """Those of these nodes that are in the one unit with the most free devices, if the job must be in one."""
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED or (wish.slice_workers or spec.workers) < spec.workers:
        return among
    topology = topology_for(state, pool, spec)
    units, room = topology.levels[wish.level], topology.ranking(wish.level, 1).room
    able = sorted(range(len(room)), key=lambda unit: (-room[unit], unit))
    for unit in able:
        here = numbers_of(pool, topology, units.slots(unit)) & among
        if units.named >> unit & 1 and here:
            return here
    return among


def _places_on(node: Node, spec: JobSpec, runs: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[KeptPlace]:
    """What so many workers would take of a node."""
    wants, workers = spec.resources, sum(many for _, many in runs)
    if wants.gpu_milli >= GPU:
        devices = mask_of(tuple(device for chosen, _ in runs for device in chosen))
        rest = (wants.cpu_milli * workers, wants.memory_mib * workers, spec.exclusive)
        yield KeptPlace(node.spec.id, node.pool, devices, 0, 0, *rest)
        return
    for (device, *_), many in runs:
        rest = (wants.cpu_milli * many, wants.memory_mib * many, spec.exclusive)
        yield KeptPlace(node.spec.id, node.pool, 0, device, wants.gpu_milli * many, *rest)


def _emptiest(
    state: CellState, pool: PoolCapacity, spec: JobSpec, among: int, workers: int, on: Container[str]
) -> list[KeptPlace]:
    """What is free of the nodes with the most free devices, for workers that fit nowhere now."""
    wants, found = spec.resources, list[KeptPlace]()
    gpus = wants.gpu_milli // GPU
    for free in sorted((free for free in pool.by_free if free), reverse=True):
        for number in each_bit(pool.by_free[free] & among):
            node = state.nodes[pool.ids[number]]
            if node.spec.id in on:
                continue
            here = min(workers, max(1, node.spec.gpus // gpus))
            devices = mask_of(lowest(node.free, here * gpus))
            cpu = min(wants.cpu_milli * here, node.spec.cpu_milli - node.cpu_used)
            memory = min(wants.memory_mib * here, node.spec.memory_mib - node.memory_used)
            found.append(KeptPlace(node.spec.id, node.pool, devices, 0, 0, cpu, memory, spec.exclusive))
            workers -= here
            if not workers:
                return found
    return found


def _emptiest_devices(
    state: CellState, pool: PoolCapacity, spec: JobSpec, among: int, workers: int, on: Container[str]
) -> list[KeptPlace]:
    """The same for workers that need a share of a device: what is free of the shared devices with the most room."""
    wants, found = spec.resources, list[KeptPlace]()
    for free_milli in sorted(pool.by_share, reverse=True):
        for number in each_bit(pool.by_share[free_milli] & among):
            node = state.nodes[pool.ids[number]]
            if node.spec.id in on:
                continue
            able = [
                device for device, free in node.shares.items() if free == free_milli and not node.failed >> device & 1
            ]
            cpu = min(wants.cpu_milli, node.spec.cpu_milli - node.cpu_used)
            memory = min(wants.memory_mib, node.spec.memory_mib - node.memory_used)
            milli = min(free_milli, wants.gpu_milli)
            found.append(KeptPlace(node.spec.id, node.pool, 0, min(able), milli, cpu, memory, spec.exclusive))
            if len(found) == workers:
                return found
    return found
