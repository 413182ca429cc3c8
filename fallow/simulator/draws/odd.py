"""Submissions that ask for what there is not, or for the most that the language can say."""

from __future__ import annotations

from typing import Any

from fallow.shared.events.base import LARGEST_INTEGER, replace
from fallow.shared.events.fields.values import JobKind, RetryPolicy
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.draws.choosy import HOT
from fallow.simulator.engine import Engine

PRIORITY_MAX = 1_000_000

NOWHERE: tuple[dict[str, Any], ...] = (
    {"tenant": "absent"},
    {"cell": "cell-9"},
    {"cell": None, "pools": (), "node_labels": (), "tolerations": (HOT,), "topology": None, "gpu_type": None},
    {"queue": "none"},
    {"pools": ("none",)},
    {"gpu_type": "none"},
    {"not_before_ms": LARGEST_INTEGER},
    {"array": None, "array_max_running": 1},
    {"workers": 20_000},
    {"cell": None, "pools": ("pool-0a", "pool-1a")},
)
"""What admission turns away; that no cell is named is fine where there is one. Without its pools a job has no wishes
for nodes either: they were drawn for those of these pools, and others might grant them never.
"""

EXTREMES: tuple[dict[str, Any], ...] = (
    {"priority": PRIORITY_MAX},
    {"priority": -PRIORITY_MAX},
    {"max_run_ms": LARGEST_INTEGER},
    {"max_run_ms": 1},
    {"estimate_run_ms": LARGEST_INTEGER},
    {"estimate_run_ms": 1},
    {"not_before_ms": 0},
    {"not_before_ms": 1},
    {"max_run_ms": LARGEST_INTEGER - 1},
    {"estimate_run_ms": LARGEST_INTEGER - 1},
    {"retry": RetryPolicy(budget=3, backoff_ms=0, backoff_max_ms=1)},
    {"retry": RetryPolicy(budget=3, backoff_ms=LARGEST_INTEGER, backoff_max_ms=1)},
    {"retry": RetryPolicy(budget=3, backoff_ms=LARGEST_INTEGER - 1, backoff_max_ms=LARGEST_INTEGER)},
    {"retry": RetryPolicy(budget=0, backoff_ms=LARGEST_INTEGER, backoff_max_ms=LARGEST_INTEGER)},
)
"""What is let in, and must not harm anything."""


def odd(engine: Engine, submit: SubmitJob) -> SubmitJob:
    """The submission, or what a mistake or a test of the limits makes of it."""
    if engine.between(0, 7):
        return submit
    change = engine.chance.choice(NOWHERE if engine.between(0, 1) else EXTREMES)
    if "workers" in change and not (submit.job.gang and submit.job.kind is JobKind.TRAINING):
        return submit  # single workers would all have their turn, a few at a time
    return replace(submit, job=replace(submit.job, **change))
