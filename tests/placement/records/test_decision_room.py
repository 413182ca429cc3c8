"""How much the next decision takes in, after one that could not be written, or that raised an error."""

from __future__ import annotations

import pytest

from fallow.services.placement.decision.decision import BYTES_MAX
from fallow.services.placement.decision.decision_room import DecisionRoom
from fallow.services.placement.decision.inbox import Input
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.jobs import AdmittedJob, JobsAdmitted
from fallow.shared.events.nodes import NodeReport, NodesReported, RunsReported, RunStatusUpdate
from tests.placement.worlds.world import CELL, DIGEST, admitted, spec_of


def without_inputs(room: DecisionRoom) -> int:
    """How many decisions are made without inputs, of a walk that has no end."""
    count = 0
    while not room.takes_inputs and count < 100:
        room.went_well(walk_goes_on=True)
        count += 1
    return count


def test_a_walk_behind_an_error_is_looked_at_for_more_than_one_decision_and_not_for_ever() -> None:
    room = DecisionRoom()
    room.narrow_words(1)
    assert 1 < without_inputs(room) < 100
    assert room.has_done_without


def test_a_walk_that_is_over_is_looked_at_once() -> None:
    room = DecisionRoom()
    room.narrow_words(1)
    room.went_well(walk_goes_on=False)
    assert (room.takes_inputs, room.has_done_without) == (True, True)


def test_one_step_that_cannot_be_written_is_looked_at_once_though_an_error_came_before() -> None:
    room = DecisionRoom()
    room.narrow_words(1)
    while not room.is_one_step:
        room.narrow(room.bytes)
    assert without_inputs(room) == 1


def test_a_room_grows_again_until_it_takes_in_all() -> None:
    room = DecisionRoom()
    room.narrow_words(64)
    assert room.words_max == 32
    for _ in range(40):
        room.went_well(walk_goes_on=False)
    assert (room.is_narrow, room.bytes) == (False, BYTES_MAX)


RUN = RunStatusUpdate(node="n1", boot="b", seq=1, at_ms=0, job="job", attempt=1, status=RunStatus.RUNNING)
JOB = AdmittedJob(spec=spec_of("job"), submit_ms=0, digest=DIGEST)


@pytest.mark.parametrize(
    "event",
    [
        JobsAdmitted(cell=CELL, jobs=(JOB,) * 7),
        RunsReported(cell=CELL, words=(RUN,) * 7),
        NodesReported(cell=CELL, reports=(NodeReport(cell=CELL, node="n1", boot="b", seq=1, at_ms=0),) * 7),
    ],
)
def test_an_input_has_as_many_words_as_it_can_be_cut_into(event: Event) -> None:
    item, cut = Input("nodes-0", 1, event, 700, stamped_ms=77), 1
    assert item.words == 7
    while (parts := item.cut(1)) is not None:
        (first, item), cut = parts, cut + 1
        assert first.words == 1
        assert first.stamped_ms == item.stamped_ms == 77, "the numbers of words are held against the stamp"
    assert cut == 7
    assert Input("jobs-0", 1, admitted(spec_of("job")), 0).words == 1
