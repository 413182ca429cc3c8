"""Reads a cell's decision log as a stranger would and looks for the first thing in it that must not be.

Each record: its offset follows, its version and chain continue. Each decision: I1 to I4 and LEASE by a ledger that
shares no arithmetic with the fold, then the fold's own rules. Every thousand versions and at the end: a recount from
nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fallow.shared.cluster.checks.audit import ledger_of
from fallow.shared.cluster.checks.invariants import Offence, check_state
from fallow.shared.cluster.checks.run_journal import orders_behind
from fallow.shared.cluster.fold.fold import DamagedLog, LogRecord, Verdict, fold, judge
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision, next_chain
from fallow.shared.log.machine.signatures import CellKeys
from fallow.shared.log.port import Record
from fallow.shared.log.reading import log_record

RECOUNT_VERSIONS = 1_000
CHAINS_KEPT = 100_000
"""So many versions back a stale record's chain is known: no writer can be staler than that and still write."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first offence. `offset` is None if it was not found in the log; `invariant` is a word of docs/checks.md."""

    offset: int | None
    version: int
    invariant: str
    text: str


@dataclass(frozen=True, slots=True)
class NotCompared:
    """The runs of a cell that no diary was held against: those that were ordered by a version, since the log is there
    only from that one on. `lines` of the diaries are, or may be, about them.
    """

    cell: str
    until_version: int
    lines: int


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found. The fields are the keys of the JSON object, see docs/checks.md."""

    ok: bool
    from_version: int
    to_version: int
    records: int
    skipped: int
    checks: int
    first_violation: Violation | None
    forged: int = 0
    gaps: int = 0
    gaps_at_end: int = 0
    nodes_not_checked: tuple[str, ...] | None = None
    runs_not_checked: tuple[NotCompared, ...] | None = None
    view_behind: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        told = asdict(self)
        for name in ("nodes_not_checked", "runs_not_checked", "view_behind"):
            if told[name] is None:
                del told[name]
        return told


class LogCheck:
    """The check of one cell's log, record by record, from an empty cell or from a snapshot's state.

    `state` is the fold so far, `ledger` what the effects alone say; `orders` what the log told the nodes from there on,
    behind `from_version`. `keys` are the cell's, as the cell file of the checker has them; what they do not
    prove is counted as `forged`, and is no offence: every reader passes it over. `gaps` are offsets without a record,
    which the ends of transactions leave, and records that were taken back. Those behind the last decision are none of
    them but `gaps_at_end`: no later decision tells that none is missing there.
    """

    def __init__(self, state: CellState, keys: CellKeys | None = None) -> None:
        self.state, self._keys = state, keys
        self.forged = self.gaps = self._gaps_since = self._gaps_behind = 0
        self.orders = orders_behind(state)
        self.records = 0
        self.checks = 0
        self.from_version = state.version
        self.violation: Violation | None = None
        self.nodes_not_checked: tuple[str, ...] | None = None  # None: no diaries were given
        self.runs_not_checked: tuple[NotCompared, ...] | None = None  # None: no diaries, or all runs are known
        self.view_behind: int | None = None  # None: there is no view, or it was not looked for
        self._last: Record | None = None
        self._skipped_before = state.skipped
        self.ledger = ledger_of(state)
        self._recounted = state.version
        self._chains = {state.version: state.chain}

    def take(self, record: Record) -> Violation | None:
        """Check the next record and fold it. After an offence nothing more is taken."""
        if self.violation is None:
            self.records += 1
            self._last, self._gaps_behind = record, 0
            self.violation = self._offset_follows(record) or self._take(record)
        return self.violation

    def pass_over(self) -> bool:
        """Forget the offence, so that what follows can be checked too; whether that is possible.

        The last record is folded in spite of it where the fold's own rules let it. Where they do not, the state behind
        it is not known, and nothing that follows can be judged.
        """
        version = self.state.version
        if self._last is not None:
            try:
                fold(self.state, log_record(self._last, self._keys))
            except DamagedLog:
                return False
        if self.state.version > version:
            self._nothing_is_missing()
        self.violation = None
        self.ledger = ledger_of(self.state)
        self._chains[self.state.version] = self.state.chain
        return True

    @property
    def gaps_at_end(self) -> int:
        """Offsets without a record behind the last decision."""
        return self._gaps_since + self._gaps_behind

    def nothing_until(self, end: int) -> None:
        """Behind what was taken no record stands before `end`, where the log ends as of now."""
        self._gaps_behind = max(0, end - self.state.offset - 1)

    def finish(self, end: int | None = None) -> Violation | None:
        """Check the state as a whole, and that nothing is missing before `end`, where that is known."""
        if self.violation is None and end is not None and self.state.offset + 1 < end:
            text = f"the log should end at offset {end}, and what was read ends at {self.state.offset + 1}"
            self.violation = self._violation("offsets", text)
        if self.violation is None:
            self.violation = self._recount()
        return self.violation

    def result(self) -> Verification:
        """All figures as of now."""
        return Verification(
            ok=self.violation is None,
            from_version=self.from_version,
            to_version=self.state.version,
            records=self.records,
            skipped=self.state.skipped - self._skipped_before,
            checks=self.checks,
            first_violation=self.violation,
            nodes_not_checked=self.nodes_not_checked,
            runs_not_checked=self.runs_not_checked,
            forged=self.forged,
            gaps=self.gaps,
            gaps_at_end=self.gaps_at_end,
            view_behind=self.view_behind,
        )

    def _offset_follows(self, record: Record) -> Violation | None:
        """The log is never compacted, so records follow each other. Whether one is missing where there is none the next
        decision tells, by its version and its chain. Behind the last decision nothing does.
        """
        self.checks += 1
        expected = self.state.offset + 1
        if record.offset < expected:
            text = f"offset {record.offset} stands where {expected} or a later one belongs: records are out of order"
            return Violation(record.offset, self.state.version, "offsets", text)
        self._gaps_since += record.offset - expected
        return None

    def _take(self, record: Record) -> Violation | None:
        entry, state = log_record(record, self._keys), self.state
        try:
            verdict = judge(state, entry)
        except DamagedLog as error:
            return Violation(record.offset, state.version, _what_broke(entry.decision, state), str(error))
        if verdict is Verdict.EXTENDS and isinstance(entry.decision, Decision):
            self.checks += 1
            offence = self.ledger.take(entry.decision)
            if offence is not None:
                return Violation(record.offset, entry.decision.version, offence.invariant, offence.text)
            self.orders.take(entry.decision)
        elif verdict is Verdict.FORGED:
            self.forged += 1
        else:
            violation = self._skipped_is_honest(entry)
            if violation is not None:
                return violation
        try:
            fold(state, entry)
        except DamagedLog as error:
            return Violation(record.offset, state.version + 1, "transitions", str(error))
        if verdict is Verdict.EXTENDS:
            self._nothing_is_missing()
        self._chains[state.version] = state.chain
        self._chains.pop(state.version - CHAINS_KEPT, None)
        return self._recount() if state.version - self._recounted >= RECOUNT_VERSIONS else None

    def _nothing_is_missing(self) -> None:
        """A decision continues the one before it: where no record stands between the two, none was a decision."""
        self.gaps, self._gaps_since = self.gaps + self._gaps_since, 0

    def _skipped_is_honest(self, entry: LogRecord) -> Violation | None:
        """What readers skip was made by an outpaced writer, or has no chain and was never a decision.

        Anything else was a decision once, and its bytes are not what was written.
        """
        decision = entry.decision
        if not entry.chain:
            return None
        if isinstance(decision, Decision) and decision.cell == self.state.cell:
            base = self._chains.get(decision.version - 1)
            if base is None or entry.chain == next_chain(base, entry.value):
                return None
            text = f"offset {entry.offset}: a stale record of version {decision.version} is not as it was written"
        else:
            what = f"is of cell {decision.cell}" if isinstance(decision, Decision) else f"cannot be read ({decision})"
            text = f"offset {entry.offset}: a record with a chain {what} and does not continue the chain"
        return Violation(entry.offset, self.state.version, "chain", text)

    def _recount(self) -> Violation | None:
        self.checks += 1
        self._recounted = self.state.version
        offences: list[Offence] = check_state(self.state)
        offence = offences[0] if offences else self.ledger.compare(self.state)
        return None if offence is None else self._violation(offence.invariant, offence.text)

    def _violation(self, invariant: str, text: str) -> Violation:
        return Violation(self.state.offset, self.state.version, invariant, text)


def _what_broke(decision: Any, state: CellState) -> str:
    is_gap = isinstance(decision, Decision) and decision.version > state.version + 1
    return "versions" if is_gap else "chain"
