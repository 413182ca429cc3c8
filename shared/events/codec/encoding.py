"""Records to bytes and back. CloudEvents 1.0, Kafka binary mode: attributes in `ce_` headers, JSON in the value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from fallow.shared.events.base import TYPES, Event
from fallow.shared.events.fields.value import Value, model_of
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.events.validation.reader_words import reader_mistake
from fallow.shared.events.validation.rules_told import field_of, is_of_the_driver, rule_of
from fallow.shared.events.validation.unknown_fields import PARTS_MAX, with_one_unknown, without_unknown
from fallow.shared.unshown import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

SUBMISSION_BYTES_MAX = 512_000
VALUE_CHARACTERS_MAX = 100
LOOKED_AT_MAX = 2 * VALUE_CHARACTERS_MAX
"""So much of a value is looked through for secrets: the rest of one that is cut off looks like any text."""

RULE_CHARACTERS_MAX = 300
TOLD_BYTES_MAX = 100_000
"""The mistake of a record that is no command, and is larger than this, is told in the words of its reader."""

TYPE_HEADER = "ce_type"
SPEC_VERSION = ("ce_specversion", b"1.0")
CONTENT_TYPE = ("content-type", b"application/json")

STRICT = frozenset({"decisions", "snapshots"})
"""The topics of which the truth is made: what a later release adds there stops the readers that do not know it."""

OUTSIDE = frozenset({"submissions", "operations", "nodes", "demand"})
"""The topics that others than one service of this project may write."""

_ENCODE = msgspec.json.Encoder().encode

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why some bytes are no event: which field, which value (shortened), which rule. `field` is "" where there is no
    single one.
    """

    reason: DeadLetterReason
    rule: str
    field: str = ""
    value: str = ""

    def __str__(self) -> str:
        """One line for people."""
        where = f"{self.field}: " if self.field else ""
        what = f" (got {self.value})" if self.value else ""
        return f"{where}{self.rule}{what}"


class OfAnotherRelease(Undecodable):
    """A record of a known type in a version of it that this release does not read."""

    __slots__ = ()


def encode(event: Value) -> bytes:
    """The value of a record, or a part of one: JSON, without the fields that hold their default.

    Equal values give the same bytes.
    """
    return _ENCODE(event.as_written())


def decode(type_: str, value: bytes | None) -> Event | Undecodable:
    """The event of these bytes, or why there is none. Never raises on content.

    Commands must not hold fields that are unknown, nor may records of which the truth is made, at any depth; in all
    other events these are ignored. What strangers may write is judged by its pydantic model, too, names and all; what
    names only things that are known, of which there are thousands in a second, and the topics that one service writes
    are read as they are.

    One mistake is told, and to word each of 100,000 unknown fields, or to build what stands in one, takes longer than
    all the rest: what cannot be read is judged without them, a command with the first of them, and not at all where it
    has very many parts.
    """
    cls = TYPES.get(type_)
    if cls is None:
        return _of_no_known_type(type_)
    if value is None:
        return Undecodable(DeadLetterReason.UNREADABLE, "the record has no value")
    try:
        event = _decoder(cls).decode(value)
    except UNREAD as error:
        return _of_a_later_release(cls, value, error) if not cls.is_command else _mistake(cls, value) or _unread(error)
    is_judged = cls.topic in OUTSIDE and not cls.names_only_known
    return (judged(cls, value, forbid_unknown=cls.is_command) if is_judged else None) or event


def _of_no_known_type(type_: str) -> Undecodable:
    unknown = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is not a type of this version", "ce_type", shorten(type_))
    return of_another_release(type_) or unknown


def of_another_release(type_: str) -> OfAnotherRelease | None:
    """What is told of a record of this type where it is one of ours in another version; None where it is not."""
    stem = type_.rpartition(".")[0]
    for known in TYPES:
        if known.rpartition(".")[0] == stem and known != type_:
            rule = f"is of another release, this one reads {known}"
            return OfAnotherRelease(DeadLetterReason.UNKNOWN_TYPE, rule, "ce_type", shorten(type_))
    return None


UNREAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON raises for bytes that are none, or not what is expected."""


def _of_a_later_release(cls: type[Event], value: bytes, error: Exception) -> Event | Undecodable:
    """The event without the fields that this version does not know, unless the truth is made of it; or one mistake of
    it. `error` is what its reader said of the whole.

    What stands in unknown fields is read by no model, but it must be JSON: NaN, which other readers let pass, is none.
    """
    if cls.topic in STRICT and value.count(b"{") + value.count(b"[") > PARTS_MAX:
        return _unread(error)  # whatever stands in it, nothing is made of it
    try:
        known = without_unknown(cls, value)
    except UNREAD as other:
        return _unread(other)
    try:
        event = _decoder(cls).decode(known)
    except UNREAD as other:
        return _told(cls, known) or _unread(error if cls.topic in STRICT else other)
    return _unread(error) if cls.topic in STRICT else judged(cls, known) or event


def judged(cls: type[Value], value: bytes, *, forbid_unknown: bool = False) -> Undecodable | None:
    """Why these bytes are no `cls`, by all of its rules; None: they are one."""
    try:
        model_of(cls).__pydantic_validator__.validate_json(value, extra="forbid" if forbid_unknown else None)
    except ValidationError as error:
        return _first_error(error)
    return None


def _mistake(cls: type[Event], value: bytes) -> Undecodable | None:
    """One mistake of a command that could not be read; None where the model finds none, or is not asked."""
    try:
        return _told(cls, with_one_unknown(cls, value))
    except UNREAD as error:
        return _unread(error)


def _told(cls: type[Event], text: bytes) -> Undecodable | None:
    """One mistake in the words of the model. What is left without what stands in unknown fields has few lists and
    tables, or is none, and these are dear to build: then the model is not asked, nor of a large record that is no
    command, in which no person has made a mistake.
    """
    if text.count(b"[") + text.count(b"{") > PARTS_MAX or (not cls.is_command and len(text) > TOLD_BYTES_MAX):
        return None
    return judged(cls, text, forbid_unknown=cls.is_command)


def _unread(error: Exception) -> Undecodable:
    invalid = isinstance(error, msgspec.ValidationError)
    reason = DeadLetterReason.INVALID if invalid else DeadLetterReason.UNREADABLE
    field, rule, value = reader_mistake(str(error))
    return Undecodable(reason, _one_line(rule[:RULE_CHARACTERS_MAX]), shorten(field), shorten(value))


@cache
def _decoder(cls: type[Event]) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(cls)


def _first_error(error: ValidationError) -> Undecodable:
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] != "extra_forbidden"), errors[0])
    readable = first["type"] != "json_invalid"
    field, context = shorten(field_of(first["loc"], first["type"])), first.get("ctx", {})
    value = context.get("tag", first["input"]) if is_of_the_driver(field, first["type"]) else first["input"]
    of_a_job = first["loc"][:1] == ("job",)
    rule = rule_of(field.removeprefix("job."), first["type"], first["msg"], context, of_a_job=of_a_job)
    return Undecodable(
        DeadLetterReason.INVALID if readable else DeadLetterReason.UNREADABLE,
        _one_line(rule[:RULE_CHARACTERS_MAX]),
        field,
        _told_value(value) if readable else "",
    )


def _told_value(value: Any) -> str:
    """What is no number stands as an infinite one in what is judged: it must not be told as the number it is not."""
    return "no finite number" if isinstance(value, float) and not isfinite(value) else shorten(value)


def shorten(value: Any) -> str:
    """A value as one line of at most `VALUE_CHARACTERS_MAX` characters, for an error message. What is not shown of a
    large one is not written out either, and a secret in it is masked.
    """
    text = _one_line(without_secrets(value[:LOOKED_AT_MAX] if isinstance(value, str) else _begin_of(value)))
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."


def written(value: Any) -> str:
    """The begin of a value as it stands in a file, with text in quotes."""
    return shorten(_begin_of(value))


def _begin_of(value: Any) -> str:
    """A value as a file holds it, or a little more of it than is shown."""
    found, length = list[str](), 0
    for piece in _pieces(value):
        found.append(piece)
        length += len(piece)
        if length > LOOKED_AT_MAX:
            break
    return "".join(found)


def _pieces(value: Any) -> Iterator[str]:
    """Piece by piece, how a file holds a value. Each has a sign at least, so the first 200 go no deeper than that."""
    if type(value) is dict:
        yield "{"
        for number, (key, each) in enumerate(value.items()):
            yield ", " if number else ""
            yield from _pieces(key)
            yield ": "
            yield from _pieces(each)
        yield "}"
    elif type(value) is list:
        yield "["
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(each)
        yield "]"
    elif value is None or isinstance(value, bool):
        yield _PLAIN[value]
    elif isinstance(value, float) and not isfinite(value):
        yield f"{value}".replace("inf", ".inf").replace("nan", ".nan")  # as YAML has it
    else:
        yield repr(value[:LOOKED_AT_MAX] if isinstance(value, str | bytes) else value)


_PLAIN: dict[bool | None, str] = {None: "null", True: "true", False: "false"}


def _one_line(text: str) -> str:
    """The text without anything that a terminal or a log would take for more than a sign."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def ce_headers(event: Event, *, id: str, source: str, wall_ms: int) -> Headers:
    """The CloudEvents headers of a record. `id` is made from what the record is about, so that a repeat has the same
    one.
    """
    return (
        SPEC_VERSION,
        ("ce_id", id.encode()),
        ("ce_source", source.encode()),
        (TYPE_HEADER, event.type.encode()),
        ("ce_time", _time_header(wall_ms)),
        CONTENT_TYPE,
    )


# The records of a batch have one time, and to write it out takes longer than all the rest.
@lru_cache(maxsize=16)
def _time_header(wall_ms: int) -> bytes:
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return time.replace("+00:00", "Z").encode()
