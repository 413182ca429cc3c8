"""Whose a record of decisions is: judged by the record alone, with the keys that a reader has of its own."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass

from fallow.shared.cluster.model.config import CellPart, PublicKey
from fallow.shared.events.decisions import next_chain, signed_text

Verify = Callable[[bytes, bytes, bytes], bool]
"""Whether a public key proves a signature of a text: key, signature, text."""

CHAIN_CHARACTERS = 32
SIGNATURE_CHARACTERS = 88
SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Proof:
    """What the headers of a record say of its writer, "" where one is missing."""

    type: str
    before: str
    chain: str
    signature: str


@dataclass(frozen=True, slots=True)
class CellKeys:
    """The keys of a cell as a reader's own cell file names them, and the version from which on a proof is needed."""

    from_version: int
    keys: tuple[PublicKey, ...]
    verify: Verify

    def unproven_from(self, value: bytes, proof: Proof) -> int | None:
        """From which version on a record with these bytes is forged; None where a key proves it for all.

        The signature is of the type and the chain, and the chain is of the bytes: headers of one record prove no
        other, nor the same bytes as a record of another release. A retired key proves what it signed before, and
        nothing behind its last version.
        """
        key = self._signer(value, proof)
        if key is None:
            return self.from_version
        return None if key.until_version is None else max(self.from_version, key.until_version + 1)

    def _signer(self, value: bytes, proof: Proof) -> PublicKey | None:
        signature = _bytes_of(proof.signature)
        if signature is None or len(proof.before) != CHAIN_CHARACTERS or not proof.before.isascii():
            return None
        if proof.chain != next_chain(proof.before, value):
            return None
        text = signed_text(proof.type, proof.chain)
        for key in self.keys:
            if self.verify(key.as_bytes, signature, text):
                return key
        return None

    def may_write(self, public: str) -> bool:
        """Whether a writer with this public key is believed from now on."""
        return any(key.public == public and key.until_version is None for key in self.keys)


def keys_of(part: CellPart, verify: Verify) -> CellKeys | None:
    """The keys of a cell of a cell file; None where its decisions are not signed."""
    signing = part.signing
    return None if signing is None else CellKeys(signing.from_version, signing.keys, verify)


def _bytes_of(signature: str) -> bytes | None:
    if len(signature) != SIGNATURE_CHARACTERS or not signature.isascii():
        return None
    try:
        found = b64decode(signature, validate=True)
    except Error:
        return None
    return found if len(found) == SIGNATURE_BYTES else None
