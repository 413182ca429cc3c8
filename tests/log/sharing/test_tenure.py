"""What becomes of a trial, and who is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.effects import AnyEffect, JobEnqueued, WriterStarted
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.machine.tenure import Tenure, Verdict
from fallow.shared.log.machine.writer import Draft, UnwritableDecision
from fallow.shared.log.port import AppendAnswer, Appended, AppendRefused, AppendUnknown, Refusal


@dataclass
class Trial:
    effects: list[AnyEffect]
    inputs: dict[str, int]
    input_checksums: dict[str, int] = field(default_factory=dict)
    at_ms: int = 0
    fault: Undecodable | None = None
    specs_read: frozenset[int] = frozenset()


@dataclass
class Ears:
    """A decider that only listens."""

    heard: list[str] = field(default_factory=list)
    knows_better: bool = True

    def accepted(self, tried: Trial) -> None:
        self.heard.append("accepted")

    def refused(self, tried: Trial) -> None:
        self.heard.append("refused")

    def unwritable(self, tried: Trial, why: Undecodable) -> bool:
        self.heard.append(f"unwritable: {why}")
        return self.knows_better

    def too_large(self, tried: Trial) -> bool:
        self.heard.append("too large")
        return self.knows_better

    def failed(self, error: Exception) -> bool:
        self.heard.append(f"failed: {error}")
        return self.knows_better

    def note(self, effects: tuple[AnyEffect, ...], wall_ms: int) -> None:
        self.heard.append(f"note {len(effects)} at {wall_ms}")


def trial(state: CellState, tenure: Tenure[Trial]) -> Trial:
    """Takes the cell over, as far as its own state goes."""
    started = WriterStarted(epoch=state.epoch + 1, writer="one")
    tenure.begin()
    apply(state, started, 0)
    return Trial([started], {"jobs-0": 3})


def drafted(tenure: Tenure[Trial], tried: Trial) -> Draft:
    draft = tenure.draft(tried)
    assert isinstance(draft, Draft)
    return draft


def test_a_record_right_behind_the_state_is_in_force_and_makes_the_process_the_writer() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    assert tenure.answered(drafted(tenure, tried), tried, Appended(0), 9) is Verdict.IN_FORCE
    assert (ears.heard, tenure.writes) == (["accepted", "note 1 at 9"], True)
    assert (state.version, state.epoch, state.inputs) == (1, 1, {"jobs-0": 3})


def test_a_record_elsewhere_is_undone_and_refused() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    assert tenure.answered(drafted(tenure, tried), tried, Appended(4), 9) is Verdict.OVERTAKEN
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
    assert tenure.answered(drafted(tenure, tried), tried, answer, 9) is verdict
    assert (ears.heard, tenure.writes, state.epoch) == (["refused"], False, 0)


@pytest.mark.parametrize(("knows_better", "verdict"), [(True, Verdict.TOO_LARGE), (False, Verdict.REFUSED)])
def test_a_record_that_its_topic_does_not_take_is_made_smaller_only_where_the_decider_can(
    *, knows_better: bool, verdict: Verdict
) -> None:
    """A decision that comes from no input is the same one when it is made again: it waits, as any refused one."""
    state, ears = CellState("cell-a"), Ears(knows_better=knows_better)
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    refused = AppendRefused(Refusal.TOO_LARGE, "MESSAGE_TOO_LARGE")
    assert tenure.answered(drafted(tenure, tried), tried, refused, 9) is verdict
    assert ears.heard == ["too large"]
    assert (tenure.writes, state.epoch) == (False, 0)


def test_the_writer_of_a_later_epoch_ends_the_tenure() -> None:
    state = CellState("cell-a")
    tenure: Tenure[Trial] = Tenure(state, Ears())
    tried = trial(state, tenure)
    tenure.answered(drafted(tenure, tried), tried, Appended(0), 9)
    apply(state, WriterStarted(epoch=2, writer="two"), 0)
    assert not tenure.writes


def test_what_comes_to_nothing_leaves_no_trace() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    trial(state, tenure)
    tenure.abandon()
    assert (state.epoch, ears.heard) == (0, [])


def too_late(state: CellState, tenure: Tenure[Trial]) -> Trial:
    """Makes a job wait for a time that no reader takes for one."""
    tenure.begin()
    effect = JobEnqueued(spec=JobSpec(id="a", tenant="ada"), submit_ms=2**62, digest="0123456789abcdef" * 2)
    apply(state, effect, 0)
    return Trial([effect], {"jobs-0": 3})


def test_a_record_that_no_reader_could_decode_is_not_made_and_the_decider_hears_why() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    assert isinstance(tenure.draft(too_late(state, tenure)), Undecodable)
    assert ears.heard[0].startswith("unwritable: effects[0].JobEnqueued.submit_ms")
    assert (state.jobs, state.waiting) == ({}, 0)
    tried = trial(state, tenure)
    assert tenure.answered(drafted(tenure, tried), tried, Appended(0), 9) is Verdict.IN_FORCE


def test_a_trial_that_broke_a_rule_is_undone_before_anything_is_encoded() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    tried = trial(state, tenure)
    tried.fault = Undecodable(DeadLetterReason.INVALID, "job a exists already")
    assert tenure.draft(tried) is tried.fault
    assert (state.epoch, ears.heard) == (0, ["unwritable: job a exists already"])


def test_what_nobody_can_change_about_a_trial_stops_the_cell() -> None:
    state, ears = CellState("cell-a"), Ears(knows_better=False)
    tenure: Tenure[Trial] = Tenure(state, ears)
    with pytest.raises(UnwritableDecision, match="submit_ms"):
        tenure.draft(too_late(state, tenure))
    assert state.jobs == {}


def test_a_draft_that_was_not_appended_leaves_no_trace() -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    drafted(tenure, trial(state, tenure))
    tenure.discard()
    assert (state.epoch, ears.heard) == (0, [])


@pytest.mark.parametrize("error", [KeyError("job"), RecursionError("too deep"), AssertionError()])
def test_a_trial_that_raises_an_error_is_undone_and_the_decider_tries_another_one(error: Exception) -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    trial(state, tenure)
    tenure.failed(error)
    assert (state.epoch, ears.heard) == (0, [f"failed: {error}"])
    tenure.begin()


def test_where_the_decider_knows_no_other_one_the_error_is_raised() -> None:
    state = CellState("cell-a")
    tenure: Tenure[Trial] = Tenure(state, Ears(knows_better=False))
    trial(state, tenure)
    with pytest.raises(KeyError, match="job"):
        tenure.failed(KeyError("job"))


@pytest.mark.parametrize("error", [MemoryError(), DamagedLog("forged"), UnwritableDecision("far")])
def test_so_is_one_that_says_nothing_of_what_was_tried(error: Exception) -> None:
    state, ears = CellState("cell-a"), Ears()
    tenure: Tenure[Trial] = Tenure(state, ears)
    trial(state, tenure)
    with pytest.raises(type(error)):
        tenure.failed(error)
    assert ears.heard == []
