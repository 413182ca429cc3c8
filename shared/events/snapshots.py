"""Topic `snapshots`: a cell's state at one offset of its log, in chunks. Written by queueing.

The manifest comes after its chunks, so a snapshot without a manifest does not exist.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fallow.shared.events.base import LANGUAGE, CellEvent, Count, Millis
from fallow.shared.events.jobs import Digest

CHUNK_BYTES_MAX = 900_000
"""A chunk takes no more as JSON, unless a single row does."""


class SnapshotChunk(CellEvent, type=f"fallow.snapshot.chunk.{LANGUAGE}", topic="snapshots"):
    """One piece of the state: rows of JSON text, each at home in the section that the row names."""

    snapshot: str
    part: Count
    rows: tuple[str, ...]

    def key(self) -> str:
        """Of its own, so that compaction keeps every chunk until it is tombstoned."""
        return f"{self.cell}/{self.snapshot}/{self.part}"


class SnapshotManifest(CellEvent, type=f"fallow.snapshot.manifest.{LANGUAGE}", topic="snapshots"):
    """A snapshot is whole: `parts` chunks whose bytes have this digest hold the state behind the record at `offset`."""

    snapshot: str
    slot: str = "newest"
    parts: Count
    digest: Digest
    offset: Annotated[int, Meta(ge=-1)]
    version: Count
    chain: str
    at_ms: Millis

    def key(self) -> str:
        """Its slot (`newest`, or the hour that it is kept for): a later manifest of the slot replaces it."""
        return f"{self.cell}/{self.slot}"
