"""What a process has loaded is set aside from the collector of garbage once, and never again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from shared.runtime.collector import loading


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
