"""The writer loop as a state machine without I/O: decide under a checkpoint, append one record, learn what became of
it.

A writer decides on the folded state and applies its effects there at once, under a checkpoint. The record is in force
when the log gave it the offset right behind the state: then no other writer came in between. In every other case the
state goes back to the checkpoint, and the shell folds forward and looks; the writer then decides anew, on the newer
state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass
from typing import Final, get_args

import msgspec
from msgspec.structs import force_setattr

from fallow.shared.cluster.fold.fold import DamagedLog, seal
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS
from fallow.shared.events.codec.encoding import Undecodable, decode
from fallow.shared.events.decisions import BEFORE_HEADER, CHAIN_HEADER, SIGNATURE_HEADER, Decision, next_chain
from fallow.shared.events.effects import OF_WORKERS, AnyEffect, JobEnqueued, JobStarted
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import DEVICES_MAX, WorkerRange
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.port import RECORD_BYTES_MAX, Headers

ENVELOPE_BYTES_MAX: Final = 8_000
"""What key, headers and framing of a decision take at most: a writer's name has at most 500 characters."""

DECISION_BYTES_MAX: Final = RECORD_BYTES_MAX - ENVELOPE_BYTES_MAX
"""The longest value of a record of decisions."""


class UnwritableDecision(Exception):
    """What no input asked for can be written in no record: a rule of ours is broken, and the cell stops."""


Sign = Callable[[str], str]
"""The signature of a chain, by the key of a writer."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A decision whose effects are in the state already, but which is not in the log yet. `before` is the chain that it
    continues.
    """

    decision: Decision
    value: bytes
    chain: str
    before: str

    def headers(self, sign: Sign | None) -> Headers:
        """What the record says beside its value; signed where its writer has a key."""
        chain = (CHAIN_HEADER, self.chain.encode())
        if sign is None:
            return (chain,)
        return (chain, (BEFORE_HEADER, self.before.encode()), (SIGNATURE_HEADER, sign(self.chain).encode()))


class Writer:
    """One writer of one cell. The order of calls is begin, then draft or abandon; after draft, appended or unknown."""

    def __init__(self, state: CellState) -> None:
        self.state = state
        self._mark: int | None = None
        self._draft: Draft | None = None

    def begin(self) -> None:
        """Open the checkpoint under which effects are tried."""
        assert self._mark is None, "a decision is open already"
        self._mark = self.state.checkpoint()

    def abandon(self) -> None:
        """Nothing is worth a record: undo what was tried."""
        assert self._mark is not None, "begin() comes first"
        assert self._draft is None, "what was drafted may be in the log"
        self._undo()

    def discard(self) -> None:
        """The draft was not appended, and will not be: undo what was tried."""
        self._drafted()
        self._undo()

    def draft(
        self,
        effects: list[AnyEffect],
        inputs: dict[str, int],
        at_ms: int,
        checksums: dict[str, int] | None = None,
        specs_read: Collection[int] = frozenset(),
    ) -> Draft | Undecodable:
        """The record of what was tried since begin(), which every reader can read and fold; or why there is none, and
        then what was tried is undone.

        The effects were applied to the state that a reader has before this record, in their order and at its time, and
        none was refused. So a reader that gets equal effects from the bytes comes to the writer's own state.
        `specs_read` is for `readable`.
        """
        assert self._mark is not None, "begin() comes first"
        state = self.state
        decision = Decision(
            cell=state.cell,
            version=state.version + 1,
            epoch=state.epoch,
            inputs=inputs,
            input_checksums=checksums or {},
            at_ms=max(at_ms, state.at_ms),
            effects=tuple(effects),
        )
        value = readable(decision, specs_read)
        if isinstance(value, Undecodable):
            self._undo()
            return value
        self._draft = Draft(decision, value, next_chain(state.chain, value), state.chain)
        return self._draft

    def appended(self, offset: int) -> bool:
        """The log put the record at `offset`. Whether it is in force; if not, fold forward and decide anew. Raises
        DamagedLog where that is no offset behind the state: the log has lost what the state holds of it.
        """
        draft = self._drafted()
        if offset != self.state.offset + 1:
            self._undo()
            if offset <= self.state.offset:
                raise _tail_lost(offset, self.state.offset)
            return False
        assert self._mark is not None
        self.state.commit(self._mark)
        seal(self.state, draft.decision, draft.chain)
        self.state.offset = offset
        self._mark = self._draft = None
        return True

    def unknown(self) -> None:
        """The log did not say what became of the record. Fold forward and look: it may be there."""
        self._drafted()
        self._undo()

    def _drafted(self) -> Draft:
        assert self._draft is not None, "draft() comes first"
        return self._draft

    def _undo(self) -> None:
        assert self._mark is not None
        self.state.rollback(self._mark)
        self._mark = self._draft = None


