from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fallow.shared.cluster.fold.fold import DamagedLog, LogRecord, fold
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import TYPES, Decision, Event, Undecodable, ce_headers, decode, encode
from fallow.shared.events.base import JobId, Name
from fallow.shared.events.codec.encoding import STRICT, shorten
from fallow.shared.events.decisions import CHAIN_START, next_chain
from fallow.shared.events.effects import Effect
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, ObservedRun, RunStatus, VirtualRun
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobsAdmitted, JobUpdateRequested
from fallow.shared.events.nodes import RUN_WORDS_MAX, NodeJoined, NodeReport, RunsReported, RunStatusUpdate
from fallow.shared.events.proposals import Proposal
from fallow.shared.events.queue import QueuePlanned
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.events.snapshots import SnapshotChunk
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.events.validation.unknown_fields import read_valid, with_one_unknown
from fallow.simulator.trouble.versions import with_fields
from tests.hypothesis_profile import reaches, shared_among
from tests.strategies import EFFECTS, effects, events, values

COMMANDS = sorted(type_ for type_ in TYPES if TYPES[type_].is_command)
TRUTH = sorted(type_ for type_ in TYPES if TYPES[type_].topic in STRICT)
FACTS = sorted(type_ for type_ in TYPES if not TYPES[type_].is_command and type_ not in TRUTH)
CANCEL = "fallow.job.cancel.v1"
ADVANCE = "fallow.time.advance.v1"
DECISION = Decision.type
GOLDEN = Path(__file__).parent / "golden"


def with_field(event: Event, name: str) -> bytes:
    return json.dumps({**json.loads(encode(event)), name: 1}).encode()


def decision_with(effect: str) -> bytes:
    return b'{"cell":"a","version":1,"epoch":0,"at_ms":0,"effects":[' + effect.encode() + b"]}"


def refused(answer: Event | Undecodable) -> Undecodable:
    assert isinstance(answer, Undecodable)
    return answer


@shared_among(len(TYPES))
@pytest.mark.parametrize("type_", sorted(TYPES))
@given(data=st.data())
def test_what_was_encoded_decodes_to_the_same(type_: str, data: st.DataObject) -> None:
    event = data.draw(values(TYPES[type_]))
    assert decode(type_, encode(event)) == event


