"""Cells of wide nodes with names as long as they may be, which look at themselves only at the end of a test."""

from __future__ import annotations

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.events.base import Event
from fallow.shared.events.operations import CellPolicy
from fallow.shared.log.machine.writer import DECISION_BYTES_MAX
from tests.placement.worlds.world import CELL, World

CHARACTERS_MAX = 128


def at_length(name: str) -> str:
    """The name with as many characters as it may have."""
    return f"{name}-".ljust(CHARACTERS_MAX, "x")


def long_names(count: int) -> list[str]:
    """So many names of nodes as long as they may be."""
    return [at_length(f"n{number:06}") for number in range(count)]


def wide(gpus_per_node: int = 4_096, placement: str = "best-fit") -> CellFile:
    """A cell with room for whatever a test wants."""
    pool = Pool(name="train", gpus=10_000_000, gpus_per_node=gpus_per_node)
    part = CellPart(name=CELL, ordinal=0, pools=(pool,), policy=CellPolicy(placement=placement))
    return CellFile(cells=(part,), tenants=(Tenant(name="ada"),))


def quick(*nodes: Event, file: CellFile | None = None) -> World:
    """A world that looks at itself only at the end of a test."""
    world = World(file or wide())
    world.checks = False
    world.tell(*nodes)
    return world


def is_sound(world: World, *, since: int = 0) -> None:
    """Every record can be read, none had to be made anew, and all see the same."""
    world.check()
    assert world.unwritable == []
    assert max(len(record.value) for record in world.log[since:]) <= DECISION_BYTES_MAX
