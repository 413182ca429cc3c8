"""I1 to I4 over a whole log, and that lost nodes are back by a word of theirs alone, by a ledger of its own: it shares
no arithmetic with the fold that it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fallow.shared.cluster.checks.audit_quota import QuotaBooks
from fallow.shared.cluster.checks.invariants import Offence
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus, WorkerPlace
from fallow.shared.events.operations import Quota

Raised = dict[tuple[str, str], None]
"""The accounts whose use a decision has raised so far."""


@dataclass(slots=True)
class Ledger:
    """What a reader of the effects alone knows. Feed it every accepted decision in order. `used` are the milli-GPUs in
    use on each device of a node, `alone` the exclusive job on it. `words` are each node's boot and the number of the
    word with which it came to be what it is, `lost` the nodes that are lost. `rooms` are the devices that are held for
    a waiting job.
    """

    gpus: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    used: dict[str, list[int]] = field(default_factory=dict)
    live: dict[str, JobSpec] = field(default_factory=dict)
    live_of: Counter[str] = field(default_factory=Counter)
    places: dict[str, tuple[WorkerPlace, ...]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    quotas: dict[tuple[str, str], Quota] = field(default_factory=dict)
    children: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    use: dict[tuple[str, str], int] = field(default_factory=dict)
    alone: dict[str, str] = field(default_factory=dict)
    words: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)
    rooms: dict[str, dict[tuple[str, int], None]] = field(default_factory=dict)

    def take(self, decision: Decision) -> Offence | None:
        """The first offence of this decision, or None."""
        raised, takes = Raised(), self._TAKE
        for effect in decision.effects:
            take = takes.get(type(effect))
            offence = None if take is None else take(self, effect, raised)
            if offence is not None:
                return offence
        return self._limits_hold(raised)

    def _set_quota(self, quota: Quota, raised: Raised) -> Offence | None:
        """What was raised before a limit was lowered is held against the limit of then."""
        offence = self._limits_hold(raised)
        raised.clear()
        account = (quota.tenant, quota.gpu_type)
        before = self.quotas.get(account)
        if before is not None and before.parent is not None:
            del self.children[before.parent, quota.gpu_type][quota.tenant]
        if quota.parent is not None:
            self.children.setdefault((quota.parent, quota.gpu_type), {})[quota.tenant] = None
        self.quotas[account] = quota
        return offence

    def _take_node(self, effect: e.NodeChanged, _: Raised) -> Offence | None:
        spec = effect.spec
        offence = self._comes_back(effect)
        self.gpus[spec.id], self.types[spec.id] = spec.gpus, spec.gpu_type
        row = self.used.setdefault(spec.id, [])
        row += [0] * (spec.gpus - len(row))
        return offence

    def _comes_back(self, effect: e.NodeChanged) -> Offence | None:
        """LEASE: a lost node is used again after a word of it, and each has a number of its own in its boot. Only 0 may
        come more than once: from a node that does not number its words.
        """
        node, word = effect.spec.id, (effect.boot, effect.seq)
        before = self.words.get(node)
        self.words[node] = word
        if effect.status is NodeStatus.LOST:
            self.lost[node] = None
            return None
        was_lost = node in self.lost
        self.lost.pop(node, None)
        if was_lost and effect.seq and word == before:
            return Offence("LEASE", f"node {node} was lost and is {effect.status} again without a word of it")
        return None

    def _lose_node(self, effect: e.LeaseExpired, _: Raised) -> None:
        self.lost[effect.node] = None

    def _remove_node(self, effect: e.NodeRemoved, _: Raised) -> Offence | None:
        if any(self.used.pop(effect.node, ())):
            return Offence("I1", f"node {effect.node} is forgotten while it is in use")
        for known in (self.gpus, self.types, self.words, self.lost):
            known.pop(effect.node, None)
        return None

    def _take_quota(self, effect: e.QuotaSet, raised: Raised) -> Offence | None:
        return self._set_quota(effect.quota, raised)

    def _remove_quota(self, effect: e.QuotaRemoved, raised: Raised) -> Offence | None:
        """A quota that is removed limits no job that lives, and has no tenant below it."""
        account = (effect.tenant, effect.gpu_type)
        offence = self._limits_hold(raised)
        raised.clear()
        before = self.quotas.pop(account, None)
        if before is None:
            return Offence("I4", f"tenant {effect.tenant} has no quota of {effect.gpu_type} to be removed")
        if self.live_of[effect.tenant]:
            return Offence("I4", f"the quota of {effect.tenant} is removed while its jobs live")
        if self.children.get(account):
            return Offence("I4", f"the quota of {effect.tenant} is removed while others stand below it")
        if before.parent is not None:
            del self.children[before.parent, effect.gpu_type][effect.tenant]
        return offence

    def _enqueue(self, effect: e.JobEnqueued, _: Raised) -> Offence | None:
        job = effect.spec.id
        if job in self.live:
            return Offence("I2", f"job {job} is enqueued twice")
        self.live[job] = effect.spec
        self.live_of[effect.spec.tenant] += 1
        self.ended.pop(job, None)
        return None

    def _update(self, effect: e.JobUpdated, _: Raised) -> Offence | None:
        before = self.live.get(effect.job)
        if before is None or before.tenant != effect.tenant:
            return Offence("I2", f"job {effect.job} is updated and is no live job of {effect.tenant}")
        self.live[effect.job] = effect.applied_to(before)
        return None

    def _grow(self, effect: e.JobResizing, raised: Raised) -> Offence | None:
        return self._resize(effect.job, self.places.get(effect.job, ()) + effect.add, raised)

    def _shrink(self, effect: e.JobResized, raised: Raised) -> Offence | None:
        return self._resize(effect.job, effect.workers, raised)

    def _settle(self, effect: e.WorkersSettled, raised: Raised) -> Offence | None:
        """Who is over holds nothing; only of jobs that are no gangs one worker ends without the others."""
        if self.live.get(effect.job) is not None and self.live[effect.job].gang:
            return Offence("I3", f"gang {effect.job} loses a worker and goes on")
        over = {*effect.done, *effect.gone}
        places = self.places.get(effect.job, ())
        return self._resize(effect.job, tuple(place for place in places if place.rank not in over), raised)

    def _hold_room(self, effect: e.RoomHeld, _: Raised) -> Offence | None:
        """ROOM: no device is held for two jobs, and a job that runs has no room beside."""
        if effect.job not in self.live or self.places.get(effect.job):
            return Offence("ROOM", f"room is held for job {effect.job}, which does not wait")
        ours = {(place.node, device): None for place in effect.workers for device in place.devices}
        for other, theirs in self.rooms.items():
            twice = next((at for at in ours if at in theirs), None)
            if twice is not None:
                return Offence("ROOM", f"device {twice[1]} of {twice[0]} is held for {other} and for {effect.job}")
        self.rooms[effect.job] = ours
        return None

    def _release_room(self, effect: e.RoomReleased, _: Raised) -> Offence | None:
        if self.rooms.pop(effect.job, None) is None:
            return Offence("ROOM", f"room of job {effect.job} is let go of, and none was held")
        return None

    def _takes_room(self, job: str, places: tuple[WorkerPlace, ...]) -> Offence | None:
        """ROOM: nobody comes to a device that is held for another job, or that is still held for itself."""
        for place in places:
            for device in place.devices:
                for other, held in self.rooms.items():
                    if (place.node, device) in held:
                        return Offence("ROOM", f"job {job} gets device {device} of {place.node}, held for job {other}")
        return None

    def _let_go(self, effect: e.JobPreempted | e.JobRequeued, raised: Raised) -> Offence | None:
        return self._hold(effect.job, (), raised)

    def _resize(self, job: str, places: tuple[WorkerPlace, ...], raised: Raised) -> Offence | None:
        if not self.places.get(job):
            return Offence("I2", f"job {job} is resized and holds nothing")
        spec, ranks = self.live[job], {place.rank for place in places}
        fewest = (spec.workers_min or spec.workers) if spec.gang else 0
        if len(ranks) < len(places) or len(ranks) < fewest:
            return Offence("I3", f"job {job} is resized to {len(places)} workers of {len(ranks)} ranks")
        return self._hold(job, places, raised)

    def _start(self, effect: e.JobStarted, raised: Raised) -> Offence | None:
        spec = self.live.get(effect.job)
        if spec is None:
            return Offence("I2", f"job {effect.job} starts and was never accepted, or is over")
        if self.places.get(effect.job):
            return Offence("I2", f"job {effect.job} starts while it runs")
        fewest = (spec.workers_min or spec.workers) if spec.gang else 1
        if not fewest <= len(effect.workers) <= spec.workers:
            return Offence(
                "I3", f"job {effect.job} starts with {len(effect.workers)} workers of {fewest} to {spec.workers}"
            )
        return self._come_to(spec, (), effect.workers, raised)

    def _end(self, effect: e.JobFinished | e.JobFailed | e.JobCancelled, _: Raised) -> Offence | None:
        spec = self.live.pop(effect.job, None)
        if spec is None:
            return Offence(
                "I2", f"job {effect.job} ends ({effect.kind}) and was not live: {self.ended.get(effect.job, 'unknown')}"
            )
        before = self.places.pop(effect.job, ())
        if before:
            self._give_back(spec.tenant, before)
            if self.alone:
                self._open_again(effect.job, before)
        self.live_of[spec.tenant] -= 1
        if not self.live_of[spec.tenant]:
            del self.live_of[spec.tenant]
        self.ended[effect.job] = effect.kind
        if self.rooms:
            self.rooms.pop(effect.job, None)
        return None

    def _hold(self, job: str, places: tuple[WorkerPlace, ...], raised: Raised) -> Offence | None:
        """From now on the job holds these places, instead of those that it held before."""
        spec, before = self.live.get(job), self.places.pop(job, ())
        if spec is None:
            return None  # it holds nothing, then
        if before:
            self._give_back(spec.tenant, before)
        return self._come_to(spec, before, places, raised)

    def _come_to(
        self, spec: JobSpec, before: tuple[WorkerPlace, ...], places: tuple[WorkerPlace, ...], raised: Raised
    ) -> Offence | None:
        """A job comes to these places; it held others before, which it has given back."""
        job = spec.id
        if self.alone or spec.exclusive:
            offence = self._keep_apart(job, spec, before, places)
            if offence is not None:
                return offence
        if self.rooms:
            known = set(before)
            offence = self._takes_room(job, tuple(place for place in places if place not in known))
            if offence is not None:
                return offence
        for place in places:
            offence = self._take_place(job, spec.tenant, place)
            if offence is not None:
                return offence
        if places:
            self.places[job] = places
        if self.quotas and len(places) > len(before):
            # Who has come: those that were there before may be of another GPU type, whose limit was lowered since.
            for place in places[len(before) :] if places[: len(before)] == before else places:
                raised[spec.tenant, self.types.get(place.node, "")] = None
        return None

    def _keep_apart(
        self, job: str, spec: JobSpec, before: tuple[WorkerPlace, ...], places: tuple[WorkerPlace, ...]
    ) -> Offence | None:
        """I1: an exclusive job comes to nodes where nothing is in use, and nobody comes to those that it holds."""
        self._open_again(job, before)
        for place in places:
            node = place.node
            other = self.alone.get(node, job)
            if other != job:
                return Offence("I1", f"job {job} comes to node {node}, which job {other} holds alone")
            if spec.exclusive and node not in self.alone:
                if any(self.used.get(node, ())):
                    return Offence("I1", f"job {job} would be alone on node {node}, where others are")
                self.alone[node] = job
        return None

    def _open_again(self, job: str, places: tuple[WorkerPlace, ...]) -> None:
        """The job leaves these places, and what it held alone is open to others."""
        for place in places:
            if self.alone.get(place.node) == job:
                del self.alone[place.node]

    def _give_back(self, tenant: str, places: tuple[WorkerPlace, ...]) -> None:
        used, types, use = self.used, self.types, self.use
        for place in places:
            node, devices, milli = place.node, place.devices, place.gpu_milli
            if devices:
                row, share = used[node], milli // len(devices)
                for device in devices:
                    row[device] -= share
            account = (tenant, types.get(node, ""))
            left = use.get(account, 0) - milli
            if left:
                use[account] = left
            else:
                use.pop(account, None)

    def _take_place(self, job: str, tenant: str, place: WorkerPlace) -> Offence | None:
        """I1: the place's devices exist and hold no more than a device."""
        node, devices, milli = place.node, place.devices, place.gpu_milli
        if devices:
            gpus, row, share = self.gpus.get(node, 0), self.used.get(node, []), milli // len(devices)
            for device in devices:
                if device >= gpus:
                    return Offence("I1", f"job {job} holds device {device} of {node}, which has {gpus}")
                used = row[device] = row[device] + share
                if used > GPU:
                    return Offence("I1", f"device {device} of {node} holds {used} milli-GPUs with job {job}")
        account = (tenant, self.types.get(node, ""))
        self.use[account] = self.use.get(account, 0) + milli
        return None

    def _limits_hold(self, raised: Raised) -> Offence | None:
        """I4: what was raised is within its limits and its right to borrow, at each level of the tree."""
        books = QuotaBooks(self.quotas, self.children, self.use)
        for account in raised if self.quotas else ():
            wrong = books.over(account)
            if wrong is not None:
                return Offence("I4", wrong)
        return None

    _TAKE: ClassVar[dict[type[e.Effect], Callable[[Ledger, Any, Raised], Offence | None]]] = {
        e.NodeChanged: _take_node,
        e.LeaseExpired: _lose_node,
        e.NodeRemoved: _remove_node,
        e.QuotaSet: _take_quota,
        e.QuotaRemoved: _remove_quota,
        e.JobEnqueued: _enqueue,
        e.JobUpdated: _update,
        e.RoomHeld: _hold_room,
        e.RoomReleased: _release_room,
        e.JobStarted: _start,
        e.JobResizing: _grow,
        e.JobResized: _shrink,
        e.WorkersSettled: _settle,
        e.JobPreempted: _let_go,
        e.JobRequeued: _let_go,
        e.JobFinished: _end,
        e.JobFailed: _end,
        e.JobCancelled: _end,
    }
    """What is made of each effect; of others, nothing."""

    def compare(self, state: CellState) -> Offence | None:
        """I2 and I1 against the folded state: the same jobs live, in the same places."""
        for job_id in sorted({*self.live, *state.jobs}):
            if job_id not in state.jobs or job_id not in self.live:
                return Offence("I2", f"job {job_id} is live in the {'log' if job_id in self.live else 'state'} alone")
            if state.jobs[job_id].workers + state.jobs[job_id].joining != self.places.get(job_id, ()):
                return Offence("I1", f"job {job_id} holds other places in the state than in the log")
        return None