@shared_among(len(EFFECTS))
@pytest.mark.parametrize("cls", EFFECTS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_an_effect_survives_inside_a_decision(cls: type[Effect], data: st.DataObject) -> None:
    effect = data.draw(values(cls))
    decision = Decision(cell="a", version=1, epoch=0, at_ms=0, effects=(effect,))
    assert decode(DECISION, encode(decision)) == decision


@given(event=events())
def test_equal_events_have_equal_bytes(event: Event) -> None:
    assert encode(read_valid(type(event), encode(event))) == encode(event)


@given(event=events())
def test_every_event_has_a_key_and_a_type_in_its_headers(event: Event) -> None:
    headers = dict(ce_headers(event, id="an-id", source="test", wall_ms=1_700_000_000_123))
    assert event.key()
    assert headers["ce_type"] == event.type.encode()
    assert headers["ce_time"] == b"2023-11-14T22:13:20.123Z"


@shared_among(len(COMMANDS))
@pytest.mark.parametrize("type_", COMMANDS)
@given(data=st.data())
def test_a_command_with_an_unknown_field_is_refused(type_: str, data: st.DataObject) -> None:
    answer = refused(decode(type_, with_field(data.draw(values(TYPES[type_])), "misspelt")))
    told = (DeadLetterReason.INVALID, "misspelt", "unknown field")  # the page about jobs is named for a job's fields
    assert (answer.reason, answer.field, answer.rule) == told


@shared_among(len(FACTS))
@pytest.mark.parametrize("type_", FACTS)
@given(data=st.data())
def test_a_fact_with_an_unknown_field_is_read_without_it(type_: str, data: st.DataObject) -> None:
    event = data.draw(values(TYPES[type_]))
    assert decode(type_, with_field(event, "from_a_later_version")) == event
    assert decode(type_, with_fields(encode(event))) == event, "in all of its parts"


@shared_among(len(TRUTH))
@pytest.mark.parametrize("type_", TRUTH)
@given(data=st.data())
def test_an_unknown_field_of_what_the_truth_is_made_of_stops_its_reader(type_: str, data: st.DataObject) -> None:
    answer = refused(decode(type_, with_field(data.draw(values(TYPES[type_])), "from_a_later_version")))
    assert answer.field.endswith("from_a_later_version")
    assert answer.rule == "unknown field"


def places(part: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where in a record a later release might add a field."""
    if isinstance(part, list):
        for number, each in enumerate(part):
            yield from places(each, (*at, number))
    elif isinstance(part, dict) and (not at or at[-1] not in ("labels", "env", "inputs")):
        yield at
        for key, each in part.items():
            yield from places(each, (*at, key))


def with_field_at(part: Any, at: tuple[str | int, ...]) -> Any:
    if not at:
        return {**part, "from_a_later_version": 1}
    if isinstance(part, list):
        return [with_field_at(each, at[1:]) if number == at[0] else each for number, each in enumerate(part)]
    return {key: with_field_at(each, at[1:]) if key == at[0] else each for key, each in part.items()}


@shared_among(len(EFFECTS))
@pytest.mark.parametrize("cls", EFFECTS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_one_unknown_field_anywhere_in_an_effect_stops_a_reader_of_the_log(
    cls: type[Effect], data: st.DataObject
) -> None:
    decision = Decision(cell="a", version=1, epoch=0, at_ms=0, effects=(data.draw(values(cls)),))
    told = json.loads(encode(decision))
    at = data.draw(st.sampled_from(list(places(told))))
    reaches("an unknown field stands in a part of an effect", len(at) > 2)
    value = json.dumps(with_field_at(told, at)).encode()
    answer = refused(decode(DECISION, value))
    assert answer.field.endswith("from_a_later_version")
    assert answer.rule == "unknown field"
    record = LogRecord(0, value, next_chain(CHAIN_START, value), answer)
    with pytest.raises(DamagedLog, match="a reader of that release is needed"):
        fold(CellState("a"), record)


@shared_among(len(TYPES))
@pytest.mark.parametrize("type_", sorted(TYPES))
@given(data=st.data())
def test_a_record_with_one_byte_that_is_no_text_is_not_read(type_: str, data: st.DataObject) -> None:
    value = encode(data.draw(values(TYPES[type_])))
    place = data.draw(st.integers(0, len(value) - 1))
    damaged = value[:place] + bytes((value[place] ^ 0x80,)) + value[place + 1 :]
    assert isinstance(decode(type_, damaged), Undecodable)


@pytest.mark.parametrize("name", [b"du\xf2ation_ms", b"\xff", b"duration_ms\xc3"])
def test_a_field_whose_name_is_no_text_is_not_passed_over_as_one_of_a_later_release(name: bytes) -> None:
    spec = JobSpec(id="a", tenant="t", queue="q", run=VirtualRun(duration_ms=501))
    value = encode(JobAdmitted(cell="a", spec=spec, submit_ms=0, digest="0" * 32))
    assert b'"duration_ms"' in value
    answer = refused(decode(JobAdmitted.type, value.replace(b"duration_ms", name)))
    assert (answer.reason, answer.rule) == (DeadLetterReason.UNREADABLE, "is no UTF-8, and JSON is")


def test_a_command_is_strict_in_its_inner_parts_too() -> None:
    answer = refused(decode("fallow.job.submit.v1", b'{"job":{"id":"a","tenant":"t","resources":{"gpu_mili":1}}}'))
    assert answer.field == "job.resources.gpu_mili"


def test_an_effect_of_an_unknown_kind_is_undecodable() -> None:
    answer = refused(decode(DECISION, decision_with('{"kind":"JobTeleported","job":"a"}')))
    assert "JobTeleported" in answer.rule


def test_an_unknown_type_and_an_absent_value_are_values_too() -> None:
    assert refused(decode("fallow.job.teleport.v1", b"{}")).reason is DeadLetterReason.UNKNOWN_TYPE
    assert refused(decode(CANCEL, None)).reason is DeadLetterReason.UNREADABLE


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """An event of which a few bytes are other ones."""
    event = draw(events())
    value = encode(event)
    at = draw(st.integers(0, len(value)))
    return event.type, value[:at] + draw(st.binary(max_size=2)) + value[at + draw(st.integers(0, 2)) :]


ANYTHING = st.tuples(st.one_of(st.sampled_from(sorted(TYPES)), st.text()), st.binary(max_size=300))


@given(told=ANYTHING | damaged())
def test_arbitrary_bytes_never_raise(told: tuple[str, bytes]) -> None:
    type_, value = told
    found = decode(type_, value)
    reaches("bytes are an event", isinstance(found, Event))
    assert isinstance(found, Undecodable | Event)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(event=events(), data=st.data())
def test_a_field_with_any_other_content_never_raises(event: Event, data: st.DataObject) -> None:
    fields = json.loads(encode(event))
    name = data.draw(st.sampled_from(sorted(fields)))
    content = st.just(fields[name]) | values(type(event)).map(lambda other: json.loads(encode(other)).get(name))
    value = json.dumps({**fields, name: data.draw(JSON | content)}).encode("utf-8", "surrogatepass")
    found = decode(event.type, value)
    reaches("a field may have the other content", isinstance(found, Event))
    assert isinstance(found, Undecodable | Event)


HOSTILE = {
    "nothing": (CANCEL, b""),
    "no object": (CANCEL, b"[]"),
    "byte order mark": (CANCEL, b'\xef\xbb\xbf{"job":"a","tenant":"t"}'),
    "deep nesting": (CANCEL, b'{"job":' + b"[" * 100_000),
    "nesting just below the limit": (CANCEL, b'{"job":' + b"[" * 190 + b"]" * 190 + b',"tenant":"t"}'),
    "5,000 digits": (ADVANCE, b'{"cell":"a","now_ms":' + b"9" * 5000 + b"}"),
    "4,200 digits": (ADVANCE, b'{"cell":"a","now_ms":' + b"9" * 4200 + b"}"),
    "4,200 digits in text": (CANCEL, b'{"tenant":"t","job":' + b"9" * 4200 + b"}"),
    "not a number": (ADVANCE, b'{"cell":"a","now_ms":NaN}'),
    "infinite": (ADVANCE, b'{"cell":"a","now_ms":1e999}'),
    "a float that is whole": (ADVANCE, b'{"cell":"a","now_ms":1.0}'),
    "a number as text": (ADVANCE, b'{"cell":"a","now_ms":"1"}'),
    "true as a number": (ADVANCE, b'{"cell":"a","now_ms":true}'),
    "negative": (ADVANCE, b'{"cell":"a","now_ms":-1}'),
    "beyond what JSON readers keep": (ADVANCE, b'{"cell":"a","now_ms":1152921504606846977}'),
    "lone surrogate, escaped": (CANCEL, b'{"job":"a","tenant":"t","reason":"\\ud800"}'),
    "lone surrogate, as bytes": (CANCEL, b'{"job":"a","tenant":"t","reason":"\xed\xa0\x80"}'),
    "no UTF-8": (CANCEL, b'{"job":"a","tenant":"t","reason":"\xff"}'),
    "a device that would be a huge mask": (
        DECISION,
        decision_with(
            '{"kind":"ReservationSet","job":"a","start_ms":0,'
            '"workers":[{"rank":0,"node":"n","devices":[9007199254740991],"gpu_milli":1000}]}'
        ),
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_are_refused_in_one_short_line(what: str) -> None:
    answer = refused(decode(*HOSTILE[what]))
    assert len(str(answer)) < 600
    assert str(answer).encode()


JOB_IDS, NAMES = (st.from_regex(get_args(alias)[1].pattern[1:-1], fullmatch=True) for alias in (JobId, Name))
NO_NAMES = ["Not a name", "", "a" * 129, "a/b/c", "a\n", "-a", "a b", "a\nb c", "\x1b]0;a\x07", "\0"]


def told_of_admitted(spec: dict[str, Any], digest: str = "0" * 32) -> list[Undecodable]:
    """Why the job is not admitted, by a record of its own and among others."""
    job = {"spec": {"id": "j", "tenant": "ada", **spec}, "submit_ms": 0, "digest": digest}
    alone, among = {"cell": "a", **job}, {"cell": "a", "jobs": [job]}
    return [
        refused(decode(type_, json.dumps(content).encode()))
        for type_, content in ((JobAdmitted.type, alone), (JobsAdmitted.type, among))
    ]


@pytest.mark.parametrize("queue", [{"queue": "main"}, {}], ids=["queue", "no queue"])
@pytest.mark.parametrize("field", ["id", "tenant", "queue"])
@pytest.mark.parametrize("name", NO_NAMES)
def test_no_job_is_admitted_whose_id_tenant_or_queue_is_no_name(field: str, name: str, queue: dict[str, str]) -> None:
    for told in told_of_admitted({**queue, field: name}):
        assert told.reason is DeadLetterReason.INVALID
        assert told.field.endswith(f"spec.{field}")


NO_DIGESTS = [
    "",
    "x",
    "0" * 31,
    "0" * 33,
    "A" * 32,
    "g" * 32,
    "0" * 32 + "\n",
    "0" * 31 + " ",
    "0" * 32 + " a",
    "é" * 16,
]


@pytest.mark.parametrize("digest", NO_DIGESTS)
def test_no_job_is_admitted_whose_digest_is_none(digest: str) -> None:
    for told in told_of_admitted({}, digest):
        assert told.reason is DeadLetterReason.INVALID
        assert told.field.endswith("digest")
        assert told.rule == "must match ^[0-9a-f]{32}$"


@pytest.mark.parametrize("name", NO_NAMES[:1] + NO_NAMES[4:])
def test_no_job_is_admitted_that_names_another_by_no_id(name: str) -> None:
    for told in told_of_admitted({"after": [{"job": "a"}, {"job": name}]}):
        assert told.field.endswith("spec.after[1].job")
    for told in told_of_admitted({"array_of": name, "array_index": 0}):
        assert told.field.endswith("spec.array_of")


LONGEST: dict[str, tuple[dict[str, Any], dict[str, Any], str, int]] = {
    "dir": ({"dir": "d" * 4_095}, {"dir": "d" * 4_096}, "job.run.dir", 4_095),
    "checkpoint_dir": (
        {"checkpoint_dir": "d" * 4_095},
        {"checkpoint_dir": "d" * 4_096},
        "job.run.checkpoint_dir",
        4_095,
    ),
    "a value": ({"env": {"A": "x" * 130_000}}, {"env": {"A": "x" * 130_001}}, "job.run.env.A", 130_000),
    "a name": ({"env": {"N" * 1_000: ""}}, {"env": {"N" * 1_001: ""}}, "job.run.env", 1_000),
}


@pytest.mark.parametrize("what", LONGEST)
def test_what_a_machine_could_not_take_is_refused_where_it_is_asked_for_and_read_where_it_stands(what: str) -> None:
    fits, too_long, field, most = LONGEST[what]

    def spec(run: dict[str, Any]) -> dict[str, Any]:
        return {"id": "j", "tenant": "ada", "run": {"driver": "process", "argv": ["a"], **run}}

    assert isinstance(decode(SubmitJob.type, json.dumps({"job": spec(fits)}).encode()), SubmitJob)
    told = refused(decode(SubmitJob.type, json.dumps({"job": spec(too_long)}).encode()))
    assert told.field.startswith(field)
    assert told.rule.startswith(f"must have at most {most:,} characters")
    entered = {"kind": "JobEnqueued", "spec": spec(too_long), "submit_ms": 0, "digest": "0" * 32}
    assert isinstance(decode(DECISION, decision_with(json.dumps(entered))), Decision)


REQUESTS = {JobCancelRequested.type: {}, JobUpdateRequested.type: {"changes": {"priority": 1}}}


@pytest.mark.parametrize("field", ["job", "tenant"])
@pytest.mark.parametrize("type_", REQUESTS)
@pytest.mark.parametrize("name", NO_NAMES)
def test_no_request_is_read_whose_job_or_tenant_is_no_name(type_: str, name: str, field: str) -> None:
    told = refused(
        decode(type_, json.dumps({"cell": "a", "job": "j", "tenant": "ada", **REQUESTS[type_], field: name}).encode())
    )
    assert (told.reason, told.field) == (DeadLetterReason.INVALID, field)


@pytest.mark.parametrize("name", NO_NAMES)
def test_no_proposal_is_read_whose_id_is_none(name: str) -> None:
    for type_ in sorted(type_ for type_, cls in TYPES.items() if issubclass(cls, Proposal)):
        golden = json.loads((GOLDEN / f"{type_}.json").read_bytes())
        told = refused(decode(type_, json.dumps({**golden, "proposal": name}).encode()))
        assert (told.reason, told.field) == (DeadLetterReason.INVALID, "proposal")


@given(JOB_IDS, NAMES, st.none() | NAMES)
def test_a_job_is_admitted_under_every_name_that_admission_lets_in(id: str, tenant: str, queue: str | None) -> None:
    spec = JobSpec(id=id, tenant=tenant, queue=queue)
    admitted = JobAdmitted(cell="a", spec=spec, submit_ms=0, digest="0" * 32)
    assert decode(JobAdmitted.type, encode(admitted)) == admitted


ODD = {
    "not a number": b"NaN",
    "infinite": b"-Infinity",
    "out of range": b"1e999",
    "5,000 digits": b"9" * 5_000,
    "nesting just below the limit": b"[" * 190 + b"]" * 190,
    "nesting that one reader takes and another refuses": b"[" * 1_100 + b"]" * 1_100,
    "deep nesting": b'{"a":' * 100_000,
    "lone surrogate, escaped": b'"\\ud800"',
    "lone surrogate, as bytes": b'"\xed\xa0\x80"',
    "no UTF-8": b'"\xff"',
    "a control character": b'"\x01"',
    "nothing": b"",
}
"""What readers of JSON do not agree on, in a field that is known to none of them."""


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("type_", sorted(TYPES))
def test_whatever_stands_in_an_unknown_field_never_raises(type_: str, what: str) -> None:
    golden = (GOLDEN / f"{type_}.json").read_bytes().strip()
    assert isinstance(decode(type_, golden), Event)
    assert isinstance(decode(type_, golden[:-1] + b',"zz":' + ODD[what] + b"}"), Undecodable | Event)


GOOD_JOB_IDS = ["a", "0", "a.b_c-d", "a" * 128, "train-7.retry_2", "a/b", f"{'t' * 63}/{'a' * 128}", "0-1/a.b_c-d"]
BAD_JOB_IDS = ["", "A", "-a", "a-", "a b", "a\n", "a\x00", "é", "a" * 129, "..", "a.", "a~b"]
BAD_JOB_IDS += [
    "/",
    "/a",
    "a/",
    "a/b/c",
    "a//b",
    "A/b",
    "a.b/c",
    "-a/b",
    "a/../b",
    f"{'t' * 64}/a",
    f"t/{'a' * 129}",
    "a/b\n",
]


@pytest.mark.parametrize("id_", GOOD_JOB_IDS)
def test_a_job_id_may_be(id_: str) -> None:
    assert not isinstance(decode(CANCEL, json.dumps({"job": id_, "tenant": "t"}).encode()), Undecodable)


@pytest.mark.parametrize("id_", BAD_JOB_IDS)
def test_a_job_id_may_not_be(id_: str) -> None:
    assert refused(decode(CANCEL, json.dumps({"job": id_, "tenant": "t"}).encode())).field == "job"


@pytest.mark.parametrize("name", ["t", "team-a", "0-1", "a" * 63])
def test_a_tenants_name_may_be(name: str) -> None:
    assert not isinstance(decode(CANCEL, json.dumps({"job": "j", "tenant": name}).encode()), Undecodable)


@pytest.mark.parametrize("name", ["", "T", "a.b", "a_b", "-a", "a-", "a" * 64, "t\n"])
def test_a_tenants_name_may_not_be(name: str) -> None:
    assert refused(decode(CANCEL, json.dumps({"job": "j", "tenant": name}).encode())).field == "tenant"


@given(effect=effects())
def test_an_effect_cannot_be_changed(effect: Effect) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        effect.kind = "Other"  # type: ignore[misc]


def test_of_many_mistakes_in_one_list_the_first_is_told_and_the_rest_is_not_worded() -> None:
    text = json.dumps({"job": {"id": "job-1", "tenant": "ada", "pools": ["a", "B", "C"], "workers": 0}}).encode()
    with pytest.raises(ValidationError) as found:
        read_valid(SubmitJob, text, forbid_unknown=True)
    assert [error["loc"] for error in found.value.errors()] == [("job", "pools", 1), ("job", "workers")]


def in_a_job(text: str) -> bytes:
    return b'{"job":{"id":"j","tenant":"ada",%s}}' % text.encode()


def test_an_unknown_field_of_a_later_part_of_a_list_is_told_with_its_place() -> None:
    parts = '"run":{"driver":"process","argv":["a"]},"after":[{"job":"a"},{"job":"b","zz":1}]'
    told = refused(decode(SubmitJob.type, in_a_job(parts)))
    assert (told.reason, told.field) == (DeadLetterReason.INVALID, "job.after[1].zz")


def with_unknown(event: Event) -> bytes:
    return b'{"zz":1,' + encode(event)[1:]


WORD = RunStatusUpdate(node="n", boot="b", seq=1, job="j", attempt=1, status=RunStatus.RUNNING)


def test_a_list_that_is_too_long_is_refused_and_not_cut_where_a_field_is_unknown_too() -> None:
    """Else the words that are one too many were lost without a word."""
    full = RunsReported(cell="a", words=(WORD,) * RUN_WORDS_MAX)
    assert decode(RunsReported.type, with_unknown(full)) == full
    refused(decode(RunsReported.type, with_unknown(replace(full, words=(*full.words, WORD)))))


def test_a_list_of_a_command_that_is_too_long_is_told_with_its_place() -> None:
    after = '"after":[' + ",".join('{"job":"a"}' for _ in range(101)) + "]"
    told = refused(decode(SubmitJob.type, in_a_job(after)))
    assert (told.reason, told.field) == (DeadLetterReason.INVALID, "job.after")


def test_a_fact_of_a_stranger_with_an_unknown_field_is_judged_as_one_without() -> None:
    joined = NodeJoined(cell="a", node="n", boot="b", seq=1, spec=NodeSpec(id="n", pool="p", gpus=8))
    assert decode(NodeJoined.type, with_unknown(joined)) == joined
    for value in (encode(joined), with_unknown(joined)):
        told = refused(decode(NodeJoined.type, value.replace(b'"node":"n"', b'"node":"n o"')))
        assert (told.reason, told.field) == (DeadLetterReason.INVALID, "node")


ENTRIES = 40_000


def table(value: str) -> str:
    return "{" + ",".join(f'"{number:x}":{value}' for number in range(ENTRIES)) + "}"


def with_env(value: str) -> bytes:
    return in_a_job('"run":{"driver":"process","argv":["a"],"env":' + table(value) + "}")


MISTAKES = {
    "unknown fields": in_a_job(table("1")[1:-1]),
    "unknown fields of a part": in_a_job('"resources":' + table("1")),
    "numbers for texts": with_env("1"),
    "texts of another form": with_env('"\\u0000"'),
}


def cpu_s(value: bytes) -> float:
    began = process_time()
    decode(SubmitJob.type, value)
    return process_time() - began


@pytest.mark.parametrize("what", MISTAKES)
def test_a_large_command_full_of_mistakes_costs_no_more_than_a_good_one(what: str) -> None:
    """Each mistake that is worded costs some microseconds: 40,000 of them held up a process for a tenth of a second."""
    good = with_env('""')
    assert not isinstance(decode(SubmitJob.type, good), Undecodable)
    told = refused(decode(SubmitJob.type, MISTAKES[what]))
    assert told.reason is DeadLetterReason.INVALID
    assert told.field
    assert told.rule
    assert min(cpu_s(MISTAKES[what]) for _ in range(3)) < 1.5 * min(cpu_s(good) for _ in range(3))


LISTS = "[" + ",".join(["[]"] * 100_000) + "]"
NESTED = "[" + ",".join(["[" * 100 + "]" * 100] * 1_500) + "]"
TABLES = "[" + ",".join(['{"":1}'] * 40_000) + "]"

LARGE_PLACES = {
    "in an unknown field": '"zz":%s',
    "in an unknown field behind a number that is none": '"yy":NaN,"zz":%s',
    "in an unknown field of a part": '"resources":{"zz":%s}',
    "in an unknown field of a run": '"run":{"driver":"process","argv":["a"],"zz":%s}',
    "for a number": '"workers":%s',
    "for a list of names": '"pools":%s',
    "for a text of a table": '"run":{"driver":"process","argv":["a"],"env":{"a":%s}}',
    "for a part": '"run":%s',
    "for the tag of a part": '"run":{"driver":%s}',
    "in a text that breaks off": '"zz":%s,"yy":',
}


def bytes_built(value: bytes, type_: str = SubmitJob.type) -> int:
    """How much memory was taken at once to read this."""
    tracemalloc.start()
    try:
        decode(type_, value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("where", LARGE_PLACES)
@pytest.mark.parametrize("what", [LISTS, NESTED, TABLES], ids=["lists", "nested lists", "tables"])
def test_nothing_is_built_of_what_stands_where_a_command_cannot_have_it(where: str, what: str) -> None:
    """To build 250,000 empty lists holds up a process for half a second, 15 times as long as the largest command."""
    value = in_a_job(LARGE_PLACES[where] % what)
    told = refused(decode(SubmitJob.type, value))
    assert told.rule
    assert len(str(told)) < 600
    assert bytes_built(value) < 10 * len(value)
    assert len(with_one_unknown(SubmitJob, in_a_job('"zz":' + what))) < 5_000


def test_of_a_list_nothing_is_taken_apart_behind_its_first_mistake() -> None:
    after = '"after":[{"job":"a"},1,' + ",".join('{"job":"b"}' for _ in range(50)) + "]"
    assert with_one_unknown(SubmitJob, in_a_job(after)) == in_a_job('"after":[{"job":"a"},1]')


def test_of_a_part_whose_tag_is_large_only_the_begin_of_its_tag_is_shown() -> None:
    shown = with_one_unknown(SubmitJob, in_a_job(LARGE_PLACES["for the tag of a part"] % LISTS))
    assert len(shown) < 5_000
    assert refused(decode(SubmitJob.type, shown)).field == "job.run.driver"


def test_a_table_of_very_many_parts_where_none_can_be_is_not_taken_apart() -> None:
    value = in_a_job('"workers":{"a":' + LISTS + "}")
    assert with_one_unknown(SubmitJob, value) == value


def test_the_mistake_of_a_large_fact_is_told_as_that_of_a_small_one() -> None:
    """No person has made it, and to ask the model of all of it costs more than to read it."""
    report = RunsReported(cell="a", words=(replace(WORD, job="j" * 60),) * RUN_WORDS_MAX)
    for count in (1, RUN_WORDS_MAX):
        value = with_unknown(replace(report, words=report.words[:count])).replace(b'"attempt":1', b'"attempt":"x"', 1)
        answer = refused(decode(RunsReported.type, value))
        assert (answer.field, answer.rule) == ("words[0].attempt", "must be a whole number")


NUMBERS = "[" + ",".join(["1e308"] * 80_000) + "]"
KEYS = "{" + ",".join(f'"{number}":0' for number in range(40_000)) + "}"
LARGE = pytest.mark.parametrize(
    "what", [LISTS, NESTED, TABLES, NUMBERS, KEYS], ids=["lists", "nested", "tables", "numbers", "keys"]
)


@LARGE
def test_nothing_is_built_of_what_stands_in_an_unknown_field_of_a_fact(what: str) -> None:
    known = NodeReport(
        cell="a", node="n", boot="b", seq=1, observed=(ObservedRun(job="j", attempt=1, status=RunStatus.RUNNING),)
    )
    text = encode(known).decode()
    value = text.replace('{"job"', '{"zz":' + what + ',"job"').encode()
    assert decode(NodeReport.type, value) == known
    assert bytes_built(value, NodeReport.type) < 4 * len(value)


@LARGE
@pytest.mark.parametrize("type_", [NodeReport.type, DECISION, QueuePlanned.type, SnapshotChunk.type])
def test_nothing_is_built_of_a_large_record_that_is_none(type_: str, what: str) -> None:
    value = b'{"cell":"a","zz":' + what.encode() + b"}"
    assert refused(decode(type_, value)).rule
    assert bytes_built(value, type_) < 4 * len(value)


def test_a_value_is_written_out_as_far_as_it_is_shown() -> None:
    told = list[int]()

    class Told(int):
        def __repr__(self) -> str:
            told.append(1)
            return "1"

    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shorten([Told()] * 100_000).startswith("[1, 1, ")
    assert len(told) < 100
    assert shorten(deep).startswith("[[[[")
    assert shorten({"a": [1, "b", None], "c": {}}) == "{'a': [1, 'b', null], 'c': {}}"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "job", ['{"id":"j","tenant":"ada","workers":%s}', '{"id":"j","tenant":"ada","zz":1,"workers":%s}']
)
def test_a_number_that_is_none_is_told_as_no_other(job: str, number: str) -> None:
    told = refused(decode(SubmitJob.type, f'{{"job":{job % number}}}'.encode()))
    assert (told.field, told.rule, told.value) == ("job.workers", "must be a whole number", "no finite number")


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("size", [10, 4_000])
def test_of_what_stands_in_an_unknown_field_of_a_command_the_same_is_told_at_any_size(what: str, size: int) -> None:
    job = b'{"job":{"id":"j","tenant":"ada","zz":%s,"run":{"driver":"process","argv":["%s"]}}}'
    told = refused(decode(SubmitJob.type, job % (ODD[what], b"x" * size)))
    assert told.field == ("job.zz" if told.reason is DeadLetterReason.INVALID else "")


def command(rest: str, run: str, env: str) -> bytes:
    return b'{"job":{"id":"j",%s"run":{"driver":"process",%s"env":{%s}}}}' % (rest.encode(), run.encode(), env.encode())


@pytest.mark.parametrize(
    ("rest", "run", "env"),
    [
        ('"tenant":"ada",', '"argv":["a"],', '"1 a":1,'),
        ('"tenant":"ada",', '"argv":["a"],', '"a":null,'),
        ('"tenant":"ada",', '"argv":["a"],', '"a\\u0000":"b",'),
        ('"tenant":"ada","workers":"two",', '"argv":["a"],', ""),
        ('"tenant":"ada","workers":0,', '"argv":["a"],', ""),
        ('"tenant":"ada","wrokers":1,', '"argv":["a"],', ""),
        ('"tenant":"ada","resources":{"gpu":1},', '"argv":["a"],', ""),
        ('"tenant":"ada",', '"argv":["a"],"foo":{"b":[1]},', ""),
        ('"tenant":"ada",', '"argv":["a",1],', ""),
        ('"tenant":"ada",', "", ""),
        ("", '"argv":["a"],', ""),
        ('"tenant":"a b",', '"argv":["a"],', ""),
        ('"tenant":"ada","after":[{"job":"x"},{"job":1}],', '"argv":["a"],', ""),
        ('"tenant":"ada","after":[{"job":"x"},{"job":"y","jbo":1}],', '"argv":["a"],', ""),
        ('"tenant":"ada","kind":"trainig",', '"argv":["a"],', ""),
        ('"tenant":"ada","workers":2,"workers_min":3,', '"argv":["a"],', ""),
    ],
)
def test_a_mistake_is_told_alike_in_a_command_of_any_size(rest: str, run: str, env: str) -> None:
    paddings = (",".join(f'"K{number}":"{"x" * 20}"' for number in range(count)) for count in (10, 200))
    small, large = (command(rest, run, env + padding) for padding in paddings)
    assert 10 * len(small) < len(large)
    assert decode(SubmitJob.type, large) == decode(SubmitJob.type, small)
    told = refused(decode(SubmitJob.type, large))
    assert told.field
    assert told.rule


def test_of_many_mistakes_in_one_table_the_first_ones_are_worded() -> None:
    env = {f"name-{number}": 1 for number in range(1_000)}
    text = json.dumps({"job": {"id": "j", "tenant": "ada", "run": {"driver": "process", "argv": ["a"], "env": env}}})
    with pytest.raises(ValidationError) as found:
        read_valid(SubmitJob, text, forbid_unknown=True)
    assert found.value.errors()[0]["loc"] == ("job", "run", "process", "env", "name-0")
    assert found.value.error_count() < 100


def test_a_large_command_that_is_no_json_is_unreadable_whatever_mistake_comes_first() -> None:
    broken = in_a_job('"zz":1,"argv":[%s' % ("1," * 5_000))
    assert refused(decode(SubmitJob.type, broken)).reason is DeadLetterReason.UNREADABLE


def test_a_mistake_behind_the_first_entries_of_a_table_is_found_too() -> None:
    env = {f"name-{number}": "" for number in range(120)} | {"name-110": "\x00"}
    text = json.dumps({"job": {"id": "j", "tenant": "ada", "run": {"driver": "process", "argv": ["a"], "env": env}}})
    with pytest.raises(ValidationError) as found:
        read_valid(SubmitJob, text, forbid_unknown=True)
    assert [error["loc"][-1] for error in found.value.errors()] == ["name-110"]


def test_the_mistake_of_a_large_record_of_which_the_truth_would_be_made_is_told_by_its_reader() -> None:
    """Nothing is taken apart of it: that would take seconds for a kilobyte that is sent compressed."""
    parts = b",".join([b"{}"] * 300_000)
    text = b'{"cell":"main","version":2,"epoch":1,"at_ms":0,"effects":[' + parts + b"]}"
    found = decode(DECISION, text)
    assert isinstance(found, Undecodable)
    assert (found.field, found.rule) == ("effects[0].kind", "is missing")
