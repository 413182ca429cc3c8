"""The head that keeps a job back, in words: whose it is, and what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.cli.job.story.head_words import head_words
from fallow.services.placement.explain.explain import Behind
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason

PLAIN: dict[str, Any] = {
    "job": "head",
    "since_ms": None,
    "queue": "urgent",
    "discipline": QueueDiscipline.STRICT_FIFO,
    "code": PendingReason.NO_FREE_GPUS,
    "gpus_milli": 40_000,
    "pools": ("training",),
}
OF_URGENT = "head, the head of queue urgent (strict-fifo), which waits for"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, f"{OF_URGENT} 40 GPUs in training"),
        ({"code": None}, f"{OF_URGENT} 40 GPUs in training"),
        ({"code": PendingReason.FRAGMENTED}, f"{OF_URGENT} 40 GPUs in training (fragmented)"),
        ({"pools": ("a", "b")}, f"{OF_URGENT} 40 GPUs in a or b"),
        ({"pools": tuple("abcdef")}, f"{OF_URGENT} 40 GPUs in a, b, c or 3 more"),
        ({"pools": ()}, f"{OF_URGENT} 40 GPUs"),
        ({"gpus_milli": 0}, f"{OF_URGENT} room in training"),
        (
            {"code": PendingReason.QUOTA_REACHED, "under": "vision"},
            f"{OF_URGENT} 40 GPUs within the quota of vision",
        ),
        (
            {"since_ms": 1, "discipline": QueueDiscipline.BACKFILL},
            "head, since day 0 00:00:00.001 the head of queue urgent (backfill), which waits for 40 GPUs in training",
        ),
    ],
)
def test_a_head_is_told_with_its_queue_and_what_it_waits_for(given: dict[str, Any], told: str) -> None:
    assert head_words(Behind(**{**PLAIN, **given})) == told
