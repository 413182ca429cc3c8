"""The short form of the chaos on real parts; `make chaos` is the long one."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from fallow.shared.runtime.stack import kafka_jars
from tests.chaos.mishaps import Mishaps
from tests.chaos.run import chaos, parts_in

MISHAPS_S = 60.0
KILLS_FEWEST = 10
"""A slow machine gets through fewer; below this it would show nothing."""


@pytest.fixture
def seed() -> int:
    return random.SystemRandom().randrange(10**6)


async def test_nothing_is_lost_or_doubled_while_everything_is_killed(tmp_path: Path, namespace: str, seed: int) -> None:
    why_not = kafka_jars.obstacle()
    if why_not:
        pytest.skip(f"needs a Kafka of its own: {why_not}")
    end_s = time.monotonic() + MISHAPS_S

    def is_over(kills: int) -> bool:
        return time.monotonic() > end_s and kills >= KILLS_FEWEST

    parts = parts_in(tmp_path)
    outcome = await chaos(
        tmp_path, namespace, parts, lambda services: Mishaps(services, parts.kafka, parts.redis, seed, is_over)
    )
    assert outcome.violations == (), f"python -m tests.chaos.run --seed {seed}"
    assert outcome.body["lost"] == outcome.body["doubled"] == 0
