"""What an earlier release has written, byte by byte: it named jobs by their ids alone."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fallow.shared.events.codec.encoding import TYPE_HEADER
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, next_chain
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Outgoing

FIRST_DECISION = (Path(__file__).parent / "decision_of_an_earlier_release.json").read_bytes().strip()
"""A writer begins, and a job is accepted. There is no field that this release does not know."""

CELL_OF_IT = "cell-a"


def first_decision(layout: Layout, chain_before: str = CHAIN_START) -> Outgoing:
    """The first record of a log of that release."""
    chain = next_chain(chain_before, FIRST_DECISION).encode()
    headers = ((TYPE_HEADER, b"fallow.decision.v1"), (CHAIN_HEADER, chain))
    topic, partition = layout.tp("decisions", CELL_OF_IT)
    return Outgoing(topic, FIRST_DECISION, CELL_OF_IT.encode(), headers, partition)


def as_then(message: Outgoing) -> Outgoing:
    """This record with the type that it had then."""
    headers = tuple((name, _type_then(value) if name == TYPE_HEADER else value) for name, value in message.headers)
    return replace(message, headers=headers)


def _type_then(type_: bytes) -> bytes:
    return type_.rpartition(b".")[0] + b".v1"
