"""Whether `fallow up` would come upon a foreign or an earlier cell: services that run there already, or a
cell that goes by another cell file, which a writer that begins would replace by its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fallow.cli.access import Access
from fallow.cli.cells_there import cells_in_the_log
from fallow.cli.log.newest import newest_state
from fallow.cli.log.read_back import LogOverflowed
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.model.config import CellFile, Pool, Queue, Tenant
from fallow.shared.cluster.model.file_in_force import as_effect, difference, from_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.admin.group_members import member_count
from fallow.shared.log.port import LogTruncated
from fallow.shared.log.snapshots import NoUsableSnapshot

Named = Pool | Queue | Tenant


class OtherFile(NamedTuple):
    """A cell goes by another cell file, or one that is not ours runs, as the end of a sentence. `is_policy_alone`: that
    file differs in nothing but the policy, which no process that starts puts in force.
    """

    text: str
    is_policy_alone: bool = False


WRITERS = "placement"

NAMED_MAX = 3
"""So many pools, queues or tenants of one kind are named."""

FENCED = (DamagedLog, NoUsableSnapshot, LogTruncated, LogOverflowed)
"""A cell whose log has such a fault gets no decision, and so no other file, until it is repaired."""


async def what_is_there(access: Access) -> str:
    """What `up` would come upon on servers that it was given, as the end of a sentence; "" where it can begin. Raises
    LogUnavailable.
    """
    writers = await member_count(access.kafka_access, access.layout().group(WRITERS))
    if writers:
        return f"services of namespace {access.namespace} run already"
    other = await file_in_force(access, is_embedded=writers is None)
    return "" if other is None else other.text


async def file_in_force(access: Access, *, is_embedded: bool = False) -> OtherFile | None:
    """The first cell that goes by another file than the one of this `up`, one that differs in more than the policy if
    there is any; None where none does. On the embedded broker: that the cell runs. Raises LogUnavailable.
    """
    lesser: OtherFile | None = None
    for cell, owner in (await cells_in_the_log(access)).items():
        if owner != cell:
            return OtherFile(f"the log of cell {cell} is that of cell {owner}")
        try:
            state = await newest_state(access, cell)
        except FENCED:
            continue
        if is_embedded and state.version:
            # The embedded broker cannot tell, and forgets all when its `up` ends: so that one runs.
            return OtherFile(f"cell {cell} runs already")
        other = other_file(state, access.cells(), str(access.cell_path))
        if other is not None and not other.is_policy_alone:
            return other
        lesser = lesser or other
    return lesser


def other_file(state: CellState, file: CellFile, name: str) -> OtherFile | None:
    """That the cell goes by another file than this one, of which `name` is the name, where these differ, and what this
    one lacks; None where it does not, or where it cannot be read here: then no process puts another in its place.
    """
    effect = state.cell_file
    if effect is None or effect.digest == as_effect(file).digest:
        return None
    try:
        in_force = from_effect(effect)
        parts, lacks = difference(in_force, file, state.cell), lacking(in_force, file, state.cell)
    except (ValueError, KeyError):
        return None
    without = f", without {lacks}" if lacks else ""
    text = f"cell {state.cell} goes by cell file {effect.digest[:8]}, from which {name} differs in {parts}{without}"
    return OtherFile(text, is_policy_alone=parts == f"{state.cell}.policy")


def lacking(in_force: CellFile, file: CellFile, cell: str) -> str:
    """The pools, queues and tenants that only the file in force has: `pool machines, tenants ada and eve`."""
    before, now = in_force.cell(cell), file.cell(cell)
    parts = [
        _gone("pool", before.pools, now.pools),
        _gone("queue", before.queues, now.queues),
        _gone("tenant", in_force.tenants, file.tenants),
    ]
    return ", ".join(part for part in parts if part)


def _gone(noun: str, before: Sequence[Named], now: Sequence[Named]) -> str:
    left = dict.fromkeys(one.name for one in now)
    names = [one.name for one in before if one.name not in left]
    shown = names[:NAMED_MAX] + ([f"{len(names) - NAMED_MAX} more"] if len(names) > NAMED_MAX else [])
    return f"{noun}{'s' if len(names) > 1 else ''} {' and '.join(shown)}" if names else ""