def ledger_of(state: CellState) -> Ledger:
    """The ledger of somebody who was told this state, in effects: nodes, jobs and their places first, then the quotas.

    Quotas come last, since a lowered quota evicts nobody: use above it is no offence until it grows.
    """
    ledger = Ledger()
    # Little by little: the effects of 150,000 jobs take more memory than what is kept of them.
    for effects in _told(state):
        ledger.take(Decision(cell=state.cell or "none", version=1, epoch=0, at_ms=0, effects=effects))
    return ledger


def _told(state: CellState) -> Iterator[tuple[e.AnyEffect, ...]]:
    for node in state.nodes.values():
        yield (e.NodeChanged(spec=node.spec, boot=node.boot, status=node.status, seq=node.seq),)
    for job in state.jobs.values():
        places = job.workers + job.joining
        if not places:
            yield (e.JobEnqueued(spec=job.spec, submit_ms=job.submit_ms, digest=job.digest),)
            continue
        # What it holds is a whole gang of what it was started as, whatever it was updated to since.
        began_as = replace(job.spec, workers=len(places), workers_min=None)
        yield (
            e.JobEnqueued(spec=began_as, submit_ms=job.submit_ms, digest=job.digest),
            e.JobStarted(job=job.id, attempt=job.attempt, workers=places),
            e.JobUpdated.of(job.spec),
        )
    yield tuple(state.rooms.values())
    yield tuple(e.QuotaSet(quota=quota) for quota in state.quotas.values())
