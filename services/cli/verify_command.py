"""`fallow verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.access import Access, access_of, run
from services.cli.failures import Exit
from services.cli.output import AsJson, CellName, print_json, print_line
from services.cli.verification import LiveCheck, join, verify_file
from services.cli.verify import Verification
from shared.log.kafka import KafkaLog
from shared.runtime.collector import tune_collector
from shared.view.reader import ViewReader
from shared.view.redis_view import RedisFunctions

app = typer.Typer()


@app.command()
def verify(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option(help="Check this exported log and ask no Kafka.")] = None,
    diaries: Annotated[Path | None, typer.Option(help="The folder with the nodes' diaries, one file a node.")] = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Check a decision log from its beginning, or from the oldest snapshot where that is gone.

    Each record's offset, version and chain; each decision against the invariants I1 to I4; a recount every 1,000
    versions; the nodes' diaries (I6) and Redis (I7) where they are given. Exit 1 with the first offence.
    """
    tune_collector()
    if file is not None:
        found, source = verify_file(file, diaries), f"{file}, from its beginning"
    else:
        found, source = run(_live(access_of(context), cell, diaries))
    if as_json:
        print_json(found.as_json())
    else:
        tell(found, source)
    if not found.ok:
        raise typer.Exit(Exit.NO)


async def _live(access: Access, cell: str | None, diaries: Path | None) -> tuple[Verification, str]:
    layout = access.layout()
    names = tuple(layout.ordinals) if cell is None else (access.cell(cell),)
    functions = None if access.redis is None else RedisFunctions(access.redis_address)
    view = None if functions is None else ViewReader(functions, access.namespace, names)
    log = KafkaLog(access.kafka_address, "fallow-verify")
    try:
        await log.start()
        checks = [LiveCheck(log, layout, name, view) for name in names]
        found = [await check.run(diaries) for check in checks]
    finally:
        await log.stop()
        if functions is not None:
            await functions.stop()
    source = "; ".join(f"cell {check.cell} from {check.start_text}" for check in checks)
    return join(found), source + ("" if view is None else f"; compared with Redis at {access.redis_address}")


def tell(found: Verification, source: str) -> None:
    """The findings for people."""
    print_line(f"log: {source}")
    print_line(f"versions {found.from_version} to {found.to_version}: {found.records} records, {found.skipped} skipped")
    if found.first_violation is None:
        print_line(f"no offence in {found.checks} checks")
        return
    violation = found.first_violation
    where = "" if violation.offset is None else f" at offset {violation.offset}"
    print_line(f"OFFENCE against {violation.invariant}{where}, version {violation.version}: {violation.text}")
