"""How a process ends when a person has to help, and how it waits when none has to."""

from __future__ import annotations

import asyncio

import pytest

from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.log.opening import WrongTopics
from fallow.shared.runtime.errors.endings import FAILED, FENCED, WRONG_SETTINGS
from fallow.shared.runtime.files.cell_file import CellFileError
from fallow.shared.runtime.process import Context, make_context, run_to_end
from fallow.shared.runtime.settings import ServiceSettings, SettingsError
from fallow.shared.runtime.tasks.backoff import BackOff


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CellFileError("line 3: gpus = -1"), WRONG_SETTINGS, "the cell file has an error"),
        (SettingsError("FALLOW_BEGIN_CELLS = 'mian': no cell"), WRONG_SETTINGS, "the settings have an error"),
        (WrongTopics("jobs is missing"), WRONG_SETTINGS, "the topics are not as declared"),
        (DamagedLog("offset 7"), FENCED, "fenced: the decision log is damaged"),
        (ExceptionGroup("tasks", [OSError(), DamagedLog("offset 7")]), FENCED, "fenced: the decision log is damaged"),
        (ZeroDivisionError("a defect"), FAILED, "failed"),
    ],
)
async def test_each_error_has_its_exit_code_and_its_line(
    error: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(_context: Context[ServiceSettings]) -> None:
        raise error

    assert await run_to_end(make_context("tiny", ServiceSettings()), main) == code
    said = capsys.readouterr().out
    assert line in said
    assert ("Traceback" in said) == (code == FAILED)


def test_pauses_grow_up_to_a_bound_with_jitter_and_begin_anew_after_a_success() -> None:
    pause = BackOff(1.0, 8.0)
    waits = [pause.next_s() for _ in range(8)]
    bounds = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    assert all(0.5 * most <= wait <= 1.5 * most for wait, most in zip(waits, bounds, strict=True))
    assert len(set(waits)) == len(waits)
    pause.reset()
    assert pause.next_s() <= 1.5


async def test_a_service_is_ready_when_the_last_reason_is_gone() -> None:
    health = make_context("tiny", ServiceSettings()).health
    health.not_ready("waiting for Kafka", "kafka")
    health.not_ready("waiting for Redis", "redis")
    health.ready()
    assert health.waiting_for == "waiting for Kafka; waiting for Redis"
    health.ready("redis")
    assert not health.is_ready
    health.ready("kafka")
    assert health.is_ready


async def test_a_loop_of_pauses_can_be_cancelled_after_the_stop() -> None:
    context = make_context("tiny", ServiceSettings())
    context.stopping.set()

    async def loop() -> None:
        while True:
            await context.pause(1)

    task = asyncio.create_task(loop())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
