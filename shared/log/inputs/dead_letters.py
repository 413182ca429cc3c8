"""What becomes of a record that could not be read: its bytes untouched, and in headers the reason, the service and the
origin.

Everything here is safe to read with any client: header names and values are UTF-8, bounded in number and size, and
nothing of the original record can pose as a header of ours. Where that changes the key or a header, `exact` keeps them
as they were, so that the record can be sent once more.
"""

from __future__ import annotations

import base64
import json
from hashlib import blake2b

from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.port import HEADERS_MAX, Headers, Outgoing, Record

TOPIC = "dead-letters"
TOLD_MAX = 20
"""So many of the letters of one batch are told one by one in a service's own log: its metrics count all of them."""

VALUE_BYTES_MAX = 1_000_000
"""Together with the headers below, this stays under what the log takes in one record."""

BEGIN_BYTES = 200
"""So much is kept of the value of a record beyond its sender's limit."""

ORIGINAL_PREFIX = "orig_"
ORIGINAL_HEADERS_MAX = 32
NAME_CHARS_MAX = 128
ORIGINAL_BYTES_MAX = 1_024
TEXT_BYTES_MAX = 2_048
HASH_BYTES = 32

EXACT, NOT_EXACT = "exact", "not_exact"
EXACT_BYTES_MAX = 64_000
LETTER_BYTES_MAX = 1_000_000
"""With `exact`, value and `exact` together stay below this; where there is no room for it, `not_exact` says so. It
does so of more than HEADERS_MAX headers too, of which none but the first are looked at.
"""


def dead_letter(dead: Dead, *, service: str, namespace: str) -> Outgoing:
    """The dead letter of one record, for the namespace's own topic.

    A value above a megabyte is cut; then `value_bytes` gives its full size and `value_blake2b` the hash of all of it
    (32 bytes, hex). An absent value becomes an empty one with the header `value_absent`.

    Of a record beyond its sender's limit only the begin of the value is kept, and no header: a sender that floods a
    topic must not fill this one.
    """
    value = dead.record.value
    if dead.is_one_too_many:
        return _begin_of(dead, service, namespace)
    return Outgoing(
        topic=f"{namespace}.{TOPIC}",
        value=(value or b"")[:VALUE_BYTES_MAX],
        headers=(
            *_own_headers(dead, service),
            *_value_headers(value),
            *_exact_headers(dead.record),
            *_original_headers(dead.record.headers),
        ),
        partition=0,
    )


def _begin_of(dead: Dead, service: str, namespace: str) -> Outgoing:
    value = dead.record.value or b""
    size = (("value_truncated", b"true"), ("value_bytes", b"%d" % len(value)))
    return Outgoing(
        topic=f"{namespace}.{TOPIC}",
        value=value[:BEGIN_BYTES],
        headers=(*_own_headers(dead, service), *size, (NOT_EXACT, b"true")),
        partition=0,
    )


def _own_headers(dead: Dead, service: str) -> Headers:
    record = dead.record
    key = () if record.key is None else (("origin_key", _safe(record.key, ORIGINAL_BYTES_MAX)),)
    return (
        ("service", _safe_text(service, NAME_CHARS_MAX)),
        ("reason", _safe_text(dead.reason, NAME_CHARS_MAX)),
        ("text", _safe_text(dead.text, TEXT_BYTES_MAX)),
        ("origin_topic", _safe_text(record.topic, 249)),
        ("origin_partition", b"%d" % record.partition),
        ("origin_offset", b"%d" % record.offset),
        ("origin_timestamp_ms", b"%d" % record.timestamp_ms),
        *key,
    )


def _value_headers(value: bytes | None) -> Headers:
    if value is None:
        return (("value_absent", b"true"),)
    if len(value) <= VALUE_BYTES_MAX:
        return ()
    digest = blake2b(value, digest_size=HASH_BYTES).hexdigest()
    return (
        ("value_truncated", b"true"),
        ("value_bytes", b"%d" % len(value)),
        ("value_blake2b", digest.encode("ascii")),
    )


def _exact_headers(record: Record) -> Headers:
    """Key and headers as JSON with base64, if what stands in the other headers is not exactly them."""
    if len(record.headers) > HEADERS_MAX:
        return ((NOT_EXACT, b"true"),)
    as_shown = tuple((ORIGINAL_PREFIX + name, value) for name, value in record.headers)
    key_is_shown = record.key is None or _safe(record.key, ORIGINAL_BYTES_MAX) == record.key
    if key_is_shown and as_shown == _original_headers(record.headers):
        return ()
    held = sum(len(name) + len(value) for name, value in record.headers)
    if held > EXACT_BYTES_MAX:
        return ((NOT_EXACT, b"true"),)
    content = {
        "key": None if record.key is None else _base64(record.key),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    fits = len(text) <= EXACT_BYTES_MAX and len(text) + len(record.value or b"") <= LETTER_BYTES_MAX
    return ((EXACT, text),) if fits else ((NOT_EXACT, b"true"),)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _original_headers(headers: Headers) -> Headers:
    kept = tuple(
        (ORIGINAL_PREFIX + _safe_text(name, NAME_CHARS_MAX).decode("utf-8"), _safe(value, ORIGINAL_BYTES_MAX))
        for name, value in headers[:ORIGINAL_HEADERS_MAX]
    )
    dropped = len(headers) - len(kept)
    return (*kept, ("headers_dropped", b"%d" % dropped)) if dropped else kept


def _safe(value: bytes, bytes_max: int) -> bytes:
    r"""As UTF-8, with what is not written as \xNN; cut at a whole character."""
    return _safe_text(value[:bytes_max].decode("utf-8", "backslashreplace"), bytes_max)


def _safe_text(text: str, bytes_max: int) -> bytes:
    return text.encode("utf-8", "backslashreplace")[:bytes_max].decode("utf-8", "ignore").encode("utf-8")
