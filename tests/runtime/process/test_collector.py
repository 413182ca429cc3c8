"""What a process has loaded is set aside from the collector of garbage once, and never again."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fallow.shared.runtime.collector import MIDDLE_ROUNDS, OLD_ROUNDS, YOUNG_OBJECTS, loading, tune_collector


class Ring:
    """Only the collector lets go of it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def loaded(what: str) -> weakref.ref[Ring]:
    """A ring that was made while this was loaded, and is not used any more."""
    with loading(what):
        ring = Ring()
    return weakref.ref(ring)


def test_what_a_first_load_has_made_is_not_looked_at_again() -> None:
    ring = loaded("a state that is loaded once")
    gc.collect()
    assert ring() is not None


def test_what_later_loads_have_made_is_let_go_when_it_is_not_used_any_more() -> None:
    loaded("a state that is loaded often")
    later = [loaded("a state that is loaded often") for _ in range(3)]
    gc.collect()
    assert [ring() for ring in later] == [None, None, None]


def test_nothing_is_collected_while_something_is_loaded() -> None:
    with loading("a state"):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_works_again_when_loading_fails() -> None:
    with pytest.raises(OSError, match="away"), loading("a state"):
        raise OSError("away")
    assert gc.isenabled()


def test_nothing_is_collected_until_the_last_of_several_loads_is_over() -> None:
    with loading("the figures of a cell"):
        with loading("the state of a cell"):
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_first_load_sets_aside_nothing_of_another_that_is_loaded_again() -> None:
    loaded("a cell that is loaded again")
    with loading("a cell that is loaded again"):
        ring = Ring()
        loaded("a cell that is loaded beside it")
    kept = weakref.ref(ring)
    del ring
    gc.collect()
    assert kept() is None


def test_first_loads_that_overlap_are_set_aside_together() -> None:
    with loading("one of two cells"):
        one = Ring()
        other = loaded("the other of two cells")
    kept = weakref.ref(one)
    del one
    gc.collect()
    assert kept() is not None
    assert other() is not None


@pytest.mark.parametrize("failure", [OSError, asyncio.CancelledError])
def test_what_a_failed_load_leaves_is_let_go_and_the_load_that_succeeds_is_set_aside(
    failure: type[BaseException],
) -> None:
    what = f"a state whose first load ends with {failure.__name__}"
    with suppress(failure), loading(what):
        ring = Ring()
        raise failure
    left = weakref.ref(ring)
    del ring
    gc.collect()
    assert left() is None
    succeeded = loaded(what)
    gc.collect()
    assert succeeded() is not None


def test_a_first_load_is_set_aside_whatever_else_was_loaded_before() -> None:
    loaded("one state")
    ring = loaded("another state")
    gc.collect()
    assert ring() is not None


def test_what_start_up_has_made_is_set_aside_and_collections_are_rare_from_then_on() -> None:
    before = gc.get_threshold()
    ring = Ring()
    made = weakref.ref(ring)
    try:
        tune_collector()
        del ring
        gc.collect()
        assert made() is not None
        assert gc.get_threshold() == (YOUNG_OBJECTS, MIDDLE_ROUNDS, OLD_ROUNDS)
    finally:
        gc.set_threshold(*before)
