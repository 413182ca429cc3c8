"""Does what the machine says, step by step, and tells it the answers. The same in the projector and in simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from fallow.services.projector.app.apply import all_rows, rows_of_touched, stand_of, totals_of
from fallow.services.projector.app.machine import NO_WHOLE_VIEW, Apply, Ask, LookForEnd, Projection, Rebuild, Rest
from fallow.shared.cluster.model.state import CellState
from fallow.shared.view.row_batch import Rows
from fallow.shared.view.store import Applied, Behind, Busy, CellView, Further, Stands

LOAD_ROWS = 500
"""Rows of one step of a rebuild: a few milliseconds, so that others get their turn at Redis in between."""


APPLY_CHARS_MAX = 16_000_000
"""Of the rows that one function puts: some 300 ms of Redis's time. What is longer is put in the parts of a rebuild."""


LOST = "another process builds it, or Redis has lost rows of it"


class Outcome(StrEnum):
    """How a step went."""

    RESTED = "rested"
    ASKED = "asked"
    LOOK_FOR_END = "look_for_end"
    APPLIED = "applied"
    FURTHER = "further"
    BEHIND = "behind"
    NOT_READY = "not_ready"
    REBUILT = "rebuilt"
    BUSY = "busy"
    REBUILD_LOST = "rebuild_lost"


@dataclass(frozen=True, slots=True)
class Took:
    """What was done: how it went, how many rows were put, and why a rebuild was needed or the view is not whole."""

    outcome: Outcome
    rows: int = 0
    why: str = ""


async def take_step(
    view: CellView, projection: Projection, state: CellState, *, rebuild_id: str, wall_ms: Callable[[], int]
) -> Took:
    """Bring the view one step nearer to the state, which must not change meanwhile. Raises ViewUnavailable.

    `rebuild_id` is OWNER/WHICH and never used for two rebuilds. After an error the same step may be taken again.
    """
    match projection.step(state):
        case Rest():
            return Took(Outcome.RESTED)
        case LookForEnd():
            return Took(Outcome.LOOK_FOR_END)
        case Ask():
            return await _ask(view, projection, state)
        case Apply() as step:
            rows = rows_of_touched(state, projection.touched)
            if rows.chars <= APPLY_CHARS_MAX:
                return await _apply(view, projection, state, step, rows)
            return await _rebuild(
                view, projection, state, projection.too_much(), rebuild_id=rebuild_id, wall_ms=wall_ms
            )
        case Rebuild() as step:
            return await _rebuild(view, projection, state, step, rebuild_id=rebuild_id, wall_ms=wall_ms)


async def _ask(view: CellView, projection: Projection, state: CellState) -> Took:
    found = await view.stands()
    if isinstance(found, Stands) and found.is_fenced and found.cursor <= state.offset + 1:
        # The log could be folded to there: a person has mended it, and has started the process again.
        await view.fence(is_fenced=False)
    projection.stands(found)
    return Took(Outcome.ASKED)


async def _apply(view: CellView, projection: Projection, state: CellState, step: Apply, rows: Rows) -> Took:
    answer = await view.apply(step.expected, stand_of(state), rows)
    projection.applied(state, answer)
    match answer:
        case Applied():
            return Took(Outcome.APPLIED, len(rows))
        case Further():
            return Took(Outcome.FURTHER)
        case Behind():
            return Took(Outcome.BEHIND, why=f"it stands at {answer.cursor} and stood at {step.expected}")
    return Took(Outcome.NOT_READY, why=NO_WHOLE_VIEW)


async def _rebuild(
    view: CellView,
    projection: Projection,
    state: CellState,
    step: Rebuild,
    *,
    rebuild_id: str,
    wall_ms: Callable[[], int],
) -> Took:
    answer = await view.begin_rebuild(rebuild_id, step.seen, wall_ms())
    projection.begun(answer)
    if not isinstance(answer, Applied):
        return Took(Outcome.BUSY if isinstance(answer, Busy) else Outcome.FURTHER)
    count = 0
    for rows in all_rows(state, LOAD_ROWS):
        if not await view.load_rows(rebuild_id, rows, wall_ms()):
            projection.rebuilt(state, is_ours=False)
            return Took(Outcome.REBUILD_LOST, count, LOST)
        count += len(rows)
    is_whole = await view.finish_rebuild(rebuild_id, stand_of(state), totals_of(state))
    projection.rebuilt(state, is_ours=is_whole)
    return Took(Outcome.REBUILT, count, step.why) if is_whole else Took(Outcome.REBUILD_LOST, count, LOST)
