"""In which order the tables of a state stand, for those who compare two states that must decide the same."""

from __future__ import annotations

from random import Random
from typing import Any

from fallow.shared.cluster.model.state import CellState

TABLES = (
    "inputs",
    "input_resumes",
    "quotas",
    "nodes",
    "jobs",
    "reservations",
    "rooms",
    "heads",
    "first_plans",
    "arrays",
)
"""What is walked as it stands."""

INDICES = (
    "input_checksums",
    "independent_jobs",
    "waiting_of",
    "live_bytes_of",
    "dependents",
    "dependencies_resolved",
    "ends_untold",
    "maintenance_starts",
    "silent",
    "offers",
    "quotas_of_file",
    "usage",
    "kinds",
    "learned",
)
"""What is asked by its keys, walked sorted, summed up, or walked to its end before anything is decided by it: made
anew, it may stand in another order.
"""


def orders(state: CellState) -> dict[str, list[Any]]:
    """The keys of each table, and of what follows from tables alone, as they stand."""
    found = {name: list(getattr(state, name)) for name in TABLES}
    found |= {"finished": list(state.finished), "pools": list(state.pools)}
    found |= {f"dependents of {name}": list(jobs) for name, jobs in state.dependents.items()}
    return found | {"branches": list(state.tree.branches), "cohorts": list(state.tree.cohorts)}


def shuffle_indices(state: CellState, random: Random) -> None:
    """The same state, with its indices in another order, and so what is on each node and the runs of each job."""
    tables = [getattr(state, name) for name in INDICES]
    tables += [state.fair.used, state.fair.held, *state.learned.values()]
    tables += [table for node in state.nodes.values() for table in (node.jobs, node.shares)]
    tables += [job.runs for job in state.jobs.values()]
    for table in tables:
        keys = list(table)
        random.shuffle(keys)
        for key in keys:
            table[key] = table.pop(key)
