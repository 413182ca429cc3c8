"""Records of the log as events and as entries of the decision log."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import TYPE_HEADER, Undecodable, decode, shorten
from fallow.shared.events.decisions import BEFORE_HEADER, CHAIN_HEADER, SIGNATURE_HEADER, Decision
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.machine.signatures import CellKeys, Proof
from fallow.shared.log.port import HEADERS_MAX, UNREADABLE_HEADER, UNREADABLE_TEXT, Record

SUBMISSIONS = "submissions"
DIGITS_MAX = 19
"""A number of more digits was written by a stranger."""


def header(record: Record, name: str) -> str:
    """The last header of this name as text, "" if there is none; bytes that are no text are shown as such.

    Of a record with too many headers (`unreadable`) none is looked for.
    """
    if len(record.headers) > HEADERS_MAX:
        return ""
    for key, value in reversed(record.headers):
        if key == name:
            return (value or b"").decode("utf-8", "backslashreplace")
    return ""


def number(record: Record, name: str) -> int | None:
    """The last header of this name as an offset, a partition or a size; None if it is none."""
    text = header(record, name)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else None


def unreadable(record: Record) -> Undecodable | None:
    """Why the record is one that Kafka's client itself cannot read, of which nothing is left but its place, or one with
    more headers than are looked at; else None.
    """
    if len(record.headers) > HEADERS_MAX:
        text = f"has {len(record.headers)} headers, at most {HEADERS_MAX} are read"
        return Undecodable(DeadLetterReason.UNREADABLE, text)
    if record.headers and record.headers[0] == (UNREADABLE_HEADER, UNREADABLE_TEXT):
        return Undecodable(DeadLetterReason.UNREADABLE, UNREADABLE_TEXT.decode())
    return None


def stands_for_unreadable(record: Record) -> bool:
    """Whether this is not what stands in the log, but what a reader hands out in its place where Kafka's client cannot
    read it. A sender of a record that looks alike has it stamped by the broker.
    """
    is_bare = record.key is None and record.value is None and record.timestamp_ms == 0
    return is_bare and record.headers == ((UNREADABLE_HEADER, UNREADABLE_TEXT),)


def checksum_of(key: bytes | None, value: bytes | None) -> int:
    """Which decision this is, of which no two have the same bytes: 32 bits tell one that stands in another's place."""
    return crc32(value or b"", crc32(key or b""))


def input_checksum(record: Record) -> int:
    """Which record of an input this is. The broker's stamp counts: a request that is made twice, such as a cancel, has
    the same bytes twice.
    """
    return crc32(b"%d" % record.timestamp_ms, checksum_of(record.key, record.value))


def event_of(record: Record) -> Event | Undecodable:
    """The event of a record, or why there is none. What stands in a topic that is not its own is none: who may write to
    one topic must not be able to say what belongs in another.
    """
    said: Event | Undecodable | None = record.said
    event = said or unreadable(record) or decode(header(record, TYPE_HEADER), record.value)
    if isinstance(event, Undecodable) or event.topic == name_of(record.topic):
        return event
    rule = f"belongs in topic {event.topic}, not in {shorten(name_of(record.topic))}"
    return Undecodable(DeadLetterReason.UNKNOWN_TYPE, rule, "ce_type", shorten(event.type))


@lru_cache(maxsize=256)
def name_of(topic: str) -> str:
    """The name of a topic without its namespace, which may hold dots; a tenant's own topic for submissions is one of
    submissions.
    """
    *before, last = topic.split(".")
    return SUBMISSIONS if len(before) > 1 and before[-1] == SUBMISSIONS else last


def unproven_from(record: Record, keys: CellKeys | None) -> int | None:
    """From which version on a record of `decisions` is forged, by the reader's own keys of the cell; None where it is
    proven, or the cell has no keys.
    """
    if keys is None:
        return None
    proof = Proof(*(header(record, name) for name in (TYPE_HEADER, BEFORE_HEADER, CHAIN_HEADER, SIGNATURE_HEADER)))
    return keys.unproven_from(record.value or b"", proof)


UNPROVEN = Undecodable(DeadLetterReason.UNREADABLE, "no key of the cell proves it")
"""Instead of what a stranger has written, which may be dear to read: whatever its version, it is passed over."""


def log_record(record: Record, keys: CellKeys | None) -> LogRecord:
    """A record of `decisions` as the fold takes it, judged by the reader's own keys of the cell. Anything that is no
    decision is undecodable here.
    """
    unproven = unproven_from(record, keys)
    event = UNPROVEN if unproven is not None and unproven <= 1 else event_of(record)
    if not isinstance(event, Decision | Undecodable):
        event = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is no decision", "ce_type", event.type)
    chain = header(record, CHAIN_HEADER)
    return LogRecord(record.offset, record.value or b"", chain, event, unproven)
