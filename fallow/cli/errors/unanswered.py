"""The message about a command that the cell has not answered in time, as far as the command can read: it may lie behind
a topic that no service reads any more, or its answer is among decisions that no key of the command's cell file proves.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from fallow.shared.client.port import CellClient, ClientUnavailable, Mark
from fallow.shared.near import listed


class Passes(Enum):
    """The services that a command passes before it is answered: each of them has to read its topic."""

    ADMISSION = ("admission", "placement")
    PLACEMENT = ("placement",)


def unanswered(about: str, passes: Passes, wait_s: int) -> str:
    """The line of one job, node or other thing that a command was about, and that was waited for so long."""
    are = "is" if len(passes.value) == 1 else "are"
    look = f"Check that {' and '.join(passes.value)} {are} ready (`/readyz`)."
    return f"no answer about {about} after {wait_s} s; the request stays queued. {look}"


class AnswerUnread(ClientUnavailable):
    """No answer was read, and decisions were passed over among which it may be."""


def unread(cells: Collection[str]) -> str:
    """Why nothing is known of what these cells decided since a command began to look; "" where there is none."""
    if not cells:
        return ""
    each = f"cell{'' if len(cells) == 1 else 's'} {listed(cells)}"
    why = f"no key in signing.keys of this command's cell file proves all that {each} decided since"
    return f"{why}, and what was asked for may be done. Give the command the cell file in force (--cell-file)"


def unread_about(about: str, cells: Collection[str]) -> str:
    """Why news about one job, node or other subject may be unread; "" where nothing was passed over."""
    why = unread(cells)
    return why and f"no answer about {about} can be read: {why}"


def passed_over(client: CellClient, mark: Mark, cell: str | None) -> list[str]:
    """The cells that may have answered in what was passed over: this one at most, any where none is known."""
    return [each for each in client.passed_over(mark) if cell in (None, each)]


def check_silence(client: CellClient, mark: Mark, about: str, cell: str | None) -> None:
    """After a wait without an answer. Raises AnswerUnread where the answer may be among what was passed over."""
    if why := unread_about(about, passed_over(client, mark, cell)):
        raise AnswerUnread(why)
