"""The keys of a service follow its cell file, whenever that changes and whichever task asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from fallow.shared.log.keys.service_signers import SAID_EVERY_MS, ServiceSigners
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.signing import NEXT, WRITERS, public, signed_text

T = TypeVar("T")
CELL = "main"


class SlowDisk(Host):
    """A machine on which the first reading of the file takes until it is let go, and has what stood there before."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on, self.has_read = asyncio.Event(), asyncio.Event()
        self.readings = 0

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        self.readings += 1
        found = await super().beside(work, kind, may_be_long=may_be_long)
        self.has_read.set()
        await asyncio.wait_for(self.goes_on.wait(), 10)
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cell.yaml"
    path.write_text(signed_text(public(WRITERS)))
    return path


@pytest.fixture
def context(path: Path) -> Context[ServiceSettings]:
    return make_context("projector", ServiceSettings(cell_file=path))


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def signers(context: Context[ServiceSettings], path: Path, disk: SlowDisk) -> ServiceSigners:
    """Of a process that has read its cell file and has asked nothing yet."""
    return ServiceSigners(replace(context, host=disk), load_cell_file(path))


class Clocked(Host):
    """A machine whose clock is moved by hand."""

    now_ms = 5_000

    def monotonic_ms(self) -> int:
        return self.now_ms


class Said:
    """A logger whose warnings are kept."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def warning(self, _: str, *, cell: str, records: int, offset: int) -> None:
        self.lines.append((cell, records, offset))


def test_what_no_key_proves_is_said_once_a_minute_for_each_cell_with_all_that_came_since(
    context: Context[ServiceSettings], path: Path
) -> None:
    clock, said = Clocked(), Said()
    signers = ServiceSigners(replace(context, host=clock, logger=cast("Any", said)), load_cell_file(path))
    for offset in range(1_000):
        signers.skipped(CELL, [offset, offset + 1_000])
    signers.skipped("other", [7])
    assert said.lines == [(CELL, 2, 0), ("other", 1, 7)]
    clock.now_ms += SAID_EVERY_MS
    signers.skipped(CELL, [5_000])
    signers.skipped(CELL, [5_001])
    assert said.lines[2:] == [(CELL, 1_999, 1)]


def add_the_next_key(path: Path) -> None:
    path.write_text(signed_text(public(WRITERS), public(NEXT)))


def write_a_broken_file(path: Path) -> None:
    path.write_text("cells: [")


def knows_the_next_key(signers: ServiceSigners) -> bool:
    keys = signers.of(CELL)
    return keys is not None and keys.may_write(NEXT.public)


async def test_a_file_that_changed_between_its_reading_and_the_first_question_is_read_again(
    context: Context[ServiceSettings], path: Path
) -> None:
    file = load_cell_file(path)
    add_the_next_key(path)
    signers = ServiceSigners(context, file)
    assert await signers.renewed()
    assert knows_the_next_key(signers)


async def test_who_asks_while_another_reads_the_file_waits_for_the_keys_and_hears_of_them(
    signers: ServiceSigners, path: Path, disk: SlowDisk
) -> None:
    add_the_next_key(path)
    asked = [asyncio.create_task(signers.renewed()) for _ in range(3)]
    done, _ = await asyncio.wait(asked, timeout=0.05)
    assert not done
    disk.goes_on.set()
    assert await asyncio.gather(*asked) == [True, True, True]
    assert (knows_the_next_key(signers), disk.readings) == (True, 1)


async def test_a_reading_that_was_cancelled_is_made_again(signers: ServiceSigners, path: Path, disk: SlowDisk) -> None:
    add_the_next_key(path)
    asked = asyncio.create_task(signers.renewed())
    await asyncio.wait([asked], timeout=0.05)
    asked.cancel()
    await asyncio.wait([asked])
    disk.goes_on.set()
    assert await signers.renewed()
    assert knows_the_next_key(signers)


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    signers: ServiceSigners, path: Path, disk: SlowDisk
) -> None:
    asked = asyncio.create_task(signers.renewed())
    await asyncio.wait_for(disk.has_read.wait(), 10)
    add_the_next_key(path)
    disk.goes_on.set()
    assert not await asked
    assert await signers.renewed()
    assert knows_the_next_key(signers)


async def test_a_file_that_stays_is_read_once_and_one_with_an_error_changes_nothing(
    context: Context[ServiceSettings], path: Path
) -> None:
    disk = SlowDisk()
    disk.goes_on.set()
    signers = ServiceSigners(replace(context, host=disk), load_cell_file(path))
    assert [await signers.renewed() for _ in range(3)] == [False, False, False]
    assert disk.readings == 1
    write_a_broken_file(path)
    assert [await signers.renewed() for _ in range(3)] == [False, False, False]
    assert disk.readings == 2
    assert (signers.of(CELL) is not None, knows_the_next_key(signers)) == (True, False)
