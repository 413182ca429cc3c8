"""How many updates of an array one record carries out."""

from __future__ import annotations

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.reasons import RefuseCode
from fallow.simulator.history.answers import updates_of_arrays
from tests.cluster.worlds.examples import enqueued


def updated(number: int, array: str = "a") -> e.JobUpdated:
    return e.JobUpdated.of(enqueued(f"{array}.{number}", array_of=array, array_index=number).spec)


REFUSED = e.JobRefused(job="a.1", tenant="ada", request="update", code=RefuseCode.ALREADY_OVER)


@pytest.mark.parametrize(
    ("effects", "updates"),
    [
        ((updated(0), updated(1)), 1),
        ((updated(3), updated(3)), 2),
        ((updated(0), updated(1), updated(0), updated(1)), 2),
        ((updated(0), REFUSED, updated(2)), 1),
        ((updated(0), e.JobHeld(job="x"), updated(2)), 2),
    ],
)
def test_one_update_changes_elements_in_the_order_of_their_numbers(
    effects: tuple[e.AnyEffect, ...], updates: int
) -> None:
    assert updates_of_arrays(effects, {f"a.{number}": ("a", number) for number in range(4)})["a"] == updates
