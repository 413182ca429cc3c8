"""Ed25519 by `cryptography`: no other module of a service imports it, and this one is loaded where a cell has keys."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fallow.shared.cluster.model.config import KEY_KIND
from fallow.shared.events.decisions import Decision, signed_text

PRIVATE_KIND = "ed25519-private:"
PRIVATE_BYTES = 32
PROOFS_KEPT = 4_096
"""A megabyte or so."""

RULE = f"must be {PRIVATE_KIND} and {PRIVATE_BYTES} bytes as base64, as `fallow cell key` writes it"


class NoPrivateKey(ValueError):
    """A text that is no private key. It is not shown: it may be one but for a slip."""


class SigningKey:
    """A writer's private key. Nothing of it is shown by repr, or can be read from outside but by `text`."""

    def __init__(self, private: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(private)
        self.public = KEY_KIND + b64encode(self._private.public_key().public_bytes_raw()).decode()

    @classmethod
    def made(cls) -> SigningKey:
        """A new one, by chance."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def read(cls, text: str) -> SigningKey:
        """The key of a secret file. Raises NoPrivateKey."""
        kind, body = text[: len(PRIVATE_KIND)], text[len(PRIVATE_KIND) :].strip()
        try:
            private = b64decode(body, validate=True) if kind == PRIVATE_KIND and body.isascii() else b""
        except Error:
            private = b""
        if len(private) != PRIVATE_BYTES:
            raise NoPrivateKey(RULE)
        return cls(private)

    @property
    def text(self) -> str:
        """The private key as a secret file holds it."""
        return PRIVATE_KIND + b64encode(self._private.private_bytes_raw()).decode()

    def sign(self, chain: str, type_: str = Decision.type) -> str:
        """The signature of a decision with this chain, as its header holds it."""
        return b64encode(self._private.sign(signed_text(type_, chain))).decode()


@lru_cache(maxsize=PROOFS_KEPT)
def verify(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether the key proves the signature of the text. Several readers in one process ask the same."""
    try:
        _public_key(public).verify(signature, text)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=64)
def _public_key(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)
