"""The short form of `make fuzz --vast`: a few inputs as large as one may be for every way in, whose time counts."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from tests.fuzz.entries import Entry
from tests.fuzz.haste import all_entries, hasten, vast_of
from tests.fuzz.pace import NOT_COUNTED, Turns, longest_turn
from tests.fuzz.vast import BYTES_MAX, SIGNS, Vast

FOLDER = tempfile.TemporaryDirectory()
ENTRIES = all_entries(Path(FOLDER.name))
EACH = 5
COMMON = {
    "NUL": b"\x00",
    "NUL in a string": b"\\u0000",
    "half a character": b"\xed\xa0\x80",
    "half a character in a string": b"\\ud800",
    "no number": b"NaN",
    "a number that is too large": b"1e308",
    "very many digits": b"9" * 300,
    "very deep": b"[" * 3_000,
    "very many": b"[]," * 250,
}


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_no_input_of_half_a_megabyte_holds_up_others(entry: Entry) -> None:
    """The inputs are drawn alike each time: `make fuzz` with --vast draws others."""
    assert hasten([entry], EACH, crc32(entry.name.encode())).findings == []


def test_each_entry_has_good_inputs_that_it_takes(tmp_path: Path) -> None:
    """None of which has seen another: behind the word of a node one of an earlier number is passed over."""
    entries = all_entries(tmp_path)
    words = {entry: [longest_turn(entry.work, seed)[1] for seed in entry.seeds] for entry in entries}
    assert {entry.name: found for entry, found in words.items() if entry.taken not in found} == {}


def works(additions: int, *, is_counted: bool = True) -> Entry:
    """An entry that adds up so long."""

    def work(_: bytes) -> Turns:
        total = 0
        for number in range(additions):
            total += number
        yield "done" if is_counted else NOT_COUNTED

    return Entry("work", work, (b'{"a":[1,2]}',), "done")


def test_what_takes_too_long_is_found_and_what_is_only_there_for_the_test_is_not_counted() -> None:
    found = hasten([works(4_000_000)], 1, 1).findings
    assert [each.error.split(":")[0] for each in found] == ["TooSlow"]
    assert hasten([works(100_000)], 1, 1).findings == []
    assert hasten([works(4_000_000, is_counted=False)], 1, 1).findings == []


def test_inputs_are_as_large_as_they_may_be_and_no_larger() -> None:
    random = Random(1)
    for entry in ENTRIES:
        sizes = [len(vast_of(entry).draw(random)) for _ in range(20)]
        assert max(sizes) <= entry.bytes_max, entry.name
        assert max(sizes) > entry.bytes_max // 10, entry.name


def test_each_entry_gets_a_large_input_that_it_has_to_read_to_its_end() -> None:
    """Others are cut somewhere, or have a mistake near their beginning, and cost little however large they are."""
    without = []
    for entry in ENTRIES:
        values = vast_of(entry).draw_some(Random(crc32(entry.name.encode())), EACH)
        assert len(values) == EACH
        large = [value for value in values if len(value) > entry.bytes_max // 2]
        if not any(parses(value, lines=entry.lines) for value in large):
            without.append(entry.name)
    assert without == ["dead-letters"], "of which no input is JSON"


def parses(value: bytes, *, lines: bool) -> bool:
    try:
        for text in value.splitlines() if lines else [value]:
            json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def test_every_kind_of_sign_and_number_is_common_in_them() -> None:
    random, vast = Random(1), Vast((b'{"job":{"id":"a","after":[{"job":"b"}],"workers":2}}',))
    drawn = [vast.draw(random) for _ in range(1_000)]
    counts = {name: sum(what in each for each in drawn) for name, what in COMMON.items()}
    assert min(counts.values()) > 5, counts
    assert sum(len(each) > BYTES_MAX // 2 for each in drawn) > 100
    assert len(SIGNS) > 10
