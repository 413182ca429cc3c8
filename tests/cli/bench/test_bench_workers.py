"""Workers of this machine are begun for real, with users of their own where root and the kernel allow it."""

from __future__ import annotations

import os
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from fallow.bench.load.processor_time import Used
from fallow.bench.workers import Began, figure_of, workers

BARE: dict[str, float | None] = {"p50_ms": 1.0, "p99_ms": 2.0}
QUIET = Used(1.0, {}, 0.0)


def test_waits_are_of_all_rounds_and_speeds_the_median_of_theirs() -> None:
    rounds = [Began([5.0, 6.0], 10.0, ("a",)), Began([1.0], 30.0, ("a",)), Began([2.0], 20.0, ("a",))]
    body: Any = figure_of(rounds, rounds[1:], "", BARE, QUIET, 1).body
    assert body["shared"] == {"p50_ms": 2.0, "p99_ms": 6.0, "workers_per_s": 20.0, "not_held": ["a"]}
    assert body["isolated"]["workers_per_s"] == 25.0
    assert (body["why_not_isolated"], body["baseline"], body["rounds"]) == (None, BARE, 3)


def test_where_no_worker_can_be_isolated_that_is_told_with_its_reason() -> None:
    figure = figure_of([Began([1.0], 1.0, ())], [], "only root may", BARE, QUIET, 1)
    assert (figure.body["isolated"], figure.body["why_not_isolated"]) == (None, "only root may")
    assert "not isolated: only root may" in figure.lines


def test_workers_are_processes_of_this_machine() -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    body: Any = workers(Console(file=StringIO()), count=2, rounds=1).body
    assert os.umask(mask) == mask, "as it was before"
    if os.geteuid() != 0:
        assert "only root may" in body["why_not_isolated"]
        pytest.skip(body["why_not_isolated"])
    assert body["why_not_isolated"] is None
    for told in (body["shared"], body["isolated"]):
        assert 0 < told["p50_ms"] <= told["p99_ms"]
        assert told["workers_per_s"] > 0
    own = {text for text in body["shared"]["not_held"] if "other jobs" in text}
    assert own
    assert not own & set(body["isolated"]["not_held"])
