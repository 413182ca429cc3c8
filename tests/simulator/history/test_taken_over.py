"""What a world tells of virtual runs whose nodes change hands: they stand still until they are taken up."""

from __future__ import annotations

from typing import Literal

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.reasons import RequeueReason
from fallow.simulator.history.of_world import evidence_of
from fallow.simulator.history.record import DiaryEntry, History, NodeMoment, TakenOver
from tests.cluster.worlds.examples import enqueued, node, place, started
from tests.simulator.history.story import CELL, Story, two_nodes

FILE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=2),)),), tenants=(Tenant(name="ada"),)
)
LOST = e.LeaseExpired(node="n1", boot="boot-1")
AGAIN = e.JobRequeued(job="one", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0)


class Hands:
    """A run on a node whose reign the same process takes anew: no other pen shows in the diary."""

    def __init__(self) -> None:
        self.story: Story = two_nodes().decide(enqueued("one"), started("one", place(0, "n1", 0)))
        self.history = History(0, FILE, {CELL: (node("n1").spec, node("n2").spec)})
        self.writes("started", "began")

    def writes(
        self,
        event: Literal["started", "adopted", "ended"],
        what: Literal["began", "ended"] | None,
        status: RunStatus | None = None,
    ) -> Hands:
        """The node writes it down, and it is so."""
        story = self.story.writes(event, "one", "n1", 0, status=status)
        story.moment += 1
        self.history.diaries.setdefault("n1", []).append(DiaryEntry(story.moment, "executor-0", story.diary[-1]))
        if what is not None:
            self.history.moments.append(NodeMoment(story.moment, "n1", what, "one", 1, (0,), 1000))
        return self

    def taken(self) -> Hands:
        """The reign is taken."""
        self.story.moment += 1
        self.history.taken.append(TakenOver(self.story.moment, "n1"))
        return self

    def given_up(self) -> Hands:
        """The log gives the node up."""
        self.story.decide(LOST, AGAIN)
        return self

    def stopped(self) -> Hands:
        """The run is told to stop, late."""
        return self.writes("ended", "ended", RunStatus.STOPPED)

    def broken(self) -> list[str]:
        """What the judge finds."""
        return self.story.broken(happened=evidence_of(self.history).cells[0].happened)


def test_a_run_that_was_not_taken_up_again_may_be_closed_after_its_end_was_confirmed() -> None:
    assert Hands().taken().given_up().stopped().broken() == []


def test_a_run_that_goes_on_under_the_reign_that_began_it_is_found() -> None:
    assert Hands().given_up().stopped().broken() == ["I6"]


def test_a_run_that_was_taken_up_again_and_goes_on_is_found() -> None:
    assert Hands().taken().writes("adopted", None).given_up().stopped().broken() == ["I6"]


def test_a_run_that_is_taken_up_after_its_end_was_confirmed_is_found() -> None:
    assert Hands().taken().given_up().writes("adopted", None).stopped().broken() == ["I6"]
