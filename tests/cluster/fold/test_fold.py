"""What a record is to a state: the next one, an old one, a stranger, or proof of a damaged log."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.fold import DamagedLog, LogRecord, Verdict, fold, judge
from fallow.shared.cluster.fold.rows import DamagedRow, digest_of, rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.decisions import Decision, next_chain
from fallow.shared.events.fields.value import replace as with_fields
from fallow.shared.events.reasons import DeadLetterReason
from tests.cluster.worlds.examples import cell, enqueued, next_record, node, place, started, then
from tests.cluster.worlds.histories import CELL, extending, folded, history, record_of
from tests.hypothesis_profile import reaches


def changed(record: LogRecord, **fields: object) -> LogRecord:
    """A record with other content but the chain header of the first: what a forger can make."""
    assert isinstance(record.decision, Decision)
    decision = with_fields(record.decision, **fields)
    return replace(record, value=encode(decision), decision=decision)


def stranger(value: bytes, *, offset: int, chain: str = "") -> LogRecord:
    decision = decode(Decision.type, value)
    assert isinstance(decision, Undecodable)
    return LogRecord(offset, value, chain, decision)


def test_the_next_version_is_taken() -> None:
    state = then(cell(node("n1")), enqueued("job"))
    assert (state.version, state.offset, state.skipped, list(state.jobs)) == (2, 1, 0, ["job"])


def test_a_record_of_a_version_that_is_over_is_skipped_and_counted() -> None:
    state = cell(node("n1"))
    stale = replace(next_record(state, enqueued("late")), offset=2)
    then(state, enqueued("job"))
    assert judge(state, stale) is Verdict.STALE
    assert list(fold(state, stale).jobs) == ["job"]
    assert (state.version, state.offset, state.skipped) == (2, 2, 1)


def test_a_version_that_is_too_new_proves_that_records_are_missing() -> None:
    state = cell(node("n1"))
    ahead = next_record(then(cell(node("n1")), enqueued("job")), enqueued("more"))
    with pytest.raises(DamagedLog, match="version 3 follows 1: records are missing"):
        fold(state, ahead)


def test_a_record_that_was_tampered_with_does_not_continue_the_chain() -> None:
    state = cell(node("n1"))
    tampered = changed(next_record(state, enqueued("job")), effects=(enqueued("other"),))
    with pytest.raises(DamagedLog, match="version 2 does not continue the chain"):
        fold(state, tampered)


def test_a_record_that_was_tampered_with_long_ago_breaks_the_chain_of_the_next() -> None:
    records = history(3, 12).records
    forged = changed(records[5], at_ms=records[5].decision.at_ms + 1)  # type: ignore[union-attr]
    resealed = replace(forged, chain=next_chain(folded(records[:5]).chain, forged.value))
    with pytest.raises(DamagedLog, match="version 7 does not continue the chain"):
        folded([*records[:5], resealed, *records[6:]])


@pytest.mark.parametrize("missing", range(11))
def test_a_log_with_a_hole_is_damaged(missing: int) -> None:
    records = history(3, 12).records
    with pytest.raises(DamagedLog, match="records are missing"):
        folded([*records[:missing], *records[missing + 1 :]])


def test_a_log_with_two_records_swapped_is_damaged() -> None:
    first, second, *_ = history(3, 2).records
    with pytest.raises(DamagedLog, match="records are missing"):
        folded([replace(second, offset=0), replace(first, offset=1)])


@given(value=st.binary(max_size=60))
def test_foreign_bytes_are_skipped(value: bytes) -> None:
    state = cell(node("n1"))
    reaches("the bytes are no text, or no JSON at all", value[:1] not in b'{["')
    fold(state, stranger(value, offset=1, chain="not a chain"))
    assert (state.version, state.offset, state.skipped) == (1, 1, 1)


def test_a_decision_of_another_cell_is_skipped() -> None:
    state = cell(node("n1"))
    other = extending(CellState("cell-b"), [node("n2")], offset=1)
    assert list(fold(state, other).nodes) == ["n1"]
    assert state.skipped == 1


def test_an_unreadable_record_of_the_writer_itself_stops_the_reader() -> None:
    state = cell(node("n1"))
    value = b'{"cell":"cell-a","version":2,"epoch":0,"at_ms":0,"effects":[{"kind":"JobTeleported"}]}'
    with pytest.raises(DamagedLog, match=r"JobTeleported.* a reader of that release is needed"):
        fold(state, stranger(value, offset=1, chain=next_chain(state.chain, value)))
    assert (state.version, state.offset) == (1, 0)


def test_a_record_that_is_no_decision_is_skipped() -> None:
    state = cell(node("n1"))
    unknown = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is no decision")
    assert fold(state, LogRecord(1, b"{}", "", unknown)).skipped == 1


def test_cell_time_does_not_go_back() -> None:
    state = then(cell(node("n1")), at_ms=100)
    with pytest.raises(DamagedLog, match="cell time goes back from 100 to 99"):
        then(state, at_ms=99)


def test_an_input_does_not_go_back() -> None:
    state = cell(node("n1"))
    back = Decision(cell=CELL, version=2, epoch=0, at_ms=0, inputs={"nodes-0": 2})
    with pytest.raises(DamagedLog, match="input nodes-0 goes back from 3 to 2"):
        fold(state, record_of(back, state.chain, 1))


def test_the_chain_is_taken_of_the_bytes_as_received() -> None:
    state = CellState(CELL)
    record = extending(state, [node("n1")])
    spaced = record.value.replace(b",", b" ,")
    fold(state, LogRecord(0, spaced, next_chain(state.chain, spaced), record.decision))
    assert state.chain == next_chain(CellState(CELL).chain, spaced)
    assert state.chain != record.chain


def test_equal_states_have_equal_rows_whatever_was_undone_on_the_way() -> None:
    life = [
        node("n1"),
        *(enqueued("a"), started("a", place(0, "n1", 0))),
        *(enqueued("b"), started("b", place(0, "n1", 1))),
    ]
    state, straight = cell(*life), cell(*life)
    mark = state.checkpoint()
    then(state, e.JobRunning(job="a", attempt=1), e.JobFinished(job="a", attempt=1))
    state.rollback(mark)
    state.version, state.chain, state.offset = straight.version, straight.chain, straight.offset
    state.inputs, state.input_checksums = straight.inputs, straight.input_checksums
    assert list(state.nodes["n1"].jobs) != list(straight.nodes["n1"].jobs)
    assert digest_of(state) == digest_of(straight)


def test_a_snapshot_with_a_field_of_a_later_release_is_refused() -> None:
    state = cell(node("n1"), enqueued("a"))
    for section in ("policy", "node", "job"):
        rows = [_with_more(row) if row.startswith(f'["{section}"') else row for row in rows_of(state)]
        with pytest.raises(DamagedRow, match="unknown field `later`"):
            state_from(rows)


def _with_more(row: str) -> str:
    section, content = json.loads(row)
    return json.dumps([section, {**content, "later": 1}], separators=(",", ":"))


def test_no_row_that_is_there_twice_ends_in_anything_but_a_damaged_row() -> None:
    ended = [enqueued("z"), started("z", place(0, "n1", 1)), e.JobFinished(job="z", attempt=1)]
    rows = [*rows_of(cell(node("n1"), *ended, enqueued("a"), started("a", place(0, "n1", 0))))]
    damaged = []
    for row in rows:
        try:
            state_from([*rows, row])
        except DamagedRow as error:
            damaged.append(str(error))
    assert any("jobs are remembered already" in text for text in damaged)


@pytest.mark.parametrize("numbers", [(-1, 0, -1), (-(2**70), 20, 5), (0, 0, -2)])
def test_remembered_jobs_are_numbered_by_what_can_be_a_number(numbers: tuple[int, int, int]) -> None:
    over = json.dumps(["over", numbers], separators=(",", ":"))
    with pytest.raises(DamagedRow, match="cannot be numbered"):
        state_from([over if row.startswith('["over"') else row for row in rows_of(cell(node("n1")))])


def test_a_snapshot_of_an_unknown_section_is_refused() -> None:
    with pytest.raises(ValueError, match="section 'loans' is not known to this version"):
        state_from([*rows_of(cell(node("n1"))), '["loans",{}]'])
