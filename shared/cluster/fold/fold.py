"""The fold: every reader's one way from a record of the decision log to the next state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fallow.shared.cluster.fold.apply import APPLY
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import OfAnotherRelease, Undecodable
from fallow.shared.events.decisions import Decision, next_chain

BY_ANOTHER_RELEASE = (
    "it was written by another release: a reader of that release is needed, or a cell on new topics "
    '(docs/operations.md, "Upgrade it")'
)
"""What a person is told to do where the log of a cell cannot be read for that."""


class DamagedLog(Exception):
    """The log is not what its writer wrote: every reader stops here and the cell is fenced until a person looks.

    `offset` is that of the record at which it shows, where that is known.
    """

    offset: int | None = None


class OtherRelease(DamagedLog):
    """The log is that of another release, which this one cannot read."""


class BehindForged(DamagedLog):
    """A record does not continue what is known, and right before it stand some that no key proved here. Where one of
    those keys was only missing, the log is whole: who reads it afresh, with that key, finds out.
    """


class Verdict(StrEnum):
    """What a record is to a state."""

    EXTENDS = "extends"
    STALE = "stale"
    FOREIGN = "foreign"
    FORGED = "forged"


@dataclass(slots=True, frozen=True)
class LogRecord:
    """A record of the decision log as received: its bytes, its chain header, and what they decode to.

    `unproven_from`: as a decision of this version or a later one it is forged, since no key of the cell proves it. None
    where one does, or the cell has no keys.
    """

    offset: int
    value: bytes
    chain: str
    decision: Decision | Undecodable
    unproven_from: int | None = None

    def is_forged(self, version: int) -> bool:
        """Whether no writer of the cell made it, judged by a state of this version. What cannot be read counts as the
        next decision.
        """
        if self.unproven_from is None:
            return False
        decision = self.decision
        return (decision.version if isinstance(decision, Decision) else version + 1) >= self.unproven_from


def judge(state: CellState, record: LogRecord) -> Verdict:
    """Whether the record extends the state. Raises DamagedLog on what no honest history can hold.

    A record of a version that is over was written by a writer that did not know the newest state: it is skipped by all.
    So is one that cannot be read at all and does not continue the chain: no writer of this cell made it; and, in a cell
    with keys, each one that none of them proves. So a user who may write the topic cannot stop the cell by it.
    """
    decision = record.decision
    if record.is_forged(state.version):
        return Verdict.FORGED
    if isinstance(decision, Undecodable):
        if record.chain == next_chain(state.chain, record.value) or _begins_otherwise(state, decision):
            raise OtherRelease(
                f"offset {record.offset}: a record of this cell's writer cannot be read ({decision}); "
                f"{BY_ANOTHER_RELEASE}"
            )
        return Verdict.FOREIGN
    if decision.cell != state.cell:
        return Verdict.FOREIGN
    if decision.version <= state.version:
        return Verdict.STALE
    if decision.version > state.version + 1:
        raise DamagedLog(
            f"offset {record.offset}: version {decision.version} follows {state.version}: records are missing"
        )
    if record.chain != next_chain(state.chain, record.value):
        raise DamagedLog(f"offset {record.offset}: version {decision.version} does not continue the chain")
    return Verdict.EXTENDS


def _begins_otherwise(state: CellState, decision: Undecodable) -> bool:
    """Whether this is how the log begins, and was written by another release: that of a cell that was moved here
    continues the chain of a snapshot, which cannot be read either.
    """
    return state.version == 0 and isinstance(decision, OfAnotherRelease)


def fold(state: CellState, record: LogRecord) -> CellState:
    """The state behind a record: the same object, changed; unchanged but for its offset if the record does not extend
    it.

    Raises DamagedLog, also when an effect of the record is illegal; the state is then as before. So does a record at
    the state's own offset that is none of its past: what stood there before is lost.
    """
    if record.offset < state.offset:
        return state
    try:
        if record.offset == state.offset:
            if not record.is_forged(state.version):
                _is_of_the_past(state, record.decision)
            return state
        verdict = judge(state, record)
        if verdict is Verdict.EXTENDS:
            assert isinstance(record.decision, Decision)
            extend(state, record.decision, record.chain)
        else:
            state.skipped += 1
    except DamagedLog as error:
        error.offset = record.offset
        raise
    state.offset = record.offset
    return state


def _is_of_the_past(state: CellState, decision: Decision | Undecodable) -> None:
    if isinstance(decision, Decision) and decision.cell == state.cell and decision.version > state.version:
        raise DamagedLog(
            f"offset {state.offset}: version {decision.version} stands where version {state.version} or an older one "
            "was: the log has lost records"
        )


def extend(state: CellState, decision: Decision, chain: str) -> None:
    """Apply a decision that extends the state, whole or not at all. Raises DamagedLog with the rule that it breaks."""
    mark, at_ms = state.checkpoint(), decision.at_ms
    try:
        _goes_forward(state, decision)
        for effect in decision.effects:
            APPLY[type(effect)](state, effect, at_ms)
    except IllegalEffect as error:
        state.rollback(mark)
        raise DamagedLog(f"version {decision.version}: {error}") from error
    except Exception:
        state.rollback(mark)  # a defect of this reader must not leave half a record either
        raise
    state.commit(mark)
    seal(state, decision, chain)


def seal(state: CellState, decision: Decision, chain: str) -> None:
    """Move the state's own numbers behind a decision whose effects are in it already."""
    state.version = decision.version
    state.chain = chain
    state.at_ms = decision.at_ms
    _read_to(state, decision)
    state.undo_log.trim()
    half_life_ms = state.policy.fair_half_life_ms
    if half_life_ms or state.fair.half_life_ms:
        state.fair.follow(half_life_ms, state.usage, decision.at_ms)


def _read_to(state: CellState, decision: Decision) -> None:
    """Note how far the inputs were read; a position without a checksum has none."""
    state.inputs.update(decision.inputs)
    state.input_checksums.update(decision.input_checksums)
    if len(decision.input_checksums) < len(decision.inputs):
        for source in decision.inputs:
            if source not in decision.input_checksums:
                state.input_checksums.pop(source, None)


def _goes_forward(state: CellState, decision: Decision) -> None:
    if decision.at_ms < state.at_ms:
        raise IllegalEffect(f"cell time goes back from {state.at_ms} to {decision.at_ms}")
    for source, offset in decision.inputs.items():
        if offset < state.inputs.get(source, 0):
            raise IllegalEffect(f"input {source} goes back from {state.inputs[source]} to {offset}")
