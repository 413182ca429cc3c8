"""Where `fallow verify` gets its material from: a live log or a file, the nodes' diaries, and Redis."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from pydantic import ValidationError

from fallow.cli.log.file import LogFileError, read_log_file
from fallow.cli.verify.verify import LogCheck, NotCompared, Verification, Violation
from fallow.shared.cluster.checks.run_journal import (
    HORIZON_BEGINS,
    Attempted,
    DiaryHorizon,
    DiaryLine,
    check_diaries,
    nodes_without_diary,
)
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import V
from fallow.shared.events.validation.rules_told import rule_broken
from fallow.shared.events.validation.unknown_fields import read_valid
from fallow.shared.kept_folders import ALL as KEPT
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Reader, Record
from fallow.shared.log.reading import event_of
from fallow.shared.log.snapshots import oldest_snapshot
from fallow.shared.runtime.files.folder_format import NAME as FORMAT
from fallow.shared.runtime.files.folder_format import must_be_readable
from fallow.shared.runtime.files.text_file import TextFileError, must_be_file
from fallow.shared.runtime.files.unread import why_unread
from fallow.shared.view.compare import ViewMoved, compare_view
from fallow.shared.view.reader import ViewReader, ViewRebuilding

POLL_RECORDS = 500
POLL_WAIT_MS = 250
IDLE_POLLS_MAX = 40
VIEW_TRIES_MAX = 100
VIEW_STEP_S = 0.05
T = TypeVar("T")
_NAME = re.compile(r"(?P<cell>.+)-\d+-of-\d+\.jsonl")
"""What an executor and an agent call the diary of a slot of a cell's nodes."""


class DiaryError(ValueError):
    """The diaries cannot be read; names file, line and what is wrong."""


def verify_file(path: Path, diaries: Sequence[Path] = (), signers: Signers | None = None) -> Verification:
    """Check an exported log, from its first record, with the keys that `signers` have of its cell. Raises LogFileError,
    DiaryError.
    """
    check, end = None, 0
    for records, said_end in read_log_file(path, ("file.decisions", 0)):
        end = said_end
        if check is None:
            cell = _cell_of(records)
            check = LogCheck(CellState(cell), (signers or Signers()).of(cell))
        for record in records:
            if check.take(record) is not None:
                return check.result()
    if check is None:
        raise LogFileError(f"{path}: holds no record")
    check.finish(end)
    if diaries:
        check_lines(check, read_all_diaries(diaries, check.state.cell), dict(check.orders.running))
    found = check.result()
    if found.ok and not found.to_version:
        raise LogFileError(f"{path}: holds no decision: nothing was checked")
    return found


def _cell_of(records: list[Record]) -> str:
    """The cell of the first record that can be read: a file holds the log of one."""
    for record in records:
        event = event_of(record)
        if isinstance(event, Decision):
            return event.cell
    return ""


