"""Topic `decisions`: the truth. Written by placement only, read by everybody."""

from __future__ import annotations

from copy import copy
from hashlib import blake2b
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import force_setattr

from fallow.shared.events.base import LANGUAGE, CellEvent, Count, Millis
from fallow.shared.events.effects import OF_WORKERS, AnyEffect

INPUTS: Final = ("jobs", "nodes", "proposals", "operations")
"""The topics that placement reads from the cursors of the state. The plans of queueing have none: they come again."""

CHAIN_HEADER = "chain"
BEFORE_HEADER = "chain-before"
"""The chain that a signed record continues: with it a reader can tell by the record alone whose it is."""

SIGNATURE_HEADER = "signature"
CHAIN_START = "0" * 32


class Decision(CellEvent, type=f"fallow.decision.{LANGUAGE}", topic="decisions"):
    """One atomic step of a cell.

    It extends the state of version `version - 1`; on any other state it is skipped by every reader. `inputs` are the
    positions (`topic-partition` -> next offset) up to which the writer had taken in its inputs when it decided.
    `input_checksums` names the last record before each of these positions (CRC-32 of its key and value), so that the
    next writer can tell whether the topic still holds what was read from it.
    """

    version: Annotated[int, Meta(ge=1)]
    epoch: Count
    inputs: dict[str, Count] = {}
    input_checksums: dict[str, Count] = {}
    at_ms: Millis
    effects: tuple[AnyEffect, ...] = ()

    def as_written(self) -> Decision:
        """With many workers of one job in ranges."""
        effects = tuple([each.as_written() if type(each) in OF_WORKERS else each for each in self.effects])
        if effects == self.effects:  # most hold the very same effects: that is seen at once
            return self
        found = copy(self)
        force_setattr(found, "effects", effects)
        return found


def input_name(topic: str, ordinal: int) -> str:
    """How decisions and people name this input of the cell of this number: `jobs-0`."""
    return f"{topic}-{ordinal}"


def next_chain(chain: str, value: bytes) -> str:
    """The hash over the log so far, after a record with these bytes. It is taken of the bytes as received, never of a
    re-encoding.
    """
    return blake2b(value, digest_size=16, key=chain.encode()).hexdigest()


def signed_text(type_: str, chain: str) -> bytes:
    """What a writer signs of a record: its type, by which its bytes are read, and its chain, which names them and all
    that was before. The words in front keep the signature from meaning anything elsewhere.
    """
    return f"fallow decision {type_} {chain}".encode()
