"""One process's time as the writer of a cell, as a state machine without I/O: what an answer to an append means for the
state, and for the decider.

The shell folds to the end of the log first. Then the decider makes a trial under `begin`; it is drafted and appended,
and `answered` tells what became of it. Whatever is not in force is undone, and the shell folds forward and looks before
anything else is tried: the record may be there, and if it is not, another writer's is.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.effects import AnyEffect
from fallow.shared.log.machine.writer import Draft, UnwritableDecision, Writer
from fallow.shared.log.port import AppendAnswer, Appended, AppendRefused, Refusal


class Trial(Protocol):
    """What a decider would write."""

    @property
    def effects(self) -> list[AnyEffect]:
        """Made on the state already, under the checkpoint."""

    @property
    def inputs(self) -> dict[str, int]:
        """How far the inputs are read with it."""

    @property
    def input_checksums(self) -> dict[str, int]:
        """The last record that was read of each of them."""

    @property
    def specs_read(self) -> Collection[int]:
        """The specifications, by identity, that stand in the effects as they were read from the log."""

    @property
    def at_ms(self) -> int:
        """Its cell time."""

    @property
    def fault(self) -> Undecodable | None:
        """Why nothing may be written of it, if that is known already."""


T = TypeVar("T", bound=Trial)
T_contra = TypeVar("T_contra", bound=Trial, contravariant=True)


class Decider(Protocol[T_contra]):
    """A service that makes trials, and has to know what became of them."""

    def accepted(self, tried: T_contra, /) -> None:
        """It is in force."""

    def refused(self, tried: T_contra, /) -> None:
        """It is not, and the state is as before."""

    def unwritable(self, tried: T_contra, why: Undecodable, /) -> bool:
        """No reader could read it, and the state is as before. Whether the next trial will be another one."""

    def too_large(self, tried: T_contra, /) -> bool:
        """Every reader could read it, but its topic does not take it, and the state is as before. Whether the next
        trial will be a smaller one.
        """

    def failed(self, error: Exception, /) -> bool:
        """Its own trial raised this error, and the state is as before. Whether the next trial will be another one."""

    def note(self, effects: tuple[AnyEffect, ...], wall_ms: int, /) -> None:
        """These effects are in force."""


OF_NO_TRIAL = (MemoryError, DamagedLog, UnwritableDecision)
"""Errors that say nothing of what was tried: the machine has too little memory, or a rule of ours is broken."""


class Verdict(StrEnum):
    """What became of a trial. Behind all but the first the shell folds forward and looks."""

    IN_FORCE = "in_force"
    OVERTAKEN = "overtaken"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    TOO_LARGE = "too_large"


class Tenure(Generic[T]):
    """From the moment when the state is folded to the end until the cell belongs to another process."""

    def __init__(self, state: CellState, decider: Decider[T]) -> None:
        self._state, self._decider = state, decider
        self._writer = Writer(state)
        self._epoch: int | None = None

    @property
    def writes(self) -> bool:
        """Whether the log has taken this process's WriterStarted, and no later one."""
        return self._state.epoch == self._epoch

    def begin(self) -> None:
        """A trial begins; it ends with `draft` or `abandon`."""
        self._writer.begin()

    def abandon(self) -> None:
        """Nothing comes of it."""
        self._writer.abandon()

    def discard(self) -> None:
        """The draft was not appended, and will not be: nothing comes of it."""
        self._writer.discard()

    def failed(self, error: Exception) -> None:
        """The trial that `begin` began raised this error: it is undone, and the next trial is another one. Raises the
        error where it cannot be.
        """
        if isinstance(error, OF_NO_TRIAL):
            raise error
        self._writer.abandon()
        if not self._decider.failed(error):
            raise error

    def draft(self, tried: T) -> Draft | Undecodable:
        """The record of what was tried, to be appended once; or why no reader could read it. Then it is undone, the
        decider knows, and the next trial is another one. Raises UnwritableDecision where it cannot be.
        """
        found = tried.fault or self._writer.draft(
            tried.effects, tried.inputs, tried.at_ms, tried.input_checksums, tried.specs_read
        )
        if isinstance(found, Draft):
            return found
        if found is tried.fault:
            self._writer.abandon()
        if not self._decider.unwritable(tried, found):
            raise UnwritableDecision(f"a decision that comes from no input cannot be written: {found}")
        return found

    def answered(self, draft: Draft, tried: T, answer: AppendAnswer, wall_ms: int) -> Verdict:
        """The log has answered, or not: the decider learns what became of its trial."""
        if isinstance(answer, Appended):
            if self._writer.appended(answer.offset):
                self._decider.accepted(tried)
                self._decider.note(draft.decision.effects, wall_ms)
                if self._epoch is None:
                    self._epoch = self._state.epoch
                return Verdict.IN_FORCE
            verdict = Verdict.OVERTAKEN
        else:
            self._writer.unknown()
            if isinstance(answer, AppendRefused) and answer.code is Refusal.TOO_LARGE:
                # The topic takes less than we ask of one: no input is at fault. A smaller trial may pass.
                return Verdict.TOO_LARGE if self._decider.too_large(tried) else Verdict.REFUSED
            verdict = Verdict.REFUSED if isinstance(answer, AppendRefused) else Verdict.UNKNOWN
        self._decider.refused(tried)
        return verdict
