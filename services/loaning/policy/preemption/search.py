"""One search for all causes: the cheapest gangs that stop so that a waiting job can start.

It goes from the cheap to the dear. Sums by class of victim tell at once where too little could become free; counts by
node and by unit of the network tell where no node could hold a worker. Only what is left is tried, with placement's own
search on the state as it would be, so nothing here knows a second time what fits where. Where few could yield all sets
are looked at, the cheapest first; else the nodes are emptied where that costs least, and whom the set can do without is
let go again, the dearest first (Kueue, `preemption.go`, fills back in the same way).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from fallow.services.loaning.policy.preemption.allowance import Allowance, SetCost
from fallow.services.loaning.policy.preemption.candidates import Candidate, candidates_for, is_silent
from fallow.services.loaning.policy.preemption.holdings import Holdings
from fallow.services.loaning.policy.preemption.regions import Region, regions_for
from fallow.services.loaning.policy.preemption.slots import Slots
from fallow.services.loaning.policy.preemption.trial import Trial
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.search.gang import Places
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, milli_by_type
from fallow.shared.cluster.preemption.rules import may_preempt, objection
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.proposals import VICTIMS_MAX
from fallow.shared.events.reasons import PendingReason, PreemptionCause

CAUSES = (
    PreemptionCause.QUOTA_RECLAIM,
    PreemptionCause.FAIR_SHARE,
    PreemptionCause.PRIORITY,
    PreemptionCause.BACKFILL,
)
"""In this order a job looks for who yields: what is its own comes before what it merely goes before."""

EXACT_MAX = 8
"""Of so many candidates all sets are looked at."""

TRIES_MAX = 64
"""So often at most a search tries the job on a state that would be, beside those of the small sets."""

REGIONS_MAX = 64
"""In so many units of the network at most victims are chosen: in those with the most room first."""


@dataclass(frozen=True, slots=True)
class Found:
    """These jobs stop by this rule, and the waiting one starts in these places."""

    cause: PreemptionCause
    victims: tuple[Job, ...]
    places: Places


@dataclass(frozen=True, slots=True)
class Missing:
    """Nobody stops: so many GPUs would still be missing if all did that may, at least; 0 where it is not for want of
    these. None: the job has no cause.
    """

    gpus: int | None


def find_victims(
    state: CellState, job: Job, queue: Queue, now_ms: int, holdings: Holdings, *, exact_max: int = EXACT_MAX
) -> Found | Missing:
    """Who yields to this waiting gang, which does not fit now; or why nobody does. The state is given back."""
    missing: int | None = None
    if not job.spec.gang or job.spec.exclusive or not job.spec.resources.gpu_milli:
        return Missing(None)
    for cause in CAUSES:
        for gpu_type in types_for(state, job.spec):
            claim = Claim(job, queue, cause, {gpu_type: job.spec.gpus_milli}, now_ms)
            if may_preempt(state, claim) is not None:
                continue
            found = _Search(state, claim, gpu_type, exact_max).go(holdings)
            if isinstance(found, Found):
                return found
            missing = found if missing is None else min(missing, found)
    return Missing(missing)


class _Search:
    """The search for one cause and one GPU type."""

    def __init__(self, state: CellState, claim: Claim, gpu_type: str, exact_max: int) -> None:
        self._state, self._claim, self._gpu_type, self._exact_max = state, claim, gpu_type, exact_max
        self._spec = claim.preemptor.spec
        self._trial = Trial(state, claim.preemptor, TRIES_MAX)

    def go(self, holdings: Holdings) -> Found | int:
        """What is found, or how many GPUs are missing at least."""
        missing_milli = holdings.missing_milli(self._state, self._claim, self._gpu_type)
        if missing_milli > 0:
            return -(-missing_milli // GPU)
        regions = regions_for(self._state, self._spec, self._gpu_type)
        reach = {node: None for region in regions for node in region.nodes}
        candidates = candidates_for(self._state, self._claim, reach, holdings.gone)
        heard = [each for each in candidates if not is_silent(self._state, each.job)]
        found = self._among(heard, regions)
        if isinstance(found, Found) or len(heard) == len(candidates):
            return found
        self._trial.left = TRIES_MAX
        return self._among(candidates, regions)

    def _among(self, candidates: Sequence[Candidate], regions: Sequence[Region]) -> Found | int:
        """The same, where just these may yield."""
        if not candidates:
            return 0
        if len(candidates) <= self._exact_max:
            return self._of_few(candidates) or 0
        counted = self._slots(regions, candidates)
        able, missing = self._able(counted)
        if not able:
            return missing
        return self._in_nodes(able, counted) or self._in_order_of_cost(candidates) or 0

    # Few candidates: each set of them.

    def _of_few(self, candidates: Sequence[Candidate]) -> Found | None:
        allowance = Allowance(self._state, self._claim)
        sets = [each for size in range(1, len(candidates) + 1) for each in combinations(candidates, size)]
        for victims in sorted(sets, key=allowance.cost_of_set):
            if objection(self._state, self._claim, [each.job for each in victims]) is None:
                found = self._verified(victims)
                if found is not None:
                    return found
        return None

    # Many: node by node.

    def _slots(self, regions: Iterable[Region], candidates: Sequence[Candidate]) -> list[Slots]:
        """The regions as counts of workers. Of less than a whole device each worker is taken to need one."""
        gpus = max(1, self._spec.resources.gpu_milli // GPU)
        return [Slots(region.nodes, candidates, gpus) for region in regions]

    def _able(self, regions: Sequence[Slots]) -> tuple[list[Slots], int]:
        """Those that would hold the job without all candidates, those with the most room first; and how many GPUs are
        missing where none would.
        """
        workers = self._spec.workers
        rooms = [(-slots.room_max(), number, slots) for number, slots in enumerate(regions)]
        if self._spec.resources.gpu_milli >= GPU:
            short = min((workers + room for room, _, _ in rooms), default=0)
            rooms = [each for each in rooms if -each[0] >= workers]
            if not rooms:
                return [], max(0, short) * self._spec.resources.gpu_milli // GPU
        return [slots for _, _, slots in sorted(rooms, key=lambda each: each[:2])[:REGIONS_MAX]], 0

    def _in_nodes(self, able: Sequence[Slots], regions: Sequence[Slots]) -> Found | None:
        """The cheapest of what is chosen in each region."""
        sets: list[tuple[SetCost, int, Slots]] = []
        for number, slots in enumerate(able):
            if slots.choose(self._spec.workers, Allowance(self._state, self._claim)):
                cost = Allowance(self._state, self._claim).cost_of_set(slots.chosen)
                sets.append((cost, number, slots))
        for _, _, slots in sorted(sets, key=lambda each: each[:2]):
            if self._trial.left <= 0:
                return None
            counted = slots if self._can_be_only_in(slots, regions) else None
            found = self._verified(self._minimal(slots.chosen, counted))
            if found is not None:
                return found
        return None

    def _can_be_only_in(self, slots: Slots, regions: Sequence[Slots]) -> bool:
        """Whether devices alone may tell that a victim is needed: the job wants whole ones, and when all that were
        chosen there yield it still could be in no other region.
        """
        if self._spec.resources.gpu_milli < GPU or len(types_for(self._state, self._spec)) > 1:
            return False
        chosen, workers = slots.chosen, self._spec.workers
        others = (other for other in regions if other is not slots)
        return all(other.room_if_these_go(chosen) < workers for other in others)

    def _in_order_of_cost(self, candidates: Sequence[Candidate]) -> Found | None:
        """The first of all candidates, in the order of cost, without whom the job fits: where devices alone do not tell
        what does.
        """
        allowance, order = Allowance(self._state, self._claim), list[Candidate]()
        for each in sorted(candidates, key=allowance.cost_now):
            if allowance.allows(each):
                allowance.take(each)
                order.append(each)
        if self._trial.left <= 0 or isinstance(self._places(order), PendingReason):
            return None
        fails, fits = 0, len(order)
        while fits - fails > 1 and self._trial.left > 0:
            middle = (fails + fits) // 2
            if isinstance(self._places(order[:middle]), PendingReason):
                fails = middle
            else:
                fits = middle
        return self._verified(self._minimal(order[:fits], None))

    # What both end with.

    def _places(self, victims: Iterable[Candidate]) -> Places | PendingReason:
        return self._trial.places_without(each.job for each in victims)

    def _minimal(self, chosen: Sequence[Candidate], slots: Slots | None) -> list[Candidate] | None:
        """These without those that the set can do without, the dearest of which are let go first; None where the tries
        do not reach to tell. By `slots`, if the job can be nowhere else, many need no try.
        """
        allowance = Allowance(self._state, self._claim)
        victims = sorted(chosen, key=allowance.cost_now, reverse=True)
        workers = self._spec.workers
        for each in [*victims]:
            if slots is not None and slots.room - slots.loses(each) < workers:
                continue
            if self._trial.left <= 0:
                return None
            rest = [other for other in victims if other is not each]
            if not isinstance(self._places(rest), PendingReason):
                victims = rest
                if slots is not None:
                    slots.come_back(each)
        return victims

    def _verified(self, victims: Sequence[Candidate] | None) -> Found | None:
        return verified(self._state, self._claim, self._trial, victims) if victims else None


def verified(state: CellState, claim: Claim, trial: Trial, victims: Sequence[Candidate]) -> Found | None:
    """What comes of it that just these stop, if the rules let them and the job starts then."""
    if len(victims) > VICTIMS_MAX:
        return None
    places = trial.places_without(each.job for each in victims)
    if isinstance(places, PendingReason):
        return None
    claim = claim._replace(milli=milli_by_type(state, places))
    jobs = tuple(each.job for each in sorted(victims, key=lambda each: each.came))
    if may_preempt(state, claim) is not None or objection(state, claim, jobs) is not None:
        return None
    return Found(claim.cause, jobs, places)
