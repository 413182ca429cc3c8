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
    use: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, decision: Decision) -> Offence | None:
        """The first offence of this decision, or None."""
        raised: dict[tuple[str, str], None] = {}
        for effect in decision.effects:
            offence = self._take_effect(effect, raised)
            if offence is not None:
                return offence
        return self._limits_hold(raised)

    def _take_effect(self, effect: e.Effect, raised: dict[tuple[str, str], None]) -> Offence | None:
        match effect:
            case e.NodeChanged():
                self.gpus[effect.spec.id] = effect.spec.gpus
                self.types[effect.spec.id] = effect.spec.gpu_type
            case e.QuotaSet():
                self.quotas[effect.quota.tenant, effect.quota.gpu_type] = effect.quota
            case e.JobEnqueued():
                if effect.spec.id in self.live:
                    return Offence("I2", f"job {effect.spec.id} is enqueued twice")
                self.live[effect.spec.id] = effect.spec
                self.ended.pop(effect.spec.id, None)
            case e.JobUpdated():
                self.live[effect.spec.id] = effect.spec
            case e.JobStarted():
                return self._start(effect, raised)
            case e.JobResizing():
                return self._hold(effect.job, self.places.get(effect.job, ()) + effect.add, raised)
            case e.JobResized():
                return self._hold(effect.job, effect.workers, raised)
            case e.JobPreempted() | e.JobRequeued():
                return self._hold(effect.job, (), raised)
            case e.JobFinished() | e.JobFailed() | e.JobCancelled():
                return self._end(effect, raised)
        return None

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
            for device in place.devices:
                if device >= self.gpus.get(place.node, 0):
                    return Offence(
                        "I1",
                        f"job {job} holds device {device} of {place.node}, which has {self.gpus.get(place.node, 0)}",
                    )
                if self.used[place.node, device] > GPU:
                    return Offence(
                        "I1",
                        f"device {device} of {place.node} holds {self.used[place.node, device]} milli-GPUs with job {job}",
                    )
        if places:
            self.places[job] = places
        if len(places) > len(before) and job in self.live:
            for account in self._accounts(job, places):
                raised[account] = None
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
        """I4: what this decision raised is within its limits, at each level of the tree."""
        for tenant, gpu_type in raised:
            above: str | None = tenant
            while above is not None:
                quota = self.quotas.get((above, gpu_type))
                used = self._subtree_use(above, gpu_type)
                if quota is not None and quota.limit_milli is not None and used > quota.limit_milli:
                    return Offence(
                        "I4", f"{above} uses {used} milli-GPUs of {gpu_type}, its limit is {quota.limit_milli}"
                    )
                above = quota.parent if quota is not None else None
        return None

    def _subtree_use(self, tenant: str, gpu_type: str) -> int:
        below = [q.tenant for (_, t), q in self.quotas.items() if t == gpu_type and q.parent == tenant]
        return self.use.get((tenant, gpu_type), 0) + sum(self._subtree_use(child, gpu_type) for child in below)

    def compare(self, state: CellState) -> Offence | None:
        """I2 and I1 against the folded state: the same jobs live, in the same places."""
        for job_id in sorted({*self.live, *state.jobs}):
            if job_id not in state.jobs or job_id not in self.live:
                return Offence("I2", f"job {job_id} is live in the {'log' if job_id in self.live else 'state'} alone")
            if state.jobs[job_id].workers + state.jobs[job_id].joining != self.places.get(job_id, ()):
                return Offence("I1", f"job {job_id} holds other places in the state than in the log")
        return None
