"""`fallow verify --follow` on a real Kafka, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.runtime.stack.child import environment_with
from tests.cli.usage.test_commands import call
from tests.cli.worlds.cells import publish
from tests.cli.worlds.logs import an_honest_log

pytestmark = pytest.mark.real_kafka
TOP = Path(__file__).parents[3]


@pytest_asyncio.fixture
async def log(kafka: str, namespace: str) -> AsyncIterator[KafkaLog]:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_NAMESPACE": namespace}
    assert call("topics", "create", **where).returncode == 0
    found = KafkaLog(kafka, "test")
    await found.start()
    yield found
    await found.stop()


def followed(kafka: str, namespace: str, lines: int) -> tuple[int, list[str]]:
    """The exit code and the lines of a check that is stopped by Ctrl-C behind so many lines."""
    environment = {**environment_with(TOP), "FALLOW_KAFKA": kafka, "FALLOW_NAMESPACE": namespace}
    environment = {name: value for name, value in {**os.environ, **environment}.items() if name != "FALLOW_REDIS"}
    command = [sys.executable, "-m", "fallow.cli", "verify", "--follow", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=TOP)
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    return process.returncode, [*found, *rest.splitlines()]


async def test_an_offence_is_a_line_at_once_and_the_exit_code_in_the_end(
    kafka: str, namespace: str, log: KafkaLog
) -> None:
    written = an_honest_log()
    records, changed = list(written.records), (written.records[7].value or b"").replace(b"second", b"sec0nd")
    records[7] = replace(records[7], value=changed)
    await publish(log, records, namespace)
    code, lines = followed(kafka, namespace, 1)
    assert code == 1
    assert [json.loads(line).get("invariant") for line in lines] == ["chain", None]
    assert json.loads(lines[0])["text"].endswith("nothing behind it can be checked")
    assert (json.loads(lines[-1])["ok"], json.loads(lines[-1])["first_violation"]["offset"]) == (False, 7)


def left(words: tuple[str, ...], kafka: str, namespace: str) -> tuple[int, str]:
    """How a command ends whose reader goes behind the first line, and what it says of that."""
    environment = {**os.environ, **environment_with(TOP), "FALLOW_KAFKA": kafka, "FALLOW_NAMESPACE": namespace}
    environment.pop("FALLOW_REDIS", None)
    command = [sys.executable, "-m", "fallow.cli", *words]
    piped = subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=piped, text=True, env=environment, cwd=TOP) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline()
            process.stdout.close()
            return process.wait(timeout=60), process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize("words", [("verify", "--follow"), ("log", "tail", "--follow")])
async def test_who_has_read_enough_ends_it_though_nothing_more_is_told(
    words: tuple[str, ...], kafka: str, namespace: str, log: KafkaLog
) -> None:
    """As `| head -1` does."""
    await publish(log, list(an_honest_log().records), namespace)
    assert left(words, kafka, namespace) == (0, "")
