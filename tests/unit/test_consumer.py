"""The consumer recipe and its dead letters, under whatever bytes come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fallow.shared.events.codec.encoding import TYPE_HEADER
from fallow.shared.log.admin.access_rules import parse_access
from fallow.shared.log.admin.topics import parse_topics
from fallow.shared.log.inputs.dead_letters import EXACT, VALUE_BYTES_MAX, dead_letter
from fallow.shared.log.inputs.letters import (
    NO_LETTER,
    SETS_ASIDE_FROM,
    Letter,
    Letters,
    Lost,
    is_proven_by,
    letter_of,
    note_of_replay,
    original_of,
)
from fallow.shared.log.machine.consumer import (
    DECODER_FAILED,
    Bad,
    Dead,
    DeadLetterLimit,
    Excess,
    Taken,
    Tally,
    in_parts,
    joined,
    next_offsets,
    take_batch,
)
from fallow.shared.log.opening import ACCESS_FILE, TOPICS_FILE
from fallow.shared.log.port import (
    HEADERS_MAX,
    RECORD_BYTES_MAX,
    UNREADABLE_HEADER,
    UNREADABLE_TEXT,
    Outgoing,
    Record,
    bytes_of,
)
from fallow.shared.log.reading import header, number, unreadable
from tests.hypothesis_profile import reaches

NO_LIMIT = DeadLetterLimit(dead_percent_max=None, dead_in_a_row_max=None)

header_lists = st.lists(st.tuples(st.text(max_size=200), st.binary(max_size=3000)), max_size=40).map(tuple)
records = st.builds(
    Record,
    topic=st.sampled_from(["ns.submissions", "ns.submissions.acme"]),
    partition=st.integers(0, 3),
    offset=st.integers(0, 2**62),
    key=st.none() | st.binary(max_size=3000),
    value=st.none() | st.binary(max_size=300) | st.sampled_from([b"1", b"{}", b'"a"']),
    headers=header_lists,
    timestamp_ms=st.integers(-1, 2**62),
)


def as_json(record: Record) -> object | Bad:
    """A decoder with gaps, as decoders are: it raises on bytes that are not UTF-8 and on absent values."""
    text = record.value.decode("utf-8")  # type: ignore[union-attr] # the gap
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except json.JSONDecodeError as error:
        return Bad("not_json", str(error))


def record(value: bytes | None, offset: int = 0, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record("ns.submissions", 3, offset, b"k\xff", value, headers, 1_700_000_000_000)


@given(st.lists(records, max_size=30))
def test_each_record_is_handled_or_dead_and_order_is_kept(batch: list[Record]) -> None:
    taken = take_batch(batch, as_json, NO_LIMIT, Tally())
    reaches("some records of a batch are handled, and some are dead", taken.handled and taken.dead)
    assert len(taken.handled) + len(taken.dead) == len(batch)
    rest = iter(batch)
    assert all(any(found is h.record for found in rest) for h in taken.handled)
    rest = iter(batch)
    assert all(any(found is d.record for found in rest) for d in taken.dead)
    assert (taken.tally.handled, taken.tally.dead) == (len(taken.handled), len(taken.dead))


@given(st.lists(records, max_size=30))
def test_the_next_offset_is_one_behind_the_highest_of_each_partition(batch: list[Record]) -> None:
    expected = {
        (r.topic, r.partition): max(o.offset for o in batch if (o.topic, o.partition) == (r.topic, r.partition)) + 1
        for r in batch
    }
    reaches("several records of a batch are of one partition", len(expected) < len(batch))
    assert next_offsets(batch) == expected


def test_one_bad_record_does_not_hold_up_its_neighbours() -> None:
    batch = [
        record(b"1", 0),
        record(b"{", 1),
        record(b"\xff", 2),
        record(None, 3),
        record(b"[" * 200_000, 4),
        record(b"2", 5),
    ]
    taken = take_batch(batch, as_json, NO_LIMIT, Tally())
    assert [h.item for h in taken.handled] == [1, 2]
    assert [(d.record.offset, d.reason) for d in taken.dead] == [
        (1, "not_json"),
        (2, DECODER_FAILED),
        (3, DECODER_FAILED),
        (4, DECODER_FAILED),
    ]
    assert taken.next_offsets == {("ns.submissions", 3): 6}
    assert taken.stop is None


def test_too_many_bad_records_in_a_row_say_stop() -> None:
    limit = DeadLetterLimit(dead_percent_max=None, dead_in_a_row_max=3)
    fine = take_batch([record(b"{")] * 3 + [record(b"1")] + [record(b"{")] * 3, as_json, limit, Tally())
    assert fine.stop is None
    stopped = take_batch([record(b"{")], as_json, limit, fine.tally)
    assert stopped.stop is not None
    assert stopped.stop.excess is Excess.CONSECUTIVE


def test_too_large_a_share_of_bad_records_says_stop_but_only_after_enough_of_them() -> None:
    limit = DeadLetterLimit(dead_percent_max=10, dead_in_a_row_max=None, ratio_after_records=100, window_records=1000)
    early = take_batch([record(b"{")] * 99, as_json, limit, Tally())
    assert early.stop is None
    late = take_batch([record(b"{")], as_json, limit, early.tally)
    assert late.stop is not None
    assert (late.stop.excess, late.stop.text) == (
        Excess.RATIO,
        "100 of 100 records could not be read, at most 10 % may",
    )


def test_a_good_past_fades() -> None:
    limit = DeadLetterLimit(dead_percent_max=50, dead_in_a_row_max=None, ratio_after_records=100, window_records=1000)
    past = take_batch([record(b"1")] * 100_000, as_json, limit, Tally())
    assert take_batch([record(b"{")] * 1500, as_json, limit, past.tally).stop is not None


@given(st.lists(st.booleans(), max_size=30) | st.lists(st.booleans(), min_size=21, max_size=300))
def test_the_tally_does_not_depend_on_how_records_are_cut_into_batches(good: list[bool]) -> None:
    limit = DeadLetterLimit(ratio_after_records=5, window_records=20)
    are_many = len(good) > limit.window_records
    reaches("there are more records than are counted at once, good ones and others", are_many and len({*good}) > 1)
    batch = [record(b"1" if ok else b"{") for ok in good]
    tally = Tally()
    for one in batch:
        tally = take_batch([one], as_json, limit, tally).tally
    assert take_batch(batch, as_json, limit, Tally()).tally == tally


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"dead_percent_max": 101}, "dead_percent_max: 101"),
        ({"dead_in_a_row_max": 0}, "dead_in_a_row_max: 0"),
        ({"ratio_after_records": 9_000}, "ratio_after_records: 9000"),
    ],
)
def test_limits_that_mean_nothing_are_refused(settings: dict[str, int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DeadLetterLimit(**settings)


@given(records, st.text(max_size=200), st.text(max_size=5000))
def test_a_dead_letter_keeps_the_bytes_and_is_safe_for_any_reader(found: Record, reason: str, text: str) -> None:
    letter = dead_letter(Dead(found, reason, text), service="admission", namespace="ns")
    assert letter.value == (found.value or b"")
    assert (letter.topic, letter.partition) == ("ns.dead-letters", 0)
    assert all(value.decode("utf-8") is not None and name.encode("utf-8") for name, value in letter.headers)
    assert sum(len(name.encode()) + len(value) for name, value in letter.headers if name != "exact") < 47_000


large_headers = st.builds(
    lambda name, value, many: ((name, value * 500),) * many,
    st.text(max_size=20),
    st.binary(min_size=1, max_size=6),
    st.integers(1, 80),
)


@given(header_lists | large_headers)
def test_original_headers_cannot_pose_as_ours(headers: tuple[tuple[str, bytes], ...]) -> None:
    plain = dead_letter(Dead(record(b"v"), "r", "t"), service="s", namespace="ns")
    letter = dead_letter(Dead(record(b"v", headers=headers), "r", "t"), service="s", namespace="ns")
    told = ("headers_dropped", "exact", "not_exact")
    reaches("headers are kept exactly", "exact" in dict(letter.headers))
    reaches("headers are too large to be kept exactly", "not_exact" in dict(letter.headers))
    ours = [header for header in letter.headers if not header[0].startswith("orig_") and header[0] not in told]
    assert ours == [header for header in plain.headers if header[0] not in told]
    assert [name for name, _ in letter.headers if name in told[1:]] in (["exact"], ["not_exact"])


def test_a_dead_letter_says_where_the_record_came_from() -> None:
    found = record(b"{", 17, (("ce_id", b"a"), ("reply_to", b"\xff")))
    letter = dead_letter(Dead(found, "not_json", "line 1"), service="admission", namespace="ns")
    assert dict(letter.headers) == {
        "service": b"admission",
        "reason": b"not_json",
        "text": b"line 1",
        "origin_topic": b"ns.submissions",
        "origin_partition": b"3",
        "origin_offset": b"17",
        "origin_timestamp_ms": b"1700000000000",
        "origin_key": b"k\\xff",
        "exact": b'{"key":"a/8=","headers":[["ce_id","YQ=="],["reply_to","/w=="]]}',
        "orig_ce_id": b"a",
        "orig_reply_to": b"\\xff",
    }


def kept(found: Record, service: str = "admission") -> Letter:
    """The record's dead letter, as it stands in the log."""
    sent = dead_letter(Dead(found, "r", "t"), service=service, namespace="ns")
    return letter_of(Record(sent.topic, 0, 9, sent.key, sent.value, sent.headers, 0))


