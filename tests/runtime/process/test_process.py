from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from fallow.shared.runtime.process import Context, make_context, wait_for
from fallow.shared.runtime.settings import ServiceSettings


@pytest.fixture
def context() -> Iterator[Context[ServiceSettings]]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield make_context("tiny", ServiceSettings())
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_waiting_ends_when_the_dependency_is_there(
    context: Context[ServiceSettings], caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([ConnectionRefusedError("refused"), ConnectionRefusedError("refused"), None])

    async def check() -> str | None:
        answer = next(answers)
        if answer is not None:
            raise answer
        return None

    assert await wait_for(context, "Kafka", check)
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "ConnectionRefusedError: refused" in text]) == 1
    assert "'event': 'found'" in said[-1]


async def test_the_reason_of_a_wait_shows_in_the_readiness(context: Context[ServiceSettings]) -> None:
    async def check() -> str | None:
        return "topic fallow.jobs is missing"

    waiting = asyncio.create_task(wait_for(context, "topics", check))
    await asyncio.sleep(0.01)
    assert context.health.waiting_for == "waiting for topics: topic fallow.jobs is missing"
    context.stopping.set()
    assert await waiting is False


async def test_an_error_that_nobody_expected_is_not_waited_out(context: Context[ServiceSettings]) -> None:
    async def check() -> str | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await wait_for(context, "Kafka", check)


async def test_a_pause_ends_early_when_the_process_is_to_stop(context: Context[ServiceSettings]) -> None:
    context.stopping.set()
    assert await context.pause(60) is False
