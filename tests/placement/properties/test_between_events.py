"""The property of rest between events: at any moment a cell has made what a walk at that moment would make.

What time alone changes has a moment at which the cell wakes by itself: a head becomes due, a pause or a plan is over, a
node closes for a run, shares move. Who folds the log at whatever time and walks finds nothing left to do.
"""

from __future__ import annotations

from random import Random

from hypothesis import given

from tests.hypothesis_profile import reaches, rounds_of, stories
from tests.placement.worlds.between_events import ROUNDS, BetweenEvents, Moment

OF_PLANS = (Moment.PLAN_WAITED_FOR, Moment.FIRST_PLAN_OVER, Moment.TOO_LATE_FOR_A_PLAN)


@given(stories(ROUNDS, whole_of=5))
def test_a_cell_at_rest_has_made_what_a_walk_at_any_moment_would_make(random: Random) -> None:
    cell = BetweenEvents(random)
    for _ in rounds_of(random, ROUNDS):
        cell.one_round()
        cell.pass_time(cell.next_event_ms())
    reaches("heads become due by time alone while others wait", cell.due_alone)
    reaches("jobs start at a moment that the cell has planned", cell.started_alone)
    for moment in OF_PLANS:
        reaches(f"the cell wakes: {moment.value}", cell.woken_by[moment])
    others = [moment for moment in Moment if moment not in OF_PLANS]
    reaches(
        "the cell wakes: " + ", or ".join(moment.value for moment in others),
        any(cell.woken_by[moment] for moment in others),
    )
