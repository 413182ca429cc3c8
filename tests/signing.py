"""Keys that tests sign with, and cells that believe them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.codec.encoding import TYPE_HEADER, encode
from fallow.shared.events.decisions import (
    BEFORE_HEADER,
    CHAIN_HEADER,
    CHAIN_START,
    SIGNATURE_HEADER,
    Decision,
    next_chain,
)
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.writer import Draft
from fallow.shared.log.port import Outgoing
from fallow.shared.runtime.files.cell_file import parse_cell_file
from tests.histories import folded

WRITERS, NEXT, STRANGERS = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))


def public(key: SigningKey, until_version: int | None = None) -> str:
    """A key as it stands in a cell file."""
    until = "" if until_version is None else f", until_version: {until_version}"
    return f'{{public: "{key.public}"{until}}}'


def signed_file(*keys: str, cell: str = "main", ordinal: int = 0, from_version: int = 1) -> CellFile:
    """A cell file of one cell with these keys, none: as all files were before."""
    return parse_cell_file(signed_text(*keys, cell=cell, ordinal=ordinal, from_version=from_version), "cell")


def signed_text(*keys: str, cell: str = "main", ordinal: int = 0, from_version: int = 1) -> str:
    """The cell file's text with these keys for signing."""
    signing = f", signing: {{from_version: {from_version}, keys: [{', '.join(keys)}]}}" if keys else ""
    return f"""
cells: [{{name: {cell}, ordinal: {ordinal}, pools: [{{name: train, gpus: 8}}]{signing}}}]
tenants: [{{name: vision}}]
"""


def believing(layout: Layout, *keys: str, cell: str, from_version: int = 1) -> Layout:
    """The layout of a reader whose own cell file names these keys."""
    file = signed_file(*keys, cell=cell, ordinal=layout.ordinals[cell], from_version=from_version)
    return Layout(layout.namespace, layout.ordinals, Signers(file))


def signed(
    layout: Layout,
    decisions: Sequence[Decision],
    key: SigningKey | None,
    chain: str = CHAIN_START,
    type_: str = Decision.type,
) -> list[Outgoing]:
    """These decisions as records, each signed; without a key as an unsigned writer makes them."""
    messages = []
    for decision in decisions:
        value = encode(decision)
        draft = Draft(decision, value, next_chain(chain, value), chain)
        headers = draft.headers(None if key is None else partial(key.sign, type_=type_))
        message = layout.outgoing(
            decision, id=str(decision.version), source="test", wall_ms=0, more=headers, value=value
        )
        messages.append(with_header(message, TYPE_HEADER, type_.encode()))
        chain = draft.chain
    return messages


def with_header(message: Outgoing, name: str, value: bytes) -> Outgoing:
    return replace(message, headers=tuple((key, value if key == name else old) for key, old in message.headers))


def forgeries(layout: Layout, decisions: Sequence[Decision], at: int) -> dict[str, Outgoing]:
    """What a user who may write the topic, and has read all of it, can put in the place of the decision at `at`:
    of the right version, but for copies of an older one.
    """
    before = decisions[:at]
    chain = folded(before).chain
    own = replace(decisions[at], effects=())
    unsigned = signed(layout, [own], None, chain)[0]
    foreign = signed(layout, [own], STRANGERS, chain)[0]
    (honest,) = signed(layout, [before[-1]], WRITERS, folded(before[:-1]).chain)
    of_another = dict(honest.headers)
    replayed = replace(unsigned, headers=tuple((key, of_another.get(key, old)) for key, old in foreign.headers))
    mixed = foreign
    for name in (BEFORE_HEADER, CHAIN_HEADER):
        mixed = with_header(mixed, name, dict(foreign.headers)[name])
    mixed = with_header(mixed, SIGNATURE_HEADER, of_another[SIGNATURE_HEADER])
    garbage = b'{"no":"decision"}'
    sealed = replace(with_header(unsigned, CHAIN_HEADER, next_chain(chain, garbage).encode()), value=garbage)
    ahead = replace(own, version=own.version + 5)
    return {
        "unsigned": unsigned,
        "of a key that the cell does not have": foreign,
        "with all headers of an older record": replayed,
        "with the signature of an older record": mixed,
        "that cannot be read and continues the chain": sealed,
        "that is an older record as one of another release": with_header(honest, TYPE_HEADER, b"fallow.decision.v999"),
        "of a version far ahead": signed(layout, [ahead], STRANGERS, chain)[0],
        "far ahead with the headers of an older record": replace(
            signed(layout, [ahead], None, chain)[0], headers=honest.headers
        ),
        "whose signature is no base64": with_header(foreign, SIGNATURE_HEADER, b"?" * 88),
        "whose signature is too short": with_header(foreign, SIGNATURE_HEADER, b"AAAA"),
        "whose chain is not ASCII": with_header(foreign, BEFORE_HEADER, "ü".encode() * 32),
    }
