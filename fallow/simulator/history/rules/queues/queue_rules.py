"""What the cell file in force says of each queue, read from its text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

HOUR_MS = 3_600_000
Ages = tuple[int, int]
"""What a step of priority is worth in waiting, and the most that all of it may be."""

DEFAULT: Ages = (HOUR_MS, 7 * 24 * HOUR_MS)

UNNAMED: list[dict[str, Any]] = [{"name": "default"}]
"""The queues of a cell that names none."""


@dataclass(frozen=True, slots=True)
class QueueRule:
    """How a queue goes about jobs that do not fit, and its number in the file."""

    name: str
    number: int
    discipline: str
    is_fair: bool

    @property
    def is_strict(self) -> bool:
        """Whether nothing passes a job that waits for the same."""
        return self.discipline == "strict-fifo"

    @property
    def is_backfill(self) -> bool:
        """Whether it may be passed for some time."""
        return self.discipline == "backfill"


UNKNOWN = QueueRule("", 0, "best-effort-fifo", is_fair=False)
"""A queue that no cell file names."""


def rules_in(content: str, cell: str) -> dict[str, QueueRule]:
    """The queues of a cell by this cell file; the first one also for jobs that name none."""
    found: dict[str, QueueRule] = {}
    for number, queue in enumerate(_queues(content, cell)):
        discipline, order = queue.get("discipline", "best-effort-fifo"), queue.get("order", "fifo")
        rule = QueueRule(queue["name"], number, discipline, order == "fair-share")
        found |= {rule.name: rule} if found else {"": rule, rule.name: rule}
    return found


def _queues(content: str, cell: str) -> list[dict[str, Any]]:
    parts = [part for part in json.loads(content).get("cells", ()) if part["name"] == cell]
    return parts[0].get("queues", UNNAMED) if parts else UNNAMED


def ages_in(content: str, cell: str) -> dict[str, Ages]:
    """How each queue of a cell ages by this cell file; the first one also for jobs that name none."""
    queues = _queues(content, cell)
    found = {each["name"]: (each.get("aging_ms", DEFAULT[0]), each.get("aging_max_ms", DEFAULT[1])) for each in queues}
    return {"": found[queues[0]["name"]], **found}


def waiting_max_in(content: str) -> dict[str, int]:
    """How many jobs of each tenant may wait by this cell file, where it says so."""
    tenants = json.loads(content).get("tenants", ())
    named = {tenant["name"]: tenant.get("max_pending_jobs") for tenant in tenants}
    return {name: most for name, most in named.items() if most is not None}
