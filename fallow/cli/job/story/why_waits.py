"""Why a job waits, in the few words that a row of a table has for it."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.shared.events.reasons import PendingReason
from fallow.shared.near import first_named
from fallow.shared.view.rows import WAITED_FOR_NAMED_MAX


def waits(why: str | None, held_why: str, waits_for: Sequence[str], more: int = 0) -> str:
    """Why it is held, or the code, and behind `after` the jobs for whose end it waits, `more` of which are not named
    here; "" where it does not wait.
    """
    if held_why:
        return held_why
    names = first_named(waits_for, WAITED_FOR_NAMED_MAX, more) if why == PendingReason.AFTER else ""
    return f"{why or ''} {names}".strip()
