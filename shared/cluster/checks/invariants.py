"""What must be true of a state at any time, counted from nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from fallow.shared.cluster.capacity.capacity import PoolCapacity, recount
from fallow.shared.cluster.model.job import HOLDING, WAITING, Job, JobStatus
from fallow.shared.cluster.model.spec_bytes import spec_bytes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import count_unacknowledged
from fallow.shared.cluster.quota.quota import Usage, accounts
from fallow.shared.cluster.quota.quota_index import QuotaIndex
from fallow.shared.events.fields.values import GPU


@dataclass(slots=True, frozen=True)
class Offence:
    """An invariant that does not hold, and where."""

    invariant: str
    text: str


def check_state(state: CellState) -> list[Offence]:
    """Every offence of I1 to I4 that this state shows, and every index that differs from a recount."""
    return [
        *no_device_over_committed(state),
        *nodes_count_right(state),
        *who_is_alone_is_so(state),
        *no_job_twice(state),
        *rooms_are_held(state),
        *gangs_are_whole(state),
        *usage_adds_up(state),
        *quotas_are_indexed(state),
        *indices_equal_a_recount(state),
        *waits_equal_a_recount(state),
        *live_bytes_equal_a_recount(state),
        *unacknowledged_adds_up(state),
    ]


def no_device_over_committed(state: CellState) -> list[Offence]:
    """I1: what jobs hold on a device is at most the device, and is what the node says is in use."""
    used = _used_devices(state)
    found = [Offence("I1", f"device {d} of {n} holds {u} milli-GPUs") for (n, d), u in sorted(used.items()) if u > GPU]
    for node_id in sorted(state.nodes):
        node = state.nodes[node_id]
        for device in range(node.spec.gpus):
            said = GPU if node.held >> device & 1 else GPU - node.shares.get(device, GPU)
            held = used.pop((node_id, device), 0)
            if said != held:
                text = f"device {device} of {node_id} counts {said} in use, its jobs hold {held}"
                found.append(Offence("I1", text))
    found.extend(Offence("I1", f"device {d} of {n} is held and does not exist") for n, d in sorted(used))
    return found


def _used_devices(state: CellState) -> dict[tuple[str, int], int]:
    used: dict[tuple[str, int], int] = {}
    for job in state.jobs.values():
        for place in job.workers + job.joining:
            for device in place.devices:
                at = (place.node, device)
                used[at] = used.get(at, 0) + place.gpu_milli // len(place.devices)
    return used


def nodes_count_right(state: CellState) -> list[Offence]:
    """I1 beside the devices: a node's CPUs, memory and jobs in use are what its jobs hold, and no more than it has."""
    held: dict[str, _Held] = {}
    for job_id in sorted(state.jobs):
        for place in state.jobs[job_id].workers + state.jobs[job_id].joining:
            here = held.setdefault(place.node, _Held())
            here.cpu_milli += place.cpu_milli
            here.memory_mib += place.memory_mib
            here.jobs[job_id] = here.jobs.get(job_id, 0) + 1
    found = []
    for node_id in sorted(state.nodes):
        node, here = state.nodes[node_id], held.get(node_id, _Held())
        if (node.cpu_used, node.memory_used, node.jobs) != (here.cpu_milli, here.memory_mib, here.jobs):
            found.append(Offence("I1", f"node {node_id} counts other CPUs, memory or jobs than its jobs hold"))
        if here.cpu_milli > node.spec.cpu_milli or here.memory_mib > node.spec.memory_mib:
            found.append(Offence("I1", f"node {node_id} has more CPUs or memory in use than it has"))
    return found


def who_is_alone_is_so(state: CellState) -> list[Offence]:
    """I1: a node is held alone by the exclusive job on it, if there is one, and then no other job is there."""
    found = []
    for node_id in sorted(state.nodes):
        node = state.nodes[node_id]
        alone = [job for job in sorted(node.jobs) if job in state.jobs and state.jobs[job].spec.exclusive]
        if node.alone != (alone[0] if alone else None):
            found.append(Offence("I1", f"node {node_id} says that job {node.alone} is alone, not {alone[:1]}"))
        if alone and len(node.jobs) > 1:
            found.append(Offence("I1", f"job {alone[0]} would be alone on node {node_id}, {len(node.jobs)} are there"))
    return found


@dataclass(slots=True)
class _Held:
    cpu_milli: int = 0
    memory_mib: int = 0
    jobs: dict[str, int] = field(default_factory=dict)