@pytest.mark.parametrize("headers", [(), (("reply_to", b"x"), ("origin_partition", b"0"))])
def test_a_record_that_tells_of_nothing_that_was_set_aside_is_no_letter_and_never_sent(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    letter = letter_of(Record("ns.dead-letters", 0, 9, b"k", b"v", headers, 0))
    assert not letter.is_letter
    assert original_of(letter, "ns") == Lost(NO_LETTER)
    assert kept(record(b"x")).is_letter


@given(records.map(lambda found: replace(found, key=found.key or b"k", headers=found.headers[:5])))
def test_what_was_set_aside_can_be_made_again_to_the_last_byte(found: Record) -> None:
    expected = Outgoing(found.topic, found.value, found.key, found.headers, found.partition)
    assert original_of(kept(found), "ns") == expected


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (record(b"x" * 1_000_001), "it is cut, of its 1000001 bytes only the first 1000000"),
        (record(b"x", headers=(("h", b"\xff" * 50_000),) * 2), "found no room"),
        (record(b"x", headers=(("", b""),) * (HEADERS_MAX + 1)), "found no room"),
        (record(b"x", headers=((UNREADABLE_HEADER, UNREADABLE_TEXT),)), "could not read it"),
        (replace(record(None), key=None), "neither key nor value"),
        (replace(record(b"x"), topic="ns.decisions"), "only Fallow itself writes"),
        (replace(record(b"x"), topic="other.submissions"), "does not say from which topic of ns"),
        (replace(record(b"x"), topic="ns.operations"), "of admission, which sets nothing aside from ns.operations"),
        (replace(record(b"x"), topic="ns.submissions-x"), "sets nothing aside from ns.submissions-x"),
    ],
)
def test_what_cannot_be_made_again_says_why(found: Record, why: str) -> None:
    lost = original_of(kept(found), "ns")
    assert isinstance(lost, Lost)
    assert why in lost.text


