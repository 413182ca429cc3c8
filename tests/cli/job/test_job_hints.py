"""What `fallow job` says beside the story: that no retry was asked for or would help, and where the job's output is."""

from __future__ import annotations

import pytest

from fallow.cli.job.job import hints
from fallow.shared.client.port import News
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import ProcessRun, RetryPolicy
from fallow.shared.events.reasons import FailReason
from tests.cluster.worlds.examples import enqueued, place

STARTED = e.JobStarted(job="a", attempt=1, workers=(place(0, "n1", 0),))
FAILED = e.JobFailed(job="a", reason=FailReason.RETRIES_EXHAUSTED, text="worker 0 ended with exit code 1")
BY_NODES = e.JobFailed(
    job="a", reason=FailReason.NODE_FAULTS, text="51 attempts in a row were lost, the last one: full"
)
TOO_LONG = e.JobFailed(job="a", reason=FailReason.RUN_TIME_LIMIT)
NO_RETRY = "no retry was asked for: with `retry: {budget: 3}` a job is tried again three times"
MEND = "no `retry` helps against its nodes' own faults: mend the nodes where it ran last, then submit it anew"
OUTPUT = [
    "output, on each node: STATE_DIR/runs/a/ATTEMPT/RANK/stdout and stderr",
    "STATE_DIR is that of the agent (--state-dir; out/agents/NODE if none is given)",
]
PROCESS = enqueued("a", run=ProcessRun(argv=("true",)))


@pytest.mark.parametrize(
    ("story", "told"),
    [
        ((enqueued("a"), STARTED), []),
        ((enqueued("a"), STARTED, FAILED), [NO_RETRY]),
        ((enqueued("a"), STARTED, TOO_LONG), []),
        ((enqueued("a"), STARTED, BY_NODES), [MEND]),
        ((enqueued("a", retry=RetryPolicy(budget=1)), STARTED, BY_NODES), [MEND]),
        ((enqueued("a", retry=RetryPolicy(budget=1)), STARTED, FAILED), []),
        ((PROCESS,), []),
        ((PROCESS, STARTED), OUTPUT),
        ((PROCESS, STARTED, FAILED), [NO_RETRY, *OUTPUT]),
        ((STARTED, FAILED), []),
    ],
)
def test_what_helps_is_said_where_it_holds(story: tuple[e.Effect, ...], told: list[str]) -> None:
    assert list(hints("a", [News("main", event) for event in story])) == told


def test_the_folder_of_output_is_named_by_tenant_and_id() -> None:
    story = [News("main", event) for event in (PROCESS, STARTED)]
    assert "STATE_DIR/runs/vision~a/ATTEMPT/" in next(iter(hints("vision/a", story)))
