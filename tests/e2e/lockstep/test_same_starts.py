"""The simulator is the running services without what carries their words: it comes to the same starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.worlds.same_starts import compare
from tests.simulator.trace.made_up import write

pytestmark = pytest.mark.real_kafka


@pytest.mark.by_turns
@pytest.mark.parametrize("policy", ["strict-fifo", "best-effort-fifo", "backfill"])
def test_a_stepped_replay_and_a_simulation_come_to_the_same_places_at_the_same_times(
    kafka: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setenv("FALLOW_KAFKA", kafka)
    monkeypatch.setenv("FALLOW_REDIS", redis_url)
    asked = ["--jobs", str(write(tmp_path / "jobs.csv", 150, seed=12)), "--nodes", "4"]
    found = compare(tmp_path, asked, policy)
    assert (found.jobs, found.other) == (150, [])
