"""What the state knows of a job or a node is in its row of the view, or is left out on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest

from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.view.row_text import job_text, node_text
from tests.cluster.worlds.examples import cell, node

NOT_SHOWN: Mapping[type, frozenset[str]] = {
    Job: frozenset({
        # by which submission, and from which other jobs, it comes
        "digest", "sent_ms", "broken_by",
        # what happened to its attempts
        "losses", "avoid", "leaving", "runs", "running_ms", "backfilled", "backfilled_over", "turns", "done",
        "setbacks", "yielded_to",
        # why and how it is stopped: `fallow job` reads that from the log
        "stop_why", "stop_for", "stop_text", "stop_grace_wall_ms", "stopping_ms",
    }),
    Node: frozenset({
        # by which life of the node, and to which of its words, the log goes
        "boot", "seq", "offered",
        # its silence and its loss: `fallow node show` reads them from the log
        "silence_noted_ms", "held_from_wall_ms", "lost_ms", "lost_alone", "wanted", "flaps", "rests_until_ms",
        # its failures; that it is in quarantine stands in its reason
        "quarantined", "quarantined_until_ms", "failed_jobs", "failed_tenants", "failed_ms", "failed_by_node",
        # what follows from its maintenance and its jobs
        "in_maintenance", "alone",
    }),
}  # fmt: skip
"""Fields that no row has: no user looks for them there."""


def noting(kind: type, noted: set[str]) -> type[Any]:
    """A kind of thing that behaves as this one, and notes which fields are read of it."""

    def get(self: object, name: str) -> object:
        noted.add(name)
        return object.__getattribute__(self, name)

    return type(kind.__name__, (kind,), {"__getattribute__": get})


def names_of(kind: type) -> set[str]:
    """What a state keeps of such a thing; what follows from other fields is not compared."""
    return {each.name for each in fields(kind) if each.compare}


def a_row_of_a_job(thing: Job) -> str:
    return job_text(CellState("main"), thing)


@pytest.mark.parametrize(
    ("thing", "row"),
    [
        (Job(JobSpec(id="j", tenant="ada"), 7, "", JobStatus.QUEUED), a_row_of_a_job),
        (cell(node("n1")).nodes["n1"], node_text),
    ],
)
def test_every_field_of_a_job_and_a_node_is_in_its_row_or_named_as_not_shown(
    thing: Any, row: Callable[[Any], str]
) -> None:
    kind, noted = type(thing), set[str]()
    row(noting(kind, noted)(**{each.name: getattr(thing, each.name) for each in fields(kind) if each.init}))
    assert names_of(kind) - noted == NOT_SHOWN[kind]
