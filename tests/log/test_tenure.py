"""What becomes of a trial, and who is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from shared.cluster.apply import apply
from shared.cluster.state import CellState
from shared.events.effects import AnyEffect, WriterStarted
from shared.log.machine.tenure import Tenure, Verdict
from shared.log.port import AppendAnswer, Appended, AppendRefused, AppendUnknown, Refusal


@dataclass
class Trial:
    effects: list[AnyEffect]
    inputs: dict[str, int]
    at_ms: int = 0


@dataclass
class Ears:
    """A decider that only listens."""

    heard: list[str] = field(default_factory=list)

    def accepted(self, tried: Trial) -> None:
        self.heard.append("accepted")

    def refused(self, tried: Trial) -> None:
        self.heard.append("refused")

    def note(self, effects: tuple[AnyEffect, ...], wall_ms: int) -> None:
        self.heard.append(f"note {len(effects)} at {wall_ms}")


def trial(state: CellState, tenure: Tenure[Trial]) -> Trial:
    """Takes the cell over, as far as its own state goes."""
    started = WriterStarted(epoch=state.epoch + 1, writer="one")
    tenure.begin()
    apply(state, started, 0)
    return Trial([started], {"jobs-0": 3})


def test_a_record_right_behind_the_state_is_in_force_and_makes_the_process_the_writer() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    assert tenure.answered(tenure.draft(tried), tried, Appended(0), 9) is Verdict.IN_FORCE
    assert (ears.heard, tenure.writes) == (["accepted", "note 1 at 9"], True)
    assert (state.version, state.epoch, state.inputs) == (1, 1, {"jobs-0": 3})


def test_a_record_elsewhere_is_undone_and_refused() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    assert tenure.answered(tenure.draft(tried), tried, Appended(4), 9) is Verdict.OVERTAKEN
    assert (ears.heard, tenure.writes) == (["refused"], False)
    assert (state.version, state.epoch, state.inputs) == (0, 0, {})


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (AppendUnknown("no answer"), Verdict.UNKNOWN),
        (AppendRefused(Refusal.NOT_ALLOWED, "no right"), Verdict.REFUSED),
    ],
)
def test_a_record_that_is_not_known_to_be_there_is_undone(answer: AppendAnswer, verdict: Verdict) -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    assert tenure.answered(tenure.draft(tried), tried, answer, 9) is verdict
    assert (ears.heard, tenure.writes, state.epoch) == (["refused"], False, 0)


def test_the_writer_of_a_later_epoch_ends_the_tenure() -> None:
    state = CellState("cell-a")
    tenure: Tenure[Trial] = Tenure(state, Ears())
    tried = trial(state, tenure)
    tenure.answered(tenure.draft(tried), tried, Appended(0), 9)
    apply(state, WriterStarted(epoch=2, writer="two"), 0)
    assert not tenure.writes


def test_what_comes_to_nothing_leaves_no_trace() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    trial(state, tenure)
    tenure.abandon()
    assert (state.epoch, ears.heard) == (0, [])
