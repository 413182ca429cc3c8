"""Owners before planned starts: one whose job fits whole into a guarantee is not kept off nodes that are kept for a job
that would borrow from it, and such a planned start leaves the places alone that are kept for the owner. Both go by the
same rule, so that neither waits for the other.

Jobs are given here as they stand in line (`in_line`): of one whose workers come singly the next ones alone have to fit.
Places are kept for an owner by the same measure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fallow.services.placement.fit.empty_capacity import Reach
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.kept_index import kept_in
from fallow.services.placement.owners.lending import is_given_back
from fallow.services.placement.queue.planned_places import are_free_for
from fallow.services.placement.search.quota_check import refusal_of_places
from fallow.shared.cluster.capacity.hardware import hardware_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import KeptPlace, taken
from fallow.shared.cluster.quota.room import Borrower
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.reasons import PendingReason


def fits_in(state: CellState, spec: JobSpec) -> dict[str, Account]:
    """The lowest guarantee of each GPU type into which the whole job fits, where there is one."""
    if not state.quotas:
        return {}
    found = {each: Borrower(state.tree, spec.tenant, each, spec.gpus_milli).fits_in for each in types_for(state, spec)}
    return {gpu_type: account for gpu_type, account in found.items() if account is not None}


def kept_for_it(state: CellState, spec: JobSpec) -> list[Account]:
    """Those of the accounts for which places are kept now that are its tenant's, or those of one above it."""
    kept = state.tree.kept.owners
    types = types_for(state, spec) if kept else ()
    lines = (Borrower(state.tree, spec.tenant, each, spec.gpus_milli).above for each in types)
    return [account for line in lines for account in line if account in kept]


def kept_from_owner(state: CellState, owned: Mapping[str, Account], spec: JobSpec, reach: Reach) -> Reach:
    """Those of the nodes kept for this planned job that an owner leaves alone, whose job fits into the `owned`."""
    types = [each for each, account in owned.items() if borrows(state, spec, account)]
    if not types:
        return reach
    left = {name: mask & ~nodes_of_types(state, name, types) for name, mask in reach.items()}
    return {name: mask for name, mask in left.items() if mask}


def leaves_owners_alone(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> bool:
    """Whether a planned start in these places, in which it may start, takes nothing that is kept for an owner from
    which it would borrow, and whose own job fits whole into what is idle of the guarantee.
    """
    if not any(place.node in state.tree.kept.nodes for place in places):
        return True
    nodes = dict.fromkeys(place.node for place in places)
    kept = [place for node in nodes for place in _kept_on(state, spec, node)]
    with taken(state, kept, by_all=spec.exclusive):
        return are_free_for(state, spec, places)


def waits_for_owners(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> bool:
    """Whether nothing but what is kept for owners keeps a planned start from these places."""
    if not state.tree.kept.nodes or not are_free_for(state, spec, places):
        return False
    refusal = refusal_of_places(state, spec, places)
    if refusal is not None:
        return refusal is PendingReason.RESERVED_FOR_OTHER
    return not leaves_owners_alone(state, spec, places)


def _kept_on(state: CellState, spec: JobSpec, node_id: str) -> list[KeptPlace]:
    """What is kept on a node from this job for such owners."""
    on = kept_in(state, state.pools[state.nodes[node_id].pool]).on.get(node_id)
    entries = () if on is None else on.entries
    gives_back = is_given_back(state, spec)
    kept = [entry for entry in entries if entry.is_whole and not (entry.is_lent and gives_back)]
    return [entry.place for entry in kept if borrows(state, spec, entry.home)]


def borrows(state: CellState, spec: JobSpec, owner: Account) -> bool:
    """Whether the job would borrow from this owner."""
    borrower = Borrower(state.tree, spec.tenant, owner[1], spec.gpus_milli)
    return not borrower.is_below(owner) and borrower.borrows_from(owner)


def nodes_of_types(state: CellState, pool: str, types: Collection[str]) -> int:
    """The nodes of a pool that have GPUs of one of these types, as a mask over its numbers."""
    kinds = hardware_of(state, state.pools[pool]).kinds
    return sum(mask for kind, mask in kinds.items() if kind.gpu_type in types)
