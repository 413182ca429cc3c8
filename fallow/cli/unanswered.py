"""What is told of a command that the cell has not answered in time: it may lie behind a topic that nobody reads on."""

from __future__ import annotations

from enum import Enum


class Passes(Enum):
    """The services that a command passes before it is answered: each of them has to read its topic."""

    ADMISSION = ("admission", "placement")
    PLACEMENT = ("placement",)


def unanswered(about: str, passes: Passes, wait_s: int) -> str:
    """The line of one job, node or other thing that a command was about, and that was waited for so long."""
    are = "is" if len(passes.value) == 1 else "are"
    look = f"Check that {' and '.join(passes.value)} {are} ready (`/readyz`)."
    return f"no answer about {about} after {wait_s} s; the request stays queued. {look}"
