"""What keeps a process from its work on a cell, as far as its cell file and the log tell, in words for its operator.

The keys that prove decisions are those of the process's own cell file. The file in force, which the log holds, proves
nothing: it shows only that the own one is not the same. A process that passes over what others believe has a picture
that is old, and must not act by it:

| what is known here | writes on (`WRITING`) | takes the cell over (`TAKING_OVER`) | has nodes (`NODES`) |
|---|---|---|---|
| `OLDER_COPY`: a key of the file in force proves what was passed over | no | no | no |
| `ALL_FORGED`: the log holds decisions, and no key proves any | no | unless `FALLOW_BEGIN_CELLS` names it | no |
| `TOO_EARLY`: the own file asks for signatures, the one in force not yet | yes | no | no |
| `NONE_YET`: the log holds no decision | yes | yes | no |

A writer writes on where it is known to be `TOO_EARLY`, since no reader passes over what it signs. Where it has no
private key that its own file names, it gives the cell up whatever the log tells (`services/placement/app/signing.py`).
Who merely follows a cell, and acts on nothing (metrics, the projector, queueing), counts what it passes over.
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

WRITING = (OLDER_COPY, ALL_FORGED)
TAKING_OVER = (*WRITING, TOO_EARLY)
NODES = (*TAKING_OVER, NONE_YET)


def obstacle(work: tuple[str, ...], follower: Follower, cell_file: Path) -> str | None:
    """Why this process may not do this work, a column of the table above; None where nothing is known against it."""
    is_so = {
        OLDER_COPY: follower.lacks_key,
        ALL_FORGED: follower.is_all_forged,
        TOO_EARLY: follower.asks_too_early,
        NONE_YET: not follower.state.version,
    }
    found = next((each for each in work if is_so[each]), None)
    return found if found in (None, NONE_YET) else f"{cell_file} {found.format(cell=follower.state.cell)}"
