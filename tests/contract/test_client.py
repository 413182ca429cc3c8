from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from fallow.shared.client.answers import Progress, Stage
from fallow.shared.client.direct import IN_ORDER_MAX, DirectClient
from fallow.shared.client.port import CellClient, ClientUnavailable, News, NotYet
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.job import FINAL, JobStatus
from fallow.shared.events.base import Event
from fallow.shared.events.effects import JobEnqueued, JobFinished, JobRefused, JobRunning, JobStarted
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.operations import Cordon, Drain, HoldJob, ReleaseJob, Uncordon
from fallow.shared.events.reasons import RefuseCode, RejectCode
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.opening import declared_topics
from fallow.shared.log.port import Log, Record
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.view.redis_view import RedisFunctions
from tests.cli.worlds.cells import publish, show
from tests.cli.worlds.logs import LogWriter, an_honest_log, enqueued

FILE = CellFile(
    cells=(CellPart(name="main", ordinal=0, pools=(Pool(name="training", gpus=16),)),), tenants=(Tenant(name="vision"),)
)
JOB = JobSpec(id="a", tenant="vision")


class World:
    """The log and the view on which a client works, and what tests do behind its back."""

    def __init__(self, log: Log, clients_log: Log, redis_url: str, namespace: str) -> None:
        self.log, self.clients_log, self.redis_url = log, clients_log, redis_url
        self.layout = Layout(namespace, {"main": 0})
        self.written = LogWriter(topic=f"{namespace}.decisions")
        self._published = 0

    async def publish(self) -> None:
        """What was written since the last time."""
        records, self._published = self.written.records[self._published :], len(self.written.records)
        await publish(self.log, records, self.layout.namespace)

    async def reject(self, job: str) -> None:
        event = JobRejected(job=job, command="submit", code=RejectCode.UNKNOWN_TENANT)
        await self.log.publish([self.layout.outgoing(event, id="1", source="test", wall_ms=0)])

    async def show(self) -> None:
        await show(self.redis_url, self.layout.namespace, self.written.state)

    async def read(self, topic: str) -> list[Event]:
        """Every event of a topic."""
        return [event for record in await self.records(topic) if isinstance(event := event_of(record), Event)]

    async def stamps(self, topic: str) -> dict[str, int]:
        """The broker's stamp of the record of each key."""
        return {(record.key or b"").decode(): record.timestamp_ms for record in await self.records(topic)}

    async def records(self, topic: str) -> list[Record]:
        """Every record of a topic."""
        name = self.layout.topic(topic)
        tps = [(name, partition) for partition in range(await self.log.partitions(name))]
        ends = await self.log.end_offsets(tps)
        reader = self.log.reader(dict.fromkeys(tps, 0))
        await reader.start()
        found: list[Record] = []
        while reader.positions() != ends:
            found += await reader.poll()
        await reader.stop()
        return found


async def memory_logs(namespace: str) -> tuple[Log, Log]:
    broker = MemoryBroker(wall_ms)
    for spec in declared_topics(FILE, namespace):
        broker.create_topic(spec.name, spec.partitions)
    return MemoryLog(broker), MemoryLog(broker)


async def kafka_logs(bootstrap: str, namespace: str) -> tuple[Log, Log]:
    await create_topics(bootstrap, declared_topics(FILE, namespace))
    log = KafkaLog(bootstrap, "contract")
    await log.start()
    return log, KafkaLog(bootstrap, "contract-client")


@pytest.fixture(params=["memory", "kafka"])
async def world(request: pytest.FixtureRequest, redis_url: str, namespace: str) -> AsyncIterator[World]:
    if request.param == "memory":
        logs = await memory_logs(namespace)
    else:
        logs = await kafka_logs(request.getfixturevalue("kafka"), namespace)
    yield World(*logs, redis_url, namespace)
    await logs[0].stop()


@pytest.fixture
async def client(world: World) -> AsyncIterator[CellClient]:
    functions = RedisFunctions(world.redis_url, loads=True)
    direct = DirectClient(world.clients_log, functions, world.layout, source="contract")
    yield direct
    await direct.stop()
    await functions.stop()


async def first_news(client: CellClient, mark: object, count: int) -> list[News]:
    found: list[News] = []
    async with aclosing(client.news(mark)) as told:  # type: ignore[arg-type]
        async for some in told:
            found += some
            if len(found) >= count:
                return found
    raise AssertionError("news have no end")


async def test_wishes_are_in_the_log_when_the_call_returns(world: World, client: CellClient) -> None:
    changes = JobChanges(priority=5)
    await client.submit([JOB, replace(JOB, id="b")], submit_ms=7)
    await client.update("a", "vision", changes)
    await client.cancel("a", "vision", cell="main", reason="enough")
    assert sorted(await world.read("submissions"), key=lambda event: (event.key(), event.type)) == [
        CancelJob(job="a", tenant="vision", cell="main", reason="enough"),
        SubmitJob(job=JOB, submit_ms=7),
        UpdateJob(job="a", tenant="vision", changes=changes),
        SubmitJob(job=replace(JOB, id="b"), submit_ms=7),
    ]


