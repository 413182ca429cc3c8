"""Tenants come to have topics of their own and lose them while admission goes on: what is there is read soon, what is
not is told, and none keeps another one waiting. Without a topic that is everybody's admission is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.services.admission.app import answering
from fallow.services.admission.app.answering import main
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.operations import ReloadCell
from fallow.shared.log import watch
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.watch import watch_log
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import end_beside, make_context
from tests.contract.eventually import eventually

LAYOUT = Layout("t", {"main": 0})


def text(*own: str) -> str:
    """A cell file of three tenants, of which these have topics of their own."""
    tenants = ", ".join(
        f"{{name: {name}{', own_topic: true' if name in own else ''}}}" for name in ("ada", "bob", "vision")
    )
    return f"cells: [{{name: main, ordinal: 0, pools: [{{name: training, gpus: 8}}]}}]\ntenants: [{tenants}]\n"


class Machine(Host):
    """Its cell file is what the test says."""

    file = text()

    def cell_file(self, path: Path) -> CellFile:
        return parse_cell_file(self.file, str(path))


class Running:
    """A process of admission before a log in memory. `reads` are the topics that it reads just now."""

    def __init__(self, *own: str) -> None:
        self.broker, self.machine, self.reads, self.joined = MemoryBroker(), Machine(), list[str](), 0
        self.machine.file = text(*own)
        for topic in ("operations", "submissions", "decisions", "snapshots"):
            self.broker.create_topic(f"t.{topic}", 1)
        self.context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=self.machine)

    async def opened(self, _: object, __: object) -> MemoryLog:
        log = MemoryLog(self.broker)
        await log.start()
        self.context.run_beside(watch_log(self.context, log), "watch of Kafka")
        return log

    def sharing(self, _: object, topics: Sequence[str], __: object, ___: object) -> Running:
        self._topics = list(topics)
        self.joined += 1
        return self

    async def start(self) -> None:
        self.reads = self._topics

    async def stop(self) -> None:
        self.reads = []

    def create(self, *tenants: str) -> None:
        for tenant in tenants:
            self.broker.create_topic(f"t.submissions.{tenant}", 1)

    def delete(self, tenant: str) -> None:
        self.broker.delete_topic(f"t.submissions.{tenant}")

    def reload(self, *own: str) -> None:
        self.machine.file = text(*own)
        self.broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))

    async def comes_to_read(self, *tenants: str) -> None:
        await eventually(
            lambda: self.reads == ["t.submissions", *(f"t.submissions.{tenant}" for tenant in tenants)], 20
        )

    def misses(self, tenant: str) -> bool:
        return f"t.submissions.{tenant}: not there" in str(self.context.health.answer("/readyz"))

    async def looks_again(self) -> None:
        await asyncio.sleep(2.5 * answering.OPERATIONS_PAUSE_S)


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "LOOK_FOR_TOPICS_MS", 0)
    monkeypatch.setattr(answering, "OPERATIONS_PAUSE_S", 0.05)
    monkeypatch.setattr(watch, "ASK_EVERY_S", 0.05)


@asynccontextmanager
async def going_on(admission: Running) -> AsyncIterator[None]:
    process = asyncio.create_task(main(admission.context, admission.opened, admission.sharing))
    try:
        yield
        assert not process.done()
    finally:
        admission.context.stopping.set()
        await process
        await end_beside(admission.context)


async def test_a_topic_that_is_deleted_and_comes_to_be_declared_again_is_read_as_soon_as_it_is_there() -> None:
    admission = Running("ada", "bob")
    admission.create("ada", "bob")
    async with going_on(admission):
        await admission.comes_to_read("ada", "bob")
        admission.reload("bob")
        await admission.looks_again()
        assert admission.joined == 1  # what lies in the topic is answered still
        admission.delete("ada")
        await admission.looks_again()
        assert not admission.misses("ada")
        admission.reload("ada", "bob")
        await eventually(lambda: admission.misses("ada"))
        admission.create("ada")
        await eventually(lambda: admission.joined == 2)
        await admission.comes_to_read("ada", "bob")
        await eventually(lambda: not admission.misses("ada"))


async def test_each_topic_that_is_missing_is_told_until_it_is_there_however_many_there_are() -> None:
    admission = Running("ada", "bob", "vision")
    admission.create("ada", "bob", "vision")
    async with going_on(admission):
        await admission.comes_to_read("ada", "bob", "vision")
        admission.delete("ada")
        admission.delete("vision")
        await eventually(lambda: admission.misses("ada, t.submissions.vision"))
        admission.create("ada")
        await eventually(lambda: admission.misses("vision") and not admission.misses("ada, t.submissions.vision"))


async def test_one_that_is_missing_is_not_told_any_more_once_its_tenant_shall_have_none() -> None:
    admission = Running("ada", "bob")
    admission.create("ada", "bob")
    async with going_on(admission):
        await admission.comes_to_read("ada", "bob")
        admission.delete("ada")
        await eventually(lambda: admission.misses("ada"))
        admission.reload("bob")
        await eventually(lambda: not admission.misses("ada"))
        admission.reload()
        admission.delete("bob")
        await admission.looks_again()
        assert not admission.misses("bob")


async def test_a_topic_that_is_not_made_keeps_no_other_one_unread() -> None:
    admission = Running()
    async with going_on(admission):
        await admission.comes_to_read()
        admission.reload("ada", "bob")
        await eventually(lambda: admission.misses("ada, t.submissions.bob"))
        admission.create("bob")
        await admission.comes_to_read("bob")
        await eventually(lambda: admission.misses("ada"))


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_where_a_topic_stood_that_nobody_shall_have_any_more_is_no_lag_once_another_reads_it(
    *, is_deleted: bool
) -> None:
    admission = Running("ada")
    admission.create("ada")
    async with going_on(admission):
        await admission.comes_to_read("ada")
        cursors = admission.context.health.progress.cursors
        admission.reload()
        if is_deleted:
            admission.delete("ada")
        await admission.looks_again()
        admission.context.health.handled("t.submissions.ada", 0, 7)
        admission.context.health.handled("t.operations", 0, 7)
        await eventually(lambda: "t.submissions.ada/0" not in cursors)
        assert "t.operations/0" in cursors


async def test_of_each_topic_that_is_read_there_is_a_0_of_what_was_deleted_unread() -> None:
    admission = Running("ada")
    admission.create("ada")
    async with going_on(admission):
        await admission.comes_to_read("ada")
        for topic in admission.reads:
            name, found = "fallow_submissions_deleted_unread_total", admission.context.registry
            assert found.get_sample_value(name, {"topic": topic}) == 0


@pytest.mark.parametrize("topic", ["submissions", "snapshots"])
async def test_without_a_topic_of_everybody_it_is_not_ready_and_names_it_until_it_is_back(topic: str) -> None:
    admission = Running()
    async with going_on(admission):
        await admission.comes_to_read()
        await eventually(lambda: admission.context.health.is_ready)
        admission.broker.delete_topic(f"t.{topic}")
        told = f"it has no topic t.{topic}. Run: fallow topics create"
        await eventually(lambda: told in str(admission.context.health.waiting_for))
        admission.broker.create_topic(f"t.{topic}", 1)
        await eventually(lambda: admission.context.health.is_ready)


async def test_it_stays_ready_without_the_topic_of_a_tenant_whether_the_file_names_it_or_not() -> None:
    admission = Running("ada", "bob")
    admission.create("ada", "bob")
    async with going_on(admission):
        await admission.comes_to_read("ada", "bob")
        admission.reload("ada")
        admission.delete("ada")
        admission.delete("bob")
        await eventually(lambda: admission.misses("ada"))
        await admission.looks_again()
        assert admission.context.health.is_ready
        assert not admission.misses("bob")
