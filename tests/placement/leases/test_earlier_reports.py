"""What a writer concludes from reports that were in topic `nodes` before it took over."""

from __future__ import annotations

import asyncio
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.app.watch.look_back import LookBack
from fallow.services.placement.lifecycle.nodes.earlier_reports import EarlierReports
from fallow.shared.events.base import replace
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.nodes import NodesReported, RunsReported, RunStatusUpdate
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import report
from tests.placement.worlds.writers import CELL, LAYOUT, cluster

PAUSE_MS, NODES = 15_000, LAYOUT.tp("nodes", CELL)


def test_a_node_is_silent_since_its_last_word_of_any_kind() -> None:
    reports = EarlierReports(PAUSE_MS)
    word = RunStatusUpdate(node="n2", boot="b", seq=1, job="job", attempt=1, status=RunStatus.RUNNING)
    reports.take(1_000, report("n1"))
    reports.take(3_000, RunsReported(cell=CELL, words=(word,)))
    reports.take(6_000, NodesReported(cell=CELL, reports=(report("n3"), report("n4"))))
    reports.take(10_000, report("n5"))
    assert [reports.silent_ms(f"n{number}") for number in range(1, 7)] == [9_000, 7_000, 4_000, 4_000, 0, 9_000]


def test_time_in_which_the_topic_took_no_record_counts_for_no_node() -> None:
    reports = EarlierReports(PAUSE_MS)
    for stamp_ms in (0, 10_000, 10_000 + PAUSE_MS + 1, 10_000 + PAUSE_MS + 2):
        reports.take(stamp_ms, report("n1"))
    assert reports.silent_ms("n2") == 10_001


STEADY = st.lists(st.integers(-PAUSE_MS, 2 * PAUSE_MS), min_size=4, max_size=20).map(
    lambda steps: [*accumulate(steps, initial=10**6)][1:]
)
"""Stamps of records that follow each other within pauses or behind them, as of clocks that may go back."""


@given(st.lists(st.integers(0, 10**13), max_size=20) | STEADY, st.integers(0, 20))
def test_whatever_the_stamps_a_node_is_silent_for_no_longer_than_the_topic_took_records(
    stamps: list[int], at: int
) -> None:
    reports = EarlierReports(PAUSE_MS)
    for number, stamp_ms in enumerate(stamps):
        reports.take(stamp_ms, report("n1" if number == at else "n2"))
    highest = list(accumulate(stamps, max))
    after = highest[at:] if at < len(stamps) else highest
    steps = [later - one for one, later in pairwise(after)]
    counts = {0 < step <= PAUSE_MS for step in steps if step}
    reaches("some time between records counts as silence, and some does not", len(counts) > 1)
    assert reports.silent_ms("n1") == sum(step for step in steps if step <= PAUSE_MS)


@given(
    st.lists(st.tuples(st.integers(1, 1_000), st.booleans()), min_size=1, max_size=60),
    st.integers(-PAUSE_MS, PAUSE_MS),
)
def test_brokers_whose_clocks_differ_count_their_difference_once_at_the_most(
    records: list[tuple[int, bool]], ahead_ms: int
) -> None:
    reports, now_ms = EarlierReports(PAUSE_MS), 10**6
    brokers = {is_of_the_other for _, is_of_the_other in records}
    reaches("brokers whose clocks differ take records by turns", ahead_ms and len(brokers) > 1)
    for passed_ms, is_of_the_other in records:
        now_ms += passed_ms
        reports.take(now_ms + (ahead_ms if is_of_the_other else 0), report("n2"))
    assert reports.silent_ms("n1") <= now_ms - 10**6 + abs(ahead_ms)


def written(stamps: list[int]) -> MemoryBroker:
    times = iter(stamps)
    broker = cluster(lambda: next(times))
    for number in range(len(stamps)):
        broker.write(LAYOUT.outgoing(replace(report(f"n{number}"), cell=CELL), id="t", source="t", wall_ms=0))
    broker.now_ms = lambda: stamps[-1]
    return broker


async def answer(look_back: LookBack) -> tuple[EarlierReports, int] | None:
    for _ in range(100):
        await asyncio.sleep(0)
    return look_back.take_answer()


async def test_it_reads_from_the_time_that_it_is_told_and_answers_once() -> None:
    look_back = LookBack(MemoryLog(written([1_000, 2_000, 3_000, 4_000])), NODES, lambda: 77)
    look_back.begin(2_000, PAUSE_MS)
    found = await answer(look_back)
    assert found is not None
    reports, as_of_ms = found
    assert (reports.silent_ms("n0"), reports.silent_ms("n2"), as_of_ms) == (2_000, 1_000, 77)
    assert look_back.take_answer() is None
    await look_back.stop()


async def test_a_log_that_is_away_tells_nothing() -> None:
    broker = written([1_000])
    broker.is_away = True
    look_back = LookBack(MemoryLog(broker), NODES, lambda: 0)
    look_back.begin(0, PAUSE_MS)
    assert await answer(look_back) is None
    await look_back.stop()
