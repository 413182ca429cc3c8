"""Virtual nodes that an earlier `fallow up` on the same data ran and this one does not: they are declared lost, so that
their work is queued again without the wait that many silent nodes at once have to bear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fallow.cli.access import Access
from fallow.cli.output.counts import counted
from fallow.services.executor.nodes_file import load_nodes
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import DeclareLost
from fallow.shared.view.rows import NodeRow

LOOK_S = 1.0
"""So often the nodes of each cell are looked at."""

NAMED_MAX = 4
"""So many nodes are named in the line that tells of them."""

Say = Callable[[str], None]


def gone(rows: Sequence[NodeRow], own: Collection[str], pools: Collection[str]) -> list[str]:
    """The nodes of these virtual pools that are silent and not among our own. One that speaks is run elsewhere."""
    return [
        row.id
        for row in rows
        if row.id not in own and row.home_pool in pools and row.silent_wall_ms and row.status is not NodeStatus.LOST
    ]


async def declare_gone_nodes(access: Access, nodes_file: Path, say: Say) -> None:
    """Look at the nodes again and again, and declare lost what is gone. While Kafka or Redis is away it waits."""
    own = {name: {node.id for node in nodes} for name, nodes in load_nodes(nodes_file).items()}
    pools = virtual_pools(access.cells())
    told: dict[str, set[str]] = {name: set() for name in pools}
    async with access.client() as client:
        while True:
            for cell, names in pools.items():
                await _look(client, cell, names, own.get(cell, set()), told[cell], say)
            await asyncio.sleep(LOOK_S)


def virtual_pools(file: CellFile) -> Mapping[str, frozenset[str]]:
    """The pools of each cell whose nodes are virtual."""
    return {cell.name: frozenset(pool.name for pool in cell.pools if pool.driver == "virtual") for cell in file.cells}


async def _look(
    client: CellClient, cell: str, pools: Collection[str], own: Collection[str], told: set[str], say: Say
) -> None:
    """Declare lost what is gone of one cell and was not declared lost before, and say so in one line."""
    found: list[str] = []
    try:
        found = [node for node in gone((await client.nodes(cell)).value, own, pools) if node not in told]
        for node in found:
            await client.operate(DeclareLost(cell=cell, node=node, by="fallow up", reason="fallow up runs it no more"))
            told.add(node)
    except ClientUnavailable:
        return  # the next look repeats it; the services tell what is away
    if found:
        named = ", ".join([*found[:NAMED_MAX], *(["..."] if len(found) > NAMED_MAX else [])])
        lost = f"{counted(len(found), 'node')} of cell {cell} declared lost"
        say(f"{lost}, because this fallow up does not run them: {named}")
