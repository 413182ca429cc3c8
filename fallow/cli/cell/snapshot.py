"""`fallow snapshot`: a cell as a file, and back where nothing is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.paths import Replace, file_to_read, file_to_write, must_be_free
from fallow.cli.cell.archive import Archive, Head, Unread, read_archive, write_archive
from fallow.cli.cell.cell_transfer import (
    Departure,
    NotMovable,
    arrive,
    refuse_where_something_is,
    submission_partitions,
)
from fallow.cli.errors.failures import Exit, end_with, say
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.admin.group_members import member_count
from fallow.shared.log.admin.group_offsets import committed_offsets
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.view.keys import keys_of
from fallow.shared.view.redis_view import RedisFunctions

app = typer.Typer(no_args_is_help=True, help="Move a cell to another Kafka: export, import.")

WRITER = "fallow-cli"

ADD_TO_A_CELL = ("placement", "admission")
"""The services that decide and accept: what they do behind an export is not in its file."""


@app.command("export")
def export_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(callback=file_to_write, help="Compressed when it ends in .gz.", show_default=False)
    ],
    cell: CellName = None,
    yes: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a whole cell to one file with a checksum: its state, and what was published for it and not read yet.

    Stop the cell's services before you move it: what they decide and accept from then on is not in the file. Where they
    run, that is told.
    """
    must_be_free("FILE", file, replaces=yes)
    access = access_of(context)
    name = access.cell(cell)
    try:
        state, unread, still = run(_collect(access, name))
        head = write_archive(file, state, unread)
    except NotMovable as error:
        end_with(Exit.NO, f"fallow: {error}")
    except OSError as error:
        end_with(Exit.USAGE, f"fallow: {file}: cannot be written: {error.strerror}")
    if as_json:
        print_json({"file": str(file), **_as_object(head, state, unread)})
    else:
        print_sentence(f"{_told(head, state, unread)} in {file}")
    if still:
        behind = f"what cell {name} decides and accepts behind version {head.version} is not in {file}"
        say(f"fallow: {still} {behind}. To move the cell, stop its services and export it again")


async def _collect(access: Access, cell: str) -> tuple[CellState, tuple[Unread, ...], str]:
    """Its state, what is unread, and that services still add to it; "" where none does."""
    layout, file = access.layout(), access.cells()
    async with _log(access) as log:
        # A tenant that has none any more may have left something in the one that it had.
        tenants = [tenant.name for tenant in file.tenants]
        asked = await submission_partitions(log, layout, tenants)
        committed = await committed_offsets(access.kafka_access, layout.group("admission"), asked)
        state, unread = await Departure(log, layout, cell, committed, tenants).collect()
    return state, unread, await _who_adds(access)


async def _who_adds(access: Access) -> str:
    """Which services of the namespace run, or may run, as the begin of a sentence; "" where none does."""
    layout = access.layout()
    where = f"namespace {access.namespace}"
    try:
        counts = {name: await member_count(access.kafka_access, layout.group(name)) for name in ADD_TO_A_CELL}
    except LogUnavailable as error:
        return f"if services of {where} still run (it cannot be told: {error}),"
    if None in counts.values():
        return f"if services of {where} still run (this Kafka cannot tell),"
    names = [name for name, count in counts.items() if count]
    return f"{' and '.join(names)} of {where} still run{'s' * (len(names) == 1)}, so" if names else ""


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(callback=file_to_read, help="A file that `export` wrote.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Put an exported cell down in an empty Kafka and an empty Redis, before its services start: it goes on where it
    was. Where anything of the cell is already, or the file is not whole, nothing is changed.
    """
    archive = read_archive(file)
    access = access_of(context)
    name = archive.head.cell
    if name not in (part.name for part in access.cells().cells):
        end_with(Exit.USAGE, f"fallow: {file}: cell {name} is not in {access.cell_path}")
    try:
        state = run(_arrive(access, archive))
    except NotMovable as error:
        end_with(Exit.NO, f"fallow: {error}")
    if as_json:
        print_json({"file": str(file), **_as_object(archive.head, state, archive.unread)})
    else:
        print_sentence(f"{_told(archive.head, state, archive.unread)} from {file}; its services may start now")


async def _arrive(access: Access, archive: Archive) -> CellState:
    await _refuse_where_a_view_is(access, archive.head.cell)
    layout = access.layout()
    async with _log(access) as log:
        await refuse_where_something_is(log, layout, archive.head.cell)
        try:
            return await arrive(log, layout, archive, writer=WRITER, wall_ms=wall_ms())
        except LogUnavailable as error:
            text = f"{error}. The import is broken off: create the topics anew before another one"
            raise LogUnavailable(text) from error


async def _refuse_where_a_view_is(access: Access, cell: str) -> None:
    functions = RedisFunctions(access.redis_address)
    try:
        there = await functions.ask("EXISTS", *keys_of(access.namespace, cell))
    finally:
        await functions.stop()
    if there:
        raise NotMovable(f"cell {cell} is not empty here: {access.redis_shown} holds a view of it")


@asynccontextmanager
async def _log(access: Access) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(access.kafka_access, WRITER)
    await log.start()
    try:
        yield log
    finally:
        await log.stop()


def _as_object(head: Head, state: CellState, unread: tuple[Unread, ...]) -> dict[str, Any]:
    return {
        "cell": head.cell,
        "version": head.version,
        "at_ms": head.at_ms,
        "digest": head.digest,
        "jobs": len(state.jobs),
        "over": len(state.finished),
        "nodes": len(state.nodes),
        "unread": dict(sorted(Counter(record.topic for record in unread).items())),
    }


def _told(head: Head, state: CellState, unread: tuple[Unread, ...]) -> str:
    return (
        f"cell {head.cell} at version {head.version}, {moment(head.at_ms)}: "
        f"{counted(len(state.jobs), 'live job')}, {len(state.finished):,} remembered, "
        f"{counted(len(state.nodes), 'node')}, {counted(len(unread), 'unread record')}"
    )
