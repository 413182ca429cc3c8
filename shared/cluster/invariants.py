"""What must be true of a state at any time, counted from nothing."""

from __future__ import annotations

from dataclasses import dataclass

from shared.cluster.capacity import recount
from shared.cluster.job import HOLDING, WAITING, Job
from shared.cluster.quota import Usage, accounts
from shared.cluster.state import CellState
from shared.events.values import GPU


@dataclass(slots=True, frozen=True)
class Offence:
    """An invariant that does not hold, and where."""

    invariant: str
    text: str


def check_state(state: CellState) -> list[Offence]:
    """Every offence of I1 to I4 that this state shows, and every index that differs from a recount."""
    return [
        *no_device_over_committed(state),
        *no_job_twice(state),
        *gangs_are_whole(state),
        *usage_adds_up(state),
        *indices_equal_a_recount(state),
    ]


def no_device_over_committed(state: CellState) -> list[Offence]:
    """I1: what jobs hold on a device is at most the device, and is what the node says is in use."""
    used: dict[tuple[str, int], int] = {}
    for job in state.jobs.values():
        for place in job.workers + job.joining:
            for device in place.devices:
                at = (place.node, device)
                used[at] = used.get(at, 0) + place.gpu_milli // len(place.devices)
    found = [Offence("I1", f"device {d} of {n} holds {u} milli-GPUs") for (n, d), u in sorted(used.items()) if u > GPU]
    for node_id in sorted(state.nodes):
        node = state.nodes[node_id]
        for device in range(node.spec.gpus):
            said = GPU if node.held >> device & 1 else GPU - node.shares.get(device, GPU)
            if said != used.get((node_id, device), 0):
                found.append(
                    Offence(
                        "I1",
                        f"device {device} of {node_id} counts {said} in use, its jobs hold {used.get((node_id, device), 0)}",
                    )
                )
    return found


def no_job_twice(state: CellState) -> list[Offence]:
    """I2: a job either waits, holds places, or is over; and the number of waiting jobs is right."""
    found = [Offence("I2", f"job {job_id} is over and is not") for job_id in state.jobs if job_id in state.over]
    for job_id, job in state.jobs.items():
        if job.status not in WAITING and job.status not in HOLDING:
            found.append(Offence("I2", f"job {job_id} rests in {job.status}"))
    waiting = sum(job.status in WAITING for job in state.jobs.values())
    if waiting != state.waiting:
        found.append(Offence("I2", f"{waiting} jobs wait, the state counts {state.waiting}"))
    return found


def gangs_are_whole(state: CellState) -> list[Offence]:
    """I3: a job that waits holds nothing; one that runs holds a whole gang."""
    return [Offence("I3", text) for job in state.jobs.values() if (text := _not_whole(job)) is not None]


def _not_whole(job: Job) -> str | None:
    if job.status in WAITING:
        return f"job {job.id} waits and holds {len(job.workers)} places" if job.workers else None
    fewest = job.spec.workers_min or job.spec.workers
    if job.status in HOLDING and len(job.workers) < fewest:
        return f"job {job.id} holds {len(job.workers)} places of at least {fewest}"
    return None


def usage_adds_up(state: CellState) -> list[Offence]:
    """I4: the use that limits are compared with is what the jobs hold, at each tenant and its ancestors."""
    usage: Usage = {}
    for job in state.jobs.values():
        for place in job.workers + job.joining:
            gpu_type = state.nodes[place.node].spec.gpu_type
            for account in accounts(state.quotas, job.spec.tenant, gpu_type):
                usage[account] = usage.get(account, 0) + place.gpu_milli
    differ = sorted(a for a in {**usage, **state.usage} if usage.get(a, 0) != state.usage.get(a, 0))
    return [Offence("I4", f"{a} uses {usage.get(a, 0)}, the state counts {state.usage.get(a, 0)}") for a in differ]


def indices_equal_a_recount(state: CellState) -> list[Offence]:
    """The indices kept by delta are what a recount gives."""
    fresh = recount(state.nodes)
    return [
        Offence("index", f"pool {pool}: {state.pools.get(pool)} is not {fresh.get(pool)}")
        for pool in sorted({**fresh, **state.pools})
        if fresh.get(pool) != state.pools.get(pool)
    ]
