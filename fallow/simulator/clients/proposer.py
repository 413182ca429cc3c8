"""A client that proposes that jobs yield: mostly what may hold, and now and then what is stale, wrong or a lie.

It looks at a cell's log as it is, and knows no rule but that a job may stop for another one. So placement meets sets
that it has to refuse for each reason that there is. It proposes in worlds whose policy lets jobs yield, and draws no
chance in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fallow.shared.cluster.capacity.constraints import misfit
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.node import Node, lowest, mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.codec.ranges import ranges_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, WorkerPlace
from fallow.shared.events.operations import PreemptionMode
from fallow.shared.events.proposals import PreemptionProposed, Victim
from fallow.shared.events.reasons import PreemptionCause
from fallow.simulator.storage.broker import Broker, Message, message_of

if TYPE_CHECKING:
    from fallow.simulator.world import World

LOOK_EVERY_MS = (150, 500)
HELD_BACK_MS = (200, 3_000)

Set = tuple[list[Job], list[WorkerPlace]]
"""Who stops, and where the job starts then."""


class Proposer:
    """Proposes while faults may happen; `number` tells its proposals apart."""

    def __init__(self, world: World) -> None:
        self._world, self._number = world, 0

    def begin(self) -> None:
        """From now on."""
        if any(cell.policy.preemption is not PreemptionMode.OFF for cell in self._world.first_file.cells):
            self._look()

    def _look(self) -> None:
        engine = self._world.engine
        if not self._world.faults.is_active:
            return
        for oracle in self._world.oracles:
            event = None if oracle.is_damaged else self._proposal(oracle.state)
            if event is not None:
                self._send(event, self._world.ordinal(oracle.cell))
        engine.after(engine.between(*LOOK_EVERY_MS), self._look)

    def _send(self, event: Event, partition: int) -> None:
        """At once, or late, when much has happened; at times twice."""
        engine, broker = self._world.engine, self._world.broker
        for _ in range(2 if engine.between(0, 9) == 0 else 1):
            after_ms = engine.between(*HELD_BACK_MS) if engine.between(0, 4) == 0 else 0
            engine.after(after_ms, partial(_land, broker, message_of(event, partition)))

    def _proposal(self, state: CellState) -> PreemptionProposed | None:
        chance = self._world.engine.chance
        waiting = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED and job.spec.gang]
        if not waiting:
            return None
        first = max(waiting, key=lambda each: (each.not_before_ms <= state.at_ms, each.spec.priority, -each.number))
        job = chance.choice(waiting) if chance.random() < 0.3 else first  # noqa: PLR2004 - a share
        cause, found = self._set_for(state, job)
        if found is None:
            return None
        victims, places = found
        self._number += 1
        event = PreemptionProposed(
            cell=state.cell,
            proposal=f"p-{self._number}",
            version=state.version,
            preemptor=job.id,
            cause=cause,
            victims=tuple(Victim(job=victim.id, attempt=victim.attempt) for victim in victims),
            places=ranges_of(places),
        )
        return self._spoilt(state, event) if chance.random() < 0.2 else event  # noqa: PLR2004 - one of five

    def _set_for(self, state: CellState, job: Job) -> tuple[PreemptionCause, Set | None]:
        """Jobs that would make room, the first that come by chance: of lower priority, of others, or backfilled."""
        engine = self._world.engine
        running = [other for other in state.jobs.values() if other.status in HOLDING]
        past = [other for other in running if other.backfilled_over == job.id]
        lower = [other for other in running if _is_below(other, job)]
        strangers = [other for other in running if other.spec.tenant != job.spec.tenant]
        owners = [quota.tenant for quota in state.quotas.values() if quota.guaranteed_milli]
        is_owner = job.spec.tenant in owners and job.spec.workers == 1
        causes = [
            (PreemptionCause.BACKFILL, past),
            (PreemptionCause.PRIORITY, lower or (running if engine.between(0, 4) == 0 else [])),
            (PreemptionCause.QUOTA_RECLAIM, strangers if is_owner or engine.between(0, 9) == 0 else []),
            (PreemptionCause.FAIR_SHARE, strangers if engine.between(0, 4) == 0 else []),
        ]
        causes = [each for each in causes if each[1]]
        if not causes:
            return PreemptionCause.PRIORITY, None
        cause, victims = causes[0] if past else engine.chance.choice(causes)
        order = [(engine.between(0, 1_000), number) for number in range(len(victims))]
        return cause, _fewest(state, job, [victims[number] for _, number in sorted(order)])

    def _spoilt(self, state: CellState, event: PreemptionProposed) -> PreemptionProposed:
        """Another one that does not hold."""
        engine = self._world.engine
        held = [job for job in state.jobs.values() if job.status in HOLDING]
        match engine.between(0, 5):
            case 0:
                more = Victim(job=engine.chance.choice(held).id, attempt=1) if held else event.victims[0]
                return replace(event, victims=(*event.victims, more))
            case 1:
                first = event.victims[0]
                return replace(event, victims=(replace(first, attempt=first.attempt + 1), *event.victims[1:]))
            case 2:
                return replace(event, cause=engine.chance.choice([*PreemptionCause]))
            case 3:
                return replace(event, preemptor=engine.chance.choice([*state.jobs]))
            case 4:
                moved = [replace(each, devices=tuple(d + 1 for d in each.devices)) for each in event.places]
                return replace(event, places=tuple(moved))
        return replace(event, version=event.version + engine.between(1, 99))


def _is_below(other: Job, job: Job) -> bool:
    """Whether it may well yield: it is preemptible, and of lower priority or newer."""
    is_newer = other.spec.priority == job.spec.priority and other.number > job.number
    return other.spec.preemptible and (other.spec.priority < job.spec.priority or is_newer)


def _land(broker: Broker, message: Message) -> None:
    broker.land(message)


def _fewest(state: CellState, job: Job, victims: Sequence[Job]) -> Set | None:
    """As many of these as make room on the nodes of one pool, in their order, without those that hold nothing of it."""
    spec = job.spec
    if spec.resources.gpu_milli < GPU or not spec.gang:
        return None
    for pool in dict.fromkeys(node.pool for node in state.nodes.values()):
        if spec.pools and pool not in spec.pools:
            continue
        nodes = [node for node in state.nodes.values() if node.pool == pool and _may_be_on(node, job)]
        free = {node.id: node.free for node in nodes}
        for many in range(len(victims) + 1):
            if many:
                for place in victims[many - 1].workers:
                    if place.node in free and place.gpu_milli >= GPU:
                        free[place.node] |= mask_of(place.devices)
            places = _places(job, free)
            if places is not None and many:
                needed = [victim for victim in victims[:many] if _is_needed(victim, places)]
                return (needed, places) if needed else None
    return None


def _may_be_on(node: Node, job: Job) -> bool:
    is_of_type = job.spec.gpu_type in (None, node.spec.gpu_type)
    return node.is_schedulable and is_of_type and misfit(node, job.spec) is None


def _places(job: Job, free: dict[str, int]) -> list[WorkerPlace] | None:
    wants, left, found = job.spec.resources, dict(free), list[WorkerPlace]()
    gpus = wants.gpu_milli // GPU
    for rank in range(job.spec.workers):
        node = next((node for node, mask in left.items() if mask.bit_count() >= gpus), None)
        if node is None:
            return None
        devices = lowest(left[node], gpus)
        left[node] &= ~mask_of(devices)
        found.append(
            WorkerPlace(
                rank=rank,
                node=node,
                devices=devices,
                gpu_milli=wants.gpu_milli,
                cpu_milli=wants.cpu_milli,
                memory_mib=wants.memory_mib,
            )
        )
    return found


def _is_needed(victim: Job, places: Sequence[WorkerPlace]) -> bool:
    return any(
        theirs.node == place.node and mask_of(theirs.devices) & mask_of(place.devices)
        for theirs in victim.workers
        for place in places
    )
