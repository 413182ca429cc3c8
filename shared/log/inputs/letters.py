"""Dead letters read back: what they tell, and the records that they were, so that these can be sent once more.

All that a letter says is claimed: any user who may write `dead-letters` may write anything into one, an order too. What
proves it is the record that stands at the place it names: its writer had the right to write there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.decisions import INPUTS
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.inputs.dead_letters import EXACT, NOT_EXACT, ORIGINAL_PREFIX, TOPIC, VALUE_BYTES_MAX
from fallow.shared.log.port import UNREADABLE_HEADER, UNREADABLE_TEXT, Headers, Outgoing, Record, TopicPartition
from fallow.shared.log.reading import SUBMISSIONS, header, number

REPLAYED_OFFSET = "replayed_offset"
"""The header of a record in `dead-letters` that is no letter, but notes that the one at this offset was sent again."""

AGAIN = "again"

NO_LETTER = "it is no dead letter: its headers name no service, no reason and no topic that it came from"

SETS_ASIDE_FROM: Mapping[str, frozenset[str]] = {
    "admission": frozenset({SUBMISSIONS}),
    "placement": frozenset(INPUTS),
}
"""By service the topics, without the namespace, from which it sets records aside; those of tenants go with
`submissions`. A letter that names another one was not written by that service.
"""


class _Exact(msgspec.Struct):
    """Key and headers of a letter in base64, the names of headers as they are."""

    key: str | None
    headers: list[tuple[str, str]]


_EXACT = msgspec.json.Decoder(_Exact)


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. `replays` counts how often it was sent again; `size_bytes` is the size of the whole value."""

    record: Record
    service: str
    reason: str
    text: str
    origin_topic: str
    origin: str
    size_bytes: int
    replays: int = 0

    @property
    def offset(self) -> int:
        """Its offset in `dead-letters`: its name."""
        return self.record.offset

    @property
    def is_letter(self) -> bool:
        """Whether it tells of anything that was set aside: what tells nothing is a stranger's record."""
        return bool(self.service or self.reason or self.origin_topic)

    @property
    def origin_place(self) -> tuple[TopicPartition, int] | None:
        """Where it claims to come from, with the offset; None where it names no place."""
        partition, offset = number(self.record, "origin_partition"), number(self.record, "origin_offset")
        return None if partition is None or offset is None else ((self.origin_topic, partition), offset)


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a letter cannot become again what it was."""

    text: str


class Letters:
    """What `dead-letters` holds. The values are let go of: they may be a megabyte each."""

    def __init__(self) -> None:
        self._letters: dict[int, Letter] = {}
        self._notes: dict[int, list[int]] = {}

    def take(self, record: Record) -> None:
        """The next record of the topic."""
        noted = noted_replay(record)
        if noted is None:
            self._letters[record.offset] = letter_of(record, without_value=True)
        else:
            self._notes.setdefault(noted, []).append(record.offset)

    def all(self) -> list[Letter]:
        """The letters, in their order."""
        return [replace(letter, replays=len(self._notes.get(at, ()))) for at, letter in self._letters.items()]

    def first_note(self, offset: int) -> int | None:
        """The offset of the first record that notes this letter as sent again."""
        return next(iter(self._notes.get(offset, ())), None)


def noted_replay(record: Record) -> int | None:
    """The offset of the letter that this record notes as sent again; None for a letter."""
    return number(record, REPLAYED_OFFSET)


def letter_of(record: Record, *, without_value: bool = False) -> Letter:
    """The letter in a record."""
    topic, full = header(record, "origin_topic"), number(record, "value_bytes")
    return Letter(
        msgspec.structs.replace(record, value=None) if without_value else record,
        header(record, "service"),
        header(record, "reason"),
        header(record, "text"),
        topic,
        f"{topic}/{header(record, 'origin_partition')}/{header(record, 'origin_offset')}",
        len(record.value or b"") if full is None else full,
    )


def original_of(letter: Letter, namespace: str) -> Outgoing | Lost:
    """The record as it was, for the topic and partition that it came from, or why there is none."""
    record = letter.record
    if not letter.is_letter:
        return Lost(NO_LETTER)
    if header(record, "value_truncated"):
        if letter.reason == DeadLetterReason.TOO_MANY:
            return Lost(f"it was beyond its tenant's limit, of its {letter.size_bytes} bytes only the begin is kept")
        return Lost(f"it is cut, of its {letter.size_bytes} bytes only the first {VALUE_BYTES_MAX} are kept")
    if header(record, ORIGINAL_PREFIX + UNREADABLE_HEADER) == UNREADABLE_TEXT.decode():
        return Lost("Kafka's client could not read it, so none of its bytes are kept")
    if header(record, NOT_EXACT):
        return Lost("its key and headers found no room, only a part of them is kept")
    why_not = _no_place(letter, namespace)
    if why_not is not None:
        return why_not
    try:
        key, headers = _key_and_headers(record)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return Lost("its key and headers are not as Fallow writes them")
    value = None if header(record, "value_absent") else record.value or b""
    if key is None and value is None:
        return Lost("it has neither key nor value")
    return Outgoing(letter.origin_topic, value, key, headers, number(record, "origin_partition"))


def _no_place(letter: Letter, namespace: str) -> Lost | None:
    name = letter.origin_topic.removeprefix(f"{namespace}.")
    if name == letter.origin_topic or letter.origin_place is None:
        return Lost(f"it does not say from which topic of {namespace} it came")
    if name in ("decisions", "snapshots", TOPIC):
        return Lost(f"only Fallow itself writes to {letter.origin_topic}")
    declared = SUBMISSIONS if name.startswith(f"{SUBMISSIONS}.") else name
    if declared not in SETS_ASIDE_FROM.get(letter.service, ()):
        service = shorten(letter.service) or "no service"
        return Lost(f"it claims to be of {service}, which sets nothing aside from {letter.origin_topic}")
    return None


def is_proven_by(original: Outgoing, held: Record) -> bool:
    """Whether the record at the place from which a letter claims to come is the very one that the letter holds."""
    return (held.key, held.value, held.headers) == (original.key, original.value, original.headers)


def _key_and_headers(record: Record) -> tuple[bytes | None, Headers]:
    exact = header(record, EXACT)
    if exact:
        content = _EXACT.decode(exact)
        headers = tuple((name, base64.b64decode(value, validate=True)) for name, value in content.headers)
        return None if content.key is None else base64.b64decode(content.key, validate=True), headers
    plain = dict(record.headers).get("origin_key")
    kept = [(name, value) for name, value in record.headers if name.startswith(ORIGINAL_PREFIX)]
    return plain, tuple((name.removeprefix(ORIGINAL_PREFIX), value) for name, value in kept)


def note_of_replay(letter: Letter, namespace: str, *, by: str, again: bool) -> Outgoing:
    """The record that remembers that this letter is sent again. Of several that want to at once, the first one may."""
    noted = (("service", by.encode()), (REPLAYED_OFFSET, b"%d" % letter.offset))
    more = ((AGAIN, b"true"),) if again else ()
    return Outgoing(f"{namespace}.{TOPIC}", b"", headers=(*noted, *more), partition=0)
