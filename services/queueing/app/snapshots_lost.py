"""Tells when the snapshots of a cell are gone that queueing knows of, or the log no longer goes back to them: topic
`snapshots` was emptied, or decisions were deleted that no snapshot covers. Then a living process alone has the state.
"""

from __future__ import annotations

from dataclasses import dataclass

from fallow.shared.events.snapshots import SnapshotManifest
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log
from fallow.shared.log.snapshots import manifest_at_the_end, read_catalogue


@dataclass(frozen=True, slots=True)
class Lost:
    """Why no process could start from what the topics hold. `begin` is where the log of decisions begins."""

    begin: int
    reason: str


async def lost_snapshots(log: Log, layout: Layout, cell: str, version: int, next_offset: int) -> Lost | None:
    """Whether a snapshot has to be written anew for a reader that is at `next_offset`; None where all is well.
    `version`: a snapshot of it, or of a later one, is known to have been there; 0: none is.

    None as well where the log does not reach to `next_offset`, or begins behind it: then it is the log that contradicts
    the state, which its followers find out. Raises LogUnavailable, LogTruncated.
    """
    tp = layout.tp("decisions", cell)
    begin, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    if not begin <= next_offset <= end or (version == 0 and begin == 0):
        return None
    if _serves(await manifest_at_the_end(log, layout, cell), version, begin):
        return None
    newest = (await read_catalogue(log, layout, cell)).newest_whole()
    if _serves(newest, version, begin):
        return None
    if newest is None:
        return Lost(begin, "topic snapshots holds none that is whole")
    reason = f"the newest that is whole is of version {newest.version} at offset {newest.offset}"
    return Lost(begin, f"{reason}, and the log of decisions begins at {begin}")


def _serves(newest: SnapshotManifest | None, version: int, begin: int) -> bool:
    return newest is not None and newest.version >= version and newest.offset + 1 >= begin
