from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fallow.shared.events import TYPES, Event
from fallow.shared.events.asyncapi import TOPICS, document, text
from fallow.shared.events.effects import Effect
from tests.strategies import EFFECTS

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "deploy" / "asyncapi.yaml"
DOCUMENT = document()


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (part["$ref"],) if isinstance(part.get("$ref"), str) else ()
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


def at(reference: str) -> Any:
    part: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        part = part[step]
    return part


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: python -m fallow.shared.events.asyncapi"


def test_the_file_reads_back_as_the_document() -> None:
    assert yaml.safe_load(FILE.read_text(encoding="utf-8")) == DOCUMENT


def test_the_command_writes_where_it_is_told_whatever_the_hash_seed(tmp_path: Path) -> None:
    path = tmp_path / "language.yaml"
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "fallow.shared.events.asyncapi", str(path)], check=True, cwd=ROOT, env=environment
    )
    assert path.read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("cls", TYPES.values(), ids=lambda cls: cls.__name__)
def test_every_event_stands_in_its_channel_with_its_schema_and_type(cls: type[Event]) -> None:
    message = at(DOCUMENT["channels"][cls.topic]["messages"][cls.__name__]["$ref"])
    schema = at(message["payload"]["$ref"])
    assert message["headers"]["properties"]["ce_type"]["const"] == cls.type
    assert set(schema["properties"]) == set(cls.__struct_fields__)
    assert (schema.get("additionalProperties") is False) == cls.is_command


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.__name__)
def test_every_effect_stands_in_a_decision_and_needs_its_kind(effect: type[Effect]) -> None:
    choice = DOCUMENT["components"]["schemas"]["Decision"]["properties"]["effects"]["items"]
    schema = DOCUMENT["components"]["schemas"][effect.__name__]
    assert {"$ref": f"#/components/schemas/{effect.__name__}"} in choice["oneOf"]
    assert "kind" in schema["required"]
    assert schema["properties"]["kind"]["const"] == effect.__name__


def test_every_reference_leads_somewhere() -> None:
    assert all(at(reference) for reference in references(DOCUMENT))


def test_the_channels_are_the_topics_that_are_created() -> None:
    declared = yaml.safe_load((ROOT / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))["topics"]
    assert set(TOPICS) == set(declared)


def test_every_record_has_a_writer_and_a_reader() -> None:
    lonely = [cls.topic for cls in TYPES.values() if not (TOPICS[cls.topic].writers and TOPICS[cls.topic].readers)]
    assert lonely == []


def test_four_topics_have_exactly_one_writing_service() -> None:
    assert [TOPICS[topic].writers for topic in ("jobs", "queue", "proposals", "decisions")] == [
        ("admission",),
        ("queueing",),
        ("loaning",),
        ("placement",),
    ]


def test_a_dead_letter_is_binary_and_says_where_it_came_from() -> None:
    message = DOCUMENT["components"]["messages"]["DeadLetter"]
    assert message["contentType"] == "application/octet-stream"
    assert {"service", "reason", "origin_topic", "origin_partition", "origin_offset"} <= set(
        message["headers"]["required"]
    )
