"""The language as one AsyncAPI 3 document, made from the classes.

`python -m fallow.shared.events.asyncapi [PATH]` writes it to `deploy/asyncapi.yaml`, or to PATH. An
event enters it by being defined; only a new topic needs a line here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import models_json_schema

from fallow.shared.events.base import TYPES, Event, Value
from fallow.shared.events.codec.encoding import TYPE_HEADER
from fallow.shared.events.decisions import BEFORE_HEADER, CHAIN_HEADER, SIGNATURE_HEADER, Decision
from fallow.shared.events.fields.value import model_of
from fallow.shared.events.meanings import meanings_of
from fallow.shared.events.reasons import DeadLetterReason

DEFAULT_PATH = Path("deploy/asyncapi.yaml")
VERSION = "0.1.0"
SCHEMAS = "#/components/schemas/"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: what its records are about, which services write them and which read them."""

    about: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]


FOLDING = ("queueing", "placement", "loaning", "executor", "projector", "metrics", "cli")
"""Who folds the decision log, and may begin at a snapshot of it."""

SUBMISSIONS = Topic("What tenants wish for their jobs.", ("upstream systems", "gateway"), ("admission",))

TOPICS: dict[str, Topic] = {
    "submissions": SUBMISSIONS,
    "operations": Topic(
        "What operators wish for a cell.",
        ("gateway", "cli"),
        ("admission", "placement", "loaning", "executor"),
    ),
    "jobs": Topic("What admission made of the tenants' wishes.", ("admission",), ("placement",)),
    "nodes": Topic("What nodes say of themselves and of their runs.", ("executor", "upstream agents"), ("placement",)),
    "demand": Topic("What the inference services need.", ("inference autoscalers",), ("loaning",)),
    "queue": Topic(
        "The next jobs in each queue, and when jobs that do not fit would start.", ("queueing",), ("placement", "cli")
    ),
    "proposals": Topic("Changes that would make room.", ("loaning",), ("placement",)),
    "decisions": Topic("The truth: one atomic step of a cell in each record.", ("placement",), (*FOLDING, "admission")),
    "snapshots": Topic("A cell's state at one offset of its decision log.", ("queueing",), FOLDING),
    "dead-letters": Topic("Records that were set aside, untouched.", ("every service",), ("operators",)),
    "cells": Topic(
        "No events: services elect the owner of each cell by sharing its partitions, and a writer appends a few bytes "
        "there to learn the broker's time.",
        (),
        (),
    ),
    "executor-slots": Topic("Empty: executors share the nodes by sharing its partitions.", (), ()),
}


