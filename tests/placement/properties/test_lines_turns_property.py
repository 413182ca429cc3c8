"""The property of lines where walks try few classes again, in turn: no job waits that may start once all is at rest."""

from __future__ import annotations

import pytest
from hypothesis import given

from fallow.services.placement.queue.lines import blocked
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from tests.hypothesis_profile import Story, reaches, rounds_of, shared_among, stories
from tests.placement.properties.test_lines_property import AT_ONCE_MAX, NODES, SMALL_ROUNDS, Twins
from tests.placement.properties.test_lines_quota_property import KeepingTwins, QuotaTwins, WideTwins
from tests.placement.worlds.world import World

CELLS: dict[str, type[Twins]] = {"plain": Twins, "quota": QuotaTwins, "keeping": KeepingTwins, "wide": WideTwins}


@shared_among(len(CELLS))
@pytest.mark.parametrize("kind", CELLS)
@given(stories(SMALL_ROUNDS))
def test_nobody_waits_who_may_start_though_a_walk_tries_few_classes_again(kind: str, story: Story) -> None:
    """Which of two starts first where both cannot may differ from a walk over all jobs: that is the price of turns."""
    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr(blocked, "AGAIN_MAX", most := story.choice((1, 2, 3)))
        bounds.setattr(blocked, "OF_A_TENANT", story.choice((1, 2)))
        bounds.setattr(blocked, "ASKS_MAX", story.choice((1, 2, 64)))
        took_turns = live_by_turns(alone(CELLS[kind](story)), most)
    reaches("something becomes free for more classes than a walk tries again", took_turns)


def alone(twins: Twins) -> Twins:
    """The world alone that goes by its lines."""
    twins.small()
    twins.at_once_max = AT_ONCE_MAX
    twins.naive, twins.worlds = twins.lines, (twins.lines,)  # type: ignore[assignment]  # it is only looked at
    return twins


def live_by_turns(twins: Twins, most: int) -> bool:
    """Whether there were ever more blocked classes than a walk tries again when some of them started."""
    twins.be_patient()
    twins.settle(*NODES)
    took_turns = False
    for number in rounds_of(twins.random, twins.rounds):
        are_many, known = len(twins.lines.service._lines._blocked) > most, len(twins.lines.log)
        twins.one_round()
        if number % 2:
            assert starts_of_a_walk_over_all(twins) == []
        took_turns |= are_many and bool(starts_behind(twins.lines, known))
    return took_turns


def starts_of_a_walk_over_all(twins: Twins) -> list[str]:
    """Who starts when each job that waits now is looked at, one after the other."""
    judge = twins.all_seeing()
    judge.checks, judge.listens, judge.log = False, False, [*twins.lines.log]
    judge.now_ms, judge.wall_ms = twins.lines.now_ms, twins.lines.wall_ms
    judge.restart()
    known = len(judge.log)
    judge.settle()
    return starts_behind(judge, known)


def starts_behind(world: World, known: int) -> list[str]:
    """Who was started behind so many records of a log."""
    decisions = [record.decision for record in world.log[known:] if isinstance(record.decision, Decision)]
    return [effect.job for each in decisions for effect in each.effects if isinstance(effect, e.JobStarted)]
