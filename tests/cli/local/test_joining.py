"""`fallow up` on servers that it is given: it comes into a foreign cell only where it is told to."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fallow.cli.access import Access
from fallow.cli.cells_there import BUT_SNAPSHOTS, cells_in_the_log, has_snapshots
from fallow.cli.errors.failures import Exit
from fallow.local.joining import OtherFile, lacking, other_file, what_is_there
from fallow.local.up import variables
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import AnyEffect, CellFileSet
from fallow.shared.events.operations import CellPolicy
from fallow.shared.log.admin.group_members import member_count
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import Catalogue
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.snapshots import write_snapshot
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.cli.usage.test_commands import call
from tests.cli.worlds.cells import publish
from tests.cli.worlds.logs import LogWriter
from tests.contract.eventually import eventually

TOP = Path(__file__).parents[3]
OURS = Path(TOP / "deploy" / "cell.yaml")
MACHINES = Path(TOP / "examples" / "machines.yaml")
UNREADABLE = CellFileSet(digest="0" * 32, content="{}")


def a_file(*tenants: str) -> CellFile:
    part = CellPart(name="main", ordinal=0, pools=(Pool(name="pool", gpus=64),))
    return CellFile(cells=(part,), tenants=tuple(Tenant(name=name) for name in tenants))


def a_cell(*effects: AnyEffect) -> CellState:
    written = LogWriter()
    written.write(*effects)
    return written.state


def test_a_cell_that_goes_by_another_file_is_told_with_what_differs() -> None:
    state, words = (
        a_cell(as_effect(a_file("ada"))),
        "cell main goes by cell file {}, from which f differs in tenants, without tenant ada",
    )
    assert state.cell_file is not None
    assert other_file(state, a_file("eve"), "f") == OtherFile(words.format(state.cell_file.digest[:8]), False)
    assert not other_file(state, a_file("ada"), "f")


@pytest.mark.parametrize(("tenant", "is_policy_alone"), [("ada", True), ("eve", False)])
def test_a_file_that_differs_in_the_policy_alone_is_told_from_others(tenant: str, *, is_policy_alone: bool) -> None:
    """It takes nothing from the cell, and its policy comes into force with a reload alone, whatever `up` is told."""
    file = a_file(tenant)
    (part,) = file.cells
    changed = part.model_copy(update={"policy": CellPolicy(unknown_dependency_ms=7)})
    other = file.model_copy(update={"cells": (changed,)})
    found = other_file(a_cell(as_effect(a_file("ada"))), other, "f")
    assert found is not None
    assert found.is_policy_alone is is_policy_alone
    assert ("differs in main.policy" in found.text, found.text.endswith("main.policy")) == (True, is_policy_alone)


def test_what_the_other_file_lacks_is_named_and_no_endless_list() -> None:
    many, few = a_file(*(f"t{number}" for number in range(9)), "ada"), a_file("ada", "eve")
    assert lacking(many, few, "main") == "tenants t0 and t1 and t2 and 6 more"
    assert not lacking(few, many, "main").count("ada")
    ours, machines = load_cell_file(OURS), load_cell_file(MACHINES)
    assert lacking(machines, ours, "main").startswith("pool machines")


def test_a_file_that_no_process_here_would_replace_is_no_obstacle() -> None:
    assert not other_file(a_cell(UNREADABLE), a_file("ada"), "f")
    assert not other_file(CellState("main"), a_file("ada"), "f")


def test_the_line_to_paste_names_the_cell_file_where_it_is_another_one_elsewhere() -> None:
    plain = Access("h:1", "redis://h:2/0", "n", None)
    assert variables(plain) == "FALLOW_KAFKA=h:1 FALLOW_REDIS=redis://h:2/0 FALLOW_NAMESPACE=n"
    named = Access("h:1", "redis://h:2/0", "n", Path("a lab/cell.yaml"))
    assert variables(named).endswith(f" FALLOW_CELL_FILE='{Path.cwd()}/a lab/cell.yaml'")


@asynccontextmanager
async def a_writer(kafka: str, namespace: str) -> AsyncIterator[None]:
    """A process that is in the group of the writers."""
    log = KafkaLog(kafka, "test")
    await log.start()
    member = log.member(f"{namespace}.placement", f"{namespace}.cells")
    await member.start()
    try:
        await eventually(lambda: bool(member.owned()), within_s=60)
        yield
    finally:
        await member.stop()
        await log.stop()


async def write(kafka: str, namespace: str, *effects: AnyEffect, cell: str = "main") -> None:
    written = LogWriter(cell)
    written.write(*effects)
    log = KafkaLog(kafka, "test")
    await log.start()
    await publish(log, written.records, namespace)
    await log.stop()


def fallow(kafka: str, redis_url: str, namespace: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return call(*words, FALLOW_KAFKA=kafka, FALLOW_REDIS=redis_url, FALLOW_NAMESPACE=namespace)


async def up(kafka: str, redis_url: str, namespace: str, folder: Path) -> tuple[int, str]:
    words = ["--cell-file", str(MACHINES), "up", "--data", str(folder)]
    done = await asyncio.to_thread(fallow, kafka, redis_url, namespace, words)
    return done.returncode, done.stderr


@pytest.mark.real_kafka
async def test_up_does_not_join_services_that_run_already(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    assert fallow(kafka, redis_url, namespace, ["topics", "create"]).returncode == 0
    assert await member_count(kafka, f"{namespace}.placement") == 0
    async with a_writer(kafka, namespace):
        code, said = await up(kafka, redis_url, namespace, tmp_path)
    where = f"FALLOW_KAFKA (or --kafka) names {kafka}, where services of namespace {namespace} run already"
    assert (code, said.count("\n")) == (Exit.NO, 1)
    assert said.startswith(f"fallow: {where}; unset FALLOW_KAFKA and FALLOW_REDIS ")
    assert await member_count(kafka, f"{namespace}.placement") == 0


@pytest.mark.real_kafka
async def test_up_does_not_replace_the_cell_file_of_a_cell_that_rests(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    access = Access(kafka, redis_url, namespace, MACHINES)
    assert not await what_is_there(access)
    assert fallow(kafka, redis_url, namespace, ["topics", "create"]).returncode == 0
    assert not await what_is_there(access)
    await write(kafka, namespace, as_effect(access.cells()))
    assert not await what_is_there(access)
    assert "from which" in await what_is_there(Access(kafka, redis_url, namespace, OURS))
    await write(kafka, namespace, as_effect(a_file("ada")), cell="lab")
    assert await cells_in_the_log(access) == {"main": "lab"}
    assert await what_is_there(access) == "the log of cell main is that of cell lab"


@pytest.mark.real_kafka
@pytest.mark.parametrize("words", [["jobs"], ["log", "tail"], ["verify"]])
async def test_who_asks_for_a_cell_without_a_log_is_told_by_which_file(
    kafka: str, redis_url: str, namespace: str, words: list[str]
) -> None:
    assert fallow(kafka, redis_url, namespace, ["topics", "create"]).returncode == 0
    assert fallow(kafka, redis_url, namespace, ["view", "load"]).returncode == 0
    done = await asyncio.to_thread(fallow, kafka, redis_url, namespace, words)
    file = "FALLOW_CELL_FILE is not set, so it is deploy/cell.yaml"
    where = f"in namespace {namespace} (FALLOW_NAMESPACE)"
    assert (done.returncode, done.stderr) == (Exit.AWAY, f"fallow: there is no cell main {where}; {file}\n")


@pytest.mark.real_kafka
async def test_who_asks_for_a_cell_whose_topic_of_decisions_was_made_anew_is_told_of_its_snapshots(
    kafka: str, redis_url: str, namespace: str
) -> None:
    assert fallow(kafka, redis_url, namespace, ["topics", "create"]).returncode == 0
    log, state = KafkaLog(kafka, "test"), LogWriter().state
    await log.start()
    await write_snapshot(log, Layout(namespace, {"main": 0}), state, Catalogue(), writer="w", wall_ms=0)
    await log.stop()
    done = await asyncio.to_thread(fallow, kafka, redis_url, namespace, ["log", "tail"])
    where = f"the log of cell main in namespace {namespace} holds no decision"
    assert (done.returncode, done.stderr) == (Exit.AWAY, f"fallow: {where}, {BUT_SNAPSHOTS}\n")


async def test_snapshots_of_another_cell_are_none_of_this_one() -> None:
    broker, layout = MemoryBroker(), Layout("t", {"main": 0})
    log = MemoryLog(broker)
    assert not await has_snapshots(log, layout, "main")
    broker.create_topic("t.snapshots", 1)
    assert not await has_snapshots(log, layout, "main")
    for cell, are_there in (("main", True), ("lab", False)):
        state = LogWriter(cell).state
        await write_snapshot(log, Layout("t", {cell: 0}), state, Catalogue(), writer="w", wall_ms=0)
        assert await has_snapshots(log, layout, "main") is are_there
