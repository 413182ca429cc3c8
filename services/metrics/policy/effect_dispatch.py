"""What an accumulator does with each kind of effect: a table, so that an effect that it does not use costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e

Act = Callable[[CellState, Any, int], None]
"""Called with a state behind the decision (or behind a later one), the effect, and the decision's cell time."""

Acts = dict[type[e.Effect], Act]


def together(*tables: Acts) -> dict[type[e.Effect], tuple[Act, ...]]:
    """One table of several: for each kind of effect what is to be done, in the order of the tables."""
    merged: dict[type[e.Effect], tuple[Act, ...]] = {}
    for table in tables:
        for kind, act in table.items():
            merged[kind] = (*merged.get(kind, ()), act)
    return merged


def act_on(acts: Acts, state: CellState, effects: tuple[e.Effect, ...], at_ms: int) -> None:
    """Do what the table says about each of these effects."""
    for effect in effects:
        act = acts.get(type(effect))
        if act is not None:
            act(state, effect, at_ms)
