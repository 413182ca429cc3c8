"""What keeps a process from the decisions of a cell, as far as it knows, in words for its operator: that there are none
yet, or that its cell file lacks a key or asks for more signatures than the one in force.
"""

from __future__ import annotations

from pathlib import Path

from fallow.shared.log.follower import Follower

NONE_YET = "placement has made no decision of the cell yet"

OLDER_COPY = (
    "lacks a key of the cell file in force, by which decisions were signed that this process has passed over: it is an "
    "older copy. Bring the newer one here and start the process again"
)


ALL_FORGED = (
    "does not prove any decision in the log of cell {cell}: it may lack the key with which the cell began. Bring the "
    "file that names it here and start the process again"
)


TOO_EARLY = (
    "asks for signatures of decisions that the cell file in force does not ask for: this process would pass over what "
    "others believe. Bring the file in force here, or raise from_version, and start the process again"
)


def missing_key(follower: Follower, cell_file: Path) -> str | None:
    """Which key this process may lack, so that readers may pass over what it writes; None where it is not known to."""
    if follower.lacks_key:
        return f"{cell_file} {OLDER_COPY}"
    if follower.is_all_forged:
        return f"{cell_file} {ALL_FORGED.format(cell=follower.state.cell)}"
    return None


def why_passed_over(follower: Follower, cell_file: Path) -> str | None:
    """Why this process passes over decisions that others may believe; None where it is not known to."""
    if why := missing_key(follower, cell_file):
        return why
    return f"{cell_file} {TOO_EARLY}" if follower.asks_too_early else None


def why_none_joins(follower: Follower, cell_file: Path) -> str | None:
    """Why no node joins the cell through this process: it knows no decision of the cell, or passes over some, so that
    it would not hear what its nodes shall run. None where nodes may join.
    """
    return why_passed_over(follower, cell_file) or (None if follower.state.version else NONE_YET)
