"""Cases small enough to read at a glance, as their files would hold them."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from fallow.simulator.cases.run import CaseRun, Verdict
from fallow.simulator.cases.schema import Case, case_of

LINE: dict[str, Any] = {
    "id": "1",
    "name": "line",
    "policy": {"queue_policy": "strict_fifo"},
    "cluster": {"nodes": [{"name": "n0", "gpus": 8}, {"name": "n1", "gpus": 8}]},
    "queues": [{"name": "q", "quota": 16}],
    "running": [
        {"job": "r", "queue": "q", "tasks": 1, "gpus_per_task": 4, "nodes": ["n0"], "runtime_left_s": 600},
    ],
    "pending": [
        {"job": "big", "queue": "q", "tasks": 2, "gpus_per_task": 8, "min_tasks": 2},
        {"job": "small", "queue": "q", "tasks": 1, "gpus_per_task": 2, "submit_s": 10},
    ],
    "expect": {
        "running": {"r": ["n0"]},
        "pending": ["big", "small"],
        "reason_code_of": {"big": "no_free_gpus", "small": "behind_head"},
        "evicted_tasks": 0,
    },
    "then": [
        {
            "event": "r ends by itself",
            "do": [{"advance_to_s": 700}],
            "expect": {
                "running": {"big": ["n0", "n1"]},
                "pending": ["small"],
                "started": ["big"],
                "atomic": ["big"],
                "start_window_s": {"big": [600, 600]},
                "view_equals_running": True,
                "overcommit": 0,
            },
        },
        {
            "event": "big finishes",
            "do": [{"finish": "big"}],
            "expect": {"running_tasks": {"small": 1}, "pending": [], "gpus_held_after": 2},
        },
    ],
}


def line(**changes: Any) -> Case:
    """The case of a strict line, with other values for some of its keys."""
    return case_of({**deepcopy(LINE), **changes}, "line.yaml")


def verdict(case: Case, seed: int | None = None) -> Verdict:
    """What comes of it."""
    return CaseRun(case, None if seed is None else Random(seed)).run()