@pytest.mark.parametrize("service", ["", "x", "queueing", "executor", "operator", "fallow-cli", "placement\x1b[2J"])
def test_what_claims_to_be_of_a_service_that_sets_nothing_aside_is_no_record(service: str) -> None:
    lost = original_of(kept(replace(record(b"x"), topic="ns.operations"), service), "ns")
    assert isinstance(lost, Lost)
    assert "sets nothing aside from ns.operations" in lost.text


def test_services_set_aside_what_they_may_read_and_nobody_else_may_write_letters() -> None:
    access = parse_access(
        ACCESS_FILE.read_text(encoding="utf-8"), parse_topics(TOPICS_FILE.read_text(encoding="utf-8")).topics
    )
    writers = {name: rights for name, rights in access.principals.items() if "dead-letters" in rights.write}
    assert writers.keys() == SETS_ASIDE_FROM.keys()
    assert all(topics <= set(writers[service].read) for service, topics in SETS_ASIDE_FROM.items())


@given(records.map(lambda found: replace(found, key=found.key or b"k")), records)
def test_only_the_very_same_record_proves_a_letter(found: Record, other: Record) -> None:
    original = Outgoing(found.topic, found.value, found.key, found.headers, found.partition)
    assert is_proven_by(original, found)
    same = (found.key, found.value, found.headers) == (other.key, other.value, other.headers)
    assert is_proven_by(original, other) is same
    for part in ({"key": b"another"}, {"value": b"another"}, {"headers": (*found.headers, ("more", b""))}):
        assert not is_proven_by(original, replace(found, **part))


