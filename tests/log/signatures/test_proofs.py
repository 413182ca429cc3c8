"""What a reader makes of the headers of one record, however odd they are: a proof, or none; never an error."""

from __future__ import annotations

from base64 import b64encode

import pytest

from fallow.shared.cluster.model.config import KEY_KIND, PublicKey
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.log.machine.signatures import CellKeys, Proof

VALUE = b"a record"
FROM_VERSION = 7
KEY_BYTES_MAX = 64
"""No chain is taken of more than that before it."""

BASE_POINT = b"\x58" + 31 * b"\x66"
"""Of the curve: a public key like any other (RFC 8032, section 5.1)."""

BELIEVED = b64encode(bytes(64)).decode()


def keys(until_version: int | None = None) -> CellKeys:
    """One key, which proves whatever it is asked for."""
    key = PublicKey(public=KEY_KIND + b64encode(BASE_POINT).decode(), until_version=until_version)
    return CellKeys(FROM_VERSION, (key,), lambda *_: True)


def proof(before: str = CHAIN_START, signature: str = BELIEVED) -> Proof:
    chain = next_chain(before, VALUE) if len(before.encode()) <= KEY_BYTES_MAX else CHAIN_START
    return Proof(Decision.type, before, chain, signature)


def test_a_signature_of_the_right_chain_is_a_proof() -> None:
    assert keys().unproven_from(VALUE, proof()) is None


@pytest.mark.parametrize("many", [0, 1, 63, 65, 66])
def test_a_signature_of_another_length_is_none(many: int) -> None:
    """Of 65 and 66 bytes it has as many characters as one of 64."""
    assert keys().unproven_from(VALUE, proof(signature=b64encode(bytes(many)).decode())) == FROM_VERSION


@pytest.mark.parametrize(
    "signature",
    ["\N{EURO SIGN}" * 88, "-" * 88, "=" * 88, BELIEVED[:-1], f"{BELIEVED}A", f"{BELIEVED}===="],
    ids=range(6),
)
def test_what_is_no_base64_of_that_length_is_no_signature(signature: str) -> None:
    assert keys().unproven_from(VALUE, proof(signature=signature)) == FROM_VERSION


@pytest.mark.parametrize("before", ["\N{EURO SIGN}" * 32, "", "0" * 31, "0" * 33, "0" * 65], ids=range(5))
def test_a_chain_before_that_is_none_proves_nothing(before: str) -> None:
    assert keys().unproven_from(VALUE, proof(before)) == FROM_VERSION


@pytest.mark.parametrize(("until_version", "unproven_from"), [(1, 7), (5, 7), (6, 7), (7, 8), (20, 21), (None, None)])
def test_a_retired_key_proves_what_it_signed_to_its_last_version_and_nothing_before_signatures_are_needed_is_forged(
    until_version: int | None, unproven_from: int | None
) -> None:
    assert keys(until_version).unproven_from(VALUE, proof()) == unproven_from
