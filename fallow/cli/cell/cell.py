"""`fallow cell`: the cell file, checked and put in force, and the keys that stand in it."""

from pathlib import Path
from typing import Annotated

import typer

from fallow.cli.access import access_of
from fallow.cli.arguments.paths import file_to_read
from fallow.cli.cell.key import key
from fallow.cli.cell.reload import reload
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, print_json, print_sentence
from fallow.shared.cluster.model.config import CellPart
from fallow.shared.log.admin.topics import TopicsFileError
from fallow.shared.log.opening import declared_topics
from fallow.shared.runtime.files.cell_file import load_cell_file

app = typer.Typer(no_args_is_help=True, help="Check a cell file, put it in force while the cells run, make keys.")


@app.command()
def check(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(callback=file_to_read, help="The cell file; as --cell-file if none.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a cell file as the services do; each mistake is named with its line."""
    path = access_of(context).cell_path if file is None else file
    found = load_cell_file(path)
    try:
        declared_topics(found, "check")
    except TopicsFileError as error:
        end_with(Exit.USAGE, f"fallow: {path}: {error}")
    names = {
        "cells": [cell.name for cell in found.cells],
        "pools": [pool.name for cell in found.cells for pool in cell.pools],
        "queues": list(dict.fromkeys(queue.name for cell in found.cells for queue in cell.queues)),
        "tenants": [tenant.name for tenant in found.tenants],
    }
    if as_json:
        queues = {cell.name: cell.default_queue for cell in found.cells}
        signed_from = {cell.name: cell.signing.from_version for cell in found.cells if cell.signing is not None}
        print_json({"ok": True, **names, "default_queues": queues, "signed_from": signed_from})
        return
    print_sentence(f"{path}: no mistakes")
    for what, listed in names.items():
        print_sentence(f"  {what}: {', '.join(listed)}")
    for cell in found.cells:
        print_sentence(
            f"cell {cell.name}: jobs without a queue of their own or of their tenant wait in {cell.default_queue}"
        )
        print_sentence(f"cell {cell.name}: {signing_in_words(cell)}")


def signing_in_words(cell: CellPart) -> str:
    """By which keys its decisions are believed."""
    if cell.signing is None:
        return "decisions are not signed: readers believe every writer of the topic"
    keys = cell.signing.keys
    writing = sum(key.until_version is None for key in keys)
    retired = f", {len(keys) - writing} retired" if writing < len(keys) else ""
    return f"decisions are signed from version {cell.signing.from_version}: {counted(writing, 'key')}{retired}"


app.command()(reload)
app.command()(key)
