"""Why a job waits, as `fallow submit --wait` tells it from the news."""

from __future__ import annotations

import pytest
import typer

from fallow.cli.job.submit import Found, Until, _end, why_it_waits
from fallow.shared.client.answers import Progress
from fallow.shared.client.port import News
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.reasons import PendingReason, RequeueReason

PLACE = WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=1000)


def enqueued(*, hold: bool = False) -> e.JobEnqueued:
    spec = JobSpec(id="a", tenant="ada", hold=hold)
    return e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32)


DEFERRED = e.JobDeferred(job="a", code=PendingReason.NO_FREE_GPUS)
REQUEUED = e.JobRequeued(job="a", reason=RequeueReason.WORKER_FAILED, not_before_ms=9, failures=1)


@pytest.mark.parametrize(
    ("effects", "code"),
    [
        ((enqueued(), DEFERRED), "no_free_gpus"),
        ((enqueued(), DEFERRED, e.JobDeferred(job="a", code=PendingReason.BEHIND_HEAD)), "behind_head"),
        ((enqueued(hold=True),), "held"),
        ((enqueued(), DEFERRED, e.JobHeld(job="a")), "held"),
        ((enqueued(), e.JobHeld(job="a"), e.JobReleased(job="a")), None),
        ((enqueued(), e.JobStarted(job="a", attempt=1, workers=(PLACE,)), REQUEUED), "backoff"),
        ((enqueued(), DEFERRED, e.JobStarted(job="a", attempt=1, workers=(PLACE,))), None),
    ],
)
def test_the_newest_reason_is_told_with_its_meaning_and_where_to_read_more(
    effects: tuple[e.Effect, ...], code: str | None
) -> None:
    progress = Progress.of(["b", "a"])
    for effect in effects:
        progress.take(News("main", effect))
    told = why_it_waits(progress, ["b", "a"])
    if code is None:
        assert not told
    else:
        assert told.startswith(f"a ({code}: ")
        assert told.endswith("), and 1 more job; see `fallow job a`")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_reason_is_told_once(is_told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress.of(["a"])
    for effect in (enqueued(), DEFERRED):
        progress.take(News("main", effect))
    why = why_it_waits(progress, ["a"])
    with pytest.raises(typer.Exit) as ended:
        _end(Found(["a"], progress, told=why if is_told else ""), Until.STARTED, 5)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"fallow: not started within 5 s: {'a' if is_told else why}\n"


def test_a_reason_that_changed_since_it_was_told_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress.of(["a"])
    for effect in (enqueued(), DEFERRED):
        progress.take(News("main", effect))
    before = why_it_waits(progress, ["a"])
    progress.take(News("main", e.JobHeld(job="a")))
    with pytest.raises(typer.Exit):
        _end(Found(["a"], progress, told=before), Until.STARTED, 5)
    assert "a (held: " in capsys.readouterr().err