def document() -> Json:
    """The whole document, ready to be written as YAML or JSON."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Fallow",
            "version": VERSION,
            "description": "Every record of Fallow: CloudEvents 1.0 in Kafka binary mode, JSON in the value. Commands "
            "(submissions, operations) refuse fields that they do not know, in their inner parts too; in all other "
            "records such fields are ignored. A field without a value is left out.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": {**{cls.__name__: _message(cls) for cls in TYPES.values()}, "DeadLetter": _dead_letter()},
            "messageTraits": {"CloudEvent": {"headers": _cloud_event_headers()}},
            "schemas": _schemas(),
        },
    }


def _channels() -> Json:
    channels = {name: _channel(name, topic, "{namespace}." + name) for name, topic in TOPICS.items()}
    own = _channel("submissions", SUBMISSIONS, "{namespace}.submissions.{tenant}")
    own["description"] = "What one tenant wishes for its jobs. The topic fixes the tenant, so that ACLs can confine it."
    own["parameters"]["tenant"] = {"description": "The tenant's name."}
    return {**channels, "submissions-of-tenant": own}


def _channel(name: str, topic: Topic, address: str) -> Json:
    return {
        "address": address,
        "description": topic.about,
        "parameters": {"namespace": {"default": "fallow", "description": "Keeps installations apart."}},
        "messages": {message: {"$ref": f"#/components/messages/{message}"} for message in _messages_of(name)},
    }


def _messages_of(topic: str) -> list[str]:
    return ["DeadLetter"] if topic == "dead-letters" else [c.__name__ for c in TYPES.values() if c.topic == topic]


def _operations() -> Json:
    found: Json = {}
    for name, topic in TOPICS.items():
        for who, action, verb in (
            *((writer, "send", "writes") for writer in topic.writers),
            *((reader, "receive", "reads") for reader in topic.readers),
        ):
            found[f"{who.replace(' ', '-')}-{verb}-{name}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": f"{who[0].upper()}{who[1:]} {'write' if who.endswith('s') and ' ' in who else verb} {name}.",
            }
    return found


def _message(cls: type[Event]) -> Json:
    return {
        "name": cls.type,
        "title": cls.__name__,
        "summary": (cls.__doc__ or "").split("\n\n")[0].replace("\n    ", " "),
        "contentType": "application/json",
        "traits": [{"$ref": "#/components/messageTraits/CloudEvent"}],
        "headers": {"type": "object", "properties": _own_headers(cls), "required": _always(cls)},
        "payload": {"$ref": SCHEMAS + cls.__name__},
    }


def _own_headers(cls: type[Event]) -> Json:
    headers: Json = {TYPE_HEADER: {"type": "string", "const": cls.type}}
    if cls is Decision:
        headers[CHAIN_HEADER] = {
            "type": "string",
            "pattern": "^[0-9a-f]{32}$",
            "description": "BLAKE2b (16 bytes) of the value's bytes, keyed with the chain of the record before.",
        }
        headers[BEFORE_HEADER] = {
            "type": "string",
            "pattern": "^[0-9a-f]{32}$",
            "description": "Where the cell has keys: the chain of the record before.",
        }
        headers[SIGNATURE_HEADER] = {
            "type": "string",
            "pattern": "^[A-Za-z0-9+/]{86}==$",
            "description": "Where the cell has keys: the writer's Ed25519 signature of `fallow decision CHAIN`.",
        }
    return headers


def _always(cls: type[Event]) -> list[str]:
    """The headers of its own that each record has."""
    return [TYPE_HEADER, CHAIN_HEADER] if cls is Decision else [TYPE_HEADER]


def _cloud_event_headers() -> Json:
    properties = {
        "ce_specversion": {"type": "string", "const": "1.0"},
        "ce_id": {"type": "string", "description": "Made from what the record is about: a repeat has the same id."},
        "ce_source": {"type": "string", "description": "The process that wrote the record."},
        TYPE_HEADER: {"type": "string"},
        "ce_time": {"type": "string", "format": "date-time", "description": "Wall time of writing."},
        "content-type": {"type": "string", "const": "application/json"},
    }
    return {"type": "object", "properties": properties, "required": ["ce_id", "ce_source", TYPE_HEADER]}


def _dead_letter() -> Json:
    text, number = {"type": "string"}, {"type": "string", "pattern": "^-?[0-9]+$"}
    properties = {
        "service": {**text, "description": "Who could not read the record."},
        "reason": {**text, "description": f"A code: {', '.join(DeadLetterReason)}, or one of the service's own."},
        "text": {**text, "description": "For people."},
        "origin_topic": text,
        "origin_partition": number,
        "origin_offset": number,
        "origin_timestamp_ms": number,
        "origin_key": {**text, "description": "Where there was a key."},
        "value_absent": {**text, "description": "true where there was no value."},
        "value_truncated": {**text, "description": "true where the value was above a megabyte and is cut."},
        "value_bytes": {**number, "description": "The full size of a cut value."},
        "value_blake2b": {**text, "description": "The hash of a cut value: 32 bytes, in hexadecimal."},
        "exact": {
            **text,
            "description": "Key and headers in base64, where the other headers do not show them exactly.",
        },
        "not_exact": {**text, "description": "true where there was no room for `exact`, or more than 1,000 headers."},
        "headers_dropped": {**number, "description": "How many original headers found no room."},
    }
    required = ["service", "reason", "text", "origin_topic", "origin_partition", "origin_offset", "origin_timestamp_ms"]
    headers = {"type": "object", "properties": properties, "patternProperties": {"^orig_": text}, "required": required}
    return {
        "title": "DeadLetter",
        "summary": "A record that could not be read: its bytes untouched; its own headers begin with `orig_`.",
        "contentType": "application/octet-stream",
        "headers": headers,
        "payload": {"type": "string", "format": "binary"},
    }


def _schemas() -> Json:
    classes = [(model_of(cls), "validation") for cls in TYPES.values()]
    schemas: Json = models_json_schema(classes, ref_template=SCHEMAS + "{model}")[1]["$defs"]  # type: ignore[arg-type]
    for cls in TYPES.values():
        if cls.is_command:
            schemas[cls.__name__]["additionalProperties"] = False
    _describe_fields(schemas)
    _name_tags(schemas, schemas)
    return {name: schemas[name] for name in sorted(schemas)}


def _describe_fields(schemas: Json) -> None:
    """What each field means, of the classes that say so."""
    for cls in _values_below(Value):
        for field, meaning in (meanings_of(cls) if cls.__name__ in schemas else {}).items():
            schemas[cls.__name__]["properties"][field]["description"] = meaning


def _values_below(cls: type[Value]) -> Iterator[type[Value]]:
    for each in cls.__subclasses__():
        yield each
        yield from _values_below(each)


def _name_tags(part: Any, schemas: Json) -> None:
    """In AsyncAPI a discriminator is the tag's name alone; and each member of a tagged choice needs its tag."""
    if isinstance(part, list):
        for inner in part:
            _name_tags(inner, schemas)
    if not isinstance(part, dict):
        return
    if isinstance(part.get("discriminator"), dict):
        tag = part["discriminator"]["propertyName"]
        for reference in part["discriminator"]["mapping"].values():
            schema = schemas[reference.removeprefix(SCHEMAS)]
            schema["required"] = sorted({tag, *schema.get("required", [])})
        part["discriminator"] = tag
    for inner in part.values():
        _name_tags(inner, schemas)


def text() -> str:
    """The document as YAML. The same classes give the same text."""
    first = "# Made by `python -m fallow.shared.events.asyncapi` from the classes in shared/events; do not edit.\n"
    apart = json.loads(json.dumps(document()))  # parts that are one object would become anchors
    return first + yaml.safe_dump(apart, sort_keys=False, allow_unicode=True, width=120)


def main() -> None:
    """Write the document to the path given, or to its place in the repository."""
    path = Path(sys.argv[1]) if sys.argv[1:] else DEFAULT_PATH
    path.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
