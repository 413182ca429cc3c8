"""Victims for many equal jobs, one behind the other: the search of the second one is kept for those that follow.

Thousands of jobs of one GPU may want back what is lent. A search for each would look at all that run for every one of
them. Between two equal jobs only this changes: some have yielded, and the one before stands where they were.
"""

from __future__ import annotations

from fallow.services.loaning.policy.preemption.allowance import Allowance
from fallow.services.loaning.policy.preemption.candidates import candidates_for, is_silent
from fallow.services.loaning.policy.preemption.holdings import Holdings
from fallow.services.loaning.policy.preemption.regions import regions_for
from fallow.services.loaning.policy.preemption.search import EXACT_MAX, Found, verified
from fallow.services.loaning.policy.preemption.slots import Slots
from fallow.services.loaning.policy.preemption.trial import Trial
from fallow.services.placement.fit.usable_types import types_for
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim
from fallow.shared.events.fields.values import GPU, JobSpec
from fallow.shared.events.reasons import PreemptionCause


class Line:
    """What is taken back for jobs of one kind, each of one worker with whole devices. It holds as long as the state
    changes by what it finds alone. `left` is how many may still yield.
    """

    __slots__ = ("_allowance", "_gpu_type", "_queue", "_slots", "_state", "left")

    def __init__(self, state: CellState, claim: Claim, gpu_type: str, holdings: Holdings) -> None:
        regions = regions_for(state, claim.preemptor.spec, gpu_type)
        reach = {node: None for region in regions for node in region.nodes}
        able = candidates_for(state, claim, reach, holdings.gone)
        candidates = [each for each in able if not is_silent(state, each.job)]
        nodes = regions[0].nodes if len(regions) == 1 else {}
        self._state, self._queue, self._gpu_type = state, claim.queue, gpu_type
        self._allowance = Allowance(state, claim)
        self._slots = Slots(nodes, candidates, claim.preemptor.spec.resources.gpu_milli // GPU)
        self.left = len(candidates) if nodes else 0

    def next(self, job: Job, now_ms: int) -> Found | None:
        """Who yields to the next of these jobs, which does not fit; None where a search of its own has to tell."""
        if self.left <= EXACT_MAX or self._slots.room:
            return None
        # Made anew: how much a tenant borrows has changed, and that orders equals.
        victims = self._slots.go_on(self._slots.steps(self._allowance), self._allowance)
        if not victims:
            return None
        claim = claim_of(job, self._queue, self._gpu_type, now_ms)
        found = verified(self._state, claim, Trial(self._state, job, 1), victims)
        if found is None or found.places[0].node not in self._slots.free:
            return None
        self._slots.enter(found.places[0].node)
        self.left -= len(victims)
        return found


def line_behind(state: CellState, job: Job, found: Found, queue: Queue, now_ms: int, holdings: Holdings) -> Line | None:
    """The line of the jobs like this one, to which it was found who yields; None where each needs its own search.

    Only what is taken back: shares by weight shift with each job that takes one.
    """
    types = [*types_for(state, job.spec)]
    if found.cause is not PreemptionCause.QUOTA_RECLAIM or len(types) != 1 or not _is_plain(job.spec):
        return None
    return Line(state, claim_of(job, queue, types[0], now_ms), types[0], holdings)


def _is_plain(spec: JobSpec) -> bool:
    return spec.workers == 1 and spec.resources.gpu_milli >= GPU


def claim_of(job: Job, queue: Queue, gpu_type: str, now_ms: int) -> Claim:
    """What the job takes back."""
    return Claim(job, queue, PreemptionCause.QUOTA_RECLAIM, {gpu_type: job.spec.gpus_milli}, now_ms)
