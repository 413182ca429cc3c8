"""A cell that is taken from one Kafka and Redis and put down in an empty one, by the commands that operators use."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fallow.cli.cell.archive import read_archive
from fallow.shared.cluster.checks.audit import ledger_of
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.log.follower import Follower
from fallow.shared.runtime.stack.choose import choose_kafka, choose_redis
from tests.cli.usage.test_commands import call
from tests.e2e.worlds.running_cell import CELL, CELL_FILE, RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka

RUNNING, WAITING, LATE, UNREAD = "running", "waiting", "late", "unread"


@dataclass(frozen=True)
class Place:
    """A Kafka and a Redis, and the command line there."""

    kafka: str
    redis: str
    namespace: str
    folder: Path

    def fallow(self, *words: str) -> subprocess.CompletedProcess[str]:
        where = {"FALLOW_KAFKA": self.kafka, "FALLOW_REDIS": self.redis, "FALLOW_NAMESPACE": self.namespace}
        return call(*words, FALLOW_CELL_FILE=str(self.folder / "cell.yaml"), **where)


@pytest.fixture
def here(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Place:
    (tmp_path / "cell.yaml").write_text(CELL_FILE)
    return Place(kafka, redis_url, namespace, tmp_path)


@pytest.fixture
def there(here: Place, folder: Callable[[str], Path]) -> Iterator[Place]:
    """Another Kafka and another Redis, both empty. Where they are given from outside, another namespace there."""
    kafka, redis = choose_kafka(folder("kafka")).server, choose_redis(folder("redis")).server
    kafka.start()
    redis.start()
    namespace = f"{here.namespace}-2" if kafka.address == here.kafka else here.namespace
    yield Place(kafka.address, redis.address, namespace, here.folder)
    redis.stop()
    kafka.stop()


async def a_life(cell: RunningCell) -> None:
    """Two nodes: jobs that are over, one that runs on all there is, and one that waits behind it."""
    await cell.submit(a_job("over", ms=50))
    await cell.until_over("over")
    await cell.submit(a_job(RUNNING, workers=2, gpus=8, ms=12_000))
    await cell.until(is_full, what="a full cell")
    # Only now: two jobs submitted together may lie in two partitions, and come in either order.
    await cell.submit(a_job(WAITING, gpus=8, ms=100))
    await cell.until(lambda c: in_full(WAITING) in c.state.jobs, what="a job that waits")


def is_full(cell: RunningCell) -> bool:
    job = cell.state.jobs.get(in_full(RUNNING))
    return job is not None and job.status is JobStatus.RUNNING


async def live_and_export(here: Place, file: Path) -> subprocess.CompletedProcess[str]:
    async with running_cell(here.kafka, here.redis, here.namespace, here.folder, nodes=2) as cell:
        await a_life(cell)
        await cell.services.stop()
        await cell.submit(a_job(UNREAD, ms=100))
        return here.fallow("snapshot", "export", str(file), "--json")


async def test_an_export_beside_services_that_run_tells_what_is_not_in_the_file(here: Place, tmp_path: Path) -> None:
    """A copy of a cell that runs is a legitimate thing to have; to move the cell it is the wrong one."""
    live, moved = tmp_path / "live", tmp_path / "moved"
    async with running_cell(here.kafka, here.redis, here.namespace, here.folder, nodes=2) as cell:
        copied = await asyncio.to_thread(here.fallow, "snapshot", "export", str(live), "--json")
        await cell.services.stop()
        done = await asyncio.to_thread(here.fallow, "snapshot", "export", str(moved), "--json")
    version = json.loads(copied.stdout)["version"]
    still = f"placement and admission of namespace {here.namespace} still run"
    behind = f"what cell main decides and accepts behind version {version} is not in {live}"
    rule = "To move the cell, stop its services and export it again"
    assert (copied.returncode, copied.stderr) == (0, f"fallow: {still}, so {behind}. {rule}\n")
    assert (done.returncode, done.stderr) == (0, "")


async def go_on(cell: RunningCell) -> None:
    """Follow the cell from where it was put down."""
    await cell.follower.stop()
    cell.follower = Follower(cell.log, cell.layout, CELL)
    await cell.follower.start()
    cell.ledger = ledger_of(cell.state)


async def test_a_moved_cell_goes_on_where_it_was(here: Place, there: Place, tmp_path: Path) -> None:
    file = tmp_path / "cell.gz"
    exported = await live_and_export(here, file)
    assert exported.returncode == 0, exported.stderr
    said = json.loads(exported.stdout)
    assert (said["jobs"], said["over"], said["nodes"], said["unread"]) == (2, 1, 2, {"submissions": 1})
    assert there.fallow("topics", "create").returncode == 0
    imported = there.fallow("snapshot", "import", str(file))
    assert (imported.returncode, imported.stderr) == (0, "")
    before = read_archive(file).state
    async with running_cell(there.kafka, there.redis, there.namespace, tmp_path, nodes=2, begins_at_0=False) as cell:
        await go_on(cell)
        assert cell.state.version >= before.version
        await cell.submit(a_job(LATE, ms=100))
        await cell.until_over(RUNNING, WAITING, UNREAD, LATE, wait_s=60)
        assert cell.state.jobs == {}
        assert {over.status for over in cell.state.finished.values()} == {JobStatus.FINISHED}
        assert {job: cell.story(job).count("JobStarted") for job in ("over", RUNNING, WAITING, UNREAD, LATE)} == {
            "over": 0,
            RUNNING: 0,
            WAITING: 1,
            UNREAD: 1,
            LATE: 1,
        }
        assert cell.offences == []
        verified = there.fallow("verify", "--json")
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout.splitlines()[-1])["from_version"] == before.version
        shown = there.fallow("log", "show", str(before.version + 1))
        assert (shown.returncode, shown.stderr) == (0, "")
        assert there.fallow("log", "at", str(before.version), "--json").returncode == 0


async def test_nothing_is_put_down_where_something_is(here: Place, tmp_path: Path) -> None:
    file = tmp_path / "cell"
    exported = await live_and_export(here, file)
    assert exported.returncode == 0, exported.stderr
    digest = json.loads(exported.stdout)["digest"]
    done = here.fallow("snapshot", "import", str(file))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("fallow: cell main is not empty here: ")
    again = here.fallow("snapshot", "export", str(file), "--yes", "--json")
    assert (json.loads(again.stdout)["digest"], digest_of(read_archive(file).state)) == (digest, digest)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello\n", "is no exported cell"),
        ('{"what":"a cell of fallow","format":7}\n', "is of format 7, this version reads format 1"),
        ("", "is empty"),
    ],
)
async def test_a_file_that_is_none_changes_nothing(here: Place, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "cell"
    file.write_text(content)
    assert here.fallow("topics", "create").returncode == 0
    done = here.fallow("snapshot", "import", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fallow: {file}: {said}\n")
    assert here.fallow("snapshot", "export", str(tmp_path / "more")).stderr == (
        "fallow: cell main has not begun: its log holds no decision\n"
    )
