"""Keys for which anyone can sign are no keys of a cell."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.model.file_in_force import as_effect, from_effect
from fallow.shared.cluster.model.weak_keys import NO_POINT_RULE, TWOFOLD_RULE, WEAK_RULE, wrong_key
from fallow.shared.events.effects import CellFileSet
from fallow.shared.log.keys.ed25519 import SigningKey, verify
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from tests.signing import WRITERS, public, signed_file, signed_text

EIGHTH = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc"
OTHER_EIGHTH = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03"
CANONICAL = [
    bytes.fromhex(text)
    for text in (
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "00" * 32,
        "00" * 31 + "80",
        EIGHTH + "05",
        EIGHTH + "85",
        OTHER_EIGHTH + "7a",
        OTHER_EIGHTH + "fa",
    )
]
OTHERWISE = [
    bytes.fromhex(text)
    for text in (
        "01" + "00" * 30 + "80",
        "ec" + "ff" * 31,
        "ed" + "ff" * 30 + "7f",
        "ed" + "ff" * 31,
        "ee" + "ff" * 30 + "7f",
        "ee" + "ff" * 31,
    )
]
"""These points with a sign of their x = 0, or with p added to their y."""


def named(key: bytes) -> str:
    return f'{{public: "ed25519:{b64encode(key).decode()}"}}'


@pytest.mark.parametrize("key", CANONICAL, ids=bytes.hex)
def test_a_signature_that_nobody_made_is_proved_by_a_point_of_small_order(key: bytes) -> None:
    """Why such keys are refused: a point of small order and a zero are a signature of every text, or of each eighth."""
    texts = [b"%d" % number for number in range(200)]
    assert any(verify(key, point + bytes(32), text) for text in texts for point in CANONICAL)


@pytest.mark.parametrize("key", CANONICAL + OTHERWISE, ids=bytes.hex)
def test_a_point_of_small_order_is_no_key_of_a_cell(key: bytes) -> None:
    with pytest.raises(CellFileError) as caught:
        parse_cell_file(signed_text(named(key), public(WRITERS)), "cell.yaml")
    assert str(caught.value) == f"cell.yaml: line 2: cells[0].signing.keys[0].public: {WEAK_RULE}"


def test_what_is_no_point_of_the_curve_is_no_key_of_a_cell() -> None:
    two = (2).to_bytes(32, "little")
    with pytest.raises(CellFileError) as caught:
        parse_cell_file(signed_text(named(two), public(WRITERS)), "cell.yaml")
    assert str(caught.value) == f"cell.yaml: line 2: cells[0].signing.keys[0].public: {NO_POINT_RULE}"


@pytest.mark.parametrize("sign", [0, 0x80])
@pytest.mark.parametrize("above", range(2, 19))
def test_a_key_that_is_written_in_a_second_way_is_refused(above: int, sign: int) -> None:
    key = bytearray((2**255 - 19 + above).to_bytes(32, "little"))
    key[31] |= sign
    with pytest.raises(CellFileError, match="cells") as caught:
        parse_cell_file(signed_text(named(bytes(key))), "cell.yaml")
    assert str(caught.value).endswith(f"public: {TWOFOLD_RULE}")


@given(private=st.binary(min_size=32, max_size=32))
def test_a_key_that_somebody_made_is_taken(private: bytes) -> None:
    key = SigningKey(private)
    part = signed_file(public(key)).cells[0]
    assert part.signing is not None
    assert wrong_key(part.signing.keys[0].as_bytes) is None


def test_a_file_in_the_log_that_names_such_a_key_is_read_on() -> None:
    content = as_effect(signed_file(public(WRITERS))).content
    weak = content.replace(WRITERS.public, f"ed25519:{b64encode(CANONICAL[0]).decode()}")
    assert weak != content
    signing = from_effect(CellFileSet(digest="0" * 32, content=weak)).cells[0].signing
    assert signing is not None
    assert signing.keys[0].as_bytes == CANONICAL[0]
