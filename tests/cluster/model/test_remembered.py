"""What is packed is what a plain table would hold, through every undo, and over the ends of segments."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.finished_jobs import BLOCK_JOBS, FinishedJobs, is_digest
from fallow.shared.cluster.fold.undo_log import UndoLog
from fallow.shared.cluster.model.job import FINAL, FinishedJob, JobStatus
from tests.hypothesis_profile import reaches

NAMES = [f"job-{number}" for number in range(12)]
STEPS = st.lists(st.just("forget") | st.sampled_from(NAMES), max_size=120)


def over_job(name: str, over_ms: int) -> FinishedJob:
    return FinishedJob(name, f"team-{over_ms % 3}", f"{over_ms:032x}", FINAL[over_ms % 3], over_ms, over_ms // 2)


def take(step: str, over: FinishedJobs, plain: dict[str, FinishedJob], journal: UndoLog) -> None:
    """One step on both: a name that is remembered is not remembered again."""
    if step == "forget" and plain:
        over.forget(journal.entries)
        del plain[next(iter(plain))]
    elif step != "forget" and step not in plain:
        job = plain[step] = over_job(step, over.next * 7)
        over.add(journal.entries, *job)


def equal(over: FinishedJobs, plain: dict[str, FinishedJob]) -> bool:
    """Whether both say the same to every question."""
    return (
        [*over] == [*plain]
        and [*over.in_order()] == [*over.values()] == [*plain.values()]
        and {**over} == plain
        and [name in over for name in NAMES] == [name in plain for name in NAMES]
        and [over.get(name) for name in NAMES] == [plain.get(name) for name in NAMES]
        and [over.id_of(number) for number in range(over.first - 1, over.next + 1)] == [None, *plain, None]
        and (not plain or over.oldest_ms == next(iter(plain.values())).over_ms)
    )


@given(steps=STEPS, segment_jobs=st.sampled_from((1, 2, 5, 40)))
def test_it_holds_what_a_plain_table_holds(steps: list[str], segment_jobs: int) -> None:
    over, plain, journal = FinishedJobs(segment_jobs), dict[str, FinishedJob](), UndoLog()
    for step in steps:
        take(step, over, plain, journal)
    reaches("some jobs are forgotten, and others remembered", over.first and plain)
    assert equal(over, plain)


@given(before=STEPS, tried=STEPS, after=STEPS, segment_jobs=st.sampled_from((1, 2, 5, 40)))
def test_what_is_undone_leaves_no_trace(
    before: list[str], tried: list[str], after: list[str], segment_jobs: int
) -> None:
    over, plain, journal = FinishedJobs(segment_jobs), dict[str, FinishedJob](), UndoLog()
    for step in before:
        take(step, over, plain, journal)
    kept, mark, plain_tried = deepcopy(over), journal.checkpoint(), {**plain}
    for step in tried:
        take(step, over, plain_tried, journal)
    assert equal(over, plain_tried)
    has_moved = over.first != kept.first and over.next != kept.next
    reaches("what is undone has forgotten jobs and remembered others", has_moved)
    journal.rollback(mark)
    assert over == kept
    for step in after:
        take(step, over, plain, journal)
    assert equal(over, plain)


def test_an_id_that_was_forgotten_and_used_again_is_found_in_its_new_row() -> None:
    over, journal = FinishedJobs(), UndoLog()
    over.add(journal.entries, *over_job("again", 1))
    over.forget(journal.entries)
    assert "again" not in over
    over.add(journal.entries, *over_job("again", 2))
    assert over["again"].over_ms == 2


@pytest.mark.parametrize("many", [BLOCK_JOBS - 1, BLOCK_JOBS, 10 * BLOCK_JOBS + 1])
def test_each_of_many_blocks_is_searched(many: int) -> None:
    over, journal = FinishedJobs(), UndoLog()
    for number in range(many):
        over.add(journal.entries, *over_job(f"job-{number}", number))
    assert [over[f"job-{number}"].over_ms for number in range(many)] == [*range(many)]


def test_what_is_not_remembered_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        FinishedJobs()["stranger"]


@pytest.mark.parametrize(
    "row",
    [
        ("job", "team", "no digest", FINAL[0], 1),
        ("job", "team", "0" * 32, JobStatus.RUNNING, 1),
        ("job", "team", "0" * 32, FINAL[0], 2**63),
    ],
)
def test_what_cannot_be_a_row_changes_nothing(row: tuple[str, str, str, JobStatus, int]) -> None:
    over, journal = FinishedJobs(), UndoLog()
    with pytest.raises(ValueError, match=r"hexadecimal|tuple|cannot be remembered"):
        over.add(journal.entries, *row, 1)
    over.add(journal.entries, *over_job("job", 1))
    assert [*over.in_order()] == [over_job("job", 1)]


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, " " * 2 + "0" * 30, "00 " * 10 + "00"])
def test_a_digest_is_what_comes_back_as_it_was(text: str) -> None:
    assert not is_digest(text)
    assert is_digest("0123456789abcdef" * 2)


def test_tenants_are_forgotten_with_the_last_jobs_of_theirs() -> None:
    over, journal = FinishedJobs(10), UndoLog()
    for number in range(1_000):
        over.add(journal.entries, f"job-{number}", f"team-{number}", "0" * 32, JobStatus.FINISHED, number, number)
        if number >= 20:
            over.forget(journal.entries)
        journal.trim()
    assert [job.tenant for job in over.in_order()] == [f"team-{number}" for number in range(980, 1_000)]
    assert sum(len(segment.tenants) for segment in over._segments) <= 30
