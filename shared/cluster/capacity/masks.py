"""Bit masks over many things, such as the nodes of a pool: what is done bit by bit with a small mask is slow here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_CHUNK_BITS = 1024
_CHUNK = (1 << _CHUNK_BITS) - 1


def each_bit(mask: int) -> Iterator[int]:
    """The numbers of a mask's bits, lowest first. A large mask is taken piece by piece: to touch all of it for each
    bit would be slow.
    """
    begin = 0
    while mask:
        piece = mask & _CHUNK
        while piece:
            low = piece & -piece
            yield begin + low.bit_length() - 1
            piece ^= low
        mask >>= _CHUNK_BITS
        begin += _CHUNK_BITS


def mask_from(numbers: Iterable[int], size: int) -> int:
    """The mask with these bits, all of which are below `size`."""
    row = bytearray(size // 8 + 1)
    for number in numbers:
        row[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(row, "little")
