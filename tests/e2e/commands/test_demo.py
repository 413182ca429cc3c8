"""`fallow demo` as a stranger calls it, on a smaller and faster day."""

from __future__ import annotations

import json
import os
import subprocess
import sys

ENDS = ("completed", "failed", "cancelled", "rejected", "unfinished")
KEYS = (
    *("submitted", *ENDS, "lost", "double_allocations", "wait_ms_mean", "wait_ms_p50", "wait_ms_p99"),
    *("gar_mean", "gfr_mean", "versions", "seconds", "kafka", "redis", "verify_ok", "rss_mb"),
)


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "fallow.cli", "demo", *options]
    environment = {name: value for name, value in os.environ.items() if name not in {"FALLOW_KAFKA", "FALLOW_REDIS"}}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_day_runs_on_the_embedded_stack_and_nothing_is_lost() -> None:
    done = demo("--count", "60", "--nodes", "8", "--speed", "20000", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert tuple(told) == KEYS
    assert told["submitted"] == sum(told[end] for end in ENDS) == 60
    assert (told["lost"], told["double_allocations"], told["unfinished"], told["verify_ok"]) == (0, 0, 0, True)
    assert "the broker forgets everything at exit" in done.stderr


def test_more_jobs_than_the_embedded_broker_can_hold_are_refused_in_one_line() -> None:
    done = demo("--count", "3001")
    assert done.returncode == 2
    assert "3001 jobs: the embedded broker keeps the log of at most 3000" in done.stderr
    assert "Traceback" not in done.stderr
