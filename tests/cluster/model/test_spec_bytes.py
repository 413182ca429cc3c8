"""What the texts of live jobs take is counted alike by every reader, and comes back to nothing."""

from __future__ import annotations

import sys
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.shared.cluster.checks.invariants import live_bytes_equal_a_recount
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.cluster.model.spec_bytes import spec_bytes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency, JobSpec, ProcessRun, VirtualRun
from fallow.shared.events.reasons import FailReason
from tests.cluster.worlds.examples import cell, enqueued, node, place, requeued, started, stopping, then
from tests.cluster.worlds.histories import folded, history
from tests.hypothesis_profile import reaches

PLAIN = JobSpec(id="job", tenant="ada")
RUN = ProcessRun(argv=("python", "train.py"), env={"SEED": "1"})
RUN_BYTES = 4 * 64 + len("pythontrain.pySEED1")
TEXTS = st.text(max_size=40)
SMALLEST_TABLE_BYTES = sys.getsizeof({"A": ""})
"""What the first variables of an environment share. The number of jobs bounds it, as all else that each has."""


def counted(state: CellState) -> tuple[int, dict[str, int]]:
    return state.live_bytes, state.live_bytes_of


def by_hand(state: CellState) -> tuple[int, dict[str, int]]:
    """The counts by hand, text by text, from what the jobs of a history have."""
    of: dict[str, int] = {}
    for job in state.jobs.values():
        spec = job.spec
        texts = [*spec.pools, *(each.job for each in spec.after)]
        if isinstance(spec.run, ProcessRun):
            texts += [*spec.run.argv, *chain.from_iterable(spec.run.env.items())]
        found = sum(64 + len(text) for text in texts) + 64 * len(spec.after)
        if found:
            of[spec.tenant] = of.get(spec.tenant, 0) + found
    return sum(of.values()), of


@given(seed=st.integers(0, 2**32), decisions=st.integers(1, 60), cut=st.integers(0, 60))
def test_every_reader_counts_what_is_there_after_any_history(seed: int, decisions: int, cut: int) -> None:
    historian = history(seed, decisions)
    taken, _ = by_hand(historian.state)
    reaches("jobs that hold texts are read from a snapshot and from the log", taken and 0 < cut < decisions)
    assert counted(historian.state) == by_hand(historian.state)
    assert counted(folded(historian.records)) == by_hand(historian.state)
    restored = state_from(list(rows_of(folded(historian.records[:cut]))))
    assert counted(folded(historian.records[cut:], restored)) == by_hand(historian.state)


@given(seed=st.integers(0, 2**32), decisions=st.integers(1, 60), moves=st.integers(1, 30))
def test_what_is_undone_is_not_counted(seed: int, decisions: int, moves: int) -> None:
    historian = history(seed, decisions)
    state = historian.state
    before = state.live_bytes, dict(state.live_bytes_of)
    mark = state.checkpoint()
    for _ in range(moves):
        historian.move(state.at_ms)
    reaches("what is undone changed how much texts take", counted(state) != before)
    state.rollback(mark)
    assert counted(state) == before
    assert live_bytes_equal_a_recount(state) == []


@given(seed=st.integers(0, 2**32), decisions=st.integers(1, 60))
def test_nothing_is_left_when_all_jobs_are_over(seed: int, decisions: int) -> None:
    state = history(seed, decisions).state
    reaches("jobs of several tenants hold texts", len(state.live_bytes_of) > 1)
    for job in list(state.jobs.values()):
        waits = job.status in WAITING
        then(
            state, e.JobCancelled(job=job.id) if waits else e.JobFailed(job=job.id, reason=FailReason.RETRIES_EXHAUSTED)
        )
    assert counted(state) == (0, {})


def test_a_job_counts_while_it_waits_and_while_it_runs() -> None:
    state = cell(node("n1"), enqueued("job", run=RUN))
    assert counted(state) == (RUN_BYTES, {"ada": RUN_BYTES})
    then(state, started("job", place(0, "n1", 0)), stopping("job"))
    assert counted(state) == (RUN_BYTES, {"ada": RUN_BYTES})
    then(state, requeued("job"))
    assert counted(state) == (RUN_BYTES, {"ada": RUN_BYTES})
    then(state, e.JobCancelled(job="job"))
    assert counted(state) == (0, {})


def test_an_update_changes_nothing_of_what_is_counted() -> None:
    state = cell(enqueued("job", run=RUN))
    then(state, e.JobUpdated.of(replace(state.jobs["job"].spec, priority=9, max_run_ms=5)))
    assert counted(state) == (RUN_BYTES, {"ada": RUN_BYTES})
    assert live_bytes_equal_a_recount(state) == []


def test_the_plainest_job_counts_nothing() -> None:
    assert spec_bytes(PLAIN) == 0
    assert spec_bytes(replace(PLAIN, run=VirtualRun(duration_ms=5), priority=7, workers=3)) == 0


@pytest.mark.parametrize(
    ("fields", "size_bytes"),
    [
        ({"run": RUN}, RUN_BYTES),
        ({"run": replace(RUN, dir="/work", checkpoint_dir="/keep")}, RUN_BYTES + 2 * 64 + 10),
        ({"pools": ("train",), "node_labels": ("zone=a",), "tolerations": ("old",)}, 3 * 64 + 14),
        ({"after": (Dependency(job="first"), Dependency(job="next"))}, 4 * 64 + 9),
        ({"scaling": (1000, 1900)}, 80),
    ],
)
def test_all_that_can_be_long_is_counted(fields: dict[str, object], size_bytes: int) -> None:
    assert spec_bytes(replace(PLAIN, **fields)) == size_bytes


@given(argv=st.lists(TEXTS, min_size=1), env=st.dictionaries(TEXTS, TEXTS))
@example(argv=["\x80"], env={"\x80": "\x80"})
def test_texts_count_for_what_they_take_beside_the_smallest_table(argv: list[str], env: dict[str, str]) -> None:
    texts = [*argv, *env, *env.values()]
    table = max(sys.getsizeof(env) - SMALLEST_TABLE_BYTES, 0)
    reaches("an environment takes more than the smallest table", table)
    taken = sum(sys.getsizeof(text) for text in texts) + table
    found = spec_bytes(replace(PLAIN, run=ProcessRun(argv=tuple(argv), env=env)))
    assert taken * 2 // 3 <= found
    assert found <= 4 * taken


def test_a_specification_of_the_largest_size_counts_no_less_than_its_record() -> None:
    for env in ({"A": "x" * 490_000}, {f"{n:x}": "" for n in range(40_000)}, {"A": "\U0001f600" * 120_000}):
        spec = replace(PLAIN, run=ProcessRun(argv=("x",), env=env))
        assert spec_bytes(spec) >= 0.97 * len(encode(spec))
