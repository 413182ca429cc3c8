"""A stranger who may write the topic of decisions and has read all of it, but has no key of the cell.

He appends decisions of the right version without a signature, with one of a key of his own, and with one that he saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fallow.shared.cluster.model.config import CellFile, PublicKey, Signing
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import replace as with_fields
from fallow.shared.events.codec.encoding import TYPE_HEADER, encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import PolicySet
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.machine.writer import Draft
from fallow.shared.log.port import Headers, Outgoing
from fallow.simulator.storage.broker import Message, message_of
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.oracle import Oracle
    from fallow.simulator.world import World

EVERY_MS = (250, 1_400)
AGAIN_MS = 500
WRITERS, NEXT, OWN = SigningKey(b"w" * 32), SigningKey(b"n" * 32), SigningKey(b"i" * 32)
KINDS = ("unsigned", "foreign", "replayed", "unreadable", "ahead")


def signed(file: CellFile) -> CellFile:
    """The file with a key for each of its cells, from the first version on."""
    return with_keys(file, {cell.name: (PublicKey(public=WRITERS.public),) for cell in file.cells})


def with_keys(file: CellFile, keys: Mapping[str, tuple[PublicKey, ...]]) -> CellFile:
    """The file with these keys for each of its cells."""
    cells = tuple(
        cell.model_copy(update={"signing": Signing(from_version=1, keys=keys[cell.name])}) for cell in file.cells
    )
    return file.model_copy(update={"cells": cells})


class Rotation:
    """A person changes the key of all cells while they run, as docs/operations.md says: the new key is added, placement
    is started again with it, and the old one is retired once another writer is in force in each cell.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.writers_key = WRITERS.text
        self._epochs: dict[str, int] = {}
        self.is_done = False

    def begin(self) -> None:
        """From now on."""
        engine = self._world.engine
        engine.after(engine.between(2_500, 5_000), self._add)

    def _add(self) -> None:
        both = (PublicKey(public=WRITERS.public), PublicKey(public=NEXT.public))
        self._put({oracle.cell: both for oracle in self._world.oracles})
        self._world.engine.after(self._world.engine.between(1_000, 2_500), self._switch)

    def _switch(self) -> None:
        world = self._world
        self.writers_key = NEXT.text
        self._epochs = {oracle.cell: oracle.state.epoch for oracle in world.oracles}
        for process in world.processes:
            if process.group == "placement" and process.is_up:
                world.crash(process)
        world.engine.after(AGAIN_MS, self._retire)

    def _retire(self) -> None:
        world = self._world
        if any(oracle.state.epoch <= self._epochs[oracle.cell] for oracle in world.oracles):
            world.engine.after(AGAIN_MS, self._retire)
            return
        new = PublicKey(public=NEXT.public)
        self._put(
            {
                oracle.cell: (PublicKey(public=WRITERS.public, until_version=oracle.state.version), new)
                for oracle in world.oracles
            }
        )
        self.is_done = True

    def _put(self, keys: Mapping[str, tuple[PublicKey, ...]]) -> None:
        """Bring the file with these keys to every machine, and have it read again."""
        world = self._world
        world.first_file = with_keys(world.first_file, keys)
        world.mishaps.reload(with_keys(world.file, keys))


class Impostor:
    """Of one world. He never has the secret of placement."""

    def __init__(self, world: World) -> None:
        self._world, self.rotation = world, Rotation(world)

    def begin(self) -> None:
        """From now on. In half of his worlds the key is changed meanwhile."""
        if self._world.engine.between(0, 1):
            self.rotation.begin()
        self._begin()

    def _begin(self) -> None:
        engine = self._world.engine
        engine.after(engine.between(*EVERY_MS), self._happen)

    def _happen(self) -> None:
        world = self._world
        if not world.faults.is_active:
            return
        oracle, kind = world.engine.chance.choice(world.oracles), world.engine.chance.choice(KINDS)
        if world.faults.inject(Fault.IMPOSTOR, f"{kind} decision in {oracle.cell}"):
            world.broker.land(self.forged(oracle, kind))
        self._begin()

    def forged(self, oracle: Oracle, kind: str) -> Message:
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
