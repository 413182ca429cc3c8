"""The inputs that wait for a decision: those of one source in their order, and new jobs behind all others.

Under a flood of new jobs, what frees places and what ends must not wait behind it. A stepped clock takes its inputs as
they came, since each may tell it the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import islice

from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobsAdmitted
from fallow.shared.events.nodes import NodesReported, RunsReported
from fallow.shared.events.operations import RemoveQuota, SetQuota

NEW_JOBS = "jobs-"
"""What the sources of new jobs begin with."""

FOLLOWING_MAX = 64
"""So far an input is compared with those behind it."""

NEW_JOBS_LOOKED_AT_MAX = 2_000
"""One decision takes in about as many."""

OTHERS_LOOKED_AT_MAX = 2_000
"""One decision takes in about as many inputs of all other sources."""

_OF_QUOTAS = frozenset({SetQuota, RemoveQuota})


@dataclass(slots=True)
class Input:
    """One input: where it stands (`topic-partition` and the offset behind it), what it says (None: nothing that can be
    read). `origin` is the shell's own: it comes back with an input that is to be set aside. With `goes_on` it is a part
    of its record, and another part follows: the record counts as read only with the last one. `checksum` names its
    record, `sent_ms` is the cell time at which the broker got an operator's command, `stamped_ms` the wall time that it
    stamped on the record, where these are known.
    """

    source: str
    next_offset: int
    event: Event | None
    size_bytes: int = 0
    origin: object = None
    checksum: int | None = None
    goes_on: bool = False
    sent_ms: int | None = None
    stamped_ms: int | None = None

    @property
    def words(self) -> int:
        """Into how many parts it can be cut."""
        match self.event:
            case JobsAdmitted(jobs=words) | RunsReported(words=words) | NodesReported(reports=words):
                return max(1, len(words))
        return 1

    def cut(self, count: int) -> tuple[Input, Input] | None:
        """Its first `count` words and the rest, as two inputs; None where it does not consist of so many."""
        event = self.event
        first: Event
        rest: Event
        match event:
            case JobsAdmitted() if 0 < count < len(event.jobs):
                first, rest = replace(event, jobs=event.jobs[:count]), replace(event, jobs=event.jobs[count:])
                size_bytes = self.size_bytes * count // len(event.jobs)
            case RunsReported() if 0 < count < len(event.words):
                first, rest = replace(event, words=event.words[:count]), replace(event, words=event.words[count:])
                size_bytes = self.size_bytes * count // len(event.words)
            case NodesReported() if 0 < count < len(event.reports):
                first = replace(event, reports=event.reports[:count])
                rest = replace(event, reports=event.reports[count:])
                size_bytes = self.size_bytes * count // len(event.reports)
            case _:
                return None
        return (
            replaced(self, event=first, size_bytes=size_bytes, goes_on=True),
            replaced(self, event=rest, size_bytes=self.size_bytes - size_bytes),
        )


def weighed(item: Input) -> Input:
    """The input with the bytes that it needs in a decision: an array is told there element by element."""
    event = item.event
    if type(event) is JobAdmitted and event.spec.array is not None:
        item.size_bytes *= event.spec.array
    return item


class Inbox:
    """What was read and not yet taken in."""

    def __init__(self, *, as_they_came: bool) -> None:
        self.others: deque[Input] = deque()
        self.new_jobs = self.others if as_they_came else deque[Input]()

    def __len__(self) -> int:
        """How many inputs wait."""
        return len(self.others) + (0 if self.new_jobs is self.others else len(self.new_jobs))

    @property
    def new_jobs_count(self) -> int:
        """How many jobs, or other words of admission, wait: a record may hold many."""
        return sum(len(item.event.jobs) if isinstance(item.event, JobsAdmitted) else 1 for item in self.new_jobs)

    def kinds_of_new_jobs(self, most: int) -> int:
        """How many kinds of jobs are among the next ones that are new, by what they need; counted up to `most`."""
        kinds = set[object]()
        for spec in islice(self._new_specs(), NEW_JOBS_LOOKED_AT_MAX):
            kinds.add((spec.workers, spec.resources, spec.gpu_type, spec.pools, spec.topology, spec.node_labels))
            if len(kinds) >= most:
                break
        return len(kinds)

    @property
    def changes_quotas(self) -> bool:
        """Whether quotas are set or removed by one of the next inputs."""
        return any(type(item.event) in _OF_QUOTAS for item in islice(self.others, OTHERS_LOOKED_AT_MAX))

    def _new_specs(self) -> Iterator[JobSpec]:
        for item in self.new_jobs:
            event = item.event
            if isinstance(event, JobsAdmitted):
                yield from (job.spec for job in event.jobs)
            elif isinstance(event, JobAdmitted):
                yield event.spec

    def add(self, inputs: Iterable[Input]) -> None:
        """Behind those that wait."""
        new_jobs, others = self.new_jobs, self.others
        for item in inputs:
            (new_jobs if item.source.startswith(NEW_JOBS) else others).append(item)

    def following(self, taken: Input) -> Iterator[Event | None]:
        """What the next inputs behind the one that was just taken from its line say; some of them."""
        return (item.event for item in islice(self._line(taken), FOLLOWING_MAX))

    def put_back(self, taken: Iterable[Input]) -> None:
        """Before those that wait: they were taken in that order, and nothing came of it."""
        for item in reversed(list(taken)):
            self._line(item).appendleft(item)

    def drop_first(self, item: Input) -> None:
        """Make nothing of this one, which is the first of its line, but that it was read."""
        line = self._line(item)
        assert line[0] is item, "it was put back last"
        line[0] = Input(item.source, item.next_offset, None, checksum=item.checksum, goes_on=item.goes_on)

    def clear(self) -> None:
        """Forget them all."""
        self.others.clear()
        self.new_jobs.clear()

    def _line(self, item: Input) -> deque[Input]:
        return self.new_jobs if item.source.startswith(NEW_JOBS) else self.others
