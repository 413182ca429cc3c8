"""What a node may say that is not so, or that was so once: told twice, told late, told of runs that it should not have.

No lie is one that only the node itself could know to be wrong: its word about its own current run is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import LARGEST_INTEGER, Event, replace
from fallow.shared.events.fields.values import DEVICES_MAX, LABELS_MAX, ObservedRun, RunStatus
from fallow.shared.events.nodes import (
    DeviceFailed,
    NodeJoined,
    NodeReport,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
)
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import Logged

NODES = NodeReport.topic

FAR_NUMBERS_BEGIN = 800
"""One lie in five has a number that no node will reach."""

FAR = 90
"""So many attempts ahead no job gets."""

LABELS = {f"label-{number:0122}": "x" * 128 for number in range(LABELS_MAX)}
"""As many as a node may have, and together more than it may tell of itself."""

KINDS = (RunStarted, RunFinished, RunStopped, RunFailed)


class Lie(NamedTuple):
    """What is said, and what is wrong with it."""

    event: Event
    what: str


def lie_of(engine: Engine, state: CellState, said: Sequence[Logged]) -> Lie | None:
    """A lie, drawn by chance; None while there is no node to tell it."""
    if said and engine.chance.random() < 0.5:  # noqa: PLR2004 - half of them repeat what was said
        record = engine.chance.choice(said)
        event = record.event()
        if not isinstance(event, Event) or event.topic != NODES:
            return None  # what a stranger wrote there may belong to another topic, and would land in that one
        return Lie(event, f"offset {record.offset} of nodes once more")
    if not state.nodes:
        return None
    node = engine.chance.choice(list(state.nodes.values()))
    if engine.chance.random() < 0.2:  # noqa: PLR2004 - a share
        return _of_nothing_known(engine, state, node)
    job, attempt = _no_run_of(engine, state, node)
    if engine.chance.random() < 0.4:  # noqa: PLR2004 - a share
        run = ObservedRun(job=job, attempt=attempt, status=engine.chance.choice(tuple(RunStatus)))
        report = NodeReport(cell=state.cell, node=node.id, boot=node.boot, seq=_seq(engine), observed=(run,))
        return Lie(report, f"{node.id} reports attempt {attempt} of {job}")
    kind = engine.chance.choice(KINDS)
    boot = node.boot if engine.between(0, 2) else "boot-0"
    event = kind(cell=state.cell, node=node.id, boot=boot, seq=_seq(engine), job=job, attempt=attempt)
    return Lie(event, f"{node.id} says {kind.__name__} of attempt {attempt} of {job}")


def _of_nothing_known(engine: Engine, state: CellState, node: Node) -> Lie:
    """A word of a node that never joined or can never join, or of a device that is not there."""
    head: dict[str, Any] = {"cell": state.cell, "boot": node.boot, "seq": _seq(engine)}
    ghost = replace(node.spec, id="ghost")
    events: tuple[Event, ...] = (
        NodeReport(node="ghost", **head),
        NodeJoined(node="ghost", spec=replace(ghost, pool="none"), **head),
        NodeJoined(node="ghost", spec=replace(ghost, labels=LABELS), **head),
        NodeJoined(node="ghost", spec=replace(ghost, gpus=DEVICES_MAX, islands=(), nics=()), **head),
        DeviceFailed(node=node.id, device=DEVICES_MAX - 1, **head),
    )
    event = engine.chance.choice(events)
    return Lie(event, f"{type(event).__name__} of what is not there")


def _seq(engine: Engine) -> int:
    """The number of the word before or behind the newest cannot be known here: an old one, as of a repetition, or the
    largest that there is, behind which nothing else of its node would be news.
    """
    number = engine.between(1, 1_000)
    return LARGEST_INTEGER if number > FAR_NUMBERS_BEGIN else number


def _no_run_of(engine: Engine, state: CellState, node: Node) -> tuple[str, int]:
    """A job and attempt that the node has no current run of."""
    jobs = [*state.jobs.values()]
    if not jobs or engine.between(0, 3) == 0:
        return "job-that-never-was", 1
    job = engine.chance.choice(jobs)
    if node.id in job.runs or not job.attempt:
        # Nothing that may still come true before it is read.
        return job.id, job.attempt - 1 if job.attempt > 1 and engine.between(0, 1) else job.attempt + FAR
    return job.id, job.attempt
