"""How much is kept for owners of what all tenants of a cell have together.

A kept place is room on a node. Where others do not lend what is guaranteed to them, room is not all that an owner
needs: so much must stay idle beside their guarantees. Else a borrower would take elsewhere in the cell what the owner
waits for, while its kept places are idle GPUs that another owner may have back at any time.
"""

from __future__ import annotations

from fallow.services.placement.owners.lending import is_given_back
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import KeptAtHome
from fallow.shared.cluster.quota.room import Borrower, drawn_from_cell
from fallow.shared.events.fields.values import JobSpec


def kept_of_cell_milli(state: CellState, spec: JobSpec, gpu_type: str) -> int:
    """How many milli-GPUs of this type, of those that all tenants have together, are kept for owners from which this
    job would borrow. What such an owner may use without drawing on the others is not among them. A job that waits for
    its own guarantee too leaves only those alone that are guaranteed whole; one that gives back what it borrows may
    have what is lent.
    """
    tree, of_type = state.tree, state.tree.kept.of_types.get(gpu_type)
    if of_type is None:
        return 0
    borrower = Borrower(tree, spec.tenant, gpu_type, spec.gpus_milli)
    waits = any(above in tree.kept.owners for above in borrower.above)
    gives_back, found = is_given_back(state, spec), 0
    for home, kept in of_type.homes.items():
        if not borrower.is_below(home) and borrower.borrows_from(home):
            milli = _milli_of(state, kept, only_whole=waits, only_unlent=gives_back)
            found += drawn_from_cell(tree.branches.get(home), milli)
    return found


def _milli_of(state: CellState, kept: KeptAtHome, *, only_whole: bool, only_unlent: bool) -> int:
    """What is kept at one home: of a node that a job is to have alone all that is idle there."""
    found = 0
    for (is_whole, is_lent), milli in kept.milli.items():
        if (is_whole or not only_whole) and not (is_lent and only_unlent):
            found += milli
    for (node_id, is_whole), milli in kept.alone.items():
        if is_whole or not only_whole:
            found += max(milli, state.nodes[node_id].idle_milli)
    return found