def no_job_twice(state: CellState) -> list[Offence]:
    """I2: a job either waits, holds places, or is over; what is over keeps no reservation; heads wait; and the number
    of waiting jobs is right.
    """
    found = [
        Offence("I2", f"job {job_id} is over and is not") for job_id in sorted(state.jobs) if job_id in state.finished
    ]
    for job_id in sorted(state.jobs):
        job = state.jobs[job_id]
        if job.status not in WAITING and job.status not in HOLDING:
            found.append(Offence("I2", f"job {job_id} rests in {job.status}"))
    unclaimed = [job_id for job_id in sorted(state.reservations) if job_id not in state.jobs]
    found.extend(Offence("I2", f"job {job_id} has a reservation and does not live") for job_id in unclaimed)
    for job_id in sorted(state.heads):
        job_or_none = state.jobs.get(job_id)
        if job_or_none is None or job_or_none.status is not JobStatus.QUEUED:
            found.append(Offence("I2", f"job {job_id} is waited for as a head and does not wait"))
    planned = [job_id for job_id in sorted(state.first_plans) if job_id not in state.jobs]
    found.extend(Offence("I2", f"job {job_id} had a first planned start and does not live") for job_id in planned)
    waiting = Counter(job.spec.tenant for job in state.jobs.values() if job.status in WAITING)
    if waiting.total() != state.waiting:
        found.append(Offence("I2", f"{waiting.total()} jobs wait, the state counts {state.waiting}"))
    differ = (t for t in sorted({**waiting, **state.waiting_of}) if waiting[t] != state.waiting_of.get(t))
    for tenant in differ:
        text = f"{waiting[tenant]} jobs of {tenant} wait, the state counts {state.waiting_of.get(tenant, 0)}"
        found.append(Offence("I2", text))
    return found


def rooms_are_held(state: CellState) -> list[Offence]:
    """ROOM: room is held for jobs that wait, no device for two, and each node counts what is held there."""
    found, held = list[Offence](), dict[str, list[int]]()
    for job_id in sorted(state.rooms):
        job = state.jobs.get(job_id)
        if job is None or job.status not in WAITING:
            found.append(Offence("ROOM", f"room is held for job {job_id}, which does not wait"))
        ours: dict[str, int] = {}
        for place in state.rooms[job_id].workers:
            here = held.setdefault(place.node, [0, 0, 0])
            ours[place.node] = ours.get(place.node, 0) | sum(1 << device for device in place.devices)
            here[1] += place.cpu_milli
            here[2] += place.memory_mib
        for node_id, devices in ours.items():
            if held[node_id][0] & devices:
                found.append(Offence("ROOM", f"a device of {node_id} is held for two jobs, {job_id} is one"))
            held[node_id][0] |= devices
    for node_id in sorted({**state.nodes, **held}):
        node, counted = state.nodes.get(node_id), held.get(node_id, [0, 0, 0])
        if node is None or [node.room, node.cpu_room, node.memory_room] != counted:
            found.append(Offence("ROOM", f"node {node_id} counts other room than is held there"))
    return found


def gangs_are_whole(state: CellState) -> list[Offence]:
    """I3: a job that waits holds nothing, nor what its last attempt was told; one that runs holds a whole gang."""
    return [Offence("I3", text) for job in state.jobs.values() if (text := _not_whole(job)) is not None]


def _not_whole(job: Job) -> str | None:
    if job.status in WAITING:
        held = len(job.workers) + len(job.joining)
        if held:
            return f"job {job.id} waits and holds {held} places"
        is_told = job.stop_why is not None or bool(job.stop_text)
        return f"job {job.id} waits and is still told to stop" if is_told else None
    fewest = (job.spec.workers_min or job.spec.workers) if job.spec.gang else 1
    if job.status in HOLDING and len(job.workers) < fewest:
        return f"job {job.id} holds {len(job.workers)} places of at least {fewest}"
    ranks = [place.rank for place in job.workers + job.joining]
    if job.status in HOLDING and not job.spec.gang and {*job.runs} != {str(rank) for rank in ranks}:
        return f"job {job.id} holds ranks {ranks} and knows of runs {[*job.runs]}"
    return f"job {job.id} has two workers of one rank" if len(set(ranks)) < len(ranks) else None


def usage_adds_up(state: CellState) -> list[Offence]:
    """I4: the use that limits are compared with is what the jobs hold, and what is held for them, at each tenant and
    its ancestors.
    """
    usage: Usage = {}
    for job in state.jobs.values():
        room = state.rooms.get(job.id)
        for place in (*job.workers, *job.joining, *(room.workers if room is not None else ())):
            node = state.nodes.get(place.node)
            gpu_type = node.spec.gpu_type if node is not None else ""
            for account in accounts(state.quotas, job.spec.tenant, gpu_type):
                usage[account] = usage.get(account, 0) + place.gpu_milli
    differ = sorted(a for a in {**usage, **state.usage} if usage.get(a, 0) != state.usage.get(a, 0))
    told = [f"{a} uses {usage.get(a, 0)}, the state counts {state.usage.get(a, 0)}" for a in differ]
    return [Offence("I4", text) for text in (*told, *state.tree.differs_from_recount())]


