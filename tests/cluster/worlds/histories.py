"""Legal histories of a cell, made up from a seed by asking the state what may come next.

`Historian(seed).decide()` makes one decision, applies it as a writer would, and keeps the record that a reader gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, TypeVar

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import LogRecord, fold, seal
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.decisions import Decision, next_chain
from tests.cluster.worlds.moves import MOVES

T = TypeVar("T")

CELL = "cell-a"


class Historian:
    """One cell under a writer that does anything that is legal."""

    def __init__(self, chance: int | Random, kinds: dict[str, int] | None = None) -> None:
        """`chance`: a seed, or what is drawn from; that of a property shrinks."""
        self.random = chance if isinstance(chance, Random) else Random(chance)
        self.state = CellState(CELL)
        self.records: list[LogRecord] = []
        self.kinds = {} if kinds is None else kinds
        self.numbers = 0

    def decide(self, moves_max: int = 6) -> LogRecord:
        """One more decision of the history."""
        state, at_ms = self.state, self.state.at_ms + self.random.randrange(8_000)
        made: list[Any] = []
        for _ in range(self.random.randint(1, moves_max)):
            made += self.move(at_ms)
        record = extending(state, made, at_ms=at_ms, offset=state.offset + self.random.randint(1, 2))
        assert isinstance(record.decision, Decision)
        seal(state, record.decision, record.chain)
        state.offset = record.offset
        self.records.append(record)
        return record

    def move(self, at_ms: int) -> list[Any]:
        """A few effects that may follow now, already applied."""
        move = self.random.choices(list(MOVES), list(MOVES.values()))[0]
        made = move(self, at_ms)
        for effect in made:
            apply(self.state, effect, at_ms)
            kind = type(effect).__name__
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        return made

    def name(self, what: str) -> str:
        """A name not used before, in no order: nodes must not arrive sorted."""
        self.numbers += 1
        return f"{what}-{self.random.randrange(1000):03d}-{self.numbers}"

    def job_in(self, *statuses: JobStatus) -> Job | None:
        """Any job in one of these states."""
        return self.one_of([job for job in self.state.jobs.values() if job.status in statuses])

    def one_of(self, found: Iterable[T]) -> T | None:
        """Any of these, or None where there are none."""
        every = list(found)
        return self.random.choice(every) if every else None


def history(chance: int | Random, decisions: int) -> Historian:
    """A history of so many decisions."""
    historian = Historian(chance)
    for _ in range(decisions):
        historian.decide()
    return historian


def extending(state: CellState, effects: Iterable[Any], *, at_ms: int | None = None, offset: int = -1) -> LogRecord:
    """The record that extends a state by these effects."""
    read = state.inputs.get("nodes-0", 0) + 3
    decision = Decision(
        cell=state.cell,
        version=state.version + 1,
        epoch=state.epoch,
        inputs={"nodes-0": read},
        input_checksums={"nodes-0": read * 7_919} if read % 2 else {},
        at_ms=state.at_ms if at_ms is None else at_ms,
        effects=tuple(effects),
    )
    return record_of(decision, state.chain, state.offset + 1 if offset < 0 else offset)


def record_of(decision: Decision, chain: str, offset: int) -> LogRecord:
    """A decision as a reader of the log gets it: decoded from its bytes."""
    value = encode(decision)
    read = decode(Decision.type, value)
    assert read == decision
    return LogRecord(offset, value, next_chain(chain, value), decision)


def folded(records: Iterable[LogRecord], state: CellState | None = None) -> CellState:
    """The state behind these records."""
    state = CellState(CELL) if state is None else state
    for record in records:
        fold(state, record)
    return state
