"""`fallow cell reload`: has the services read the cell file again, and tells whether it is in force."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.paths import file_to_read
from fallow.cli.cell.reload_answer import QUIET_MS, ReloadAnswer, obstacle
from fallow.cli.cell.reload_keys import mistake_in_keys, picture_of
from fallow.cli.errors.failures import Exit, end_with, say
from fallow.cli.log.newest import newest_state
from fallow.cli.node.operate import operation
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.shared.client.port import CellClient
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import input_name
from fallow.shared.events.operations import ReloadCell
from fallow.shared.log.admin.topic_admin import missing_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.opening import declared_topics
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file

NEXT = "Each admission and placement process reads its own copy: its log says whether 'the cell file was read again'."

OTHER_COPY_MS = 5_000
"""So long an answer is waited for where most likely none comes."""

File = Annotated[
    Path | None,
    typer.Argument(callback=file_to_read, help="The cell file; as --cell-file if none.", show_default=False),
]
OneCell = Annotated[str | None, typer.Option("--cell", help="Only this cell; if none, every cell of the file.")]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answers.")]


def reload(
    context: typer.Context, file: File = None, cell: OneCell = None, timeout_s: Timeout = 30, as_json: AsJson = False
) -> None:
    """Have the services read the cell file again, and wait until the log says that it is in force. Its policy and
    its quotas take the place of those that were set at run time; quotas that no file had stay. It is checked here
    first; the services read their own copies of it.

    Exit 1 if a cell goes by another file or refuses a part, 3 if one does not answer in time.
    """
    given = access_of(context)
    access = given if file is None else replace(given, cell_file=file)
    names = [each.name for each in access.cells().cells] if cell is None else [access.cell(cell)]
    answers = run(_reload(access, usual_files(given), names, timeout_s * 1000))
    if as_json:
        told = [answer.as_object() for answer in answers]
        print_json({"ok": worst(answers) is Exit.OK, "file": str(access.cell_path), "cells": told})
    for answer in answers:
        if answer.code is Exit.AWAY:
            say(f"fallow: {answer.text}")
        elif not as_json:
            print_line(answer.text)
    if not as_json:
        print_line(NEXT)
    if worst(answers) is not Exit.OK:
        raise typer.Exit(worst(answers))


def usual_files(given: Access) -> list[Path]:
    """The files that commands read, and services too where their environment is the same."""
    named = os.environ.get("FALLOW_CELL_FILE")
    unnamed = replace(given, cell_file=Path(named) if named else None)
    return list(dict.fromkeys((given.cell_path, unnamed.cell_path)))


async def _reload(access: Access, usual: Sequence[Path], cells: list[str], wait_ms: int) -> list[ReloadAnswer]:
    """What becomes of the reload in each cell; `usual` are the files that commands read, and services too where their
    environment is the same. Ends the command, and asks for nothing, where the services would refuse
    the file. Raises ClientUnavailable, and as `newest_state` does.
    """
    file = access.cells()
    answers = [ReloadAnswer(file, str(access.cell_path), await _before(access, file, cell)) for cell in cells]
    await warn_of_missing_topics(access)
    digests = [answer.digest_before for answer in answers]
    for file_read in (path for path in usual if is_in_force_elsewhere(path, access.cell_path, digests)):
        wait_ms = min(wait_ms, OTHER_COPY_MS)
        where = (
            f"the services read {file_read}, unless their FALLOW_CELL_FILE says otherwise, and that file is in force"
        )
        say(f"fallow: {where}: copy {access.cell_path} there first; this command waits {wait_ms // 1000} s")
        break
    async with access.client() as client:
        await ask_for_reload(client, answers, wait_ms, Requests(access).are_read)
    return answers


async def _before(access: Access, file: CellFile, cell: str) -> CellState:
    """The cell before the reload. Ends the command where the services would refuse the file. Raises as `newest_state`
    does.
    """
    log, layout = KafkaLog(access.kafka_access, "fallow-cli"), access.layout()
    await log.start()
    try:
        own = await picture_of(log, layout, cell)
        why = await mistake_in_keys(log, layout, file, own) or obstacle(file, own.state)
    finally:
        await log.stop()
    if why:
        end_with(Exit.NO, f"fallow: {access.cell_path}: {why}. Nothing was asked for")
    return own.state


@dataclass
class Requests:
    """The operations of cells, and how far each cell has read them."""

    access: Access
    ends: dict[str, int] = field(default_factory=dict)

    async def are_read(self, cell: str) -> bool:
        """Whether the cell has taken in all that was there when this was first asked. Raises LogUnavailable, and as
        `newest_state` does.
        """
        layout = self.access.layout()
        if cell not in self.ends:
            tp = layout.tp("operations", cell)
            log = KafkaLog(self.access.kafka_access, "fallow-cli")
            await log.start()
            try:
                self.ends[cell] = (await log.end_offsets([tp]))[tp]
            finally:
                await log.stop()
        state = await newest_state(self.access, cell)
        return state.inputs.get(input_name("operations", layout.ordinals[cell]), 0) >= self.ends[cell]


def is_in_force_elsewhere(usual: Path, wished: Path, in_force: Sequence[str | None]) -> bool:
    """Whether the services, as far as one can tell here, read another file than the wished one: these cells go by the
    `usual` one as it is. A reload would change nothing then, and get no answer.
    """
    if usual.resolve() == wished.resolve():
        return False
    try:
        digest = as_effect(load_cell_file(usual)).digest
    except CellFileError:
        return False
    return all(each == digest for each in in_force)


async def warn_of_missing_topics(access: Access) -> None:
    """Say which topics the file needs that are not there: services that start anew would not start without them. Raises
    LogUnavailable.
    """
    missing = await missing_topics(access.kafka_access, declared_topics(access.cells(), access.namespace))
    if missing:
        say(f"fallow: {', '.join(missing)}: not there. Run: fallow topics create")


async def ask_for_reload(
    client: CellClient, answers: Sequence[ReloadAnswer], wait_ms: int, are_read: Callable[[str], Awaitable[bool]]
) -> None:
    """Ask each of these cells to read the file again, and take in what they say, for as long as `wait_ms` at the most.
    `are_read` tells whether a cell has read its requests: where nothing comes of it, it is asked now and then. Raises
    ClientUnavailable, and as `are_read` does.
    """
    by_cell = {answer.cell: answer for answer in answers}
    marks = [await client.operate(operation(ReloadCell, cell=cell)) for cell in by_cell]
    begin_ms, look_ms = monotonic_ms(), QUIET_MS
    async with aclosing(client.news(marks[0])) as stream:
        async for some in stream:
            for news in some:
                if news.cell in by_cell:
                    by_cell[news.cell].take(news)
            for cell in client.passed_over(marks[0]):
                if cell in by_cell:
                    by_cell[cell].passes_over()
            waited_ms = monotonic_ms() - begin_ms
            if waited_ms >= look_ms:
                look_ms = waited_ms + QUIET_MS
                for answer in answers:
                    if not answer.is_over(waited_ms) and await are_read(answer.cell):
                        answer.is_read(waited_ms)
            if waited_ms > wait_ms or all(answer.is_over(waited_ms) for answer in answers):
                break


def worst(answers: Sequence[ReloadAnswer]) -> Exit:
    """The exit code of all of them: a no is worse than no answer."""
    codes = [answer.code for answer in answers]
    return Exit.NO if Exit.NO in codes else max(codes)
