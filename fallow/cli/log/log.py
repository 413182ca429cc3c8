"""`fallow log`: the decision log as sentences, and as a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import aclosing, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.paths import OUTPUT, Replace, must_be_free, to_write_in_order
from fallow.cli.cells_there import no_such
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.log.at import at
from fallow.cli.log.diff import diff
from fallow.cli.log.file import is_output, keeps_a_part, write_line, written_in_order
from fallow.cli.log.repair import log_repair
from fallow.cli.log.sentences import heading, nothing_changed, sentence
from fallow.cli.log.why import why
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName, print_json, print_line, print_sentence
from fallow.cli.output.output_stream import while_read
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import plain
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import Log, LogUnavailable, Reader, Record, TopicPartition, UnreadableRecords

app = typer.Typer(no_args_is_help=True, help="Read the decision log, and repair it.")
app.command()(at)
app.command()(diff)
app.command()(why)
app.command("repair")(log_repair)

READ_ONCE = 1_000
POLL_WAIT_MS = 250
IDLE_POLLS_MAX = 40


@app.command()
def tail(
    context: typer.Context,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000_000, help="How many decisions.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each new one until Ctrl-C.")] = False,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """The last decisions, one sentence for each effect."""
    work = _tail(access_of(context), count, follow=follow, cell=cell, as_json=as_json)
    run(while_read(work) if follow else work)


async def _tail(access: Access, count: int, *, follow: bool, cell: str | None, as_json: bool) -> None:
    name = access.cell(cell)
    kept, is_empty = list[dict[str, Any]](), True
    async with access.client() as client, aclosing(client.newest(name, count, follow=follow)) as found:
        async for decision in found:
            is_empty = False
            if not as_json:
                print_decision(decision)
            elif follow:
                print_json(as_object(decision))
            else:
                kept.append(as_object(decision))
    if is_empty and (error := await no_such(access, name)):
        raise error
    if as_json:
        print_json({"decisions": kept})


@app.command()
def show(
    context: typer.Context,
    version: Annotated[int, typer.Argument(min=1, help="The version that the decision made.", show_default=False)],
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """One decision, one sentence for each effect."""
    decision = run(_one(access_of(context), version, cell))
    if decision is None:
        end_with(Exit.NO, f"fallow: the log holds no accepted decision of version {version}")
    if as_json:
        print_json(as_object(decision))
    else:
        print_decision(decision)


async def _one(access: Access, version: int, cell: str | None) -> Decision | None:
    name = access.cell(cell)
    async with access.client() as client, aclosing(client.decisions(name, version, version)) as found:
        return await anext(found, None)


@app.command()
def export(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            callback=to_write_in_order,
            help="Compressed when it ends in .gz; - is standard output.",
            show_default=False,
        ),
    ],
    cell: CellName = None,
    yes: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write the log as it is to a file that `verify --file` reads."""
    if file != OUTPUT and not is_output(file):
        must_be_free("FILE", file, replaces=yes)
    try:
        count, left_out = run(_export(access_of(context), file, cell))
    except OSError as error:
        if isinstance(error, BrokenPipeError) and is_output(file):
            raise
        end_with(Exit.USAGE, f"fallow: {file}: cannot be written: {error.strerror}")
    # The records are the answer where they go to standard output, and nothing stands among them.
    with redirect_stdout(sys.stderr) if is_output(file) else nullcontext():
        if as_json:
            print_json({"file": str(file), "records": count})
        else:
            print_line(f"{counted(count, 'record')} in {file}")
    if left_out:
        text = "; ".join(left_out)
        end_with(Exit.NO, f"fallow: {file} holds all that can be read: {text}. Begin with: fallow log repair")


async def _export(access: Access, file: Path, cell: str | None) -> tuple[int, list[str]]:
    """How many records were written, and what could not be read."""
    tp = access.layout().tp("decisions", access.cell(cell))
    log = KafkaLog(access.kafka_access, "fallow-cli")
    await log.start()
    try:
        return await write_records(log, tp, file)
    finally:
        await log.stop()


async def write_records(log: Log, tp: TopicPartition, file: Path) -> tuple[int, list[str]]:
    """Write the records of a partition of a log that has been started. Raises LogUnavailable where it falls silent,
    OSError.
    """
    begin, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    reader = log.reader({tp: begin})
    await reader.start()
    try:
        return await _write_to(file, reader, tp, end)
    finally:
        await reader.stop()


async def _write_to(file: Path, reader: Reader, tp: TopicPartition, end: int) -> tuple[int, list[str]]:
    position, count, idle, left_out = reader.positions()[tp], 0, 0, list[str]()
    last: Record | None = None
    with written_in_order(file) as output:
        while position < end and idle < IDLE_POLLS_MAX:
            try:
                records = await reader.poll(READ_ONCE, POLL_WAIT_MS)
            except UnreadableRecords as error:
                left_out.append(str(error))
                reader.seek(tp, position := error.begin)
                continue
            idle = 0 if records else idle + 1
            for record in (found for found in records if found.offset < end):
                if last is not None:
                    write_line(output, last, end)
                last, count = record, count + 1
            position = reader.positions()[tp]
        if last is not None:  # the ends of transactions, which are no records, may stand behind it
            write_line(output, last, end if position < end else last.offset + 1)
        if position < end:
            wait_s = IDLE_POLLS_MAX * POLL_WAIT_MS // 1000
            text = f"the log ends at offset {end}, and nothing from {position} on came for {wait_s} s"
            raise LogUnavailable(f"{file} {'is cut short' if keeps_a_part(file) else 'is not written'}: {text}")
    return count, left_out


def print_decision(decision: Decision) -> None:
    """The decision for people."""
    for line in decision_lines(decision):
        print_sentence(line)


def decision_lines(decision: Decision) -> Iterator[str]:
    """Its heading, and below it a sentence for each effect; or that there is none, and what was read all the same."""
    yield heading(decision)
    for effect in decision.effects:
        yield f"    {sentence(effect, decision.at_ms)}"
    if not decision.effects:
        yield f"    {nothing_changed(decision)}"


def as_object(decision: Decision) -> dict[str, Any]:
    """The decision for programs, with a sentence for each of its effects. Its own fields are all there, also those that
    its record leaves out. Beside each `by` stands whether it is vouched for.
    """
    shown = plain(decision)
    for name, nothing in (("inputs", {}), ("input_checksums", {}), ("effects", [])):
        shown.setdefault(name, nothing)
    for effect in shown["effects"]:
        if "by" in effect:
            effect["vouched"] = False  # nothing vouches for a name yet
    return {**shown, "sentences": [sentence(effect, decision.at_ms) for effect in decision.effects]}