async def test_jobs_of_one_call_are_stamped_in_their_order_if_they_are_few(world: World, client: CellClient) -> None:
    names = [f"step-{number * 7 % IN_ORDER_MAX}" for number in range(IN_ORDER_MAX)]
    await client.submit([replace(JOB, id=name) for name in names])
    stamps = await world.stamps("submissions")
    assert sorted(stamps, key=stamps.__getitem__) == [f"vision/{name}" for name in names]
    assert len({*stamps.values()}) == len(names)


async def test_many_jobs_of_one_call_are_all_sent(world: World, client: CellClient) -> None:
    names = [f"step-{number}" for number in range(IN_ORDER_MAX + 1)]
    await client.submit([replace(JOB, id=name) for name in names])
    assert {*await world.stamps("submissions")} == {f"vision/{name}" for name in names}


async def test_operations_keep_their_order(world: World, client: CellClient) -> None:
    orders = [
        Cordon(cell="main", node="node-1", by="me"),
        Drain(cell="main", node="node-1", deadline_ms=9),
        Uncordon(cell="main", node="node-1"),
        HoldJob(cell="main", job="a"),
        ReleaseJob(cell="main", job="a"),
    ]
    for order in orders:
        await client.operate(order)
    assert await world.read("operations") == orders


async def test_news_begin_where_the_wish_was_given(world: World, client: CellClient) -> None:
    world.written.write(enqueued("before"))
    await world.publish()
    mark = await client.submit([JOB])
    world.written.write(enqueued("a"))
    await world.publish()
    await world.reject("b")
    news = await first_news(client, mark, 2)
    assert sorted((found.job, type(found.event)) for found in news) == [("a", JobEnqueued), ("b", JobRejected)]
    assert {found.version for found in news} == {2, None}


async def test_news_leave_out_what_is_stale(world: World, client: CellClient) -> None:
    mark = await client.submit([JOB])
    world.written.write(enqueued("a"))
    world.written.write_stale()
    world.written.write(enqueued("b"))
    await world.publish()
    assert [found.version for found in await first_news(client, mark, 2)] == [1, 2]


async def test_silence_is_told_too(client: CellClient) -> None:
    mark = await client.submit([JOB])
    async with aclosing(client.news(mark, wait_ms=20)) as told:
        assert await anext(told) == []


async def test_decisions_are_found_by_version(world: World, client: CellClient) -> None:
    world.written = an_honest_log()
    await world.publish()
    assert [found.version async for found in client.decisions("main", 5, 7)] == [5, 6, 7]
    assert [found.version async for found in client.decisions("main", 8)] == [8, 9]
    assert [found.version async for found in client.decisions("main", 10)] == []


async def test_the_newest_decisions_come_last_and_can_be_followed(world: World, client: CellClient) -> None:
    world.written = an_honest_log()
    await world.publish()
    assert [found.version async for found in client.newest("main", 3)] == [7, 8, 9]
    async with aclosing(client.newest("main", 1, follow=True)) as told:
        assert (await anext(told)).version == 9
        world.written.write(enqueued("later"))
        await world.publish()
        assert (await anext(told)).version == 10


async def test_a_log_that_is_empty_tells_nothing(client: CellClient) -> None:
    assert [found async for found in client.newest("main", 3)] == []
    assert [found async for found in client.story("main", "a")] == []


async def test_the_story_of_a_job_holds_its_effects_and_no_other(world: World, client: CellClient) -> None:
    world.written = an_honest_log()
    await world.publish()
    story = [news async for news in client.story("main", "first")]
    assert [type(news.event) for news in story] == [JobEnqueued, JobStarted, JobRunning, JobFinished]
    assert [news.version for news in story] == [4, 4, 5, 8]


async def test_reads_tell_the_version_that_they_belong_to(world: World, client: CellClient) -> None:
    world.written = an_honest_log()
    await world.show()
    job = await client.job("main", "second")
    assert job.value is not None
    assert (job.version, job.value.status) == (9, JobStatus.RUNNING)
    assert [row.id for row in (await client.jobs("main", statuses=[JobStatus.QUEUED])).value] == ["third"]
    live = [status for status in JobStatus if status not in FINAL]
    assert [row.id for row in (await client.jobs("main", statuses=live)).value] == ["second", "third"]
    assert [row.gpus_free for row in (await client.nodes("main")).value] == [4, 4]
    assert [row.tenant for row in (await client.tenants("main")).value] == ["vision"]
    assert (await client.queue("main", "")).value.length == 1
    assert (await client.summary("main")).value.jobs[JobStatus.FINISHED] == 1
    assert (await client.job("main", "absent")).value is None


