"""A way in: where something comes into a process from outside, with all that is done about it there.

It is decoded, judged and decided upon, and no input may hold up other clients for long. An entry works in turns:
between two words its service goes on with something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.log.inputs.dead_letters import dead_letter
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.port import Record
from tests.fuzz.pace import Turns
from tests.fuzz.targets import GOLDEN
from tests.fuzz.vast import BYTES_MAX

SERVICE_MS = 50.0
"""So long may a turn of a service take: nothing else goes on there meanwhile."""

FILE_MS, FILE_BYTES_MAX = 4_000.0, 64_000
"""So long may a command take to read a file of this size that its user has named: no other client waits for it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One way in. `work` takes an input through it, turn by turn, and says what came of it: `taken` where the input was
    good, which one of the seeds is at least.
    """

    name: str
    work: Callable[[bytes], Turns]
    seeds: tuple[bytes, ...] = field(repr=False)
    taken: str
    within_ms: float = SERVICE_MS
    bytes_max: int = BYTES_MAX
    lines: bool = False


def record_of(topic: str, type_: str, value: bytes) -> Record:
    """A record as its topic would hold it."""
    headers = (("ce_type", type_.encode()), ("ce_id", b"1"), ("ce_source", b"x"))
    return Record(f"t.{topic}", 0, 1, b"key", value, headers, 1_000)


def set_aside(service: str, record: Record, why: Undecodable) -> None:
    """The dead letter of a record."""
    dead_letter(Dead(record, why.reason, str(why)), service=service, namespace="t")


def golden(type_: str) -> bytes:
    """A good event of this type."""
    return (GOLDEN / f"{type_}.json").read_bytes().strip()
