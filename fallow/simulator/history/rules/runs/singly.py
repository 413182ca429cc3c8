"""Jobs that are no gangs, as the checker sees them: which of their workers may enter, leave, and be over.

Each function takes in one effect and tells what is wrong with it, by the books' own count.
"""

from __future__ import annotations

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind, WorkerPlace
from fallow.simulator.history.books import Books, JobPage


def wrong_start(books: Books, page: JobPage, effect: e.JobStarted) -> str | None:
    """I3: it starts with as many as it needs at least and at most, of ranks whose work is not done."""
    spec, ranks = page.spec, [place.rank for place in effect.workers]
    most = spec.workers - len(page.done)
    fewest = min(spec.workers_min or 1, most)
    page.leaving, page.starting, page.entered = {}, dict.fromkeys(ranks), {}
    _enter(page, effect.workers)
    if not fewest <= len(ranks) <= most:
        return f"job {spec.id} starts with {len(ranks)} workers of {fewest} to {most}"
    if len(page.starting) < len(ranks) or any(rank in page.done for rank in ranks):
        return f"job {spec.id} starts with ranks {ranks}"
    return _too_soon(books, page, effect.workers)


def _too_soon(books: Books, page: JobPage, places: tuple[WorkerPlace, ...]) -> str | None:
    """A rank waits out its pause, whatever becomes of the attempt meanwhile."""
    for place in places:
        if books.at_ms < page.paused.get(place.rank, 0):
            return f"rank {place.rank} enters job {page.spec.id} at {books.at_ms}, not to enter so soon"
    return None


def starts_again_ms(books: Books, page: JobPage) -> int:
    """When so many of a waiting job's ranks may be entered as it needs at least."""
    wanted = page.spec.workers - len(page.done)
    fewest = min(page.spec.workers_min or 1, wanted)
    is_service = page.spec.kind is JobKind.INFERENCE
    ranks = [rank for rank in page.paused if rank not in page.done and (is_service or rank < page.spec.workers)]
    ends = sorted(page.paused[rank] for rank in ranks if page.paused[rank] > books.at_ms)
    open_now = wanted - len(ends)
    return books.at_ms if open_now >= fewest else ends[fewest - open_now - 1]


def wrong_resizing(books: Books, page: JobPage, effect: e.JobResizing) -> str | None:
    """I3: ranks enter that have no worker and are not done, no more than are wanted; and of a service at most one
    replica that runs leaves at a time, unless it has more than it wants.
    """
    held = {place.rank: place for place in page.places}
    found = _wrong_removal(page, effect, held)
    page.leaving.update(dict.fromkeys(effect.remove))
    for place in effect.add:
        again = (place.rank, place.turn) in page.entered
        if place.rank in held or place.rank in page.done or again or not place.turn:
            found = f"rank {place.rank} enters job {effect.job} in turn {place.turn} and may not"
    found = _too_soon(books, page, effect.add) or found
    _enter(page, effect.add)
    page.starting.update(dict.fromkeys(place.rank for place in effect.add))
    if effect.add:
        is_service = page.spec.kind is JobKind.INFERENCE
        staying = [place for rank, place in held.items() if not is_service or rank not in page.leaving]
        settled = [p for p in staying if not is_service or not books.nodes[p.node].is_to_be_emptied]
        wanted = page.spec.workers - len(page.done)
        if len(settled) + len(effect.add) > wanted or len(staying) + len(effect.add) > wanted + 1:
            found = f"{len(effect.add)} workers enter job {effect.job}, which has {len(staying)} and wants {wanted}"
    return found


def _wrong_removal(page: JobPage, effect: e.JobResizing, held: dict[int, WorkerPlace]) -> str | None:
    if any(rank not in held or rank in page.leaving for rank in effect.remove):
        return f"ranks {list(effect.remove)} shall leave job {effect.job} and are not there"
    if page.spec.kind is not JobKind.INFERENCE:
        return None
    running = [rank for rank in held if rank not in page.leaving and rank not in page.starting]
    down = [rank for rank in effect.remove if rank not in page.starting]
    left = len(running) - len(down)
    if left < page.spec.workers and (len(down) > 1 or (down and page.leaving)):
        return f"{len(down)} replicas of {effect.job} stop while {list(page.leaving)} do, {left} would run"
    return None


def wrong_settling(page: JobPage, effect: e.WorkersSettled) -> str | None:
    """I1, I3: a worker that has started was starting, and one that is over had a place."""
    held = {place.rank: None for place in page.places}
    over = (*effect.done, *effect.gone)
    late = [rank for rank in effect.joined if rank not in page.starting]
    for rank in effect.joined:
        page.starting.pop(rank, None)
    for rank in over:
        page.starting.pop(rank, None)
        page.leaving.pop(rank, None)
    page.done.update(dict.fromkeys(effect.done))
    page.failures, page.losses = effect.failures, effect.losses
    for setback in effect.setbacks:
        page.paused[setback.rank] = setback.until_ms
        page.not_before_ms = max(page.not_before_ms, setback.until_ms)
    if page.spec.gang:
        return f"gang {effect.job} loses a worker and goes on"
    if late or any(rank not in held for rank in over) or len(dict.fromkeys(over)) < len(over):
        return f"of job {effect.job} ranks {late} start and {list(over)} are over that were not there"
    return None


def _enter(page: JobPage, places: tuple[WorkerPlace, ...]) -> None:
    page.entered.update(dict.fromkeys((place.rank, place.turn) for place in places))
