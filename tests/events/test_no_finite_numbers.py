"""Numbers that JSON has not are read as ones that are too large, and what stands in strings as it was sent."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.events.validation.unknown_fields import finite
from tests.hypothesis_profile import reaches


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b'{"a":NaN,"b":-Infinity}', b'{"a":1E999,"b":-1E999}'),
        (b'{"a":"NaN","Infinity":1}', b'{"a":"NaN","Infinity":1}'),
        (rb'{"a":"\"NaN\\","b":NaN}', rb'{"a":"\"NaN\\","b":1E999}'),
        (b'{"a":"NaN', b'{"a":"NaN'),
        (b'{"a":"\xff","b":NaN}', b'{"a":"\xff","b":NaN}'),
    ],
)
def test_only_numbers_are_replaced(text: bytes, read: bytes) -> None:
    assert finite(text) == read


def test_a_string_of_quotes_that_does_not_end_is_read_once() -> None:
    text = b'NaN"' + b'\\"' * 500_000
    assert finite(text) == b"1E999" + text[3:]


@pytest.mark.parametrize("quotes", [15_998, 15_999, 16_000, 16_001, 16_002, 32_000, 32_001])
def test_a_number_behind_many_strings_is_replaced_where_it_is_none_of_them(quotes: int) -> None:
    strings, number = b'"' * quotes, b"NaN" if quotes % 2 else b"1E999"
    assert finite(strings + b"NaN") == strings + number


def by_signs(text: str) -> str:
    """The text as `finite` has to write it, made sign by sign."""
    found, is_string, at = "", False, 0
    while at < len(text):
        word = re.match(r"NaN|Infinity|\\.|.", text[at:], re.DOTALL)
        assert word is not None
        is_string ^= word[0] == '"'
        found += "1E999" if word[0] in ("NaN", "Infinity") and not is_string else word[0]
        at += len(word[0])
    return found


WORDS = st.lists(st.sampled_from(["NaN", "Infinity", '"']), min_size=3)


@given(
    WORDS.map("".join)
    | st.lists(st.sampled_from(["NaN", "Infinity", "Na", '"', '\\"', "\\\\", "1", ",", "x", "é"])).map("".join)
)
def test_what_is_replaced_is_what_stands_outside_of_strings(text: str) -> None:
    is_replaced, is_kept = by_signs(text) != text, re.search(r"NaN|Infinity", by_signs(text))
    reaches("a word is replaced, and the same in a string is kept", is_replaced and is_kept)
    assert finite(text.encode()).decode() == by_signs(text)
