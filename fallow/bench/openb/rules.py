"""The rules by their names: those of the FGD paper, and each way to place that a cell may have."""

from __future__ import annotations

from collections.abc import Callable

from fallow.bench.openb.baselines import BestFit, Fgd, RandomFit
from fallow.bench.openb.files import Pod
from fallow.bench.openb.fragments import Fragments
from fallow.bench.openb.run import Rule
from fallow.services.placement.search.gang import POLICIES, place_gang
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.reasons import PendingReason

FALLOW = "fallow"
PLACEMENT = "frag-aware"
"""How a cell places under the rule that is named `fallow`."""


class OwnRule:
    """The cell's own policy, by the function that the placement service calls."""

    def __init__(self, state: CellState) -> None:
        self._state = state

    def place(self, spec: JobSpec, _pod: Pod) -> tuple[WorkerPlace, ...] | None:
        """Where the job of this pod goes."""
        found = place_gang(self._state, spec)
        return None if isinstance(found, PendingReason) else found


_BASELINES: dict[str, tuple[Callable[[CellState, int, Fragments], Rule], str]] = {
    "random": (lambda state, seed, _: RandomFit(state, seed), RandomFit.tie_rule),
    "best-fit": (lambda state, _, __: BestFit(state), BestFit.tie_rule),
    "fgd": (lambda state, _, fragments: Fgd(state, fragments), Fgd.tie_rule),
}

OWN_TIES = "least by the policy's own order; of nodes that are alike in all but their names, the lowest name"

NAMES = (FALLOW, *_BASELINES, *(name for name in POLICIES if name not in _BASELINES))
"""All that can be asked for. `best-fit` is the paper's, which weighs CPUs and GPUs."""


def placement_of(name: str) -> str:
    """How the cell places under this rule. The paper's rules do not ask it."""
    if name == FALLOW:
        return PLACEMENT
    return "best-fit" if name in _BASELINES else name


def rule_of(name: str, state: CellState, seed: int, fragments: Fragments) -> Rule:
    """The rule over an idle cell."""
    known = _BASELINES.get(name)
    return OwnRule(state) if known is None else known[0](state, seed, fragments)


def ties_of(name: str) -> str:
    """How the rule decides between equals, in words."""
    known = _BASELINES.get(name)
    return OWN_TIES if known is None else known[1]
