"""How the world runs each service: the main coroutine that ships, with settings of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from services.placement.app import cell_writer, writer
from services.placement.settings import PlacementSettings
from services.simulator.process import Process
from services.simulator.shells.part import NAMESPACE, Shell

if TYPE_CHECKING:
    from services.simulator.world import World

PLACEMENT = PlacementSettings.model_construct(namespace=NAMESPACE)
"""The defaults, whatever stands in the environment."""


def placement(world: World, process: Process) -> Shell:
    """Writer and standby of every cell. What it takes to be in force must be so."""
    believed = partial(world.believed, process)
    return Shell("placement", PLACEMENT, partial(writer.main, few=world.few), {cell_writer.IN_FORCE: believed})
