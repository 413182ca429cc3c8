"""The writer loop without I/O: what is accepted, what is overtaken, and what is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import DamagedLog, LogRecord, fold
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import DEVICES_MAX, JobSpec, WorkerPlace
from fallow.shared.events.reasons import DeadLetterReason, FailReason
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.writer import DECISION_BYTES_MAX, Draft, Writer, is_within_bounds, readable
from fallow.shared.log.port import RECORD_BYTES_MAX
from tests.hypothesis_profile import reaches

CELL = "cell-a"
DIGEST = "0123456789abcdef" * 2


def enqueued(job: str) -> e.JobEnqueued:
    return e.JobEnqueued(spec=JobSpec(id=job, tenant="ada"), submit_ms=0, digest=DIGEST)


def tried(writer: Writer, *effects: e.AnyEffect, at_ms: int = 5, inputs: dict[str, int] | None = None) -> Draft:
    """A decision that is tried on the state and drafted."""
    writer.begin()
    for effect in effects:
        apply(writer.state, effect, at_ms)
    draft = writer.draft(list(effects), inputs or {}, at_ms)
    assert isinstance(draft, Draft)
    return draft


def record(draft: Draft, offset: int) -> LogRecord:
    """The draft as everybody reads it."""
    return LogRecord(offset, draft.value, draft.chain, read(draft.value))


def read(value: bytes) -> Decision:
    found = decode(Decision.type, value)
    assert isinstance(found, Decision)
    return found


def test_a_record_right_behind_the_state_is_in_force() -> None:
    writer, reader = Writer(CellState(CELL)), CellState(CELL)
    first = tried(writer, enqueued("a"), inputs={"jobs-0": 1})
    assert writer.appended(0)
    second = tried(writer, enqueued("b"))
    assert writer.appended(1)
    for offset, draft in enumerate((first, second)):
        fold(reader, record(draft, offset))
    assert digest_of(writer.state) == digest_of(reader)
    assert (reader.version, reader.inputs, list(reader.jobs)) == (2, {"jobs-0": 1}, ["a", "b"])


def test_what_was_tried_is_undone_when_it_is_worth_no_record() -> None:
    writer = Writer(CellState(CELL))
    before = digest_of(writer.state)
    writer.begin()
    apply(writer.state, enqueued("a"), 5)
    writer.abandon()
    assert digest_of(writer.state) == before


def test_a_record_that_was_overtaken_leaves_no_trace() -> None:
    writer, other = Writer(CellState(CELL)), Writer(CellState(CELL))
    before = digest_of(writer.state)
    theirs = tried(other, enqueued("b"))
    mine = tried(writer, enqueued("a"))
    assert not writer.appended(1)
    assert digest_of(writer.state) == before
    for at, draft in enumerate((theirs, mine)):
        fold(writer.state, record(draft, at))
    assert (list(writer.state.jobs), writer.state.skipped) == (["b"], 1)


@pytest.mark.parametrize("offset", [0, 1])
def test_a_record_that_is_put_where_another_one_was_read_tells_that_the_log_has_lost_records(offset: int) -> None:
    writer = Writer(CellState(CELL))
    for at, job in enumerate(("a", "b")):
        tried(writer, enqueued(job))
        assert writer.appended(at)
    before = digest_of(writer.state)
    tried(writer, enqueued("c"))
    with pytest.raises(DamagedLog, match=f"put at offset {offset}, and the log was read to 1 before"):
        writer.appended(offset)
    assert digest_of(writer.state) == before


def test_a_record_behind_a_stale_one_is_in_force_once_it_is_folded() -> None:
    writer, old = Writer(CellState(CELL)), Writer(CellState(CELL))
    stale = tried(old, enqueued("old"))
    tried(writer, enqueued("a"))
    assert writer.appended(0)
    mine = tried(writer, enqueued("b"))
    assert not writer.appended(2)
    for at, draft in enumerate((stale, mine), 1):
        fold(writer.state, record(draft, at))
    assert (list(writer.state.jobs), writer.state.skipped) == (["a", "b"], 1)


@pytest.mark.parametrize("is_there", [True, False])
def test_nobody_knows_and_the_log_tells(is_there: bool) -> None:
    writer = Writer(CellState(CELL))
    before = digest_of(writer.state)
    mine = tried(writer, enqueued("a"))
    writer.unknown()
    assert digest_of(writer.state) == before
    records = [record(mine, 0)] if is_there else []
    for each in records:
        fold(writer.state, each)
    again = tried(writer, enqueued("b"))
    assert again.decision.version == 1 + is_there
    assert writer.appended(int(is_there))


def test_a_record_names_the_next_version_the_epoch_and_a_time_that_never_goes_back() -> None:
    writer = Writer(CellState(CELL))
    tried(writer, e.WriterStarted(epoch=4, writer="p"), at_ms=50)
    assert writer.appended(0)
    draft = tried(writer, enqueued("a"), at_ms=20)
    assert (draft.decision.version, draft.decision.epoch, draft.decision.at_ms) == (2, 4, 50)


def test_a_changed_byte_breaks_the_chain() -> None:
    writer, reader = Writer(CellState(CELL)), CellState(CELL)
    draft = tried(writer, enqueued("a"))
    bent = draft.value.replace(b'"a"', b'"b"')
    with pytest.raises(DamagedLog, match="chain"):
        fold(reader, LogRecord(0, bent, draft.chain, read(bent)))


def test_the_order_of_calls_is_kept() -> None:
    writer = Writer(CellState(CELL))
    for call in (writer.abandon, writer.unknown, lambda: writer.appended(0), lambda: writer.draft([], {}, 0)):
        with pytest.raises(AssertionError, match="comes first"):
            call()
    writer.begin()
    with pytest.raises(AssertionError, match="open already"):
        writer.begin()
    writer.draft([], {}, 0)
    with pytest.raises(AssertionError, match="may be in the log"):
        writer.abandon()


def test_what_can_be_read_is_the_decision_as_it_is_encoded() -> None:
    effects = (e.WriterStarted(epoch=4, writer="p"), enqueued("a"), e.JobRunning(job="a", attempt=1))
    for some in ((), effects):
        decision = Decision(cell=CELL, version=1, epoch=0, inputs={"jobs-0": 3}, at_ms=5, effects=some)
        assert readable(decision) == encode(decision)


NUMBER = st.sampled_from(
    (-1, 0, 1, 1_000, DEVICES_MAX - 1, DEVICES_MAX, LARGEST_INTEGER, LARGEST_INTEGER + 1, LATEST_MS, LATEST_MS + 1)
)
NEARLY_ZERO = st.just(0) | NUMBER
PLACE = st.builds(
    WorkerPlace,
    rank=NEARLY_ZERO,
    node=st.just("n1"),
    devices=st.lists(st.sampled_from((0, 7)) | NUMBER, max_size=2).map(tuple),
    gpu_milli=st.just(1_000) | NUMBER,
    cpu_milli=NEARLY_ZERO,
    memory_mib=NEARLY_ZERO,
    turn=NEARLY_ZERO,
    since_ms=NEARLY_ZERO,
)
STARTED = st.builds(
    e.JobStarted,
    job=st.just("a"),
    attempt=st.just(1) | NUMBER,
    workers=st.builds(
        lambda places, copies: tuple(places * copies), st.lists(PLACE, max_size=2), st.sampled_from((1, 70))
    ),
    backfilled_over=st.sampled_from(("", "b", "b" * 501)),
)
SPEC_READ = JobSpec(id="a", tenant="ada")
ENQUEUED = st.builds(
    e.JobEnqueued,
    spec=st.just(SPEC_READ) | st.builds(JobSpec, id=st.just("a"), tenant=st.just("ada"), priority=NUMBER),
    submit_ms=NUMBER,
    digest=st.just(DIGEST),
)


@given(effect=STARTED | ENQUEUED)
def test_a_record_is_taken_for_readable_when_readers_take_it_and_only_then(effect: e.AnyEffect) -> None:
    read = {id(SPEC_READ)}
    decision = Decision(cell=CELL, version=1, epoch=0, at_ms=5, effects=(effect,))
    is_read = isinstance(decode(Decision.type, encode(decision)), Decision)
    reaches("a record is readable", is_read)
    reaches("a record is not readable", not is_read)
    assert isinstance(readable(decision, read), bytes) is is_read
    assert is_read or not is_within_bounds(effect, read)


USUAL = WorkerPlace(rank=0, node="n1", devices=(0, 1), gpu_milli=2_000)


@pytest.mark.parametrize("field", ["rank", "gpu_milli", "cpu_milli", "memory_mib", "turn", "since_ms", "devices"])
@pytest.mark.parametrize("number", [-1, LATEST_MS + 1, 2**62])
def test_no_number_of_a_place_passes_that_readers_refuse(field: str, number: int) -> None:
    bad = replace(USUAL, **{field: (0, number) if field == "devices" else number})
    started = e.JobStarted(job="a", attempt=1, workers=(bad,))
    why = readable(Decision(cell=CELL, version=1, epoch=0, at_ms=5, effects=(enqueued("a"), started)))
    assert isinstance(why, Undecodable)
    assert why.field.startswith(f"effects[1].JobStarted.workers[0].{field}")


@pytest.mark.parametrize("field", ["rank", "gpu_milli", "cpu_milli", "memory_mib", "turn", "since_ms", "devices"])
@pytest.mark.parametrize("at", [0, 50, 99])
def test_no_number_of_one_place_among_many_passes_that_readers_refuse(field: str, at: int) -> None:
    places = [replace(USUAL, rank=rank) for rank in range(100)]
    places[at] = replace(places[at], **{field: (0, 2**62) if field == "devices" else 2**62})
    started = e.JobStarted(job="a", attempt=1, workers=tuple(places))
    why = readable(Decision(cell=CELL, version=1, epoch=0, at_ms=5, effects=(enqueued("a"), started)))
    assert isinstance(why, Undecodable)
    assert field in why.field


def test_a_usual_job_and_its_start_are_proven_without_reading_them_back() -> None:
    assert is_within_bounds(e.JobStarted(job="a", attempt=1, workers=(USUAL,)))
    effect = enqueued("a")
    assert is_within_bounds(effect, {id(effect.spec)})
    assert not is_within_bounds(effect)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"at_ms": 2**63}, "at_ms"), ({"inputs": {"jobs-0": -1}}, "inputs.jobs-0"), ({"version": 0}, "version")],
)
def test_what_surrounds_the_effects_is_proven_as_well(change: dict[str, Any], field: str) -> None:
    decision = replace(Decision(cell=CELL, version=1, epoch=0, at_ms=5, effects=(enqueued("a"),)), **change)
    why = readable(decision)
    assert isinstance(why, Undecodable)
    assert why.field == field


def test_a_text_that_no_bytes_can_hold_is_told() -> None:
    effects = (e.JobFailed(job="a", reason=FailReason.RUN_TIME_LIMIT, text="\ud800"),)
    why = readable(Decision(cell=CELL, version=1, epoch=0, at_ms=5, effects=effects))
    assert isinstance(why, Undecodable)
    assert "cannot be encoded" in why.rule


def test_a_record_that_no_broker_would_take_is_refused_with_its_size() -> None:
    effects = tuple(e.JobFailed(job="a" * 128, reason=FailReason.RUN_TIME_LIMIT, text="x" * 500) for _ in range(1_600))
    why = readable(Decision(cell=CELL, version=1, epoch=0, at_ms=5, effects=effects))
    assert isinstance(why, Undecodable)
    assert (why.reason, why.field) == (DeadLetterReason.TOO_LARGE, "effects")


def test_the_largest_decision_and_its_envelope_are_within_what_a_producer_sends() -> None:
    """Counted as Kafka's client counts: with key, headers and framing, and a batch around it."""
    cell, writer = "c" * 63, "é" * 500
    decision = Decision(cell=cell, version=2**53 - 1, epoch=2**53 - 1, at_ms=5)
    sent = Layout("n" * 100, {cell: 0}).outgoing(
        decision,
        id=f"{cell}/{decision.version}/{decision.epoch}",
        source=writer,
        wall_ms=2**53 - 1,
        more=((CHAIN_HEADER, b"f" * 32),),
        value=b"x" * DECISION_BYTES_MAX,
    )
    size = DefaultRecordBatchBuilder.estimate_size_in_bytes(sent.key, sent.value, list(sent.headers))
    assert size + 2_000 < RECORD_BYTES_MAX
