"""`fallow dead-letters` on a real Kafka: what was set aside is found, shown, and put back once."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.operations import Drain
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.inputs.dead_letters import dead_letter
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.opening import declared_topics
from fallow.shared.log.port import UNREADABLE_HEADER, UNREADABLE_TEXT, Headers, Outgoing, Record, TopicPartition
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.stack.child import environment_with
from tests.cli.worlds.warm import warm

pytestmark = pytest.mark.real_kafka

TOP = Path(__file__).parents[3]
Fallow = Callable[..., "subprocess.CompletedProcess[str]"]
ODD: Headers = (("ce_type", b"fallow.job.submit.v1"), ("odd", b"\xff\x00"), ("odd", b""))
ESCAPE = b'{"job":"\x1b[2J\xc3\xa9"}'


@pytest.fixture
def fallow(kafka: str, namespace: str) -> Fallow:
    def here(*words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FALLOW_")}
        own = {"PYTHONPATH": environment_with(TOP)["PYTHONPATH"], "FALLOW_KAFKA": kafka, "FALLOW_NAMESPACE": namespace}
        return warm(["dead-letters", *words], {**kept, **own}, "")

    return here


@pytest.fixture
async def log(kafka: str, namespace: str) -> AsyncIterator[KafkaLog]:
    """A log with five letters: of odd bytes, of readable ones, of too many, of lost ones, and of none. Of the first two
    and of the last one it holds the record, too.
    """
    log = KafkaLog(kafka, "test")
    await log.start()
    await create_topics(kafka, declared_topics(load_cell_file(TOP / "deploy" / "cell.yaml"), namespace))
    topic = f"{namespace}.submissions"
    records = [
        (Record(topic, 7, 0, b"\xfe\x00key", b"\xff{", ODD, 1_700_000_000_000), "unreadable"),
        (Record(topic, 3, 0, b"job-1", ESCAPE, (("ce_type", b"x"),), 1_700_000_000_000), "unknown_type"),
        (Record(topic, 3, 43, b"job-2", b"x" * 1_000_001, (), 1_700_000_000_000), "too_large"),
        (Record(topic, 3, 44, None, None, ((UNREADABLE_HEADER, UNREADABLE_TEXT),), 0), "unreadable"),
        (Record(topic, 3, 1, b"job-3", None, (), 0), "absent"),
    ]
    await log.publish([Outgoing(r.topic, r.value, r.key, r.headers, r.partition) for r, _ in records if r.offset < 2])
    await log.publish([letter_of(found, why) for found, why in records])
    yield log
    await log.stop()


def letter_of(found: Record, why: str, service: str = "admission") -> Outgoing:
    """What a service writes that sets this record aside. Any other writer of the topic can write it too."""
    namespace = found.topic.split(".")[0]
    return dead_letter(Dead(found, why, f"why {why}"), service=service, namespace=namespace)


def last(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


async def submissions(log: KafkaLog, namespace: str) -> list[Record]:
    tps = [(f"{namespace}.submissions", number) for number in range(12)]
    return await held(log, tps)


async def held(log: KafkaLog, tps: list[TopicPartition]) -> list[Record]:
    ends = await log.end_offsets(tps)
    reader, found = log.reader(await log.begin_offsets(tps)), list[Record]()
    await reader.start()
    while reader.positions() != ends:
        found += await reader.poll()
    await reader.stop()
    return found


async def test_letters_are_listed_with_where_they_came_from_and_why(
    log: KafkaLog, fallow: Fallow, namespace: str
) -> None:
    found = last(fallow("list", "--json"))["letters"]
    assert [(letter["offset"], letter["reason"], letter["size_bytes"]) for letter in found] == [
        (0, "unreadable", 2),
        (1, "unknown_type", len(ESCAPE)),
        (2, "too_large", 1_000_001),
        (3, "unreadable", 0),
        (4, "absent", 0),
    ]
    assert found[0]["origin"] == f"{namespace}.submissions/7/0"
    assert [letter["obstacle"] is None for letter in found] == [True, True, False, False, True]
    assert [letter["offset"] for letter in last(fallow("list", "--reason", "too_large", "--json"))["letters"]] == [2]
    assert "too_large" in fallow("list").stdout


async def test_a_letter_is_shown_whole_and_no_terminal_obeys_it(log: KafkaLog, fallow: Fallow) -> None:
    assert last(fallow("show", "0", "--json"))["value_hex"] == "ff7b"
    assert last(fallow("show", "1", "--json"))["value"] == ESCAPE.decode()
    shown = fallow("show", "1").stdout
    assert '{"job":"\\x1b[2Jé"}' in shown
    assert "reason: unknown_type" in shown
    assert "\x1b" not in shown
    missing = fallow("show", "99")
    assert (missing.returncode, missing.stderr) == (1, "fallow: no dead letter at offset 99\n")


async def test_a_replay_puts_the_very_same_record_back_once(log: KafkaLog, fallow: Fallow, namespace: str) -> None:
    sent_before = await submissions(log, namespace)
    assert last(fallow("replay", "0", "4", "--json")) == {"replayed": [0, 4], "unproven": [], "refused": []}
    again = fallow("replay", "0", "--json")
    assert (again.returncode, last(again)["replayed"]) == (1, [])
    assert "replayed before" in last(again)["refused"][0]["why"]
    back = [r for r in await submissions(log, namespace) if r not in sent_before]
    assert {(r.partition, r.offset, r.key, r.value, r.headers) for r in back} == {
        (7, 1, b"\xfe\x00key", b"\xff{", ODD),
        (3, 2, b"job-3", None, ()),
    }
    assert fallow("replay", "0", "--again").returncode == 0
    assert len(await submissions(log, namespace)) == len(sent_before) + 3
    assert [letter["replays"] for letter in last(fallow("list", "--json"))["letters"]] == [2, 0, 0, 0, 1]


async def test_what_is_not_whole_cannot_be_replayed_and_says_so(log: KafkaLog, fallow: Fallow, namespace: str) -> None:
    told = fallow("replay", "--reason", "too_large", "--json")
    assert told.returncode == 1
    assert "only the first 1000000 are kept" in last(told)["refused"][0]["why"]
    told = fallow("replay", "--reason", "unreadable", "--json")
    assert (last(told)["replayed"], last(told)["refused"][0]["offset"]) == ([0], 3)
    assert last(fallow("replay", "77", "--json"))["refused"] == [{"offset": 77, "why": "there is no such letter"}]
    assert len(await submissions(log, namespace)) == 4
    assert fallow("replay").returncode == 2
    assert fallow("replay", "1", "--reason", "unreadable").returncode == 2


async def test_a_letter_that_names_no_place_of_ours_is_not_noted_as_sent(
    log: KafkaLog, fallow: Fallow, namespace: str
) -> None:
    records = [
        Record(f"{namespace}.submissions.nowhere", 0, 1, b"k", b"v", (), 0),
        Record(f"{namespace}.submissions", 12, 1, b"k", b"v", (), 0),
        Record(f"{namespace}.submissions.a b/\x1b[2J", 0, 1, b"k", b"v", (), 0),
        Record(f"{namespace}.nowhere", 0, 1, b"k", b"v", (), 0),
    ]
    await log.publish([letter_of(found, "unknown_type") for found in records])
    told = fallow("replay", "5", "6", "7", "8", "--json")
    assert (told.returncode, last(told)["replayed"]) == (1, [])
    assert [each["why"] for each in last(told)["refused"]] == [
        f"cannot be replayed: there is no topic {namespace}.submissions.nowhere",
        f"cannot be replayed: {namespace}.submissions has no partition 12, only 12",
        f"cannot be replayed: there is no topic {namespace}.submissions.a b/\x1b[2J",
        f"cannot be replayed: it claims to be of admission, which sets nothing aside from {namespace}.nowhere",
    ]
    assert [letter["replays"] for letter in last(fallow("list", "--json"))["letters"]][5:] == [0, 0, 0, 0]


async def test_a_letter_of_a_record_that_nobody_wrote_orders_nothing(
    log: KafkaLog, fallow: Fallow, namespace: str
) -> None:
    """Who may write letters may claim anything in one. Neither a place where nothing stands yet makes it an order, nor
    one where another record stands, nor a part of one that stands there.
    """
    topic, drain = f"{namespace}.operations", Drain(cell="main", node="node-002", by="root")
    order = Record(topic, 0, 0, b"main", encode(drain), ce_headers(drain, id="f/1", source="cli", wall_ms=1), 0)
    nowhere = replace(order, offset=7)
    await log.publish(
        [letter_of(order, "handler_failed", "placement"), letter_of(nowhere, "handler_failed", "placement")]
    )
    assert last(fallow("replay", "--reason", "handler_failed", "--json"))["replayed"] == [], "nothing stands there yet"
    await log.publish([Outgoing(topic, b"{}", b"main", order.headers, 0)])
    parts = replace(order, value=b"{}", key=b"a"), replace(order, value=b"{}", headers=())
    await log.publish([letter_of(part, "handler_failed", "placement") for part in parts])
    told = last(fallow("replay", "--reason", "handler_failed", "--json"))
    assert (told["replayed"], len(told["refused"])) == ([], 4)
    assert told["refused"][0]["why"] == f"cannot be replayed: at {topic}/0/0 stands another record"
    assert told["refused"][1]["why"] == f"cannot be replayed: nothing stands at {topic}/0/7"
    assert last(fallow("replay", "5", "6", "--unproven", "--json"))["replayed"] == [], "these are not gone, but untrue"
    assert len(await held(log, [(topic, 0)])) == 1
    assert {letter["replays"] for letter in last(fallow("list", "--json"))["letters"]} == {0}


async def test_what_the_log_no_longer_holds_is_replayed_only_by_name_and_as_unproven(
    log: KafkaLog, fallow: Fallow, namespace: str
) -> None:
    topic = f"{namespace}.submissions"
    await log.delete_before((topic, 3), 2)
    told = last(fallow("replay", "0", "4", "--json"))
    gone = f"the log no longer holds {topic}/3/1"
    why = f"cannot be replayed: {gone}, which would prove it; --unproven sends it all the same"
    assert told == {"replayed": [0], "unproven": [], "refused": [{"offset": 4, "why": why}]}
    whole = fallow("replay", "--reason", "unreadable", "--unproven")
    assert (whole.returncode, "--unproven needs the offsets" in whole.stderr) == (2, True)
    sent = fallow("replay", "4", "--unproven")
    assert sent.stdout == f"4: replayed, unproven: {gone}\n"
    assert last(fallow("replay", "4", "--unproven", "--again", "--json")) == {
        "replayed": [4],
        "unproven": [4],
        "refused": [],
    }
    assert [(r.offset, r.key, r.value) for r in await held(log, [(topic, 3)])] == [
        (2, b"job-3", None),
        (3, b"job-3", None),
    ]


async def test_what_a_letter_says_of_itself_is_shown_as_claimed(log: KafkaLog, fallow: Fallow) -> None:
    assert "service, reason, origin and text are claims" in fallow("list").stdout
    shown = fallow("show", "1").stdout
    assert "service: admission (claimed)" in shown
    assert {letter["vouched"] for letter in last(fallow("list", "--json"))["letters"]} == {False}
