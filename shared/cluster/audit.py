"""I1 to I4 over a whole log, by a ledger of its own: it shares no arithmetic with the fold that it checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.cluster.invariants import Offence
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision
from shared.events.operations import Quota
from shared.events.values import GPU, JobSpec, WorkerPlace


@dataclass(slots=True)
class Ledger:
    """What a reader of the effects alone knows. Feed it every accepted decision in order."""

    gpus: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    used: dict[tuple[str, int], int] = field(default_factory=dict)
    live: dict[str, JobSpec] = field(default_factory=dict)
    places: dict[str, tuple[WorkerPlace, ...]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    quotas: dict[tuple[str, str], Quota] = field(default_factory=dict)
    children: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    use: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, decision: Decision) -> Offence | None:
        """The first offence of this decision, or None."""
        raised: dict[tuple[str, str], None] = {}
        for effect in decision.effects:
            offence = self._take_effect(effect, raised)
            if offence is not None:
                return offence
        return self._limits_hold(raised)

    def _set_quota(self, quota: Quota, raised: dict[tuple[str, str], None]) -> Offence | None:
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

    def _take_effect(self, effect: e.Effect, raised: dict[tuple[str, str], None]) -> Offence | None:
        match effect:
            case e.NodeChanged():
                self.gpus[effect.spec.id] = effect.spec.gpus
                self.types[effect.spec.id] = effect.spec.gpu_type
            case e.QuotaSet():
                return self._set_quota(effect.quota, raised)
            case e.JobEnqueued():
                if effect.spec.id in self.live:
                    return Offence("I2", f"job {effect.spec.id} is enqueued twice")
                self.live[effect.spec.id] = effect.spec
                self.ended.pop(effect.spec.id, None)
            case e.JobUpdated():
                return self._update(effect)
            case e.JobStarted():
                return self._start(effect, raised)
            case e.JobResizing():
                return self._resize(effect.job, self.places.get(effect.job, ()) + effect.add, raised)
            case e.JobResized():
                return self._resize(effect.job, effect.workers, raised)
            case e.JobPreempted() | e.JobRequeued():
                return self._hold(effect.job, (), raised)
            case e.JobFinished() | e.JobFailed() | e.JobCancelled():
                return self._end(effect, raised)
        return None

    def _update(self, effect: e.JobUpdated) -> Offence | None:
        before = self.live.get(effect.spec.id)
        if before is None or before.tenant != effect.spec.tenant:
            return Offence("I2", f"job {effect.spec.id} is updated and is no live job of {effect.spec.tenant}")
        self.live[effect.spec.id] = effect.spec
        return None

    def _resize(self, job: str, places: tuple[WorkerPlace, ...], raised: dict[tuple[str, str], None]) -> Offence | None:
        if not self.places.get(job):
            return Offence("I2", f"job {job} is resized and holds nothing")
        spec, ranks = self.live[job], {place.rank for place in places}
        if len(ranks) < len(places) or len(ranks) < (spec.workers_min or spec.workers):
            return Offence("I3", f"job {job} is resized to {len(places)} workers of {len(ranks)} ranks")
        return self._hold(job, places, raised)

    def _start(self, effect: e.JobStarted, raised: dict[tuple[str, str], None]) -> Offence | None:
        spec = self.live.get(effect.job)
        if spec is None:
            return Offence("I2", f"job {effect.job} starts and was never accepted, or is over")
        if self.places.get(effect.job):
            return Offence("I2", f"job {effect.job} starts while it runs")
        fewest = spec.workers_min or spec.workers
        if not fewest <= len(effect.workers) <= spec.workers:
            return Offence(
                "I3", f"job {effect.job} starts with {len(effect.workers)} workers of {fewest} to {spec.workers}"
            )
        return self._hold(effect.job, effect.workers, raised)

    def _end(
        self, effect: e.JobFinished | e.JobFailed | e.JobCancelled, raised: dict[tuple[str, str], None]
    ) -> Offence | None:
        if effect.job not in self.live:
            return Offence(
                "I2", f"job {effect.job} ends ({effect.kind}) and was not live: {self.ended.get(effect.job, 'unknown')}"
            )
        offence = self._hold(effect.job, (), raised)
        del self.live[effect.job]
        self.ended[effect.job] = effect.kind
        return offence

    def _hold(self, job: str, places: tuple[WorkerPlace, ...], raised: dict[tuple[str, str], None]) -> Offence | None:
        before = self.places.pop(job, ())
        for place in before:
            self._count(job, place, -1)
        for place in places:
            self._count(job, place, 1)
            offence = self._fits(job, place)
            if offence is not None:
                return offence
        if places:
            self.places[job] = places
        if len(places) > len(before) and job in self.live:
            for account in self._accounts(job, places):
                raised[account] = None
        return None

    def _fits(self, job: str, place: WorkerPlace) -> Offence | None:
        """I1: the place's devices exist and hold no more than a device."""
        gpus = self.gpus.get(place.node, 0)
        for device in place.devices:
            used = self.used[place.node, device]
            if device >= gpus:
                return Offence("I1", f"job {job} holds device {device} of {place.node}, which has {gpus}")
            if used > GPU:
                return Offence("I1", f"device {device} of {place.node} holds {used} milli-GPUs with job {job}")
        return None

    def _count(self, job: str, place: WorkerPlace, sign: int) -> None:
        for device in place.devices:
            at = (place.node, device)
            self.used[at] = self.used.get(at, 0) + sign * (place.gpu_milli // len(place.devices))
        account = (self.live[job].tenant, self.types.get(place.node, ""))
        self.use[account] = self.use.get(account, 0) + sign * place.gpu_milli

    def _accounts(self, job: str, places: tuple[WorkerPlace, ...]) -> list[tuple[str, str]]:
        tenant = self.live[job].tenant
        return [(tenant, gpu_type) for gpu_type in dict.fromkeys(self.types.get(place.node, "") for place in places)]

    def _limits_hold(self, raised: dict[tuple[str, str], None]) -> Offence | None:
        """I4: what was raised is within its limits, at each level of the tree."""
        seen: dict[tuple[str, str], None] = {}
        for tenant, gpu_type in raised:
            above: str | None = tenant
            while above is not None and (above, gpu_type) not in seen:
                seen[above, gpu_type] = None
                quota = self.quotas.get((above, gpu_type))
                limit = quota.limit_milli if quota is not None else None
                used = self._subtree_use(above, gpu_type) if limit is not None else 0
                if limit is not None and used > limit:
                    return Offence("I4", f"{above} uses {used} milli-GPUs of {gpu_type}, its limit is {limit}")
                above = quota.parent if quota is not None else None
        return None

    def _subtree_use(self, tenant: str, gpu_type: str) -> int:
        below = self.children.get((tenant, gpu_type), {})
        return self.use.get((tenant, gpu_type), 0) + sum(self._subtree_use(child, gpu_type) for child in below)

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
    told: list[e.AnyEffect] = [
        e.NodeChanged(spec=node.spec, boot=node.boot, status=node.status) for node in state.nodes.values()
    ]
    for job in state.jobs.values():
        places = job.workers + job.joining
        # What it holds is a whole gang of what it was started as, whatever it was updated to since.
        began_as = job.spec.model_copy(update={"workers": len(places) or 1, "workers_min": None})
        told.append(e.JobEnqueued(spec=began_as, submit_ms=job.submit_ms, digest=job.digest))
        if places:
            told.append(e.JobStarted(job=job.id, attempt=job.attempt, workers=places))
        told.append(e.JobUpdated(spec=job.spec))
    quotas = tuple(e.QuotaSet(quota=quota) for quota in state.quotas.values())
    ledger = Ledger()
    for effects in (tuple(told), quotas):
        ledger.take(Decision(cell=state.cell or "none", version=1, epoch=0, at_ms=0, effects=effects))
    return ledger
