"""Where each waiting job stands in its queue, counted from the text of the cell file in force."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from operator import itemgetter

from fallow.simulator.history.books import QUEUED, Books, JobPage
from fallow.simulator.history.rules.queues.queue_rules import DEFAULT, Ages


def places_in_queues(books: Books) -> dict[str, int]:
    """Each waiting job's place, shares aside: by waiting time, with the priority counted as waiting; without aging
    the higher priority, then who was submitted earlier. Then the higher priority, then who came first.
    """
    queues: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for job, page in books.jobs.items():
        if page.status == QUEUED:
            queue = page.spec.queue or ""
            queues.setdefault(queue, []).append((stands(page, books.ages.get(queue, DEFAULT)), job))
    places: dict[str, int] = {}
    for waiting in queues.values():
        waiting.sort(key=itemgetter(0))  # books keep the order in which jobs came
        places.update((job, place) for place, (_, job) in enumerate(waiting))
    return places


def stands(page: JobPage, ages: Ages) -> tuple[int, int]:
    """What a waiting job's place in its queue goes by; of equal ones the first that came is first."""
    priority, (step_ms, max_ms) = page.spec.priority, ages
    if not step_ms:
        return (-priority, page.submit_ms)
    worth_ms = 0
    if priority:
        worth_ms = floor(1 / (Fraction(1, abs(priority) * step_ms) + Fraction(1, max_ms)))
    return (page.submit_ms - (worth_ms if priority > 0 else -worth_ms), -priority)
