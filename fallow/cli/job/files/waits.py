"""Jobs of one file that would wait for themselves, one by way of another: no cell takes the last of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from fallow.shared.cluster.model.arrays import is_named_as_element
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.near import listed


class Circle(NamedTuple):
    """The job of the circle that stands last in the file, by its place there from 0 on; what it names in `after`; and
    the ids of the jobs by way of which that waits for it, in turn: none where an array waits for its own element.
    """

    at: int
    after: str
    way: tuple[str, ...]


def circle_among(jobs: Sequence[JobSpec]) -> Circle | None:
    """The first circle that is found in the order of the file; None where there is none."""
    places = {(job.tenant, job.id): at for at, job in enumerate(jobs)}
    waits = [dict(_waits(jobs, places, job)) for job in jobs]
    try:
        TopologicalSorter(dict(enumerate(waits))).prepare()
    except CycleError as error:
        found: list[int] = error.args[1]  # the last one is the first again, and each is waited for by the next
        return _circle(jobs, waits, found[:0:-1])
    return None


def _waits(jobs: Sequence[JobSpec], places: Mapping[tuple[str, str], int], job: JobSpec) -> Iterator[tuple[int, str]]:
    """The places of the jobs for which this one waits, each with how it names them."""
    for dependency in job.after:
        at = places.get((job.tenant, dependency.job))
        if at is not None:
            yield at, dependency.job
        elif is_named_as_element(dependency.job):
            array, _, index = dependency.job.rpartition(".")
            at = places.get((job.tenant, array))
            if at is not None and int(index) < (jobs[at].array or 0):
                yield at, dependency.job


def _circle(jobs: Sequence[JobSpec], waits: Sequence[Mapping[int, str]], found: Sequence[int]) -> Circle:
    last = found.index(max(found))
    turned = [*found[last:], *found[:last]]
    after = waits[turned[0]][turned[1 % len(turned)]]
    return Circle(turned[0], after, tuple(jobs[at].id for at in turned[1:]))


def rule_of(circle: Circle, jobs: Sequence[JobSpec]) -> str:
    """The rule that the job breaks, in words."""
    if not circle.way:
        return "is an element of the job itself"
    between = ", by way of " + listed(circle.way[1:]) if circle.way[1:] else ""
    return f"waits for {jobs[circle.at].id} already{between}"
