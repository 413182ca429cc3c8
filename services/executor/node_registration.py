"""What a machine offers to a cell: the node that its agent joins with, checked against the cell file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.services.executor.processes.machine import cpu_milli, memory_mib
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.fields.value import build_valid
from fallow.shared.events.fields.values import NodeSpec


class WrongOffer(ValueError):
    """This node cannot belong to that pool. One line: field, value and rule."""


def home_of(file: CellFile, pool_name: str, cell_name: str | None = None) -> tuple[CellPart, Pool]:
    """The cell and the pool for a node that runs processes. Raises WrongOffer."""
    for cell in file.cells:
        for pool in cell.pools:
            if pool.name != pool_name:
                continue
            if cell_name not in (None, cell.name):
                raise WrongOffer(f"pool = {pool_name!r}: is a pool of cell {cell.name}, not of {cell_name}")
            if pool.driver != "process":
                raise WrongOffer(f"pool = {pool_name!r}: its jobs are {pool.driver}; it needs driver: process")
            return cell, pool
    known = ", ".join(pool.name for cell in file.cells for pool in cell.pools if pool.driver == "process")
    raise WrongOffer(f"pool = {pool_name!r}: is unknown; pools for processes are: {known or 'none'}")


def offer_of(
    node: str,
    pool: Pool,
    gpus: int,
    labels: Mapping[str, str],
    taints: Sequence[str] = (),
    islands: Sequence[int] = (),
    nics: Sequence[int] = (),
) -> NodeSpec:
    """This machine as a node of the pool, with all of its processors and memory. Raises WrongOffer, pydantic's
    ValidationError.
    """
    if not pool.admits(node):
        raise WrongOffer(f"node = {node!r}: pool {pool.name} takes only {shorten(', '.join(pool.nodes))}")
    if gpus > pool.gpus_per_node:
        raise WrongOffer(f"gpus = {gpus}: a node of pool {pool.name} has at most {pool.gpus_per_node}")
    return build_valid(
        NodeSpec,
        id=node,
        pool=pool.name,
        gpu_type=pool.gpu_type,
        gpus=gpus,
        cpu_milli=cpu_milli(),
        memory_mib=memory_mib(),
        labels=dict(sorted(labels.items())),
        role=pool.role,
        taints=tuple(taints),
        islands=tuple(islands),
        nics=tuple(nics),
    )
