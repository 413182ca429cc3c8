"""On a real Kafka with ACLs: a topic that a process may not read any more keeps no other topic of its share waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from fallow.shared.log.admin.access_admin import NEEDS_SUPER_USER, check_access, put_access_in_force
from fallow.shared.log.admin.access_rules import Operation, Resource, Rule
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.admin.topics import TopicSpec
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.groups.sharing import SharingConsumer
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import LogRefused, Outgoing, Record
from fallow.shared.log.sharing import delivery as delivery_module
from fallow.shared.log.sharing.delivery import Delivery
from fallow.shared.runtime.stack.secured.kafka import SUPER, SecuredKafka
from tests.contract.eventually import eventually
from tests.e2e.worlds.secured_kafka import obstacle, secured_kafka

READER, GROUP, PLAIN, OWN = "reader", "readers", "submissions", "submissions.own"

pytestmark = pytest.mark.real_kafka


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    if reason := obstacle():
        pytest.skip(reason)
    kafka = secured_kafka(tmp_path_factory.mktemp("rights"), [READER])
    kafka.start()
    yield kafka
    kafka.stop()


async def may_read(secured: SecuredKafka, *, own: bool) -> None:
    """From now on the reader may read the plain topic, and the own one or nothing of it."""
    right = Rule(READER, Operation.READ if own else Operation.ALL, Resource.TOPIC, OWN, is_allowed=own)
    plain, group = (
        Rule(READER, Operation.READ, Resource.TOPIC, PLAIN),
        Rule(READER, Operation.READ, Resource.GROUP, GROUP),
    )
    left = await put_access_in_force(secured.access(SUPER), frozenset({right, plain, group}))
    assert left is not None
    assert left.is_as_declared


async def test_rights_on_a_tenants_topic_are_told_and_taken_away_once_it_is_gone(secured: SecuredKafka) -> None:
    own = "rt.submissions.own"
    plain = Rule(READER, Operation.READ, Resource.TOPIC, "rt.submissions")
    left_over = Rule("tenant-own", Operation.WRITE, Resource.TOPIC, own)
    specs = [TopicSpec(name, partitions=1, config=(), may_grow=False) for name in (plain.name, own)]
    await create_topics(secured.access(SUPER), specs)
    await put_access_in_force(secured.access(SUPER), frozenset({plain, left_over}))

    async def told() -> tuple[Rule, ...]:
        report = await check_access(secured.access(SUPER), frozenset({plain}))
        assert report is not None
        return report.left.too_many

    assert await told() == ()
    await deleted(secured, own)
    assert await told() == (left_over,)
    report = await put_access_in_force(secured.access(SUPER), frozenset({plain}))
    assert report is not None
    assert (report.removed, await told()) == ((left_over,), ())


async def deleted(secured: SecuredKafka, topic: str) -> None:
    """Delete a topic, and wait until it is there no more."""
    admin = AIOKafkaAdminClient(**client_options(secured.access(SUPER)))
    await admin.start()
    await admin.delete_topics([topic])

    async def is_gone() -> bool:
        return topic not in await admin.list_topics()

    await eventually(is_gone)
    await admin.close()


async def test_who_is_no_super_user_is_told_so_in_one_plain_line(secured: SecuredKafka) -> None:
    for ask in (check_access, put_access_in_force):
        with pytest.raises(LogRefused) as refused:
            await ask(secured.access(READER), frozenset())
        assert str(refused.value) == f"rights at {secured.access(READER)}: {NEEDS_SUPER_USER}"


async def test_a_right_that_is_taken_back_stops_its_topic_alone_also_where_the_group_shares_anew(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "ASK_AGAIN_S", 0.2)
    specs = [TopicSpec(name, partitions=2, config=(), may_grow=False) for name in (PLAIN, OWN)]
    await create_topics(secured.access(SUPER), specs)
    await may_read(secured, own=True)
    writing, asking = KafkaLog(secured.access(SUPER), "writer"), KafkaLog(secured.access(READER), "asking")
    await writing.start()
    await asking.start()
    seen: list[tuple[str, bytes | None]] = []

    async def keep(records: list[Record]) -> None:
        seen.extend((record.topic, record.value) for record in records)

    async def publish(value: bytes) -> None:
        await writing.publish([Outgoing(topic, value, partition=n) for topic in (PLAIN, OWN) for n in range(2)])

    delivery = Delivery(keep, asking)
    consumer = SharingConsumer(
        PLAIN,
        OWN,
        delivery=delivery,
        **client_options(secured.access(READER)),
        group_id=GROUP,
        enable_auto_commit=False,
    )

    async def drive() -> None:
        while True:
            with contextlib.suppress(KafkaError):
                for records in (await consumer.getmany(max_records=500)).values():
                    await delivery.deliver(records)

    await consumer.start()
    driving = asyncio.create_task(drive())
    try:
        await publish(b"first")
        await eventually(lambda: len(seen) == 4)
        await eventually(lambda: len(delivery.standing()) == 4 and set(delivery.standing().values()) == {1})
        await may_read(secured, own=False)
        consumer._coordinator.request_rejoin()
        await eventually(lambda: list(delivery.refused) == [OWN])
        assert (await asking.partitions(OWN), await asking.partitions(PLAIN)) == (0, 2)
        await publish(b"second")
        await eventually(lambda: seen.count((PLAIN, b"second")) == 2)
        assert (OWN, b"second") not in seen
        await may_read(secured, own=True)
        await eventually(lambda: seen.count((OWN, b"second")) == 2, 40)
        assert sorted(seen) == sorted((topic, value) for topic in (PLAIN, OWN) for value in (b"first", b"second") * 2)
    finally:
        driving.cancel()
        await consumer.stop()
        await writing.stop()
        await asking.stop()
