"""The compose file on a real engine: everything comes up, scales, and forgets nothing when it is taken down."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from fallow.shared.runtime.stack.ports import free_port
from tests.docker.composed import DIARIES, Composed, jobs, obstacle

pytestmark = pytest.mark.docker

SHORT_MS, LONG_MS = 300, 3_600_000
USED_BEFORE = 4
"""How `fallow submit` ends if ids were submitted before."""


@pytest.fixture(scope="module")
def cell() -> Iterator[Composed]:
    reason = obstacle()
    if reason is not None:
        pytest.skip(reason)
    cell = Composed(f"fallow-{secrets.token_hex(4)}", (free_port(), free_port(), free_port()))
    try:
        cell.up("--build")
        yield cell
    finally:
        cell.compose("down", "--volumes", "--timeout", "10")


def test_a_cell_in_containers_runs_jobs_when_scaled_and_loses_nothing_when_taken_down_and_up(cell: Composed) -> None:
    assert set(cell.stages_after("ended", jobs("one", 20, SHORT_MS)).values()) == {"finished"}

    cell.up("--no-recreate", "--scale", "admission=3", "--scale", "executor=2")
    assert (cell.running("admission"), cell.running("executor")) == (["healthy"] * 3, ["healthy"] * 2)
    assert set(cell.stages_after("ended", jobs("three", 60, SHORT_MS)).values()) == {"finished"}

    assert set(cell.stages_after("started", jobs("long", 3, LONG_MS)).values()) <= {"started", "running"}
    cell.submit(jobs("late", 30, SHORT_MS))
    cell.compose("down")
    cell.up()
    # Jobs that are submitted again are the same jobs: what is told is what became of those that were on their way. The
    # exit code is that of ids used before, unless admission came to both submissions at once.
    again = cell.stages_after("ended", jobs("late", 30, SHORT_MS), codes=(0, USED_BEFORE))
    assert set(again.values()) == {"finished"}
    assert set(cell.stages_after("ended", jobs("after", 10, SHORT_MS)).values()) == {"finished"}

    statuses = cell.statuses()
    assert len(statuses) == 20 + 60 + 3 + 30 + 10
    assert {statuses[job["id"]] for job in jobs("long", 3, LONG_MS)} == {"running"}
    verified = cell.json("executor", "verify", "--diaries", DIARIES)
    assert (verified["ok"], verified["first_violation"]) == (True, None)


def test_no_container_may_do_more_than_it_must(cell: Composed) -> None:
    script = "import os; print(os.getuid(), os.access('/app', os.W_OK), os.access('/etc/fallow', os.W_OK))"
    assert cell.compose("exec", "-T", "placement", "python", "-c", script).split() == ["10001", "False", "False"]


def test_the_figures_are_on_this_machine_and_nowhere_else(cell: Composed) -> None:
    assert cell.compose("port", "metrics", "8080").strip() == f"127.0.0.1:{cell.ports[2]}"
