"""What must hold of every legal history, whatever happens in it."""

from __future__ import annotations

import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.checks.audit import Ledger
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.fold import DamagedLog, fold
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from tests.cluster.worlds.histories import Historian, extending, folded, history
from tests.hypothesis_profile import reaches
from tests.strategies import EFFECTS

ROOT = Path(__file__).parent.parent.parent.parent
CHANCES = st.randoms(use_true_random=False) | st.builds(Random, st.integers(0, 2**32))
"""Those of the first kind shrink, and are so simple that jobs hardly ever run by them."""

DECISIONS = st.integers(1, 60)


@given(chance=CHANCES, decisions=DECISIONS)
def test_a_reader_gets_the_state_that_the_writer_had(chance: Random, decisions: int) -> None:
    historian = history(chance, decisions)
    reaches("a reader folds jobs that run, and some that are over", has_lived(historian.state))
    assert folded(historian.records) == historian.state


@given(chance=CHANCES, decisions=DECISIONS, cut=st.integers(0, 60))
def test_folding_two_parts_is_folding_the_whole(chance: Random, decisions: int, cut: int) -> None:
    records = history(chance, decisions).records
    reaches("a log is folded in two parts", 0 < cut < len(records))
    assert folded(records[cut:], folded(records[:cut])) == folded(records)


@given(chance=CHANCES, decisions=DECISIONS, cut=st.integers(0, 60))
def test_a_snapshot_in_between_changes_nothing(chance: Random, decisions: int, cut: int) -> None:
    records = history(chance, decisions).records
    restored = state_from(list(rows_of(folded(records[:cut]))))
    reaches("a snapshot has records before and behind it", 0 < cut < len(records))
    assert restored == folded(records[:cut])
    assert digest_of(folded(records[cut:], restored)) == digest_of(folded(records))


@given(chance=CHANCES, decisions=DECISIONS)
def test_every_invariant_and_every_index_holds_after_each_decision(chance: Random, decisions: int) -> None:
    historian, ledger = Historian(chance), Ledger()
    for _ in range(decisions):
        decision = historian.decide().decision
        assert isinstance(decision, Decision)
        assert check_state(historian.state) == []
        assert ledger.take(decision) is None
        assert ledger.compare(historian.state) is None
    reaches(
        "invariants are tested of a cell with running jobs", any(job.workers for job in historian.state.jobs.values())
    )


@given(chance=CHANCES, decisions=DECISIONS, moves=st.integers(1, 30))
def test_rollback_restores_the_state_exactly(chance: Random, decisions: int, moves: int) -> None:
    historian = history(chance, decisions)
    state, before, rows = historian.state, deepcopy(historian.state), list(rows_of(historian.state))
    mark = state.checkpoint()
    for _ in range(moves):
        historian.move(state.at_ms + 9_000)
    reaches("a rollback undoes something", state != before)
    state.rollback(mark)
    assert state == before
    assert list(rows_of(state)) == rows
    assert check_state(state) == []


@given(chance=CHANCES, decisions=DECISIONS, moves=st.integers(0, 12))
def test_a_record_that_breaks_a_rule_at_its_end_changes_nothing(chance: Random, decisions: int, moves: int) -> None:
    historian = history(chance, decisions)
    state, before, rows = historian.state, deepcopy(historian.state), list(rows_of(historian.state))
    mark = state.checkpoint()
    legal = [effect for _ in range(moves) for effect in historian.move(state.at_ms)]
    state.rollback(mark)
    reaches("a record that breaks a rule has legal effects before", legal)
    with pytest.raises(DamagedLog, match="job stranger neither waits nor runs"):
        fold(state, extending(state, [*legal, e.JobReleased(job="stranger")]))
    assert state == before
    assert list(rows_of(state)) == rows
    assert check_state(state) == []
    assert state.undo_log.entries == []


@given(chance=CHANCES, decisions=DECISIONS, outer=st.integers(0, 8), inner=st.integers(0, 8), later=st.integers(0, 8))
def test_checkpoints_nest(chance: Random, decisions: int, outer: int, inner: int, later: int) -> None:
    historian = history(chance, decisions)
    state, before = historian.state, deepcopy(historian.state)
    mark_outer = state.checkpoint()
    moved(historian, outer)
    between = deepcopy(state)
    mark_inner = state.checkpoint()
    moved(historian, inner)
    are_nested = before != between != state
    state.rollback(mark_inner)
    assert state == between
    mark_kept = state.checkpoint()
    moved(historian, later)
    reaches("something is undone within what is undone, and something is kept in it", are_nested and state != between)
    state.commit(mark_kept)
    assert check_state(state) == []
    state.rollback(mark_outer)
    assert state == before


@given(chance=CHANCES, decisions=DECISIONS, moves=st.integers(1, 30))
def test_what_was_tried_and_undone_leaves_no_trace_in_what_follows(chance: Random, decisions: int, moves: int) -> None:
    historian = history(chance, decisions)
    mark = historian.state.checkpoint()
    before = digest_of(historian.state)
    moved(historian, moves)
    reaches("something is tried and undone before a history goes on", digest_of(historian.state) != before)
    historian.state.rollback(mark)
    for _ in range(10):
        historian.decide()
    assert digest_of(folded(historian.records)) == digest_of(historian.state)


@given(chance=CHANCES, decisions=DECISIONS, data=st.data())
def test_repeated_records_change_nothing(chance: Random, decisions: int, data: st.DataObject) -> None:
    records = history(chance, decisions).records
    state = folded(records)
    before = digest_of(state)
    repeated = data.draw(st.lists(st.sampled_from(records), max_size=10))
    reaches("a record comes again behind later ones", any(record is not records[-1] for record in repeated))
    for record in repeated:
        fold(state, record)
    assert digest_of(state) == before


def has_lived(state: CellState) -> bool:
    """Whether some jobs run and some are over."""
    return bool(state.finished) and any(job.workers for job in state.jobs.values())


def moved(historian: Historian, moves: int) -> None:
    for _ in range(moves):
        historian.move(historian.state.at_ms + 9_000)


def test_the_histories_hold_every_effect() -> None:
    kinds: dict[str, int] = {}
    for seed in range(160):
        historian = Historian(seed, kinds)
        for _ in range(50):
            historian.decide()
    assert [effect.__name__ for effect in EFFECTS if kinds.get(effect.__name__, 0) < 10] == []


def test_the_fold_does_not_depend_on_the_hash_seed() -> None:
    digests = {digest_under(hash_seed) for hash_seed in ("0", "1", "4711")}
    assert digests == {digest_of(folded(history(5, 120).records))}


def digest_under(hash_seed: str) -> str:
    code = (
        "from tests.cluster.worlds.histories import folded, history;"
        "from fallow.shared.cluster.fold.rows import digest_of;"
        "import sys; sys.stdout.write(digest_of(folded(history(5, 120).records)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment, cwd=ROOT
    )
    return done.stdout
