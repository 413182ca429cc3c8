"""Topics are deleted under a whole cell on a real Kafka: each service names those that it reads until they are back."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from fallow.local.service_set import KINDS
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.opening import declared_topics
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.contract.eventually import eventually
from tests.e2e.worlds.running_cell import RunningCell, a_job, running_cell

pytestmark = pytest.mark.real_kafka

OWNERS = {"cells", "snapshots"}
MISSED = {
    "admission": {"submissions", "snapshots"},
    "placement": {*OWNERS, "queue"},
    "executor": {"executor-slots", "snapshots"},
    **dict.fromkeys(("queueing", "loaning", "projector", "metrics"), OWNERS),
}
"""Those that are deleted of what each service reads: all that a cell is whole without."""

TOLD_WITHIN_S = 10.0


async def reason(cell: RunningCell, name: str) -> str:
    """Why this service is not ready, "" where it is."""
    _, body = await cell.services._services[name].get_json("/readyz")
    return body["reason"] or ""


async def test_each_service_names_the_topics_that_it_reads_and_that_are_gone_and_goes_on_once_they_are_back(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    assert set(MISSED) == {kind.name for kind in KINDS}
    async with running_cell(kafka, redis_url, namespace, tmp_path) as cell:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        await admin.delete_topics([f"{namespace}.{topic}" for topic in set.union(*MISSED.values())])
        await admin.close()
        told = {
            name: f"it has no topic {', '.join(sorted(f'{namespace}.{topic}' for topic in topics))}. Run"
            for name, topics in MISSED.items()
        }

        async def are_named() -> bool:
            return all([words in await reason(cell, name) for name, words in told.items()])

        await eventually(are_named, TOLD_WITHIN_S)
        await create_topics(cell.log._kafka, declared_topics(load_cell_file(tmp_path / "cell.yaml"), namespace))

        async def are_ready() -> bool:
            return not any([await reason(cell, name) for name in told])

        await eventually(are_ready, 3 * TOLD_WITHIN_S)
        await cell.submit(a_job("later"))
        await cell.until_over("later")
        assert cell.problems() == []
