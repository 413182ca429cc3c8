"""Several brokers are named with commas between, and every client can begin with any of them."""

from __future__ import annotations

from aiokafka.client import AIOKafkaClient
from faststream.kafka import KafkaBroker

from fallow.shared.log.sharing.faststream_recipe import make_broker

SEVERAL = "one:9092,two:9093,three:9094"


def addresses_of(broker: KafkaBroker) -> list[str]:
    """Where the consumers of a broker begin, as aiokafka reads what FastStream hands it."""
    client = AIOKafkaClient(bootstrap_servers=broker._connection_kwargs["bootstrap_servers"])
    return [f"{host}:{port}" for host, port, _ in client.hosts]


async def test_a_broker_of_admission_begins_with_any_of_several() -> None:
    assert sorted(addresses_of(make_broker(SEVERAL, "test"))) == sorted(SEVERAL.split(","))


async def test_one_is_one() -> None:
    assert addresses_of(make_broker("one:9092", "test")) == ["one:9092"]
