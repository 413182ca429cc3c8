"""A file of certificates that is away while a new one takes its place: a process that runs waits, as for Kafka."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fallow.shared.log.admin.access_admin import check_access
from fallow.shared.log.admin.group_offsets import committed_offsets
from fallow.shared.log.admin.topic_admin import check_topics
from fallow.shared.log.kafka.groups.group_timers import QUICK
from fallow.shared.log.kafka.groups.member import KafkaMember
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.kafka.looks import KafkaLooks
from fallow.shared.log.kafka.producer import BoundedProducer
from fallow.shared.log.kafka.reader import Fetching, KafkaReader
from fallow.shared.log.port import LogUnavailable
from fallow.shared.log.sharing.faststream_recipe import make_broker
from fallow.shared.runtime.kafka_access import KafkaAccess, Protocol

ACCESS = KafkaAccess("127.0.0.1:1", Protocol.SSL, ca_file=Path("/no/ca.pem"))


async def subscribe() -> None:
    make_broker(ACCESS, "tests")


CLIENTS: dict[str, Callable[[], Awaitable[object]]] = {
    "log": lambda: KafkaLog(ACCESS, "tests").start(),
    "producer": lambda: BoundedProducer(ACCESS, "tests", request_timeout_ms=1_000, compression=None).current(math.inf),
    "reader": lambda: KafkaReader(ACCESS, "tests", {("jobs", 0): 0}, Fetching(1)).start(),
    "looks": lambda: KafkaLooks(ACCESS, "tests").first_from({("jobs", 0): 0}),
    "member": lambda: KafkaMember(ACCESS, "tests", "group", "cells", QUICK).start(),
    "subscription": subscribe,
    "topics": lambda: check_topics(ACCESS, ()),
    "rights": lambda: check_access(ACCESS, frozenset()),
    "offsets": lambda: committed_offsets(ACCESS, "group", ()),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_certificates_that_are_away_are_waited_for_as_kafka_is(client: str) -> None:
    with pytest.raises(LogUnavailable, match=r"kafka_ca_file: /no/ca[.]pem holds no certificates"):
        await CLIENTS[client]()
