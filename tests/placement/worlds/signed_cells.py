"""Cells whose decisions are signed, or come to be: placement processes with a cell file and a key of their own."""

from __future__ import annotations

from pathlib import Path

from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.operations import ReloadCell
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.contract.eventually import eventually
from tests.placement.worlds.writers import CELL, LAYOUT, NAMESPACE, PlacementProcess


def names(cell_file: Path, text: str) -> None:
    """The cell file says this from now on."""
    cell_file.write_text(text)


def process(broker: MemoryBroker, cell_file: Path, key: SigningKey | None, name: str = "one") -> PlacementProcess:
    return PlacementProcess(MemoryLog(broker), name, cell_file=cell_file, signing_key=key)


def records(broker: MemoryBroker) -> list[dict[str, bytes]]:
    return [dict(record.headers) for record in broker.partition(LAYOUT.tp("decisions", CELL)).records]


async def follower_of(broker: MemoryBroker, cell_file: Path) -> Follower:
    """A reader with the keys of this cell file, at the end of the log."""
    layout = Layout(NAMESPACE, {CELL: 0}, Signers(load_cell_file(cell_file)))
    follower = Follower(MemoryLog(broker), layout, CELL)
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    return follower


async def submit(broker: MemoryBroker, job: str) -> None:
    admitted = JobAdmitted(cell=CELL, spec=JobSpec(id=job, tenant="vision"), submit_ms=0, digest="0" * 32)
    await MemoryLog(broker).publish([LAYOUT.outgoing(admitted, id=job, source="test", wall_ms=0)])


async def until_folded(broker: MemoryBroker, cell_file: Path, *jobs: str) -> Follower:
    """A reader of the log once it holds these jobs."""
    found = list[Follower]()

    async def is_there() -> bool:
        found[:] = [await follower_of(broker, cell_file)]
        return set(jobs) <= set(found[0].state.jobs)

    await eventually(is_there, within_s=15)
    return found[0]


async def reload(broker: MemoryBroker) -> None:
    """An operator asks the writer to read its cell file again."""
    asked = ReloadCell(cell=CELL, by="operator")
    await MemoryLog(broker).publish([LAYOUT.outgoing(asked, id="r", source="test", wall_ms=0)])


def reloads(of: PlacementProcess, outcome: str) -> float:
    """How many files it has read again with this outcome."""
    return of.context.registry.get_sample_value("fallow_cell_file_reloads_total", {"outcome": outcome}) or 0.0