def test_of_a_record_beyond_its_senders_limit_no_more_than_the_begin_is_kept() -> None:
    found = record(b"x" * 900_000, headers=(("h", b"y" * 50_000),) * 10)
    (dead,) = take_batch([found], lambda _: Bad("too_many", "t", is_one_too_many=True), NO_LIMIT, Tally()).dead
    sent = dead_letter(dead, service="admission", namespace="ns")
    stored = Record(sent.topic, 0, 9, sent.key, sent.value, sent.headers, 0)
    assert bytes_of(stored) < 2_000
    assert (letter_of(stored).size_bytes, sent.value) == (900_000, b"x" * 200)
    lost = original_of(letter_of(stored), "ns")
    assert isinstance(lost, Lost)
    assert "beyond its tenant's limit" in lost.text


def test_a_note_of_a_replay_is_no_letter_and_the_first_one_counts() -> None:
    letter = kept(record(b"v"))
    notes = [note_of_replay(letter, "ns", by=by, again=False) for by in "ab"]
    stored = [Record(n.topic, 0, 10 + at, None, n.value, n.headers, 0) for at, n in enumerate(notes)]
    found = Letters()
    for each in (letter.record, *stored):
        found.take(each)
    assert [(one.offset, one.replays, one.size_bytes) for one in found.all()] == [(9, 2, 1)]
    assert found.first_note(9) == 10


def test_an_absent_value_is_told_from_an_empty_one() -> None:
    absent = dead_letter(Dead(record(None), "r", "t"), service="s", namespace="ns")
    empty = dead_letter(Dead(record(b""), "r", "t"), service="s", namespace="ns")
    assert (absent.value, dict(absent.headers)["value_absent"]) == (b"", b"true")
    assert (empty.value, "value_absent" in dict(empty.headers)) == (b"", False)


def test_a_value_above_a_megabyte_is_cut_and_its_hash_kept() -> None:
    value = bytes(range(256)) * 5000
    letter = dead_letter(Dead(record(value), "too_large", "t"), service="s", namespace="ns")
    headers = dict(letter.headers)
    assert letter.value == value[:VALUE_BYTES_MAX]
    assert (headers["value_truncated"], headers["value_bytes"]) == (b"true", b"1280000")
    assert headers["value_blake2b"].decode() == blake2b(value, digest_size=32).hexdigest()


def test_the_largest_dead_letter_fits_into_one_record() -> None:
    found = record(b"x" * 2_000_000, headers=tuple((f"{n}" + "n" * 500, b"\xff" * 9000) for n in range(100)))
    letter = dead_letter(Dead(found, "r" * 999, "t" * 9999), service="s" * 999, namespace="ns")
    size = len(letter.value or b"") + sum(len(name.encode()) + len(value) + 8 for name, value in letter.headers)
    assert size < RECORD_BYTES_MAX - 1000


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 500))
def test_many_good_records_count_as_that_many_times_one(handled: int, dead: int, records: int) -> None:
    limit, tally = DeadLetterLimit(ratio_after_records=50, window_records=200), Tally(handled, dead, 3)
    reaches("good records push dead ones out of what is counted", dead and handled + dead + records > 200)
    one_by_one = reduce(lambda so_far, _: limit.count(so_far, is_dead=False), range(records), tally)
    assert limit.count_good(tally, records) == one_by_one


