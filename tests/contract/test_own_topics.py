"""A submission goes by its tenant's own topic where Kafka shows one, whatever the sender's cell file says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

import pytest

from fallow.shared.client.direct import DirectClient
from fallow.shared.client.port import ClientUnavailable
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.submissions import JobChanges
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.view.redis_view import RedisFunctions

PLAIN, OWN = "t.submissions", "t.submissions.alice"


class Seen(MemoryLog):
    """The log as a user sees it who has rights to these topics alone: Kafka tells of no others."""

    def __init__(self, broker: MemoryBroker, topics: Collection[str]) -> None:
        super().__init__(broker)
        self._seen = topics

    async def partitions(self, topic: str) -> int:
        return await super().partitions(topic) if topic in self._seen else 0


class Sender:
    """A client, and what it has sent by each topic."""

    def __init__(
        self,
        there: Collection[str],
        *,
        seen: Collection[str] | None = None,
        file: Collection[str] = (),
        known: Collection[str] | None = None,
    ) -> None:
        self.broker = MemoryBroker()
        for topic in (*there, "t.jobs", "t.decisions"):
            self.broker.create_topic(topic, 1)
        log = Seen(self.broker, [*there, "t.jobs", "t.decisions"] if seen is None else seen)
        self.functions = RedisFunctions("redis://127.0.0.1:1/0")
        layout = Layout("t", {"main": 0}, own_topics=frozenset(file))
        self.client = DirectClient(log, self.functions, layout, source="test", known_tenants=known)

    async def send_all(self, tenant: str) -> None:
        await self.client.submit([JobSpec(id="train", tenant=tenant)])
        await self.client.cancel("train", tenant)
        await self.client.update("train", tenant, JobChanges(workers=2))

    def came(self, topic: str) -> int:
        return len(self.broker.partition((topic, 0)).records) if topic in self.broker.topics() else 0


@pytest.fixture
async def senders() -> AsyncIterator[list[Sender]]:
    made: list[Sender] = []
    yield made
    for sender in made:
        await sender.client.stop()
        await sender.functions.stop()


@pytest.mark.parametrize("file", [(), ("alice",)])
async def test_all_that_a_tenant_wishes_goes_by_its_own_topic(senders: list[Sender], file: tuple[str, ...]) -> None:
    senders.append(sender := Sender([PLAIN, OWN], file=file))
    await sender.send_all("alice")
    assert (sender.came(PLAIN), sender.came(OWN)) == (0, 3)
    await sender.send_all("bob")
    assert (sender.came(PLAIN), sender.came(OWN)) == (3, 3)


async def test_jobs_of_several_tenants_each_go_by_the_topic_of_theirs(senders: list[Sender]) -> None:
    senders.append(sender := Sender([PLAIN, OWN]))
    await sender.client.submit([JobSpec(id="train", tenant=tenant) for tenant in ("alice", "bob", "alice")])
    assert (sender.came(PLAIN), sender.came(OWN)) == (1, 2)


async def test_where_there_is_none_the_common_topic_is_the_tenants(senders: list[Sender]) -> None:
    senders.append(sender := Sender([PLAIN]))
    await sender.send_all("alice")
    assert sender.came(PLAIN) == 3


async def test_a_tenant_that_should_have_one_and_has_none_is_told_so_before_anything_is_sent(
    senders: list[Sender],
) -> None:
    senders.append(sender := Sender([PLAIN], file=["alice"]))
    with pytest.raises(ClientUnavailable, match=r"topic t\.submissions\.alice is not there, or this user may not"):
        await sender.send_all("alice")
    assert sender.came(PLAIN) == 0


async def test_nothing_is_sent_by_the_topic_of_a_tenant_that_the_cell_file_does_not_have(senders: list[Sender]) -> None:
    """Admission reads it for tenants of its file alone, and by the common topic a tenant with its own has no answer."""
    senders.append(sender := Sender([PLAIN, OWN], known=["bob"]))
    with pytest.raises(
        ClientUnavailable, match=r"topic t\.submissions\.alice is there, though the cell file has no tenant"
    ):
        await sender.send_all("alice")
    await sender.send_all("bob")
    assert (sender.came(PLAIN), sender.came(OWN)) == (3, 0)


async def test_a_tenant_that_the_cell_file_does_not_have_is_answered_by_the_common_topic(
    senders: list[Sender],
) -> None:
    senders.append(sender := Sender([PLAIN], known=["bob"]))
    await sender.send_all("alice")
    assert sender.came(PLAIN) == 3


async def test_a_tenants_own_user_needs_no_cell_file_that_has_the_tenant(senders: list[Sender]) -> None:
    senders.append(sender := Sender([PLAIN, OWN], seen=[OWN], known=["bob"]))
    await sender.send_all("alice")
    assert (sender.came(PLAIN), sender.came(OWN)) == (0, 3)


async def test_a_tenants_own_user_who_sees_that_topic_alone_sends_and_is_told_no_answer(senders: list[Sender]) -> None:
    senders.append(sender := Sender([PLAIN, OWN], seen=[OWN]))
    mark = await sender.client.submit([JobSpec(id="train", tenant="alice")])
    await sender.client.cancel("train", "alice", cell="main")
    assert (sender.came(PLAIN), sender.came(OWN)) == (0, 2)
    with pytest.raises(ClientUnavailable, match="it is sent; what becomes of it stands in topics jobs and decisions"):
        await anext(sender.client.news(mark))
