"""What the jobs of a cell have taught it: the run times of each tenant's jobs by name pattern and size.

Of each kind there is a history, and of coarser kinds too, for jobs of which no other one is known: all of a tenant's of
one size, all of a size. Only a cell whose policy says `estimator: learned` learns; one that says another forgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from fallow.shared.cluster.fold.undo_log import UndoLog
from fallow.shared.cluster.run_times.history import RunHistory
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import JobSpec

if TYPE_CHECKING:
    from fallow.shared.cluster.model.state import CellState

KINDS_MAX: Final = 24
"""So many kinds are known of a tenant; for a new one that goes of which no job has ended for the longest."""

ANY: Final = ""
"""Stands for any tenant, and for any name."""

_DIGITS = re.compile("[0-9]+")


class Kind(NamedTuple):
    """Which jobs of a tenant: those of one name pattern and size."""

    pattern: str
    size: int


Learned = dict[str, dict[Kind, RunHistory]]
"""What is known of each tenant's kinds of jobs, and of those of any tenant."""


class Edition:
    """Tells two contents of what is learned apart, also where one of them was tried and undone: by which one it is."""

    __slots__ = ()


def kinds_of(spec: JobSpec) -> Iterator[tuple[str, Kind]]:
    """The kinds of a job with their tenants, the narrowest first. Sizes are alike up to a doubling."""
    size = spec.gpus_milli.bit_length()
    yield spec.tenant, Kind(pattern_of(spec.id), size)
    yield spec.tenant, Kind(ANY, size)
    yield ANY, Kind(ANY, size)


def pattern_of(job_id: str) -> str:
    """The name of a job without its numbers: `train-07.3` and `train-12.0` are alike."""
    return _DIGITS.sub("#", own_id(job_id))


def history_of(state: CellState, spec: JobSpec) -> RunHistory | None:
    """The history of the narrowest kind of the job of which something is said."""
    if not state.learned:
        return None  # as in each cell that goes by what jobs declare: it is asked at every start
    for tenant, kind in kinds_of(spec):
        found = state.learned.get(tenant, _NONE).get(kind)
        if found is not None and found.told:
            return found
    return None


_NONE: Final[dict[Kind, RunHistory]] = {}


def learn(state: CellState, spec: JobSpec, run_ms: int) -> None:
    """A job is over that ran for so long."""
    undo = state.undo_log
    undo.set(state, "lessons", state.lessons + 1)
    is_told = False
    for tenant, kind in kinds_of(spec):
        kinds = state.learned.get(tenant)
        if kinds is None:
            kinds = dict[Kind, RunHistory]()
            undo.put(state.learned, tenant, kinds)
        before = kinds.get(kind)
        if before is None and len(kinds) >= KINDS_MAX:
            undo.forget(kinds, min(kinds, key=lambda each: (kinds[each].number, each)))
        now = (before or RunHistory()).with_run(run_ms, state.lessons)
        undo.put(kinds, kind, now)
        is_told |= before is None or now.told is not before.told
    if is_told:
        undo.set(state, "edition", Edition())


def forget_all(state: CellState, undo: UndoLog) -> None:
    """Nothing is known any more."""
    if state.lessons:
        undo.set(state, "learned", {})
        undo.set(state, "lessons", 0)
        undo.set(state, "edition", Edition())
