"""One task for each owned cell, for as long as it is owned and a little longer."""

from __future__ import annotations

import asyncio

import pytest

from fallow.shared.log.layout import Layout
from fallow.shared.log.sharing.cell_tasks import CellTasks, Tenure
from tests.contract.eventually import eventually

LAYOUT = Layout("fallow", {"cell-a": 0, "cell-b": 1})


class Membership:
    """A member whose share a test gives by hand."""

    def __init__(self) -> None:
        self.shares: asyncio.Queue[frozenset[int]] = asyncio.Queue()
        self.last: frozenset[int] = frozenset()
        self.declined: frozenset[int] = frozenset()

    def decline(self, partitions: frozenset[int]) -> None:
        self.declined = partitions

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def owned(self) -> frozenset[int]:
        return self.last

    async def changed(self) -> frozenset[int]:
        self.last = await self.shares.get()
        return self.last


class Worker:
    def __init__(self) -> None:
        self.at_work: dict[str, Tenure] = {}
        self.starts = 0

    async def __call__(self, tenure: Tenure) -> None:
        self.starts += 1
        self.at_work[tenure.cell] = tenure
        try:
            await asyncio.Event().wait()
        finally:
            del self.at_work[tenure.cell]


async def test_each_owned_cell_has_a_task_until_the_end() -> None:
    member, worker, stopping = Membership(), Worker(), asyncio.Event()
    tasks = CellTasks(member, LAYOUT, worker)
    run = asyncio.create_task(tasks.run(stopping))
    member.shares.put_nowait(frozenset({0, 1, 7}))
    await eventually(lambda: sorted(worker.at_work) == ["cell-a", "cell-b"])
    assert tasks.owned == ["cell-a", "cell-b"]
    stopping.set()
    await run
    assert worker.at_work == {}


async def test_a_cell_that_comes_back_finds_its_task_where_it_was() -> None:
    member, worker, stopping = Membership(), Worker(), asyncio.Event()
    tasks = CellTasks(member, LAYOUT, worker)
    run = asyncio.create_task(tasks.run(stopping))
    member.shares.put_nowait(frozenset({0}))
    await eventually(lambda: "cell-a" in worker.at_work)
    member.shares.put_nowait(frozenset())
    await eventually(lambda: not worker.at_work["cell-a"].holds)
    assert tasks.owned == []
    member.shares.put_nowait(frozenset({0}))
    await eventually(lambda: worker.at_work["cell-a"].holds)
    assert worker.starts == 1
    stopping.set()
    await run


async def test_a_cell_that_stays_away_is_let_go() -> None:
    member, worker, stopping = Membership(), Worker(), asyncio.Event()
    run = asyncio.create_task(CellTasks(member, LAYOUT, worker, linger_s=0.01).run(stopping))
    member.shares.put_nowait(frozenset({0}))
    await eventually(lambda: "cell-a" in worker.at_work)
    member.shares.put_nowait(frozenset())
    await eventually(lambda: worker.at_work == {})
    member.shares.put_nowait(frozenset({0}))
    await eventually(lambda: "cell-a" in worker.at_work)
    assert worker.starts == 2
    stopping.set()
    await run


async def test_an_error_of_one_cell_ends_all() -> None:
    member, ended = Membership(), asyncio.Event()

    async def work(tenure: Tenure) -> None:
        if tenure.cell == "cell-a":
            raise RuntimeError("cell-a is damaged")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    member.shares.put_nowait(frozenset({0, 1}))
    with pytest.raises(RuntimeError, match="cell-a is damaged"):
        await CellTasks(member, LAYOUT, work).run(asyncio.Event())
    assert ended.is_set()
