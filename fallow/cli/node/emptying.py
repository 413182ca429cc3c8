"""What a drain will stop: the jobs that hold a place on each node when it is given, and when they must have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fallow.cli.output.durations import moment
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.near import first_named
from fallow.shared.view.rows import NodeRow

JOBS_NAMED_MAX = 3
TO_TAKE_OUT = (
    "To take it out: stop its agent (of a virtual node: docs/operations.md, Take a node out), "
    "wait until it is lost, then run `fallow node remove NODE`"
)
EMPTY = f"empty. {TO_TAKE_OUT}"


def is_empty(node: NodeRow) -> bool:
    """Whether it is drained and nothing is left there."""
    return node.status is NodeStatus.DRAINING and not node.jobs


def named(jobs: Sequence[tuple[str, int]]) -> str:
    """The first jobs of a node and how many more there are: `a, b, c and 2 more`."""
    return first_named([job for job, _ in jobs], JOBS_NAMED_MAX)


def to_be_stopped(row: NodeRow, deadline_ms: int | None) -> str:
    """What becomes of the work of a node that is drained until then; None: at once."""
    if not row.jobs:
        return f"It is {EMPTY}."
    jobs = f"{'job' if len(row.jobs) == 1 else 'jobs'} {named(row.jobs)}"
    if deadline_ms is None:
        return f"Stopped there now, and queued again: {jobs}."
    return f"Stopped there at {moment(deadline_ms)}, and queued again, if not over before: {jobs}."


def as_object(row: NodeRow | None, deadline_ms: int | None, *, is_refused: bool = False) -> dict[str, Any]:
    """The drain for programs: the jobs, None where they are not known, and when they are stopped, None: at once. A
    drain that is refused stops none.
    """
    if is_refused:
        return {"jobs": [], "stop_ms": None}
    return {"jobs": None if row is None else [job for job, _ in row.jobs], "stop_ms": deadline_ms}
