"""What keeps a process from the decisions of a cell, as far as it knows, in words for its operator: that there are none
yet, or that its cell file lacks a key.
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


def missing_key(follower: Follower, cell_file: Path) -> str | None:
    """Why this process passes over decisions that others may believe; None where it is not known to lack a key."""
    if follower.lacks_key:
        return f"{cell_file} {OLDER_COPY}"
    if follower.is_all_forged:
        return f"{cell_file} {ALL_FORGED.format(cell=follower.state.cell)}"
    return None


def why_no_decision(follower: Follower, cell_file: Path) -> str | None:
    """Why this process knows no decision of the cell; None where it knows one."""
    return None if follower.state.version else missing_key(follower, cell_file) or NONE_YET
