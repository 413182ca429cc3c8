"""What changes a job that is named by its id alone goes by all that the log holds, and not by a view that is behind."""

from __future__ import annotations

import pytest

from fallow.cli.errors.failures import Exit
from fallow.cli.job.named import several
from fallow.shared.log.kafka.log import KafkaLog
from tests.cli.usage.test_commands import call
from tests.cli.worlds.cells import publish, show
from tests.cli.worlds.logs import LogWriter, enqueued

CHANGES = {"cancel": (), "job cancel": (), "job hold": (), "job release": (), "job scale": ("2",)}
"""Each command that changes a job, with what stands behind the job's id."""

SAID = f"fallow: {several('train', ['search/train', 'vision/train'])}\n"


@pytest.fixture
async def there(kafka: str, redis_url: str, namespace: str) -> dict[str, str]:
    """How to reach a cell whose log tells of a second job of one id, of which the view does not know yet."""
    found = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    assert call("topics", "create", **found).returncode == 0
    written = LogWriter()
    written.write(enqueued("search/train", tenant="search"))
    await show(redis_url, namespace, written.state)
    written.write(enqueued("vision/train"))
    log = KafkaLog(kafka, "test")
    await log.start()
    await publish(log, written.records, namespace)
    await log.stop()
    return found


def test_no_command_takes_the_job_that_the_view_knows_for_the_only_one(there: dict[str, str]) -> None:
    done = {name: call(*name.split(), "train", *more, **there) for name, more in CHANGES.items()}
    assert {name: (each.returncode, each.stderr) for name, each in done.items()} == dict.fromkeys(
        CHANGES, (Exit.USAGE, SAID)
    )
    assert "search/train" in call("job", "train", **there).stdout, "what only reads goes by the view"
