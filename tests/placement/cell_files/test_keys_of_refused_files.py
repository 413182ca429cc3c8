"""A writer goes by the keys of the cell file that it took over last: one that it refused changes nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.shared.events.decisions import SIGNATURE_HEADER, Decision
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from tests.contract.eventually import eventually
from tests.placement.worlds.signed_cells import (
    follower_of,
    names,
    process,
    records,
    reload,
    reloads,
    submit,
    until_folded,
)
from tests.placement.worlds.writers import LAYOUT, cluster
from tests.signing import NEXT, STRANGERS, WRITERS, public, signed, signed_text

TOO_SOON, LATER = 1, 1_000
"""Versions from which on signatures are asked for: one that is written already, and one to come."""

OTHER_CELLS = signed_text(public(NEXT), from_version=LATER).replace("ordinal: 0", "ordinal: 1")

REFUSED = {
    "that begins signatures too early by the key of the writer": signed_text(public(WRITERS), from_version=TOO_SOON),
    "that begins signatures too early by a key that it lacks": signed_text(public(NEXT), from_version=TOO_SOON),
    "that is broken": signed_text(public(NEXT), from_version=LATER) + "tenants: [",
    "that has other cells": OTHER_CELLS,
}


@pytest.fixture
def broker() -> MemoryBroker:
    return cluster()


@pytest.fixture
def cell_file(tmp_path: Path) -> Path:
    return tmp_path / "cell.yaml"


@pytest.fixture
def in_force(tmp_path: Path) -> Path:
    """A copy of the file that the writer took over last."""
    return tmp_path / "in_force.yaml"


@pytest.mark.parametrize("key", [None, WRITERS], ids=["without a key", "with a key"])
@pytest.mark.parametrize("refused", REFUSED)
async def test_a_writer_that_refuses_a_file_goes_on_unsigned_as_before(
    broker: MemoryBroker, cell_file: Path, in_force: Path, key: SigningKey | None, refused: str
) -> None:
    for path in (cell_file, in_force):
        names(path, signed_text())
    writer = process(broker, cell_file, key)
    await writer.start()
    await submit(broker, "job-1")
    await until_folded(broker, in_force, "job-1")
    names(cell_file, REFUSED[refused])
    await reload(broker)
    await eventually(lambda: reloads(writer, "refused") == 1, within_s=15)
    await submit(broker, "job-22")
    await until_folded(broker, in_force, "job-1", "job-22")
    assert not any(SIGNATURE_HEADER in headers for headers in records(broker))
    assert (writer.health, writer.metric("fallow_is_writer")) == ("", 1)
    await writer.stop()


@pytest.mark.parametrize("refused", REFUSED)
async def test_what_a_stranger_writes_does_not_have_the_writer_take_over_a_file_that_it_refuses(
    broker: MemoryBroker, cell_file: Path, in_force: Path, refused: str
) -> None:
    """Over a record that no key proves, each process reads the keys of its cell file again."""
    for path in (cell_file, in_force):
        names(path, signed_text(public(WRITERS), from_version=2))
    writer = process(broker, cell_file, WRITERS)
    await writer.start()
    await submit(broker, "job-1")
    await until_folded(broker, in_force, "job-1")
    names(cell_file, REFUSED[refused])
    await reload(broker)
    await eventually(lambda: reloads(writer, "refused") == 1, within_s=15)
    state = (await follower_of(broker, in_force)).state
    forged = Decision(cell=state.cell, version=state.version + 1, epoch=state.epoch, at_ms=state.at_ms)
    await MemoryLog(broker).publish(signed(LAYOUT, [forged], STRANGERS, state.chain))
    await submit(broker, "job-22")
    await until_folded(broker, in_force, "job-1", "job-22")
    await eventually(lambda: writer.metric("fallow_forged_decisions_total") == 1, within_s=15)
    assert (writer.health, writer.metric("fallow_is_writer"), writer.metric("fallow_writer_epoch")) == ("", 1, 1)
    await writer.stop()


async def test_a_standby_takes_over_by_the_file_of_before_where_its_own_was_refused_since(
    broker: MemoryBroker, cell_file: Path, in_force: Path
) -> None:
    for path in (cell_file, in_force):
        names(path, signed_text())
    writer, standby = process(broker, cell_file, WRITERS), process(broker, cell_file, WRITERS, "two")
    await writer.start()
    await submit(broker, "job-1")
    await until_folded(broker, in_force, "job-1")
    await standby.start()
    names(cell_file, signed_text(public(WRITERS), from_version=TOO_SOON))
    await reload(broker)
    await eventually(lambda: reloads(writer, "refused") == 1, within_s=15)
    await writer.stop()
    await submit(broker, "job-22")
    await until_folded(broker, in_force, "job-1", "job-22")
    assert standby.health == ""
    await standby.stop()


async def test_the_file_in_force_is_none_that_begins_too_early_for_a_writer_that_was_a_standby_when_it_came(
    broker: MemoryBroker, cell_file: Path, tmp_path: Path
) -> None:
    """Its own copy, the one of before, was brought in later, when signatures had begun."""
    own = tmp_path / "own.yaml"
    for path in (cell_file, own):
        names(path, signed_text())
    writer, standby = process(broker, cell_file, WRITERS), process(broker, own, WRITERS, "two")
    await writer.start()
    await submit(broker, "job-1")
    await standby.start()
    before = (await until_folded(broker, cell_file, "job-1")).state.version
    names(cell_file, text := signed_text(public(WRITERS), from_version=before + 3))
    await reload(broker)
    await eventually(lambda: reloads(writer, "in_force") == 1, within_s=15)
    jobs = ["job-1"]
    while (await follower_of(broker, cell_file)).state.version < before + 6:
        jobs.append(f"job-{10 ** len(jobs)}")
        await submit(broker, jobs[-1])
        await until_folded(broker, cell_file, *jobs)
    await writer.stop()
    names(own, text)
    await submit(broker, "job-new")
    await until_folded(broker, cell_file, "job-new")
    await reload(broker)
    await eventually(lambda: reloads(standby, "in_force") == 1, within_s=15)
    assert (reloads(standby, "refused"), standby.health) == (0, "")
    await standby.stop()
