"""Which job yields to which, and the room that is held for it, by the judge's own count: docs/preemption.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.reasons import PreemptionCause, StopReason
from fallow.simulator.history.books import QUEUED, Books, JobPage

YIELDS = {
    StopReason.PRIORITY: PreemptionCause.PRIORITY,
    StopReason.QUOTA_RECLAIM: PreemptionCause.QUOTA_RECLAIM,
    StopReason.FAIR_SHARE: PreemptionCause.FAIR_SHARE,
    StopReason.BACKFILL_TIMEOUT: PreemptionCause.BACKFILL,
}

STALE_MAX = 4
"""For fewer decisions in which a writer does what is due, room may be held that has lapsed."""


def yields(books: Books, page: JobPage, effect: e.JobStopping) -> str | None:
    """An attempt is stopped. What is wrong with it where it yields to another job, or None."""
    if effect.why not in YIELDS:
        return None
    other = books.jobs.get(effect.for_whom)
    if other is None or other.status != QUEUED:
        return f"job {effect.job} yields to job {effect.for_whom}, which does not wait"
    wrong = _wrong_victim(books, page, other, effect)
    page.yielded[effect.for_whom] = None
    books.yielding.setdefault(effect.for_whom, {})[effect.job] = effect.why
    return wrong


def _wrong_victim(books: Books, page: JobPage, other: JobPage, effect: e.JobStopping) -> str | None:
    who = f"job {effect.job} yields to job {effect.for_whom}"
    if effect.for_whom in page.yielded:
        return f"{who} for the second time"
    if not page.spec.preemptible:
        return f"{who} and is not preemptible"
    if effect.grace_wall_ms != books.policy.preempt_grace_wall_ms:
        return f"{who} within {effect.grace_wall_ms} ms, the grace is {books.policy.preempt_grace_wall_ms} ms"
    if effect.why is StopReason.PRIORITY and page.spec.priority > other.spec.priority:
        return f"{who} and is of higher priority"
    ran_ms = books.at_ms - (page.running_ms if page.running_ms is not None else page.started_ms or 0)
    for gpu_type in _types(books, page.places):
        least_ms = _least_run_ms(books, other.spec.tenant, page.spec.tenant, gpu_type)
        if ran_ms < least_ms:
            return f"{who} after {ran_ms} ms, it runs for {least_ms} ms at least"
    return None


def held(books: Books, effect: e.RoomHeld) -> Iterator[str]:
    """Room is held. What is wrong with that, and with those that yield for it."""
    page = books.jobs.get(effect.job)
    victims = books.yielding.pop(effect.job, {})
    if page is None or page.status != QUEUED or page.room is not None:
        yield f"room is held for job {effect.job}, which does not wait for it"
        return
    if len(victims) != effect.victims:
        yield f"{len(victims)} jobs yield to job {effect.job}, it is said that {effect.victims} do"
    for other, taken in _rooms(books):
        twice = next((place for place in effect.workers if _meets(taken, place)), None)
        if twice is not None:
            yield f"room on node {twice.node} is held for job {other} and for job {effect.job}"
    if effect.cause is not PreemptionCause.QUOTA_RECLAIM:
        yield from _below_guarantees(books, page, victims)
    else:
        yield from _not_borrowed(books, page, victims)
    in_vain = [victim for victim in victims if not _leaves_room(books, effect, victim)]
    if in_vain:
        yield f"job {in_vain[0]} yields to job {effect.job} and holds nothing on its nodes"
    page.room, page.stale_room = effect, 0
    books.promise(page, effect.workers, 1)


def released(books: Books, effect: e.RoomReleased) -> str | None:
    """No room is held any more. What is wrong with that, or None."""
    page = books.jobs.get(effect.job)
    if page is None or page.room is None:
        return f"room of job {effect.job} is let go of, and none was held"
    let_go(books, page)
    return None


def let_go(books: Books, page: JobPage) -> None:
    """The job is over, or starts."""
    if page.room is not None:
        books.promise(page, page.room.workers, -1)
        page.room = None


def taken_from(books: Books, job_id: str, places: Iterable[WorkerPlace]) -> str | None:
    """Whose room these places are that another job gets, in words, or None."""
    for other, room in _rooms(books):
        for place in places:
            if other != job_id and _meets(room, place):
                return f"job {job_id} gets devices {list(place.devices)} of {place.node}, held for job {other}"
    return None


def forgotten(books: Books) -> Iterator[str]:
    """Room that should have been let go of some decisions ago."""
    for job_id, page in books.jobs.items():
        room = page.room
        if room is None:
            continue
        page.stale_room = page.stale_room + 1 if page.status != QUEUED or room.until_ms < books.at_ms else 0
        if page.stale_room == STALE_MAX:
            yield f"room is held for job {job_id} at {books.at_ms}, it is {page.status} and it ends at {room.until_ms}"
    if books.yielding:
        preemptor = next(iter(books.yielding))
        books.yielding.clear()
        yield f"jobs yield to job {preemptor} and no room is held for it"


def _rooms(books: Books) -> list[tuple[str, tuple[WorkerPlace, ...]]]:
    return [(job_id, page.room.workers) for job_id, page in books.jobs.items() if page.room is not None]


def _meets(room: tuple[WorkerPlace, ...], place: WorkerPlace) -> bool:
    return any(kept.node == place.node and set(kept.devices) & set(place.devices) for kept in room)


def _leaves_room(books: Books, effect: e.RoomHeld, victim: str) -> bool:
    """Whether the victim holds anything on a node of the room, or under a quota of its job."""
    nodes = {place.node for place in effect.workers}
    page = books.jobs[victim]
    return bool(books.quotas) or any(place.node in nodes for place in page.places)


def _types(books: Books, places: Iterable[WorkerPlace]) -> dict[str, None]:
    return {books.nodes[place.node].spec.gpu_type: None for place in places if place.node in books.nodes}


def _apart(books: Books, tenant: str, other: str, gpu_type: str) -> list[str]:
    """The tenant and those above it, up to where it meets the line of the other one."""
    line = books.ancestors(other, gpu_type)
    return [above for above in books.ancestors(tenant, gpu_type) if above not in line]


def _least_run_ms(books: Books, taker: str, giver: str, gpu_type: str) -> int:
    """What the giver's line says of it, from just below where it meets the taker's."""
    line = books.ancestors(giver, gpu_type)
    own = _apart(books, giver, taker, gpu_type)
    for tenant in line[max(0, len(own) - 1) :]:
        quota = books.quotas.get((tenant, gpu_type))
        if quota is not None and quota.min_run_ms is not None:
            return quota.min_run_ms
    return 0


def _lost(books: Books, page: JobPage, victims: Iterable[str]) -> dict[tuple[str, str], list[int]]:
    """What each tenant loses that does not stand above the one that takes, victim by victim, in milli-GPUs."""
    found: dict[tuple[str, str], list[int]] = {}
    for victim in victims:
        other = books.jobs[victim]
        for gpu_type in _types(books, other.places):
            here = [place for place in other.places if books.nodes[place.node].spec.gpu_type == gpu_type]
            for tenant in _apart(books, other.spec.tenant, page.spec.tenant, gpu_type):
                found.setdefault((tenant, gpu_type), []).append(sum(place.gpu_milli for place in here))
    return found


def _sure(books: Books, tenant: str, gpu_type: str) -> int:
    """What is guaranteed to the tenant itself: with what is guaranteed below it may be more."""
    quota = books.quotas.get((tenant, gpu_type))
    return 0 if quota is None else quota.guaranteed_milli


def _below_guarantees(books: Books, page: JobPage, victims: Iterable[str]) -> Iterator[str]:
    for (tenant, gpu_type), parts in _lost(books, page, victims).items():
        left, sure = books.used_below(tenant, gpu_type) - sum(parts), _sure(books, tenant, gpu_type)
        if left < sure:
            yield f"{tenant} yields to job {page.spec.id} and is left with {left} of {gpu_type}, sure are {sure}"


def _not_borrowed(books: Books, page: JobPage, victims: Iterable[str]) -> Iterator[str]:
    for (tenant, gpu_type), parts in _lost(books, page, victims).items():
        left, sure = books.used_below(tenant, gpu_type) - sum(parts) + max(parts), _sure(books, tenant, gpu_type)
        if left <= sure:
            yield f"{tenant} yields to owner {page.spec.tenant} and borrows nothing: {left} of {gpu_type}, {sure} sure"
