"""Kafka, Valkey and the embedded broker are started, killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from fallow.shared.runtime.stack import choose, docker, kafka_jars, valkey
from fallow.shared.runtime.stack.child import Child, StackError, telling_line, told_by
from fallow.shared.runtime.stack.embedded_broker import EmbeddedBroker
from fallow.shared.runtime.stack.kafka_wire import coordinates
from fallow.shared.runtime.stack.ports import LOCAL, free_ports
from fallow.shared.runtime.stack.server import Given, Server, Source


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_jars.KafkaFromJars]:
    obstacle = kafka_jars.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    server = kafka_jars.KafkaFromJars(tmp_path_factory.mktemp("own-kafka"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[valkey.Valkey]:
    program = valkey.program_in_wheel()
    assert isinstance(program, valkey.Program), program
    server = valkey.Valkey(program, tmp_path / "valkey", flush="always")
    server.start()
    yield server
    server.stop()


async def create_topic(address: str, name: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()


async def append(address: str, topic: str, value: bytes) -> int:
    async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:
        return int((await producer.send_and_wait(topic, value, partition=0)).offset)


async def read(address: str, topic: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(count)]


def test_a_new_kafka_knows_who_coordinates_groups_when_it_has_started(own_kafka: kafka_jars.KafkaFromJars) -> None:
    assert coordinates(LOCAL, own_kafka.port)
    assert not coordinates(LOCAL, free_ports(1)[0]), "nothing answers there"


async def test_kafka_keeps_its_records_over_a_stop_and_a_kill(own_kafka: kafka_jars.KafkaFromJars) -> None:
    await create_topic(own_kafka.address, "kept", 1)
    assert await append(own_kafka.address, "kept", b"first") == 0
    own_kafka.stop()
    own_kafka.start()
    assert await append(own_kafka.address, "kept", b"second") == 1
    assert own_kafka.exit_code is None
    own_kafka.kill()
    assert own_kafka.exit_code == -SIGKILL
    own_kafka.start()
    assert await read(own_kafka.address, "kept", 2) == [b"first", b"second"]


async def test_kafka_creates_no_topic_by_itself(own_kafka: kafka_jars.KafkaFromJars) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=own_kafka.address)
    await admin.start()
    described = await admin.describe_topics(["never-made"])
    names = await admin.list_topics()
    await admin.close()
    assert described[0]["error_code"] == 3
    assert "never-made" not in names


def test_kafka_flushes_each_record_only_where_asked(tmp_path: Path) -> None:
    quick, durable = (kafka_jars.KafkaFromJars(tmp_path, durable=durable) for durable in (False, True))
    assert last_value(quick._server_properties(), "log.flush.interval.messages") == str(2**63 - 1)
    assert last_value(durable._server_properties(), "log.flush.interval.messages") == "1"


def last_value(properties: str, key: str) -> str:
    return [line.split("=", 1)[1] for line in properties.splitlines() if line.startswith(f"{key}=")][-1]


def test_valkey_keeps_its_log_of_writes_over_a_kill(own_valkey: valkey.Valkey) -> None:
    with redis.Redis.from_url(own_valkey.address) as client:
        client.set("kept", "yes")
    own_valkey.kill()
    assert own_valkey.exit_code == -SIGKILL
    own_valkey.start()
    with redis.Redis.from_url(own_valkey.address) as client:
        assert client.get("kept") == b"yes"


async def test_the_embedded_broker_takes_records_and_gives_them_back(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    assert [await append(broker.address, "quick", value) for value in (b"one", b"two")] == [0, 1]
    assert await read(broker.address, "quick", 2) == [b"one", b"two"]
    broker.stop()


def test_the_chosen_servers_answer(any_kafka: str, redis_url: str) -> None:
    assert ":" in any_kafka
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()


def test_a_given_address_is_taken_and_never_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_KAFKA", "broker.example:9092")
    server: Server = choose.choose_kafka(tmp_path).server
    assert isinstance(server, Given)
    assert server.address == "broker.example:9092"
    with pytest.raises(PermissionError, match="was given"):
        server.kill()


def test_a_named_source_is_taken_and_the_others_are_named_as_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_KAFKA", "embedded")
    choice = choose.choose_kafka(tmp_path)
    assert choice.server.source is Source.EMBEDDED
    assert [skip.source for skip in choice.skipped] == [Source.DOCKER, Source.JARS]


def test_asking_for_a_real_kafka_never_gives_the_embedded_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("FALLOW_KAFKA", raising=False)
    with pytest.raises(StackError, match="jars: there is no java on the PATH"):
        choose.choose_kafka(tmp_path, embedded=False)


def test_what_an_earlier_process_wrote_is_not_told_as_the_last_words_of_a_later_one(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = f"test -e {told} || echo the first says so; touch {told}"
    child = Child("program", ["/bin/sh", "-c", program], tmp_path / "log")
    for words in ("the first says so", "(no output)"):
        child.start()
        assert child.ended_within(10)
        assert child.tail().strip() == words


def test_a_program_that_ends_at_once_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    child = Child("the shell", ["/bin/sh", "-c", "echo no such luck; exit 3"], tmp_path / "out.log")
    child.start()
    told = rf"the shell ended with code 3; all that it said is in {tmp_path}/out.log:\n +no such luck"
    with pytest.raises(StackError, match=told):
        child.wait_until(lambda: False, wait_s=10)


STACK = [f"\tat org.apache.kafka.Deep.call{number}(Deep.java:{number})" for number in range(60)]
SETTINGS = [f"\tsetting.{number} = {number}" for number in range(200)]
CAUSE = "java.lang.OutOfMemoryError: unable to create native thread"


@pytest.mark.parametrize(
    "lines",
    [
        [CAUSE, *STACK],
        ["ERROR Exiting Kafka due to fatal exception", *STACK, f"Caused by: {CAUSE}", *STACK],
        ["INFO begins", *SETTINGS, f"ERROR {CAUSE}", *STACK, *(f"INFO stops {number}" for number in range(40))],
        [f"ERROR {CAUSE}", *(f"ERROR it fails as well {number}" for number in range(40))],
    ],
)
def test_the_error_is_told_however_deep_its_stack_is(lines: list[str]) -> None:
    told = told_by(lines)
    assert len(told) <= 15
    assert any(line.endswith(CAUSE) for line in told)
    assert told[-1].strip() in {lines[-1], "... 58 more lines"}
    assert not any("\t" in line for line in told)


def test_errors_of_long_ago_are_not_told_for_the_end() -> None:
    long_ago, lived = f"ERROR {CAUSE}", [f"INFO works {number}" for number in range(300)]
    assert told_by([long_ago, *lived]) == lived[-15:]


def test_of_a_program_that_begins_again_the_line_that_says_what_happened_is_told() -> None:
    assert (
        telling_line("\n".join(f"    {line.expandtabs(4)}" for line in [f"ERROR {CAUSE}", *STACK])) == f"ERROR {CAUSE}"
    )
    assert telling_line("    first\n    last\n") == "last"
    assert not telling_line("")


@pytest.mark.docker
async def test_kafka_in_docker_keeps_its_records_over_a_kill() -> None:
    server = docker.kafka_container()
    server.start()
    await create_topic(server.address, "kept", 1)
    await append(server.address, "kept", b"first")
    server.kill()
    server.start()
    assert await read(server.address, "kept", 1) == [b"first"]
    server.remove()
