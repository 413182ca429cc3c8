"""Arrays are accepted whole, no more of their elements run than may, and they are over with their last one."""

from __future__ import annotations

from collections.abc import Iterator

from fallow.simulator.history.books import CANCELLED, FAILED, FINISHED, HOLDS, ArrayPage, Books, JobPage, OverPage


def enqueued(books: Books, page: JobPage) -> str | None:
    """Note one element more. Why it cannot be one, or None."""
    spec = page.spec
    if spec.array_of is None:
        return None
    array = books.arrays.get(spec.array_of)
    if array is None:
        if spec.array_of in books.jobs:
            return f"job {spec.id} is an element of {spec.array_of}, which is a job"
        books.over.pop(spec.array_of, None)
        array = books.arrays[spec.array_of] = ArrayPage(spec, page.digest)
    array.left[spec.id] = None
    return None if spec.id == f"{spec.array_of}.{spec.array_index}" else f"job {spec.id} is no element"


def not_whole(books: Books) -> Iterator[str]:
    """Arrays of which a decision has accepted a part."""
    for name, array in books.arrays.items():
        if not array.is_seen and len(array.left) + array.over != array.spec.array:
            yield f"array {name} has {len(array.left)} elements of {array.spec.array}"
        array.is_seen = True


def too_many(books: Books, page: JobPage) -> str | None:
    """Why no further element of this array may start, or None."""
    most, name = page.spec.array_max_running, page.spec.array_of
    if name is None or most is None:
        return None
    running = sum(books.jobs[job].status in HOLDS for job in books.arrays[name].left)
    if running < most:
        return None
    return f"job {page.spec.id} starts as element {running + 1} of array {name}, {most} may run"


def ended(books: Books, page: JobPage, status: str) -> None:
    """An element is over, and with the last one its array."""
    name = page.spec.array_of
    if name is None:
        return
    array = books.arrays[name]
    array.left.pop(page.spec.id, None)
    array.ends[status] = None
    array.over += 1
    if not array.left:
        del books.arrays[name]
        books.endings += 1
        worst = next((each for each in (FAILED, CANCELLED) if each in array.ends), FINISHED)
        books.over[name] = OverPage(page.spec.tenant, array.digest, worst, books.at_ms, books.endings)