def quotas_are_indexed(state: CellState) -> list[Offence]:
    """How many quotas stand below each, and of which types each tenant has one, is what the quotas say."""
    fresh, kept = QuotaIndex.of(state.quotas.values()), state.tree.index
    return [] if fresh == kept else [Offence("index", f"quotas: {kept} is not {fresh}")]


def waits_equal_a_recount(state: CellState) -> list[Offence]:
    """Who waits for whom, whose wait has ended, and how far each array is, are what the jobs say."""
    dependents: dict[str, dict[str, None]] = {}
    elements: dict[str, tuple[int, int, int]] = {}
    for job in state.jobs.values():
        for waited in job.waits_for:
            dependents.setdefault(waited, {})[job.id] = None
        if job.spec.array_of is not None:
            left, holding, making_room = elements.get(job.spec.array_of, (0, 0, 0))
            holding, making_room = holding + (job.status in HOLDING), making_room + (job.id in state.rooms)
            elements[job.spec.array_of] = (left + 1, holding, making_room)
    ripe = {
        job.id: None
        for job in state.jobs.values()
        if job.broken_by or (job.status is JobStatus.AWAITING and not job.waits_for)
    }
    untold = {waited: None for waited in dependents if waited in state.finished}
    counted = {array.id: (array.left, array.holding, array.making_room) for array in state.arrays.values()}
    silent = {node.id: None for node in state.nodes.values() if node.silent_wall_ms}
    pairs = (
        ("silent nodes", silent, state.silent),
        ("offers", {node.id: None for node in state.nodes.values() if node.offered is not None}, state.offers),
        ("who waits for whom", dependents, state.dependents),
        ("of whose end not all know", untold, state.ends_untold),
        ("whose wait has ended", ripe, state.dependencies_resolved),
        ("arrays", elements, counted),
    )
    return [Offence("index", f"{what}: {kept} is not {fresh}") for what, fresh, kept in pairs if fresh != kept]


def live_bytes_equal_a_recount(state: CellState) -> list[Offence]:
    """What the specifications of the jobs take is what they say."""
    fresh, jobs = Counter[str](), dict[str, int]()
    for job in state.jobs.values():
        jobs[job.id] = spec_bytes(job.spec)
        fresh[job.spec.tenant] += jobs[job.id]
    pairs = (
        ("bytes of jobs", jobs, {job.id: job.spec_bytes for job in state.jobs.values()}),
        ("live bytes", fresh.total(), state.live_bytes),
        ("live bytes of tenants", {tenant: count for tenant, count in fresh.items() if count}, state.live_bytes_of),
    )
    return [Offence("index", f"{what}: {kept} is not {count}") for what, count, kept in pairs if count != kept]


def indices_equal_a_recount(state: CellState) -> list[Offence]:
    """The indices kept by delta are what a recount gives."""
    fresh = recount(state.nodes)
    return [
        Offence("index", f"pool {pool}: {_differing(state.pools.get(pool), fresh.get(pool))} not as a recount gives it")
        for pool in sorted({**fresh, **state.pools})
        if fresh.get(pool) != state.pools.get(pool)
    ]


def _differing(kept: PoolCapacity | None, fresh: PoolCapacity | None) -> str:
    """Which indices of a pool differ, by name: some are numbers of more digits than can be printed."""
    if kept is None or fresh is None:
        return "that it is there is"
    names = [each.name for each in fields(kept) if each.compare]
    return ", ".join(name for name in names if getattr(kept, name) != getattr(fresh, name))


def unacknowledged_adds_up(state: CellState) -> list[Offence]:
    """What nodes have yet to confirm is what their jobs say, and those with too much of it take nothing new."""
    fresh, index = count_unacknowledged(state, state.policy.max_unacknowledged_starts_per_node), state.unacknowledged
    found = [] if fresh == index else [Offence("index", f"unacknowledged: {index} is not {fresh}")]
    full = {} if fresh is None else fresh.full
    wrong = [node.id for node in state.nodes.values() if node.is_full is not (node.id in full)]
    return found + [Offence("index", f"node {node_id} counts as full, or as not full, and is not") for node_id in wrong]
