"""Where each waiting job stands in its queue, counted from the text of the cell file in force."""

from __future__ import annotations

import json
from fractions import Fraction
from math import floor
from operator import itemgetter
from typing import Any

from services.simulator.history.books import QUEUED, Books, JobPage

HOUR_MS = 3_600_000
Ages = tuple[int, int]
"""What a step of priority is worth in waiting, and the most that all of it may be."""

DEFAULT: Ages = (HOUR_MS, 7 * 24 * HOUR_MS)
UNNAMED: list[dict[str, Any]] = [{"name": "default"}]
"""The queues of a cell that names none."""


def ages_in(content: str, cell: str) -> dict[str, Ages]:
    """How each queue of a cell ages by this cell file; the first one also for jobs that name none."""
    parts = [part for part in json.loads(content).get("cells", ()) if part["name"] == cell]
    queues: list[dict[str, Any]] = parts[0].get("queues", UNNAMED) if parts else UNNAMED
    found = {each["name"]: (each.get("aging_ms", DEFAULT[0]), each.get("aging_most_ms", DEFAULT[1])) for each in queues}
    return {"": found[queues[0]["name"]], **found}


def places_in_queues(books: Books) -> dict[str, int]:
    """Each waiting job's place, shares aside: who has waited longest, his priority counted as waiting; without aging
    the higher priority, then who was submitted earlier. Then the higher priority, then who came first.
    """
    queues: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for job, page in books.jobs.items():
        if page.status == QUEUED:
            queue = page.spec.queue or ""
            queues.setdefault(queue, []).append((_stands(page, books.ages.get(queue, DEFAULT)), job))
    places: dict[str, int] = {}
    for waiting in queues.values():
        waiting.sort(key=itemgetter(0))  # books keep the order in which jobs came
        places.update((job, place) for place, (_, job) in enumerate(waiting))
    return places


def _stands(page: JobPage, ages: Ages) -> tuple[int, int]:
    priority, (step_ms, most_ms) = page.spec.priority, ages
    if not step_ms:
        return (-priority, page.submit_ms)
    worth_ms = 0
    if priority:
        worth_ms = floor(1 / (Fraction(1, abs(priority) * step_ms) + Fraction(1, most_ms)))
    return (page.submit_ms - (worth_ms if priority > 0 else -worth_ms), -priority)
