"""Which public keys of Ed25519 no cell may name: anyone can sign for a point of small order, and no one for what is
no point.

There are eight such points of the curve -x² + y² = 1 + d·x²·y² over the numbers modulo p, and some have several
encodings. An encoding holds `y` in its low 255 bits, and which of the two `x` is meant in the highest.
"""

from __future__ import annotations

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_Y_BITS = 2**255 - 1

WEAK_RULE = "anyone can sign for this key, since it is a point of small order: make one with `fallow cell key`"
TWOFOLD_RULE = "must be the canonical encoding of a point, with y below 2^255 - 19: make one with `fallow cell key`"

NO_POINT_RULE = (
    "is no public key of Ed25519, since no point of the curve is written so: make one with `fallow cell key`"
)


def wrong_key(public: bytes) -> str | None:
    """The rule that the 32 bytes of a key break; None where they break none."""
    y = int.from_bytes(public, "little") & _Y_BITS
    if _is_of_small_order(y):
        return WEAK_RULE
    if y >= _P:
        return TWOFOLD_RULE
    return None if _is_of_a_point(y) else NO_POINT_RULE


def _is_of_a_point(y: int) -> bool:
    """Whether x² = (y² - 1) / (d·y² + 1) is a square (Euler's criterion); -1 is one modulo p, and d is none, so that
    the denominator is never 0.
    """
    square = y * y % _P
    return pow((square - 1) * (_D * square + 1), (_P - 1) // 2, _P) == 1


def _is_of_small_order(y: int) -> bool:
    """Whether a point with this `y` is the neutral one after three doublings. That of order 1 has y = 1, that of order
    2 has y = -1, those of order 4 have y = 0. One of order 8 becomes one with y = 0, so that x² = -y², and with the
    curve d·y⁴ + 2·y² - 1 = 0.
    """
    square = y * y % _P
    return y % _P == 0 or square == 1 or (_D * square * square + 2 * square - 1) % _P == 0
