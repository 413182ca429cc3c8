"""`fallow verify`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.paths import file_to_read, folder_to_read
from fallow.cli.cells_there import no_such
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence
from fallow.cli.output.output_stream import while_read
from fallow.cli.verify.verification import LiveCheck, join, must_hold_diaries, verify_file
from fallow.cli.verify.verify import Verification, Violation
from fallow.cli.verify.verify_follow import Following, until_signal
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.keys.signers import Signers
from fallow.shared.runtime.collector import tune_collector
from fallow.shared.view.reader import ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions

app = typer.Typer()

NAMED_MAX = 8


@app.command()
def verify(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option(callback=file_to_read, help="Check this exported log and ask no Kafka.")
    ] = None,
    diaries: Annotated[
        list[Path] | None,
        typer.Option(callback=folder_to_read, help="A folder with nodes' diaries. May be given several times."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows, until Ctrl-C.")] = False,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Check a decision log from its beginning, or from the oldest snapshot where that is gone.

    Each record's offset, version and chain; each decision against the invariants I1 to I4 and LEASE; a recount every
    1,000 versions; the nodes' diaries (I6) and Redis (I7) where they are given. Exit 1 with the first offence; with
    --follow each offence is a line, and the exit comes in the end.
    """
    tune_collector()
    if follow:
        if file is not None or diaries:
            end_with(Exit.USAGE, "fallow: --follow reads the live log alone: no --file, no --diaries")
        found = run(while_read(_follow(access_of(context), cell, as_json=as_json)))
        _end(found, "followed to here", as_json=as_json)
        return
    must_hold_diaries(diaries or ())
    if file is not None:
        signers = Signers(access_of(context).cells())
        found, source = verify_file(file, diaries or (), signers), f"{file}, from its beginning"
    else:
        found, source = run(_live(access_of(context), cell, diaries or ()))
    _end(found, source, as_json=as_json)


@asynccontextmanager
async def _checks(access: Access, cell: str | None) -> AsyncIterator[list[LiveCheck]]:
    """A check of each cell that is meant; Redis belongs to it where its address was given."""
    layout = access.layout()
    names = tuple(layout.ordinals) if cell is None else (access.cell(cell),)
    functions = None if access.redis is None else RedisFunctions(access.redis_address)
    view = None if functions is None else ViewReader(functions, access.namespace, names)
    log = KafkaLog(access.kafka_access, "fallow-verify")
    try:
        await log.start()
        yield [LiveCheck(log, layout, name, view) for name in names]
    except ViewRebuilding as error:
        raise await no_such(access, error.cell) or error from error
    finally:
        await log.stop()
        if functions is not None:
            await functions.stop()


async def _live(access: Access, cell: str | None, diaries: Sequence[Path]) -> tuple[Verification, str]:
    async with _checks(access, cell) as checks:
        found = [await check.run(diaries) for check in checks]
    view = access.redis
    source = "; ".join(f"cell {check.cell} from {check.start_text}" for check in checks)
    return join(found), source + ("" if view is None else f"; compared with Redis at {access.redis_shown}")


async def _follow(access: Access, cell: str | None, *, as_json: bool) -> Verification:
    """Check until a signal comes. The first offence of all that were found stands in the answer."""
    first: list[Violation] = []

    def report(name: str, violation: Violation) -> None:
        first.append(violation)
        if as_json:
            print_json({"cell": name, **asdict(violation)})
        else:
            print_sentence(f"cell {name}: {_offence(violation)}")

    async with _checks(access, cell) as checks:
        followed = [Following(check, report) for check in checks]
        for each in followed:
            await each.begin()
        if not as_json:
            print_sentence("; ".join(f"following cell {check.cell} from {check.start_text}" for check in checks))
        await until_signal([each.run() for each in followed])
    whole = join([each.result() for each in followed])
    return replace(whole, first_violation=first[0] if first else None)


def _end(found: Verification, source: str, *, as_json: bool) -> None:
    if as_json:
        print_json(found.as_json())
    else:
        tell(found, source)
    if not found.ok:
        raise typer.Exit(Exit.NO)


def tell(found: Verification, source: str) -> None:
    """The findings for people."""
    print_sentence(f"log: {source}")
    print_sentence(
        f"{_versions(found.from_version, found.to_version)}: {counted(found.records, 'record')}, "
        f"{found.skipped} skipped"
    )
    if found.forged:
        print_sentence(
            f"{counted(found.forged, 'record')} of the skipped that no key of the cell proves: a foreign writer wrote"
        )
    if found.gaps:
        print_sentence(f"{counted(found.gaps, 'offset')} without a record: transactions, or what readers would skip")
    if found.gaps_at_end:
        hold = "holds" if found.gaps_at_end == 1 else "hold"
        print_sentence(
            f"{counted(found.gaps_at_end, 'offset')} behind the last decision {hold} no record: ends of transactions, "
            "aborted transactions, or lost decisions; the log does not tell which"
        )
    if found.nodes_not_checked:
        print_sentence(f"not checked, no line in these diaries: {_named(found.nodes_not_checked)}")
    for part in found.runs_not_checked or ():
        print_sentence(
            f"not compared with the diaries: what cell {part.cell} ordered up to version {part.until_version}, since "
            f"its log is there only from then on ({counted(part.lines, 'diary line')})"
        )
    if found.view_behind:
        print_sentence(
            f"the view lies {counted(found.view_behind, 'version')} behind the log and does not come nearer in time: "
            "look at /readyz of the projector, and whether it writes to the Redis that is read here"
        )
    if found.first_violation is None:
        print_sentence(f"no offence in {found.checks} checks")
        return
    print_sentence(_offence(found.first_violation))


def _versions(behind: int, last: int) -> str:
    """The versions that the log's records made, behind that of the state from which it was read."""
    return f"versions {behind + 1} to {last}" if behind < last else f"no version behind {behind}"


def _named(nodes: Sequence[str]) -> str:
    """These nodes, the first of them by name."""
    others = len(nodes) - NAMED_MAX
    return ", ".join(nodes[:NAMED_MAX]) + (f" and {counted(others, 'other')}" if others > 0 else "")


def _offence(violation: Violation) -> str:
    where = "" if violation.offset is None else f" at offset {violation.offset}"
    return f"OFFENCE against {violation.invariant}{where}, version {violation.version}: {violation.text}"
