"""The port to wherever the view's functions run, and their answers as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fallow.shared.view.row_batch import Rows, Stand, Totals

OK, FENCED = "OK", "FENCED"
SHOWS = frozenset({OK, FENCED})
"""How the answer to a read begins; FENCED where the log behind the view cannot be trusted."""

TOO_MANY = "TOO_MANY"
"""The answer to a read that would have had to look at more than any read may."""

REBUILD_RESTS_WALL_MS = 5_000
"""A rebuild that has put no rows for so long is taken for dead."""


class ViewUnavailable(Exception):
    """Redis did not answer in time, or cannot serve now. What was asked may have happened; to ask again is safe."""


class ViewNeedsChange(ViewUnavailable):
    """Redis answers, and refuses until a person changes a setting or a right; the text says which. To ask again is
    safe, so a process that waits goes on by itself after the change.
    """


class ViewMisused(Exception):
    """A function refused its arguments: a bug that no repeat mends."""


class Functions(Protocol):
    """Calls a function of the view's library by its short name. Two implementations: Redis, and Lua in this process."""

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """The answer. Raises ViewUnavailable, ViewMisused."""


class OpenFunctions(Functions, Protocol):
    """Functions over the connections of a process."""

    async def stop(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The view has moved to where it should."""


@dataclass(frozen=True, slots=True)
class Further:
    """The view is at this cursor already: another projector moved it (DUP)."""

    cursor: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The view is at this cursor only: it has lost what was written after it (GAP)."""

    cursor: int


@dataclass(frozen=True, slots=True)
class NotReady:
    """There is no whole view of this form."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another projector is building the view."""


@dataclass(frozen=True, slots=True)
class Stands:
    """There is a whole view; `chain` is the log's hash at its cursor. `is_fenced`: readers are told not to trust it."""

    cursor: int
    version: int
    chain: str
    is_fenced: bool = False


ApplyAnswer = Applied | Further | Behind | NotReady
BeginAnswer = Applied | Further | Busy


class CellView:
    """The view of one cell, for its writer."""

    def __init__(self, functions: Functions, keys: tuple[str, ...]) -> None:
        self._functions, self._keys = functions, keys

    async def stands(self) -> Stands | NotReady:
        """Where the view stands. Raises ViewUnavailable."""
        answer = await self._functions.call("read_cursor", self._keys, ())
        if answer[0] not in SHOWS or len(answer) == 1:
            return NotReady()
        return Stands(int(answer[2]), int(answer[1]), answer[4], is_fenced=answer[0] == FENCED)

    async def fence(self, *, is_fenced: bool) -> None:
        """Tell readers that the log behind the view cannot be trusted, or can again. Raises ViewUnavailable."""
        await self._functions.call("fence", self._keys, [str(int(is_fenced))])

    async def apply(self, expected: int, stand: Stand, rows: Rows) -> ApplyAnswer:
        """Move the view from the cursor `expected` to where `stand` is, or leave it. Raises ViewUnavailable."""
        answer = await self._functions.call("apply", self._keys, [str(expected), *stand.arguments(), *rows.arguments()])
        match answer[0]:
            case "OK":
                return Applied()
            case "DUP":
                return Further(int(answer[1]))
            case "GAP":
                return Behind(int(answer[1]))
        return NotReady()

    async def begin_rebuild(self, rebuild: str, seen: int | None, wall_ms: int) -> BeginAnswer:
        """Forget the view, unless it is ready at another cursor than the one `seen`. Raises ViewUnavailable."""
        seen_text = "" if seen is None else str(seen)
        arguments = [rebuild, seen_text, str(wall_ms), str(REBUILD_RESTS_WALL_MS)]
        answer = await self._functions.call("begin_rebuild", self._keys, arguments)
        match answer[0]:
            case "OK":
                return Applied()
            case "DUP":
                return Further(int(answer[1]))
        return Busy()

    async def load_rows(self, rebuild: str, rows: Rows, wall_ms: int) -> bool:
        """Put rows into the view that is being built; False when another projector builds it by now."""
        answer = await self._functions.call("load_rows", self._keys, [rebuild, str(wall_ms), *rows.arguments()])
        return bool(answer[0] == "OK")

    async def finish_rebuild(self, rebuild: str, stand: Stand, totals: Totals) -> bool:
        """Let readers see what was built; False when another projector builds it by now, or rows of it were lost."""
        arguments = [rebuild, *stand.arguments(), *totals.arguments()]
        answer = await self._functions.call("finish_rebuild", self._keys, arguments)
        return bool(answer[0] == "OK")
