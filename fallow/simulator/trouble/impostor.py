"""Somebody who may write the topic of decisions and has read all of it, but has no key of the cell.

He appends decisions of the right version without a signature, with one of a key of his own, and with one that he saw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fallow.shared.cluster.model.config import CellFile, PublicKey, Signing
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import replace as with_fields
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import PolicySet
from fallow.shared.events.encoding import TYPE_HEADER, encode
from fallow.shared.log.ed25519 import SigningKey
from fallow.shared.log.machine.writer import Draft
from fallow.shared.log.port import Headers, Outgoing
from fallow.simulator.storage.broker import Message, message_of
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.oracle import Oracle
    from fallow.simulator.world import World

EVERY_MS = (250, 1_400)
WRITERS, OWN = SigningKey(b"w" * 32), SigningKey(b"i" * 32)
KINDS = ("unsigned", "foreign", "replayed", "unreadable", "ahead")


def signed(file: CellFile) -> CellFile:
    """The file with a key for each of its cells, from the first version on."""
    signing = Signing(from_version=1, keys=(PublicKey(public=WRITERS.public),))
    cells = tuple(cell.model_copy(update={"signing": signing}) for cell in file.cells)
    return file.model_copy(update={"cells": cells})


class Impostor:
    """Of one world. `writers_key` is the secret of placement, which he never has."""

    writers_key = WRITERS.text

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self) -> None:
        """From now on."""
        engine = self._world.engine
        engine.after(engine.between(*EVERY_MS), self._happen)

    def _happen(self) -> None:
        world = self._world
        if not world.faults.is_active:
            return
        oracle, kind = world.engine.chance.choice(world.oracles), world.engine.chance.choice(KINDS)
        if world.faults.inject(Fault.IMPOSTOR, f"{kind} decision in {oracle.cell}"):
            world.broker.land(self._forged(oracle, kind))
        self.begin()

    def _forged(self, oracle: Oracle, kind: str) -> Message:
        """A record that would extend the state, or stop its readers, were it believed."""
        state, partition = oracle.state, oracle.tp[1]
        decision = _decision(state, ahead=3 if kind == "ahead" else 0)
        value = b'{"what": "of no release"}' if kind == "unreadable" else encode(decision)
        draft = Draft(decision, value, next_chain(state.chain, value), state.chain)
        seen = self._seen(oracle) if kind in ("replayed", "ahead") else ()
        headers = seen or draft.headers(None if kind in ("unsigned", "unreadable") else OWN.sign)
        chain = dict(headers).get(CHAIN_HEADER, CHAIN_START.encode()).decode()
        sent = Outgoing("decisions", value, b"impostor", ((TYPE_HEADER, Decision.type.encode()), *headers))
        return replace(message_of(decision, partition), event=None, value=value, chain=chain, sent=sent, is_forged=True)

    def _seen(self, oracle: Oracle) -> Headers:
        """The headers of the newest honest record: chain, chain before and signature."""
        for logged in reversed(self._world.broker.log.get(oracle.tp, [])):
            if not logged.is_forged and len(headers := logged.record("decisions").headers) > 1:
                return tuple(header for header in headers if header[0] != TYPE_HEADER)
        return ()


def _decision(state: CellState, *, ahead: int) -> Decision:
    """What he would decide: that the cell takes no further job."""
    closed = PolicySet(policy=with_fields(state.policy, max_pending_jobs=1))
    version = state.version + 1 + ahead
    return Decision(cell=state.cell, version=version, epoch=state.epoch, at_ms=state.at_ms, effects=(closed,))
