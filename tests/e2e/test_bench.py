"""Small sizes of the benchmarks of the whole system, run for real: on a Kafka that they start themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from shared.runtime.stack import kafka_jars

Bench = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(kafka_jars.obstacle() is not None, reason=str(kafka_jars.obstacle()))


@pytest.fixture
def bench(redis_url: str) -> Bench:
    def run(*words: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "services.cli", "bench", *words, "--nodes", "50", "--json"]
        environment = {**os.environ, "FALLOW_KAFKA": "jars", "FALLOW_REDIS": redis_url}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return run


def test_a_pipeline_runs_on_a_kafka_that_flushes_unless_it_is_told_not_to(bench: Bench) -> None:
    shipped = bench("pipeline", "--rate", "50", "--seconds", "3")
    assert (shipped["durable"], shipped["started"]) == (True, shipped["submitted"])
    assert bench("pipeline", "--rate", "50", "--seconds", "3", "--no-flush")["durable"] is False
