"""Keys that tests sign with, and cells that believe them."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.encoding import encode
from fallow.shared.log.ed25519 import SigningKey
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.writer import Draft
from fallow.shared.log.port import Outgoing
from fallow.shared.log.signers import Signers
from fallow.shared.runtime.files.cell_file import parse_cell_file

WRITERS, NEXT, STRANGERS = (SigningKey(bytes([number]) * 32) for number in (1, 2, 3))


def public(key: SigningKey, until_version: int | None = None) -> str:
    """A key as it stands in a cell file."""
    until = "" if until_version is None else f", until_version: {until_version}"
    return f'{{public: "{key.public}"{until}}}'


def signed_file(*keys: str, cell: str = "main", ordinal: int = 0, from_version: int = 1) -> CellFile:
    """A cell file of one cell with these keys, none: as all files were before."""
    return parse_cell_file(signed_text(*keys, cell=cell, ordinal=ordinal, from_version=from_version), "cell")


def signed_text(*keys: str, cell: str = "main", ordinal: int = 0, from_version: int = 1) -> str:
    """The same as its text."""
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
    layout: Layout, decisions: Sequence[Decision], key: SigningKey | None, chain: str = CHAIN_START
) -> list[Outgoing]:
    """These decisions as records, each signed; without a key as an unsigned writer makes them."""
    messages = []
    for decision in decisions:
        value = encode(decision)
        draft = Draft(decision, value, next_chain(chain, value), chain)
        headers = draft.headers(None if key is None else key.sign)
        messages.append(
            layout.outgoing(decision, id=str(decision.version), source="test", wall_ms=0, more=headers, value=value)
        )
        chain = draft.chain
    return messages
