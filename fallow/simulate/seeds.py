"""One load under several seeds: what a seed changes in a trace, and what several seeds say together.

A trace tells of one course of things, and a scheduler magnifies small changes: a job that comes a second later finds
another hole. A seed moves the submission of each job by up to so many seconds to either side, and puts the jobs that
are carried over, which all come at time 0, in another order. Sizes, durations, tenants and the load stay as they are.
All policies get the same jobs under one seed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from random import Random
from statistics import fmean, stdev

from fallow.shared.events.fields.value import replace
from fallow.simulator.trace.figures import TraceFigures
from fallow.simulator.trace.run import Arrival

JITTER_S = 60

Told = dict[str, object]
"""Figures by their names."""


def drawn(arrivals: Sequence[Arrival], carried: Collection[str], seed: int, jitter_s: int) -> list[Arrival]:
    """The arrivals as this seed draws them, in the order of time; equal times stand in a drawn order."""
    chance = Random(seed)  # noqa: S311 - a load is no secret
    before = [arrival for arrival in arrivals if arrival.command.key() in carried]
    chance.shuffle(before)
    moved = [_moved(arrival, chance, jitter_s) for arrival in arrivals if arrival.command.key() not in carried]
    chance.shuffle(moved)
    return [*before, *sorted(moved, key=lambda arrival: arrival.at_ms)]


def _moved(arrival: Arrival, chance: Random, jitter_s: int) -> Arrival:
    by_ms = chance.randint(-jitter_s * 1_000, jitter_s * 1_000)
    at_ms = max(0, arrival.at_ms + by_ms)
    return Arrival(at_ms, replace(arrival.command, submit_ms=at_ms))


def means(found: Sequence[TraceFigures]) -> Told:
    """The mean of each figure over the seeds; None where a seed has none."""
    return {name: None if None in values else round(fmean(values), 6) for name, values in _by_name(found)}


def spread(found: Sequence[TraceFigures]) -> Told:
    """The standard deviation of each figure over the seeds, as of a sample; None of a single seed."""
    return {
        name: None if None in values or len(values) == 1 else round(stdev(values), 6)
        for name, values in _by_name(found)
    }


def _by_name(found: Sequence[TraceFigures]) -> list[tuple[str, list[float]]]:
    rows = [asdict(figures) for figures in found]
    return [(name, [row[name] for row in rows]) for name in rows[0]]
