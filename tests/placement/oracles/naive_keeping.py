"""What is kept for owners, worked out from nothing: every job that waits is looked at, one after the other.

The oracle of what placement keeps by what has changed. Of placement it uses what tells whether a job could ever start,
and which places one job gets as the state is; what is claimed, and in which order, is found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from heapq import heapify, heappop
from typing import Any

from fallow.services.placement.fit.empty_capacity import could_ever_start, could_hold, reach_of
from fallow.services.placement.owners.claim_places import pick
from fallow.services.placement.owners.kept_index import KeptIndex, KeptSum, Tally, kept_in
from fallow.services.placement.owners.owners import has_owners
from fallow.services.placement.owners.patience import PATIENCE_MS
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.lines.row import Row
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import Node, bits
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import Kept, KeptPlaces, taken
from fallow.shared.cluster.quota.quota import accounts, over_limit
from fallow.shared.cluster.quota.room import firm_room, lineage
from fallow.shared.cluster.quota.tree import Account, Branch
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.placement.oracles.judged_places import useless_places, wrong_places
from tests.placement.oracles.oracle import LinesWorld

KINDS_MAX = 8
CLOSED = (NodeStatus.CORDONED, NodeStatus.DRAINING)

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
            if any(tally.places):
                found[name, key] = [
                    tally.of(whole=whole, unlent=unlent) for whole in (False, True) for unlent in (False, True)
                ]
    for node_id, on in index.on.items():
        homes = {home: _told(each) for home, each in on.by_home.items()}
        found[node_id] = _told(on.sum), homes, on.free_devices
        found[node_id, "places"] = sorted(
            (entry.place, entry.home, entry.is_whole, entry.is_lent, entry.free) for entry in on.entries
        )
    return found


def kept_by_lines(state: CellState, lines: Lines) -> KeptPlaces:
    """What is kept for those who wait in these lines."""
    firsts, jobs = dict[Line, str](), list[Job]()
    for tenant in _with_idle(state, lines.tenants()):
        for row, line in lines.rows_of(tenant):
            assert row.first is not None, "a job waits in it"
            job = state.jobs[row.first[-1]]
            if _has_turn(state, row, line, job, firsts):
                jobs.append(job)
    return kept_for(state, jobs)


def kept_for(state: CellState, jobs: Sequence[Job]) -> KeptPlaces:
    """The places that are kept for these jobs, the largest first: for one of each kind of an owner's, and for no more
    of them than its idle guarantee holds. Jobs that are not guaranteed whole come behind those that are.
    """
    book = _Book(state)
    if jobs:
        in_order = sorted(jobs, key=lambda job: (-in_line(job).gpus_milli, job.submit_ms, job.number))
        for is_whole in (True, False):
            for job in in_order:
                if is_whole or job.status is JobStatus.QUEUED:
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

    def close(self) -> list[Kept]:
        """All that was chosen; the state is as it was."""
        self._in_use.close()
        return self._kept

    def keep_for(self, job: Job, *, is_whole: bool) -> None:
        """Keep places for this job, of the first GPU type of which its owners have something idle for it."""
        for gpu_type in _all_types(self._state, job.spec):
            owners = self._owners(in_line(job), gpu_type, is_whole=is_whole)
            if owners and self._waits_for_room(job) and _could_be_of(self._state, job, gpu_type):
                self._keep(job, gpu_type, owners, is_whole=is_whole)
                return

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
            if fits and (account, where) not in self._kinds and self._number_of.get(account, 0) < KINDS_MAX:
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
        most, since_ms = max(milli for _, milli in owners), _turned_since_ms(self._state, job.submit_ms)
        places = pick(self._state, spec, _reach_beside_own(self._state, spec, job), most, since_ms)
        is_lent = _is_taken_back(self._state, job, gpu_type) and not (is_whole and places.holds_all)
        kept = Kept(tuple(owners), places.places, is_whole, is_lent=is_lent)
        assert wrong_places(self._state, spec, kept) is None, (job.id, wrong_places(self._state, spec, kept))
        useless = useless_places(self._state, spec, kept, job.workers)
        assert useless is None, (job.id, useless)
        found = [kept, *([kept._replace(places=places.more, is_more=True)] if places.more else [])]
        for each in found[1:]:
            assert wrong_places(self._state, spec, each) is None, (job.id, wrong_places(self._state, spec, each))
            devices = [
                (place.node, device) for place in (*places.places, *each.places) for device in bits(place.devices)
            ]
            assert len(devices) == len({*devices}), f"{job.id}: a device is kept twice"
        self._kept += found
        for each in found:
            self._in_use.enter_context(taken(self._state, each.places))

    def _waits_for_room(self, job: Job) -> bool:
        known = self._is_able.get(job.spec.id)
        if known is None:
            known = _waits_for_room(self._state, job)
            self._is_able[job.spec.id] = known
        return known


def _is_taken_back(state: CellState, job: Job, gpu_type: str) -> bool:
    """Whether borrowers yield to this job: a gang beside others that has never run, each guarantee of whose line would
    hold it and is taken back from all.
    """
    if state.policy.preemption.value == "off" or job.attempt or job.spec.exclusive or not job.spec.gang:
        return False
    for account in accounts(state.quotas, job.spec.tenant, gpu_type):
        branch = state.tree.branches.get(account)
        if branch is not None and 0 < branch.guaranteed_milli < job.spec.gpus_milli:
            return False
        if branch is not None and branch.guaranteed_milli and state.quotas[account].reclaim.value != "any":
            return False
    return True


def _all_types(state: CellState, spec: JobSpec) -> dict[str, None]:
    """All types of its pools, or the one that the job names."""
    if spec.gpu_type is not None:
        return {spec.gpu_type: None}
    pools = [state.pools[name] for name in spec.pools or sorted(state.pools) if name in state.pools]
    return {state.nodes[node_id].spec.gpu_type: None for pool in pools for node_id in pool.ids}


def _could_be_of(state: CellState, job: Job, gpu_type: str) -> bool:
    """Whether nodes of this type are of any use to the job: open ones hold it when they are empty."""
    spec = replace(in_line(job), gpu_type=gpu_type)
    if job.status is not JobStatus.QUEUED:
        return _is_any_open(state, _reach_beside_own(state, spec, job))
    return bool(reach_of(state, spec)) and not _waits_for_maintenance(state, spec)


def _is_any_open(state: CellState, reach: dict[str, int]) -> bool:
    ids = [state.pools[pool].ids[number] for pool, mask in reach.items() for number in bits(mask)]
    return any(state.nodes[node_id].status not in CLOSED for node_id in ids)


def _reach_beside_own(state: CellState, spec: JobSpec, job: Job) -> dict[str, int]:
    """Where one more worker of the job could be: not where its own workers leave no room for it."""
    reach = dict(reach_of(state, spec))
    for node_id in dict.fromkeys(place.node for place in job.workers):
        node = state.nodes[node_id]
        if not _has_room_beside(node, [place for place in job.workers if place.node == node_id], spec.resources):
            reach[node.pool] = reach.get(node.pool, 0) & ~(1 << state.pools[node.pool].number(node_id))
    return {pool: mask for pool, mask in reach.items() if mask}


def _has_room_beside(node: Node, own: Sequence[WorkerPlace], wants: Resources) -> bool:
    """Whether the node would hold a worker more beside these, if nothing else ran there."""
    healthy = [device for device in range(node.spec.gpus) if not node.failed >> device & 1]
    on = Counter(device for place in own for device in place.devices)
    if wants.gpu_milli < GPU:
        fits = any(on[device] < GPU // wants.gpu_milli for device in healthy)
    else:
        fits = sum(not on[device] for device in healthy) * GPU >= wants.gpu_milli
    cpu_milli = node.spec.cpu_milli - sum(place.cpu_milli for place in own)
    memory_mib = node.spec.memory_mib - sum(place.memory_mib for place in own)
    return fits and cpu_milli >= wants.cpu_milli and memory_mib >= wants.memory_mib


def _where(spec: JobSpec) -> Where:
    return (spec.pools, spec.gpu_type, spec.kind, spec.node_labels, spec.tolerations, spec.topology, spec.exclusive)


def _has_turn(state: CellState, row: Row, line: Line, job: Job, firsts: dict[Line, str]) -> bool:
    """Whether the job could start now, the first of its class. In a strict line that is the first one only: to keep
    room for one behind it could keep the first from starting, and then both would wait for ever. By shares the first of
    a tenant may stand behind one of another tenant, which it passes only with what is guaranteed to it.
    """
    if line.queue.discipline is not QueueDiscipline.STRICT_FIFO:
        return True
    if line not in firsts:
        firsts[line] = _first_of(state, line)
    is_fair = line.queue.order is QueueOrder.FAIR_SHARE
    return firsts[line] == job.spec.id and (not is_fair or _is_all_guaranteed(state, job))


def _with_idle(state: CellState, tenants: Iterable[str]) -> dict[str, None]:
    """Those of the tenants that have an idle guarantee, or stand below a tenant that has one."""
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
    never be, nor one that runs and whose own workers are all that its open nodes hold.
    """
    if job.status is JobStatus.QUEUED and not may_start_one_more(state, job.spec):
        return False
    if not (could_ever_start(state, job) and is_ever_allowed(state, job)):
        return False
    if job.status is JobStatus.QUEUED:
        return bool(reach_of(state, in_line(job)))
    return _is_any_open(state, _reach_beside_own(state, in_line(job), job))