def test_a_batch_in_parts_is_the_same_batch() -> None:
    batch = [record(text, offset=number) for number, text in enumerate([b"1", b"{", b"22222", b"{", b"3" * 40, b"4"])]
    parts = list(in_parts(batch, 10))
    assert [one for part in parts for one in part] == batch
    assert len(parts) > 2
    assert all(len(part) == 1 or sum(map(bytes_of, part)) <= 10 for part in parts)
    taken, tally = list[Taken[object]](), Tally()
    for part in parts:
        taken.append(take_batch(part, as_json, NO_LIMIT, tally))
        tally = taken[-1].tally
    assert joined(taken, tally) == take_batch(batch, as_json, NO_LIMIT, Tally())
    assert list(in_parts([], 10)) == []


def test_parts_of_a_batch_say_stop_when_the_whole_would_also_where_the_last_part_is_good() -> None:
    limit = DeadLetterLimit(dead_percent_max=None, dead_in_a_row_max=2)
    batch = [record(text, offset=number) for number, text in enumerate([b"{", b"{", b"{", b"1", b"2"])]
    taken, tally = list[Taken[object]](), Tally()
    for part in in_parts(batch, 1):
        taken.append(take_batch(part, as_json, limit, tally))
        tally = taken[-1].tally
    whole = take_batch(batch, as_json, limit, Tally())
    assert whole.stop is not None
    assert joined(taken, tally) == whole


class Uncounted(tuple[tuple[str, bytes], ...]):
    """Headers whose number is known, and of which only the first may be looked at."""

    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        raise AssertionError("each of them was looked at")

    __reversed__ = __iter__


def test_of_more_headers_than_are_read_none_is_walked_and_the_letter_says_how_many_there_were() -> None:
    found = record(b"x", headers=Uncounted([(TYPE_HEADER, b"x"), *[("", b"")] * 289_999]))
    lost = unreadable(found)
    assert header(found, TYPE_HEADER) == ""
    assert str(lost) == "has 290000 headers, at most 1000 are read"
    headers = dict(dead_letter(Dead(found, "unreadable", str(lost)), service="s", namespace="ns").headers)
    assert (headers["not_exact"], headers["headers_dropped"]) == (b"true", b"289968")


def test_empty_headers_take_room_in_a_batch_by_their_number() -> None:
    flood = [record(b"x", number, headers=(("", b""),) * 1_000) for number in range(4)]
    assert [len(part) for part in in_parts(flood, 65_536)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "exact",
    [
        b'{"key":null,"headers":[[1,""]]}',
        b'{"key":null,"headers":[[null,""]]}',
        b'{"key":null,"headers":[["a",5]]}',
        b'{"key":null,"headers":[["\\ud800",""]]}',
        b'{"key":null,"headers":[["a","",""]]}',
        b'{"key":null,"headers":{"ab":1}}',
        b'{"key":5,"headers":[]}',
        b'{"key":"%","headers":[["a","="]]}',
        b'{"headers":[]}',
        b"[]",
        b"null",
        b"[" * 30_000,
        b"{",
    ],
)
def test_a_letter_whose_key_and_headers_somebody_else_wrote_is_no_record(exact: bytes) -> None:
    letter = kept(record(b"x"))
    own = tuple(pair for pair in letter.record.headers if pair[0] != EXACT)
    forged = replace(letter.record, headers=(*own, (EXACT, exact)))
    assert original_of(letter_of(forged), "ns") == Lost("its key and headers are not as Fallow writes them")


def test_digits_of_other_scripts_are_no_number() -> None:
    assert number(Record("t", 0, 0, None, b"", (("n", "\u0663".encode()),), 0), "n") is None
