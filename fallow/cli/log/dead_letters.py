"""`fallow dead-letters`: what was set aside, and how it gets back to where it came from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.errors.failures import Exit, end_with, say
from fallow.cli.log.read_back import records_between
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import moment
from fallow.cli.output.output import AsJson, print_json, print_line, print_table
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.inputs.letters import (
    NO_LETTER,
    Letter,
    Letters,
    Lost,
    is_proven_by,
    letter_of,
    note_of_replay,
    original_of,
)
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import Appended, Log, LogUnavailable, Outgoing, RecordTooLarge, TopicPartition

app = typer.Typer(no_args_is_help=True, help="What could not be handled: list, show, replay.")

COLUMNS = (">OFFSET", "WHEN", "SERVICE", "REASON", "ORIGIN", ">BYTES", "TEXT", "REPLAYED")
SPARE = ("BYTES", "SERVICE", "WHEN", "REPLAYED")
CLAIMED = frozenset({"service", "reason", "text", "origin_topic", "origin_partition", "origin_offset"})
"""The headers in which a letter tells of itself."""

TEXT_CHARS_SHOWN = 80
VALUE_BYTES_SHOWN = 4_000
HEADERS_SHOWN, HEADER_CHARS_SHOWN = 64, 1_024
"""More than a letter of Fallow has. Of what others wrote into the topic a record may be nothing but headers."""

Reason = Annotated[DeadLetterReason | None, typer.Option("--reason", help="Only letters with this reason.")]
UNPROVEN_HELP = (
    "Also a letter whose origin the log no longer holds: nothing proves then that it ever stood there. Any user who "
    "may write dead-letters may have made it up."
)
Offsets = Annotated[list[int] | None, typer.Argument(help="Offsets, as `list` shows them.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one letter: why it was not sent, "" where it was; and the place that would have proved it, where the
    log holds nothing there any more.
    """

    refused: str = ""
    unproven: str = ""

    def __str__(self) -> str:
        """In words."""
        if self.refused:
            return self.refused
        return f"replayed, unproven: the log no longer holds {self.unproven}" if self.unproven else "replayed"


@app.command("list")
def list_(context: typer.Context, reason: Reason = None, as_json: AsJson = False) -> None:
    """Every dead letter that is kept, the oldest first. A record that tells of nothing that was set aside is named no
    dead letter: `show` shows what it holds, and `replay` refuses it.

    What a letter says of itself is claimed: any user with the right to write dead-letters may have written it.
    """
    access = access_of(context)
    found = [letter for letter in run(_letters(access)) if reason is None or letter.reason == reason]
    if as_json:
        print_json({"letters": [_as_object(access, letter) for letter in found]})
        return
    rows = [
        (
            letter.offset,
            moment(letter.record.timestamp_ms),
            letter.service,
            letter.reason,
            letter.origin if letter.is_letter else "",
            letter.size_bytes,
            letter.text[:TEXT_CHARS_SHOWN] if letter.is_letter else "no dead letter",
            letter.replays or "",
        )
        for letter in found
    ]
    count = counted(sum(letter.is_letter for letter in found), "dead letter")
    title = f"{count}; service, reason, origin and text are claims of their writers"
    print_table(title, COLUMNS, rows, SPARE)