def _waits_for_maintenance(state: CellState, spec: JobSpec) -> bool:
    """Whether the job is a gang that no pool would hold before its planned maintenance is over, were all nodes empty:
    until then room is of no use to it. In a strict queue it keeps those behind it waiting all the same.
    """
    pools = [state.pools[name] for name in spec.pools or state.pools if name in state.pools]
    return spec.gang and not any(could_hold(state, pool, spec) for pool in pools)


def _is_all_guaranteed(state: CellState, job: Job) -> bool:
    """Whether the whole job is guaranteed to its own tenant, of each GPU type of which room would be kept for it."""
    spec = in_line(job)
    types = [gpu_type for gpu_type in _all_types(state, spec) if _could_be_of(state, job, gpu_type)]
    branches = [state.tree.branches.get((spec.tenant, gpu_type)) for gpu_type in types]
    keeping = [branch for branch in branches if branch is not None and any(map(_is_idle, lineage(branch)))]
    return all(branch.used_milli + spec.gpus_milli <= branch.guaranteed_milli for branch in keeping)


def _turned_since_ms(state: CellState, since_ms: int) -> int | None:
    """Of a job that has waited since then, the middle of its wait, as that was when the wait had doubled last."""
    waited_ms, doubled_ms = max(state.at_ms, state.clock_ms) - since_ms, PATIENCE_MS
    if waited_ms < PATIENCE_MS:
        return None
    while 2 * doubled_ms <= waited_ms:
        doubled_ms *= 2
    return since_ms + doubled_ms // 2
