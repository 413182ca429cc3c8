"""What starts before its time, before what it waits for, beyond its array's limit or into maintenance is found."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import AfterWhen, Dependency
from fallow.shared.events.reasons import CancelReason, FailReason
from tests.cluster.worlds.examples import enqueued, node, place, started
from tests.simulator.history.story import Story

START = started("job", place(0, "n1", 0))
READY = e.JobReady(job="job")
TOLD = e.WaitShortened(job="job", over=("first",))
FIRST = enqueued("first")
FAILS = (started("first", place(0, "n1", 1)), e.JobFailed(job="first", reason=FailReason.RETRIES_EXHAUSTED))
ENDS = (started("first", place(0, "n1", 1)), e.JobFinished(job="first", attempt=1))
WINDOW = e.MaintenanceSet(node="n1", begin_ms=100, end_ms=200)


def job(**fields: Any) -> e.JobEnqueued:
    return enqueued("job", **fields)


def after(when: AfterWhen = AfterWhen.OK) -> tuple[Dependency, ...]:
    return (Dependency(job="first", when=when),)


def elements(count: int, *, of: int) -> list[e.JobEnqueued]:
    return [
        enqueued(f"a.{index}", array=of, array_of="a", array_index=index, array_max_running=1) for index in range(count)
    ]


STORIES: dict[str, tuple[list[Any], list[str]]] = {
    "at its own time": ([job(not_before_ms=0), START], []),
    "before its own time": ([job(not_before_ms=1), START], ["I2", "I2"]),
    "behind a good end": ([FIRST, job(after=after()), *ENDS, READY, START], []),
    "before the end": ([FIRST, job(after=after()), START], ["I2", "I2"]),
    "ready before the end": ([FIRST, job(after=after()), READY], ["I2"]),
    "behind any end": ([FIRST, job(after=after(AfterWhen.ANY)), *FAILS, READY, START], []),
    "told of a good end while it waits for others": (
        [FIRST, job(after=(*after(), Dependency(job="second"))), *ENDS, TOLD],
        [],
    ),
    "told before the end": ([FIRST, job(after=after()), TOLD], ["I2"]),
    "told of a bad end": ([FIRST, job(after=after()), *FAILS, TOLD], ["I2"]),
    "ready behind a bad end": ([FIRST, job(after=after()), *FAILS, READY], ["I2"]),
    "cancelled behind a bad end": (
        [
            FIRST,
            job(after=after()),
            *FAILS,
            e.JobCancelled(job="job", reason=CancelReason.DEPENDENCY_FAILED, because_of="first"),
        ],
        [],
    ),
    "cancelled behind a good end": (
        [
            FIRST,
            job(after=after()),
            *ENDS,
            e.JobCancelled(job="job", reason=CancelReason.DEPENDENCY_FAILED, because_of="first"),
        ],
        ["I2"],
    ),
    "cancelled for one that is known": (
        [
            FIRST,
            job(after=after()),
            e.JobCancelled(job="job", reason=CancelReason.DEPENDENCY_UNKNOWN, because_of="first"),
        ],
        ["I2"],
    ),
    "a whole array": ([*elements(2, of=2), started("a.0", place(0, "n1", 0))], []),
    "a part of an array": (elements(1, of=2), ["I2"]),
    "one element too many": (
        [*elements(2, of=2), started("a.0", place(0, "n1", 0)), started("a.1", place(0, "n1", 1))],
        ["I2"],
    ),
    "over before maintenance": ([WINDOW, job(max_run_ms=100), START], []),
    "into maintenance": ([WINDOW, job(max_run_ms=101), START], ["I2"]),
    "in the middle of maintenance": ([WINDOW, e.MaintenanceBegan(node="n1"), job(), START], ["I1"]),
    "behind maintenance": (
        [WINDOW, e.MaintenanceBegan(node="n1"), e.MaintenanceSet(node="n1"), job(max_run_ms=999), START],
        [],
    ),
}


@pytest.mark.parametrize(("effects", "broken"), STORIES.values(), ids=list(STORIES))
def test_a_start_is_judged_by_all_that_the_job_waits_for(effects: list[Any], broken: list[str]) -> None:
    assert Story().decide(node("n1")).decide(*effects).broken() == broken