@app.command()
def show(
    context: typer.Context,
    offset: Annotated[int, typer.Argument(min=0, help="As `list` shows it.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """One dead letter: its headers and the bytes that were set aside, all as its writer claims."""
    access = access_of(context)
    letter = run(_one(access, offset))
    if letter is None:
        end_with(Exit.NO, f"fallow: no dead letter at offset {offset}")
    headers = [(name, value.decode("utf-8", "backslashreplace")) for name, value in letter.record.headers]
    value = letter.record.value or b""
    text = _text_of(value)
    if as_json:
        shown = {"value": text} if text is not None else {"value_hex": value.hex()}
        print_json({**_as_object(access, letter), "headers": [list(pair) for pair in headers], **shown})
        return
    if not letter.is_letter:
        print_line(f"Not set aside by Fallow: {NO_LETTER}.")
    for line in header_lines(headers):
        print_line(line)
    print_line("")
    print_line(text[:VALUE_BYTES_SHOWN] if text is not None else value[:VALUE_BYTES_SHOWN].hex(" ", 4))
    if len(value) > VALUE_BYTES_SHOWN:
        print_line(f"... {len(value)} bytes; --json shows all of them")


def header_lines(headers: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A line for each header, as many and as much of each as people read; and how many were left out."""
    for name, value in headers[:HEADERS_SHOWN]:
        claimed = " (claimed)" if name in CLAIMED else ""
        yield f"{_cut(name)}: {_cut(value)}{claimed}"
    left_out = len(headers) - HEADERS_SHOWN
    if left_out > 0:
        yield f"... {counted(left_out, 'more header')}; --json shows all of them"


def _cut(text: str) -> str:
    left_out = len(text) - HEADER_CHARS_SHOWN
    return text if left_out <= 0 else f"{text[:HEADER_CHARS_SHOWN]}... ({counted(left_out, 'more character')})"


@app.command()
def replay(
    context: typer.Context,
    offsets: Offsets = None,
    reason: Reason = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed before.")] = False,
    unproven: Annotated[bool, typer.Option("--unproven", help=UNPROVEN_HELP)] = False,
    as_json: AsJson = False,
) -> None:
    """Send the original bytes, key and headers once more to where they came from: each letter once, unless --again.

    Only what the log still holds at the place that the letter names, to the last byte. Exit 1 if any of them could not
    be sent.
    """
    if bool(offsets) == bool(reason):
        end_with(Exit.USAGE, "fallow: name either offsets or --reason")
    if unproven and not offsets:
        end_with(Exit.USAGE, "fallow: --unproven needs the offsets: look at each letter first")
    told = run(_replay(access_of(context), offsets or [], reason, again=again, unproven=unproven))
    if as_json:
        print_json(_told_as_object(told))
    else:
        for at, each in told.items():
            print_line(f"{at}: {each}")
        if not told:
            say("fallow: no dead letter has this reason")
    if not told or any(each.refused for each in told.values()):
        raise typer.Exit(Exit.NO)


def _told_as_object(told: dict[int, Told]) -> dict[str, Any]:
    return {
        "replayed": [at for at, each in told.items() if not each.refused],
        "unproven": [at for at, each in told.items() if each.unproven],
        "refused": [{"offset": at, "why": each.refused} for at, each in told.items() if each.refused],
    }


class Box:
    """The topic of dead letters, as one command sees it: read up to a moment, and then onwards."""

    def __init__(self, log: Log, namespace: str) -> None:
        self.letters = Letters()
        self._log, self._namespace = log, namespace
        self._tp, self._next = (f"{namespace}.dead-letters", 0), -1

    async def read_on(self) -> None:
        """Take in what has come up to now."""
        if self._next < 0:
            self._next = (await self._log.begin_offsets([self._tp]))[self._tp]
        ends = await self._log.end_offsets([self._tp])
        async for record in records_between(self._log, {self._tp: self._next}, ends):
            self.letters.take(record)
        self._next = max(self._next, ends[self._tp])

    async def whole(self, offset: int) -> Letter:
        """One letter with its value."""
        async for record in records_between(self._log, {self._tp: offset}, {self._tp: offset + 1}):
            return letter_of(record)
        raise LogUnavailable(f"{self._tp[0]}: nothing comes at offset {offset}")

    async def send(self, letter: Letter, *, again: bool, unproven: bool) -> Told:
        """Whether it was sent. The note comes first: so no letter goes out twice by itself."""
        if letter.replays and not again:
            return Told("was replayed before; --again sends it once more")
        original = original_of(await self.whole(letter.offset), self._namespace)
        if isinstance(original, Lost):
            return Told(f"cannot be replayed: {original.text}")
        if why := await self._no_such_place(original):
            return Told(f"cannot be replayed: {why}")
        is_gone = await self._is_gone(letter)
        if is_gone and not unproven:
            why = f"the log no longer holds {letter.origin}, which would prove it; --unproven sends it all the same"
            return Told(f"cannot be replayed: {why}")
        if not is_gone and (why := await self._disproof(letter, original)):
            return Told(f"cannot be replayed: {why}")
        why = await self._noted_and_sent(letter, original, again=again)
        return Told(why) if why else Told(unproven=letter.origin if is_gone else "")

    async def _noted_and_sent(self, letter: Letter, original: Outgoing, *, again: bool) -> str:
        """Nothing, or why it was not sent."""
        noted = await self._log.append(note_of_replay(letter, self._namespace, by="fallow-cli", again=again))
        if not isinstance(noted, Appended):
            raise LogUnavailable(f"letter {letter.offset} was not sent: {noted.reason}")
        await self.read_on()
        if not again and self.letters.first_note(letter.offset) != noted.offset:
            return "is being replayed by another command"
        try:
            await self._log.publish([original])
        except (LogUnavailable, RecordTooLarge) as error:
            return f"noted, but Kafka did not confirm it; if it is not in {original.topic}, use --again: {error}"
        return ""

    async def _is_gone(self, letter: Letter) -> bool:
        """Whether the log has deleted what stood where the letter claims to come from."""
        tp, offset = _origin_of(letter)
        return offset < (await self._log.begin_offsets([tp]))[tp]

    async def _disproof(self, letter: Letter, original: Outgoing) -> str:
        """What speaks against the letter at the place from which it claims to come; "" where this very record stands
        there: so a user with the right to write there wrote it.
        """
        tp, offset = _origin_of(letter)
        held = (await self._log.first_from({tp: offset})).get(tp)
        if held is None or held.offset != offset:
            return f"nothing stands at {letter.origin}"
        return "" if is_proven_by(original, held) else f"at {letter.origin} stands another record"

    async def _no_such_place(self, original: Outgoing) -> str:
        """Why the record cannot go to where the letter says that it came from; "" where it can. Asked before anything
        is noted: a letter that went nowhere was not sent.
        """
        there, number = await self._log.partitions(original.topic), original.partition or 0
        if not there:
            return f"there is no topic {original.topic}"
        return f"{original.topic} has no partition {number}, only {there}" if number >= there else ""


def _origin_of(letter: Letter) -> tuple[TopicPartition, int]:
    place = letter.origin_place
    assert place is not None, "a letter that names no place has no original"
    return place


@asynccontextmanager
async def opened(access: Access) -> AsyncIterator[Box]:
    """The box, read up to now."""
    log = KafkaLog(access.kafka_access, "fallow-cli")
    await log.start()
    try:
        box = Box(log, access.namespace)
        await box.read_on()
        yield box
    finally:
        await log.stop()


async def _letters(access: Access) -> list[Letter]:
    async with opened(access) as box:
        return box.letters.all()


async def _one(access: Access, offset: int) -> Letter | None:
    async with opened(access) as box:
        found = {letter.offset: letter for letter in box.letters.all()}
        if offset not in found:
            return None
        return replace(await box.whole(offset), replays=found[offset].replays)


async def _replay(
    access: Access, offsets: Sequence[int], reason: str | None, *, again: bool, unproven: bool
) -> dict[int, Told]:
    """What came of each, by offset."""
    async with opened(access) as box:
        found = {letter.offset: letter for letter in box.letters.all()}
        wanted = dict.fromkeys(offsets or [at for at, letter in found.items() if letter.reason == reason])
        told = dict[int, Told]()
        for at in wanted:
            if at in found:
                told[at] = await box.send(found[at], again=again, unproven=unproven)
            else:
                told[at] = Told("there is no such letter")
        return told


def _as_object(access: Access, letter: Letter) -> dict[str, Any]:
    original = original_of(letter, access.namespace)
    return {
        "offset": letter.offset,
        "at_wall_ms": letter.record.timestamp_ms,
        "service": letter.service,
        "reason": letter.reason,
        "origin": letter.origin if letter.is_letter else "",
        "size_bytes": letter.size_bytes,
        "text": letter.text,
        "replays": letter.replays,
        "vouched": False,
        "obstacle": original.text if isinstance(original, Lost) else None,
    }


def _text_of(value: bytes) -> str | None:
    """The bytes as text, or None where they are none."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if "\x00" not in text else None
