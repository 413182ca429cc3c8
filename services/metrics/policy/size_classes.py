"""The classes of job sizes by which waits are told: up to 1 GPU, 2-4, 5-8, and on in powers of two. A part of a GPU
counts as a whole one.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

from fallow.shared.events.fields.values import GPU

_LARGEST = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048)
SIZE_CLASSES = (
    *("1", "2-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256"),
    *("257-512", "513-1024", "1025-2048", "2049+"),
)
"""Their names, from small to large."""


@lru_cache(maxsize=4096)
def size_class(gpus_milli: int) -> str:
    """The class of a job that wants so many milli-GPUs in all its workers."""
    return SIZE_CLASSES[bisect_left(_LARGEST, -(-gpus_milli // GPU))]


def in_words(name: str) -> str:
    """The name of a class for people: shares of one GPU are in the first, too."""
    return f"up to {name}" if name == SIZE_CLASSES[0] else name


def in_gpus(name: str) -> str:
    """The name of a size class in words, with the unit."""
    return f"{in_words(name)} {'GPU' if name == SIZE_CLASSES[0] else 'GPUs'}"
