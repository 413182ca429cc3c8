"""The history of one simulated world, as an observer outside could have written it down: nothing of it is a service's
memory.

All times (`at_ms`) are true simulated time, from 0. Cell times inside records are `EPOCH_MS` later, and as skewed as
the clock of the process that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import TYPE_HEADER, Undecodable, decode, encode
from fallow.shared.events.decisions import CHAIN_HEADER
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.log.port import Headers, Outgoing, Record

EPOCH_MS = 10_000_000_000
"""The cell time of a right clock at simulated time 0."""

ENDS_THE_STORY = "the story ends here"
"""The reason of a cancel that the world itself puts among the requests, for what has no end of its own."""

TopicPartition = tuple[str, int]
"""A topic without its namespace, and a partition: of a topic with one partition per cell, the cell's ordinal."""


@dataclass(slots=True)
class Logged:
    """One record as it stood in the log. `type` and `chain` are its headers of these names. `is_forged`: a stranger put
    it there, in a cell with keys, so that no reader may take it.

    A world that passes events as objects makes the bytes when they are first asked for; both say the same.
    """

    topic: str
    partition: int
    offset: int
    at_ms: int
    key: str
    type: str
    chain: str = ""
    _event: Event | None = None
    _value: bytes | None = None
    _sent: Outgoing | None = None
    _said: Event | Undecodable | None = None
    _record: Record | None = None
    _is_decoded_once: bool = True
    is_forged: bool = False

    @property
    def value(self) -> bytes | None:
        """The record's bytes; None for a tombstone."""
        if self._value is None and self._event is not None:
            self._value = encode(self._event)
        return self._value

    def damage(self, value: bytes) -> None:
        """Other bytes stand there from now on."""
        self._value, self._event, self._said, self._record = value, None, None, None

    def event(self) -> Event | Undecodable:
        """What it says, or why that cannot be told."""
        if self._event is not None:
            return self._event
        if self._said is None:
            self._said = decode(self.type, self._value)
        return self._said

    def record(self, topic: str) -> Record:
        """The record as its readers get it, with the full name of its topic: the same object for all of them."""
        if self._record is None:
            sent, at_ms = self._sent, EPOCH_MS + self.at_ms
            if sent is None:
                headers: Headers = ((TYPE_HEADER, self.type.encode()), (CHAIN_HEADER, self.chain.encode()))
                sent = Outgoing(topic, self.value, self.key.encode(), headers)
            event = self.event() if self._is_decoded_once else None
            at = (topic, self.partition, self.offset)
            self._record = Record(*at, sent.key, self.value, sent.headers, at_ms, event)
        return self._record


@dataclass(frozen=True, slots=True)
class DiaryEntry:
    """One line that a node wrote down, when it truly did, and which process held the pen. `is_gone`: it was not on the
    disk yet when the power went.
    """

    at_ms: int
    process: str
    line: DiaryLine
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """One command that a client sent. `acked_ms` is when the log confirmed it; None: the client was told nothing, and
    it may be in the log or not.
    """

    at_ms: int
    client: str
    type: str
    value: bytes
    job: str
    acked_ms: int | None


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    """What a client read of one job from the view. `status` None: the view does not know the job.

    `at_least` is the version that the client asked for, None where it asked for any.
    """

    at_ms: int
    client: str
    cell: str
    version: int
    at_least: int | None
    job: str
    status: str | None
    attempt: int | None


@dataclass(frozen=True, slots=True)
class ViewRows:
    """Everything that the view of a cell showed at one moment, at its own cursor (the next offset of the log).

    `positions` are those of waiting jobs within their queues.
    """

    at_ms: int
    cell: str
    cursor: int
    version: int
    chain: str
    jobs: dict[str, str]
    nodes: dict[str, str]
    tenants: dict[str, str]
    positions: dict[str, int]


