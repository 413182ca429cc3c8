"""Cells in which somebody may yield, and short ways to propose it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fallow.shared.cluster.model.config import CellFile, PreemptRule, Queue
from fallow.shared.events import effects as e
from fallow.shared.events.codec.ranges import ranges_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.operations import PreemptionMode
from fallow.shared.events.proposals import PreemptionProposed, Victim
from fallow.shared.events.reasons import PreemptionCause
from tests.placement.worlds.world import CELL, FILE, World, joined, set_policy

LINE = Queue(name="line", aging_ms=0, aging_max_ms=0)


def file_of(*queues: Queue, **policy: Any) -> CellFile:
    """The usual file with these queues, in which jobs yield for all causes."""
    (part,) = FILE.cells
    numbers = {"preemption": PreemptionMode.ALL, **policy}
    changed = part.model_copy(
        update={"queues": queues or (LINE,), "policy": replace(part.policy, **numbers)},
    )
    return FILE.model_copy(update={"cells": (changed,)})


def yielding_cell(*gpus: int, preempt: PreemptRule = PreemptRule.LOWER, **policy: Any) -> World:
    """A cell with nodes n1, n2, ... of so many GPUs."""
    world = World(file_of(LINE.model_copy(update={"preempt": preempt}), **policy))
    world.tell(*(joined(f"n{number}", many) for number, many in enumerate(gpus or (8,), 1)))
    return world


def place(rank: int, node: str, *devices: int) -> WorkerPlace:
    """A place of whole GPUs."""
    return WorkerPlace(rank=rank, node=node, devices=devices, gpu_milli=1000 * len(devices))


def proposal(
    world: World,
    preemptor: str,
    victims: Sequence[str],
    places: Sequence[WorkerPlace],
    cause: PreemptionCause = PreemptionCause.PRIORITY,
    name: str = "p-1",
) -> PreemptionProposed:
    """A proposal on the newest state, of the attempts that run now."""
    jobs = world.state.jobs
    return PreemptionProposed(
        cell=CELL,
        proposal=name,
        version=world.state.version,
        preemptor=preemptor,
        cause=cause,
        victims=tuple(Victim(job=job, attempt=max(1, jobs[job].attempt) if job in jobs else 1) for job in victims),
        places=ranges_of(places),
    )


def refusal(effects: Sequence[e.AnyEffect]) -> tuple[str, str] | None:
    """The code and the words of the only refusal among these, or None."""
    found = [(effect.code.value, effect.text) for effect in effects if isinstance(effect, e.ProposalRefused)]
    assert len(found) < 2
    return found[0] if found else None


__all__ = ["LINE", "file_of", "place", "proposal", "refusal", "set_policy", "yielding_cell"]
