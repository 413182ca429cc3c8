"""What keeps a job that would start within the limits of its tenant but for what others leave idle and do not lend: in
numbers, for people.
"""

from __future__ import annotations

from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.search.whole_nodes import takes_milli
from fallow.shared.cluster.capacity.gpu_types import idle_milli
from fallow.shared.cluster.capacity.taken_alone import with_whole_nodes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.room import drawn_from_cell
from fallow.shared.events.fields.values import GPU, JobSpec


def walled_off(state: CellState, spec: JobSpec) -> list[str]:
    """How much more would have to be idle of each GPU type that the job could get, so that all owners keep what they do
    not lend; nothing of a type of which they leave it enough.
    """
    return [text for each in types_for(state, spec) if (text := _of_type(state, spec, each)) is not None]


def _of_type(state: CellState, spec: JobSpec, gpu_type: str) -> str | None:
    cohort, account = state.tree.cohorts.get(gpu_type), (spec.tenant, gpu_type)
    if cohort is None:
        return None
    free_milli, taken_milli = idle_milli(state, gpu_type), takes_milli(state, spec, gpu_type)
    with with_whole_nodes(state, gpu_type):
        home_milli = cohort.home_idle_milli
        drawn_milli = drawn_from_cell(state.tree.branches.get(account), taken_milli)
    missing_milli = home_milli + drawn_milli - free_milli
    if not (home_milli and drawn_milli) or missing_milli <= 0:
        return None
    how = "alone on its nodes the job" if spec.exclusive else "the job"
    needs = f"{how} needs {taken_milli / GPU:g} beside the guarantees of other tenants"
    idle = f"{free_milli / GPU:g} are idle, {min(home_milli, free_milli) / GPU:g} of them guaranteed and not lent"
    return f"{missing_milli / GPU:g} more idle {gpu_type}: {needs}; {idle}"