class LiveCheck:
    """The check of one cell's log where it is. `start_text` says from where it was read."""

    def __init__(self, log: Log, layout: Layout, cell: str, view: ViewReader | None = None) -> None:
        self._log, self.cell, self._layout, self._view = log, cell, layout, view
        self._tp = layout.tp("decisions", cell)
        self._read: deque[Record] = deque()
        self.start_text = ""

    async def run(self, diaries: Sequence[Path] = ()) -> Verification:
        """Read to the end of the log as it is now, and check. Raises LogUnavailable, LogTruncated, NoUsableSnapshot,
        DiaryError, and what readers of the view raise.
        """
        check = await self.begin()
        reader = await self.reader(check)
        try:
            if self._view is not None:
                await self.compare_view(check, reader)
            end = await self._read_to_end(check, reader)
            check.finish(end)
            if self._view is not None and check.violation is None:
                check.view_behind = await self._behind(self._view, check.state.version)
            if diaries and check.violation is None:
                await self._compare_diaries(check, reader, diaries)
        finally:
            await reader.stop()
        return check.result()

    async def begin(self) -> LogCheck:
        """A check of the log from where it can be checked. Raises LogUnavailable, NoUsableSnapshot."""
        state = await oldest_snapshot(self._log, self._layout, self.cell)
        self.start_text = "its beginning" if state is None else f"the snapshot at version {state.version}"
        return LogCheck(state or CellState(self.cell), self._layout.signers.of(self.cell))

    async def reader(self, check: LogCheck) -> Reader:
        """A reader, started, of what the check has not taken yet."""
        reader = self._log.reader({self._tp: check.state.offset + 1})
        await reader.start()
        return reader

    async def more(self, reader: Reader) -> list[Record]:
        """The next records; none where none come within a moment. Raises LogTruncated."""
        if not self._read:
            return await reader.poll(POLL_RECORDS, POLL_WAIT_MS)
        found = list(self._read)
        self._read.clear()
        return found

    @property
    def has_view(self) -> bool:
        """Whether Redis is compared too."""
        return self._view is not None

    async def compare_view(self, check: LogCheck, reader: Reader) -> None:
        """I7: fold to where the view is, and compare. A view that goes on meanwhile is followed. Raises ViewMoved."""
        view = self._view
        assert view is not None, "there is a view to compare"
        for _ in range(VIEW_TRIES_MAX):
            version = (await view.summary(self.cell)).version
            if version < check.state.version:
                await asyncio.sleep(VIEW_STEP_S)
                continue
            await self._read_to_end(check, reader, version)
            if check.violation is not None:
                return
            if check.state.version < version:
                text = f"the view is at version {version}, the log ends at {check.state.version}"
                check.violation = Violation(None, check.state.version, "I7", text)
                return
            try:
                differences = await compare_view(view, check.state)
            except ViewMoved:
                continue
            check.checks += len(check.state.jobs) + len(check.state.finished) + len(check.state.nodes)
            if differences:
                text = str(differences[0]).removeprefix("I7 ")
                check.violation = Violation(None, version, "I7", text)
            return
        raise ViewMoved(f"Redis: the view of cell {self.cell} does not hold still; verify when the cell is quieter")

    async def _behind(self, view: ViewReader, version: int) -> int:
        """By how many versions the view is not there yet; 0 once it is. One that lives is there within a moment, also
        where it is built anew by then. Raises ViewRebuilding where that takes longer.
        """
        for tries_left in reversed(range(VIEW_TRIES_MAX)):
            try:
                behind = max(0, version - (await view.summary(self.cell)).version)
            except ViewRebuilding:
                if not tries_left:
                    raise
            else:
                if not behind or not tries_left:
                    break
            await asyncio.sleep(VIEW_STEP_S)
        return behind

    async def _compare_diaries(self, check: LogCheck, reader: Reader, folders: Sequence[Path]) -> None:
        """What was confirmed before they were read must stand in them; what stands in them must be ordered by now."""
        confirmed = dict(check.orders.running)
        diaries = read_all_diaries(folders, self.cell)
        await self._read_to_end(check, reader)
        check_lines(check, diaries, confirmed)

    async def _read_to_end(self, check: LogCheck, reader: Reader, version: int | None = None) -> int:
        """Read to the end of the log as it is now, or only as far as to this version. The offset behind the last record
        there: the ends of transactions, which are no records, may stand behind it.
        """
        end, idle = (await self._log.end_offsets([self._tp]))[self._tp], 0
        while check.violation is None and check.state.version != version and check.state.offset + 1 < end:
            if not self._read and reader.positions()[self._tp] >= end:
                check.nothing_until(end)
                break
            if not self._read:
                self._read.extend(await reader.poll(POLL_RECORDS, POLL_WAIT_MS))
                idle = 0 if self._read else idle + 1
            if idle > IDLE_POLLS_MAX:
                raise LogUnavailable(f"{self._tp[0]}: nothing comes from offset {check.state.offset + 1} on")
            if self._read:
                check.take(self._read.popleft())
        return check.state.offset + 1


@dataclass(slots=True)
class Diaries:
    """What diaries tell. `nodes` are those that tell anything, each with the version of the log up to which its diary
    need not tell of a run.
    """

    lines: list[DiaryLine] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)


def read_all_diaries(folders: Sequence[Path], cell: str) -> Diaries:
    """The diaries of a cell's nodes in these folders: agents keep each their own. Raises DiaryError,
    FolderOfAnotherFormat.
    """
    found, files = Diaries(), (path for folder in folders for path in _files(folder))
    for path in {path.resolve(): None for path in files}:
        if not _may_be_of(path, cell):
            continue
        lines = list(_lines_of(path))
        forgotten = _forgotten_in(path, cell)
        found.lines += lines
        for line in lines:
            found.nodes[line.node] = max(found.nodes.get(line.node, 0), forgotten)
    return found


def _may_be_of(path: Path, cell: str) -> bool:
    """Whether a file is no diary of another cell: of nodes of this one, or of some whose name does not say."""
    named = _NAME.fullmatch(path.name)
    return named is None or named["cell"] == cell


def check_lines(
    check: LogCheck, diaries: Diaries, confirmed: dict[Attempted, None], *, forgotten: int | None = None
) -> None:
    """I6: the nodes' diaries against all orders of the log; `confirmed` are the attempts that must stand in them.

    Of a node without any line no run is missed: its diary may lie elsewhere. Where these are the diaries of all nodes,
    `forgotten` is the version up to which they need not tell of a run. What the log ordered before it was read from
    its oldest snapshot is told as not checked.
    """
    if check.violation is not None:
        return
    orders = replace(check.orders, running=confirmed)
    judged = sum(map(orders.can_judge, diaries.lines))
    check.checks += judged
    if check.from_version:
        check.runs_not_checked = (NotCompared(check.state.cell, check.from_version, len(diaries.lines) - judged),)
    if forgotten is not None:
        offences = check_diaries(orders, diaries.lines, forgotten)
    else:
        offences = check_diaries(orders, diaries.lines, nodes=diaries.nodes)
        check.nodes_not_checked = nodes_without_diary(orders, diaries.nodes)
    if offences:
        first = offences[0]
        check.violation = Violation(None, check.state.version, first.invariant, first.text)


