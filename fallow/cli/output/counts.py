"""Numbers of things as people write them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
