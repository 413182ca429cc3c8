"""How long a node on which places are kept for an owner may be held by runs of which nothing tells when they end.

Where nothing is taken back, a run without end keeps the node for ever. Which run that is cannot be told; but as the
owner waits on, fewer runs that do end are so old. At each doubling of its wait all runs count as such that began before
the middle of the wait until then. Once a quarter of it is longer than any run that ends takes, just those count as
endless that are.
"""

from __future__ import annotations

PATIENCE_MS = 600_000
"""Before an owner has waited for so long, it is taken that all runs end."""


def turned_since_ms(waits_since_ms: int, now_ms: int) -> int | None:
    """Runs that began before that count as endless for one who waits since then; None where none do yet."""
    times = (now_ms - waits_since_ms) // PATIENCE_MS
    if times < 1:
        return None
    return waits_since_ms + (PATIENCE_MS << times.bit_length() - 1) // 2


def changes_ms(waits_since_ms: int, now_ms: int) -> int:
    """When that is another time than now."""
    times = max(0, (now_ms - waits_since_ms) // PATIENCE_MS)
    return waits_since_ms + (PATIENCE_MS << times.bit_length())