@dataclass(frozen=True, slots=True)
class Injected:
    """One fault. `number` counts the faults of the world in their order; `what` is the party that it hit, and how."""

    number: int
    at_ms: int
    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """A process that stopped because it can no longer know the truth, and why: the error's class and words."""

    at_ms: int
    process: str
    error: str
    text: str


@dataclass(frozen=True, slots=True)
class LostTail:
    """Acknowledged records that the broker lost, from `offset` on."""

    at_ms: int
    topic: str
    partition: int
    offset: int
    records: tuple[Logged, ...]


@dataclass(frozen=True, slots=True)
class Flipped:
    """A record of which one bit was turned round when it was written: as it was sent, and what stands there."""

    whole: Logged
    value: bytes


@dataclass(frozen=True, slots=True)
class Believed:
    """A writer took its record at this offset to be in force."""

    at_ms: int
    process: str
    cell: str
    offset: int
    version: int


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """What truly happened on a node: workers of a run began or ended, or all of it went with the machine."""

    at_ms: int
    node: str
    what: Literal["began", "ended", "died"]
    job: str = ""
    attempt: int = 0
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    rank: int | None = None
    turn: int = 0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """From here on another process, or the same one anew, holds the pen of a node whose runs are virtual."""

    at_ms: int
    node: str


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that was broken, as the world saw it while it ran."""

    at_ms: int
    invariant: str
    text: str


@dataclass(slots=True)
class History:
    """All of it. `log` holds what each partition held at the end; `lost_tails` what was taken out of the decisions, and
    `lost_inputs` what was taken out of inputs.

    `files` are those that came in the place of `file`, with the time of each.
    `drained` tells whether everything came to its end after the faults had stopped; `stuck` says what did not.
    """

    seed: int
    file: CellFile
    nodes: dict[str, tuple[NodeSpec, ...]]
    log: dict[TopicPartition, list[Logged]] = field(default_factory=dict)
    diaries: dict[str, list[DiaryEntry]] = field(default_factory=dict)
    files: list[tuple[int, CellFile]] = field(default_factory=list)
    moments: list[NodeMoment] = field(default_factory=list)
    taken: list[TakenOver] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    answers: list[ViewAnswer] = field(default_factory=list)
    views: list[ViewRows] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    fenced: list[Fenced] = field(default_factory=list)
    lost_tails: list[LostTail] = field(default_factory=list)
    lost_inputs: list[LostTail] = field(default_factory=list)
    flipped: list[Flipped] = field(default_factory=list)
    believed: list[Believed] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    steps: int = 0
    faults_end_ms: int = 0
    end_ms: int = 0
    drained: bool = False
    stuck: tuple[str, ...] = ()

    def records(self, topic: str, cell: str | None = None) -> Iterator[Logged]:
        """The records of a topic in the order of partition and offset; of one cell's partition only, if it is named."""
        ordinal = None if cell is None else self.file.cell(cell).ordinal
        for (name, partition), logged in sorted(self.log.items()):
            if name == topic and ordinal in (None, partition):
                yield from logged

    def lines(self) -> Iterator[str]:
        """The whole history as text, the same for the same seed."""
        for at, logged in sorted(self.log.items()):
            for record in logged:
                yield f"{at} {record.offset} {record.at_ms} {record.key} {record.type} {record.chain} {record.value!r}"
        for node in sorted(self.diaries):
            yield from (f"{entry.at_ms} {entry.process} {entry.line!r}" for entry in self.diaries[node])
        for told in (
            self.moments,
            self.taken,
            self.submissions,
            self.answers,
            self.injected,
            self.fenced,
            self.believed,
        ):
            yield from map(repr, told)
        yield from map(repr, self.violations)
        yield f"{self.steps} {self.end_ms} {self.drained} {self.stuck}"

    def digest(self) -> str:
        """16 bytes of BLAKE2b over all lines, in hexadecimal."""
        hashed = blake2b(digest_size=16)
        for line in self.lines():
            hashed.update(line.encode())
            hashed.update(b"\n")
        return hashed.hexdigest()