TWO_OF_ONE_ID = (
    JobSpec(id="vision/hello", tenant="vision"),
    JobSpec(id="search/hello", tenant="search"),
    JobSpec(id="search/oh-hello", tenant="search"),
    JobSpec(id="ads/many.7", tenant="ads", array_of="ads/many", array_index=7),
    JobSpec(id="vision/many.0x", tenant="vision"),
    JobSpec(id="search/many.0x", tenant="search"),
)


@pytest.mark.parametrize(
    ("own", "jobs"),
    [
        ("hello", ("search/hello", "vision/hello")),
        ("oh-hello", ("search/oh-hello",)),
        ("many", ("ads/many",)),
        ("many.7", ("ads/many.7",)),
        ("many.0x", ("search/many.0x", "vision/many.0x")),
        ("many.", ()),
        ("none", ()),
    ],
)
async def test_jobs_are_found_by_the_id_that_their_tenants_chose(
    world: World, client: CellClient, own: str, jobs: tuple[str, ...]
) -> None:
    world.written.write(*(JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32) for spec in TWO_OF_ONE_ID))
    await world.show()
    assert (await client.names("main", own)).value == jobs
    await world.publish()
    assert await client.names_told("main", own) == jobs


async def test_a_job_that_admission_turned_away_is_found_where_there_is_no_other_of_its_id(
    world: World, client: CellClient
) -> None:
    for job, tenant in (("vision/hello", "vision"), ("ads/hello", "search"), ("visoin/oh", "visoin"), ("ads/hi", None)):
        event = JobRejected(cell="main", job=job, tenant=tenant, command="submit", code=RejectCode.UNKNOWN_TENANT)
        await world.log.publish([world.layout.outgoing(event, id="1", source="test", wall_ms=0)])
    assert await client.names_told("main", "hello") == ("vision/hello",)
    assert await client.names_told("main", "oh") == ("visoin/oh",)
    assert await client.names_told("main", "hi") == ("ads/hi",)
    world.written.write(JobEnqueued(spec=TWO_OF_ONE_ID[1], submit_ms=0, digest="0" * 32))
    await world.publish()
    assert await client.names_told("main", "hello") == ("search/hello",)


async def test_a_story_holds_no_refusal_of_a_stranger(world: World, client: CellClient) -> None:
    entered = JobEnqueued(spec=TWO_OF_ONE_ID[0], submit_ms=0, digest="0" * 32)
    noes = [
        JobRefused(job="vision/hello", request="cancel", code=RefuseCode.UNKNOWN_JOB, tenant=tenant)
        for tenant in ("search", "vision", None)
    ]
    world.written.write(entered, *noes)
    await world.publish()
    assert [news.event async for news in client.story("main", "vision/hello")] == [entered, *noes[1:]]


async def test_a_read_can_ask_for_at_least_a_version(world: World, client: CellClient) -> None:
    world.written = an_honest_log()
    await world.show()
    assert (await client.nodes("main", at_least=9)).version == 9
    with pytest.raises(NotYet, match="is at version 9, 10 was asked for"):
        await client.nodes("main", at_least=10)


async def test_a_view_that_is_being_built_says_so(client: CellClient) -> None:
    with pytest.raises(NotYet, match="is being built"):
        await client.jobs("main")


async def test_what_is_away_is_named(namespace: str) -> None:
    functions, log = RedisFunctions("redis://127.0.0.1:1/0"), KafkaLog("127.0.0.1:1", "contract")
    client = DirectClient(log, functions, Layout(namespace, {"main": 0}), source="contract")
    with pytest.raises(ClientUnavailable, match="Redis: "):
        await client.jobs("main")
    with pytest.raises(ClientUnavailable, match="Kafka: "):
        await client.submit([JOB])
    await client.stop()
    await functions.stop()


def test_progress_follows_a_job_from_its_answer_to_its_end() -> None:
    progress, written = Progress.of(["first", "ghost"]), an_honest_log()
    effects = itertools.chain.from_iterable(getattr(event_of(record), "effects", ()) for record in written.records)
    moved = [effect.kind for effect in effects if progress.take(News("main", effect))]
    assert moved == ["JobEnqueued", "JobStarted", "JobRunning", "JobFinished"]
    assert progress.stages == {"first": Stage.FINISHED, "ghost": Stage.UNANSWERED}
    assert not progress.have(Stage.WAITING)
    rejected = JobRejected(job="ghost", command="submit", code=RejectCode.UNKNOWN_POOL)
    assert progress.take(News(None, rejected))
    assert progress.have(Stage.FINISHED)
