"""Which partition a key belongs to: Kafka's murmur2 partitioner, so that every client in any language agrees."""

from __future__ import annotations

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_ROTATE = 24
_WORD = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic of `partitions` partitions. Raises ValueError when there are none."""
    if partitions < 1:
        raise ValueError(f"partitions: {partitions}, must be at least 1")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, as an unsigned number."""
    whole = len(key) & ~3
    state = _SEED ^ len(key)
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MIX & _WORD
        word = (word ^ word >> _ROTATE) * _MIX & _WORD
        state = state * _MIX & _WORD ^ word
    if whole < len(key):
        state = (state ^ int.from_bytes(key[whole:], "little")) * _MIX & _WORD
    state = (state ^ state >> 13) * _MIX & _WORD
    return state ^ state >> 15