def read_diaries(folder: Path) -> Iterator[DiaryLine]:
    """Every line of every node's diary, file by file in the order of their names. Raises DiaryError.

    `folder` may also be the one that holds `diaries/`. A last line without its end was never finished: its node died
    while it wrote, so it says nothing.
    """
    for path in _files(folder):
        yield from _lines_of(path)


def _lines_of(path: Path) -> Iterator[DiaryLine]:
    with _opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n") and not line.startswith(HORIZON_BEGINS):
                yield _diary_line(path, number, line)


def forgotten_version(folder: Path, cell: str) -> int:
    """Up to which version of the cell's log its nodes' diaries need not tell of a run. Raises DiaryError."""
    return max((_forgotten_in(path, cell) for path in _files(folder)), default=0)


def _forgotten_in(path: Path, cell: str) -> int:
    with _opened(path) as lines:
        first = lines.readline()
    if not first.startswith(HORIZON_BEGINS) or not first.endswith(b"\n"):
        return 0
    horizon = _judged(DiaryHorizon, path, 1, first)
    return horizon.forgotten_version if horizon.cell == cell else 0


def must_hold_diaries(folders: Sequence[Path]) -> None:
    """Raises DiaryError for a folder that is none of an executor or an agent, and holds no diary: another was meant."""
    for folder in folders:
        if not ((folder / "diaries").is_dir() or (folder / FORMAT).is_file() or _files(folder)):
            raise DiaryError(f"--diaries {folder}: holds no diary (*.jsonl), nor a folder `diaries`")


def _files(folder: Path) -> list[Path]:
    inner = folder / "diaries"
    found = inner if inner.is_dir() else folder
    if not found.is_dir():
        raise DiaryError(f"{folder}: is no folder of diaries")
    for each in {folder, found}:
        must_be_readable("--diaries", each, KEPT)
    files = sorted(found.glob("*.jsonl"))
    for path in files:
        try:
            must_be_file(path)  # a pipe or a device would be read without end
        except TextFileError as error:
            raise DiaryError(f"{path}: {error}") from error
    return files


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DiaryError(f"{path}: cannot be read: {why_unread(error)}") from error


def _diary_line(path: Path, number: int, line: bytes) -> DiaryLine:
    return _judged(DiaryLine, path, number, line)


def _judged(cls: type[V], path: Path, number: int, line: bytes) -> V:
    try:
        return read_valid(cls, line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shorten(".".join(map(str, first["loc"]))) or "the line"
        raise DiaryError(f"{_where(path, number)}: {field}: {rule_broken(first)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise DiaryError(f"{_where(path, number)}: is no JSON: {shorten(str(error))}") from error


def _where(path: Path, number: int) -> str:
    """A line, and of a file that is not even called as diaries are, and does not begin as one, that it is none."""
    is_other = number == 1 and _NAME.fullmatch(path.name) is None
    return f"{path}: {'is no diary: ' if is_other else ''}line {number}"


def _all_of(some: tuple[T, ...] | None, more: tuple[T, ...] | None) -> tuple[T, ...] | None:
    return some if more is None else more if some is None else some + more


def _farthest(some: int | None, more: int | None) -> int | None:
    return some if more is None else more if some is None else max(some, more)


def join(parts: list[Verification]) -> Verification:
    """One answer for several cells: figures add up, versions span from the lowest to the highest."""
    whole = parts[0]
    for part in parts[1:]:
        whole = replace(
            whole,
            ok=whole.ok and part.ok,
            from_version=min(whole.from_version, part.from_version),
            to_version=max(whole.to_version, part.to_version),
            records=whole.records + part.records,
            skipped=whole.skipped + part.skipped,
            forged=whole.forged + part.forged,
            gaps=whole.gaps + part.gaps,
            gaps_at_end=whole.gaps_at_end + part.gaps_at_end,
            checks=whole.checks + part.checks,
            nodes_not_checked=_all_of(whole.nodes_not_checked, part.nodes_not_checked),
            runs_not_checked=_all_of(whole.runs_not_checked, part.runs_not_checked),
            view_behind=_farthest(whole.view_behind, part.view_behind),
            first_violation=whole.first_violation or part.first_violation,
        )
    return whole
