"""Numbers that JSON has not are read as ones that are too large, and what stands in strings as it was sent."""

from __future__ import annotations

import pytest

from fallow.shared.events.value import finite


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b'{"a":NaN,"b":-Infinity}', b'{"a":1E999,"b":-1E999}'),
        (b'{"a":"NaN","Infinity":1}', b'{"a":"NaN","Infinity":1}'),
        (rb'{"a":"\"NaN\\","b":NaN}', rb'{"a":"\"NaN\\","b":1E999}'),
        (b'{"a":"NaN', b'{"a":"NaN'),
    ],
)
def test_only_numbers_are_replaced(text: bytes, read: bytes) -> None:
    assert finite(text) == read


def test_a_string_of_quotes_that_does_not_end_is_read_once() -> None:
    text = b'NaN"' + b'\\"' * 500_000
    assert finite(text) == b"1E999" + text[3:]