def _tail_lost(offset: int, read: int) -> DamagedLog:
    error = DamagedLog(
        f"a record was put at offset {offset}, and the log was read to {read} before: it has lost records"
    )
    error.offset = offset
    return error


_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE_EFFECT: Final = msgspec.json.Decoder(AnyEffect).decode
_DECODE_RANGES: Final = msgspec.json.Decoder(tuple[WorkerRange, ...]).decode

_BARE: Final = frozenset(cls for cls in get_args(AnyEffect) if {"job", "attempt"}.issuperset(cls.__struct_fields__))
"""Effects that hold nothing but a job and a count of its attempts, which no reader refuses. They are a third of all."""


def readable(decision: Decision, specs_read: Collection[int] = frozenset()) -> bytes | Undecodable:
    """The bytes of a decision as every reader will decode them; or which value breaks which rule of theirs.

    Most effects say little, or what was read within the same bounds: of these the few numbers are compared. All others
    are encoded and decoded one by one, which takes half as long as decoding the whole record, to the same end.
    `specs_read` are the specifications, by identity, that were read and stand here unchanged.
    """
    written = decision.as_written()
    try:
        value = _ENCODE(written)
        doubtful = [
            effect
            for effect in written.effects
            if type(effect) not in _BARE and not is_within_bounds(effect, specs_read)
        ]
        parts = [_ENCODE(_of_first_range(each) if type(each) in OF_WORKERS else each) for each in doubtful]
        ranges = [_ENCODE(each.ranges) for each in doubtful if type(each) in OF_WORKERS and each.ranges]  # type: ignore[union-attr]
    except (OverflowError, UnicodeEncodeError) as error:
        return Undecodable(DeadLetterReason.INVALID, f"cannot be encoded: {error}")
    if len(value) > DECISION_BYTES_MAX:
        rule = f"{len(decision.effects)} effects in one record, which takes {DECISION_BYTES_MAX} bytes"
        return Undecodable(DeadLetterReason.TOO_LARGE, rule, "effects", f"{len(value)} bytes")
    try:
        for part in parts:
            _DECODE_EFFECT(part)
        for told in ranges:
            _DECODE_RANGES(told)
        read = decode(Decision.type, _ENCODE(replace(decision, effects=())))
    except msgspec.DecodeError:
        read = decode(Decision.type, value)  # it tells which effect and which of its fields
        assert isinstance(read, Undecodable), "no reader takes whole what it does not take in parts"
    return read if isinstance(read, Undecodable) else value


def _of_first_range(effect: AnyEffect) -> AnyEffect:
    """The effect with its first range alone, if it has several: the ranges are read by themselves, since to make all
    workers of them takes ten times as long.
    """
    if len(effect.ranges) < 2:  # type: ignore[union-attr]  # noqa: PLR2004
        return effect
    first = copy(effect)
    force_setattr(first, "ranges", effect.ranges[:1])  # type: ignore[union-attr]
    return first


def is_within_bounds(effect: AnyEffect, specs_read: Collection[int] = frozenset()) -> bool:
    """Whether an effect of the most frequent kinds certainly holds no number that a reader refuses. False says nothing:
    then it is to be decoded. That each field has the type of its annotation is mypy's to prove.
    """
    kind = type(effect)
    if kind is JobEnqueued:
        return id(effect.spec) in specs_read and 0 <= effect.submit_ms <= LATEST_MS  # type: ignore[union-attr]
    if kind is JobStarted:
        return _is_small(effect)  # type: ignore[arg-type]
    return kind in _BARE


def _is_small(started: JobStarted) -> bool:
    """Whether a start of one worker is within the bounds."""
    if len(started.workers) != 1 or started.backfilled_over or not 1 <= started.attempt <= LARGEST_INTEGER:
        return False
    (place,) = started.workers
    devices = place.devices
    return (
        0 <= place.gpu_milli <= LARGEST_INTEGER
        and 0 <= place.cpu_milli <= LARGEST_INTEGER
        and 0 <= place.memory_mib <= LARGEST_INTEGER
        and place.rank == place.turn == place.since_ms == 0
        and (not devices or (min(devices) >= 0 and max(devices) < DEVICES_MAX))
    )
