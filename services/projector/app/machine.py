"""What to do about a cell's view, step by step: a state machine without I/O. The shell acts and tells the answer.

It never trusts what it believes of the view: every change names the cursor that it starts from, and the view refuses it
elsewhere. So a view that lost its tail, was flushed, or is written by two at a time needs no thought of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.services.projector.app.apply import Touched
from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.view.store import Applied, ApplyAnswer, BeginAnswer, Behind, Busy, Further, NotReady, Stands

TOUCHED_MAX = 20_000
"""Beyond so many touched entities a rebuild is as fast, and does not hold Redis up in one long function."""


NO_WHOLE_VIEW = "there is no whole view"
"""Why the view is built where Redis has none: it is the first one, or was flushed, or lost one of its keys."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask where the view stands."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Put the rows of what was touched, from this cursor on."""

    expected: int


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Build the view anew, if it is still the one that was `seen` (None: none that is ready)."""

    seen: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until there is more of the log."""


@dataclass(frozen=True, slots=True)
class LookForEnd:
    """The view is ahead of this reader. Tell where the log ends: beyond it no view can honestly be."""


Step = Ask | Apply | Rebuild | Rest | LookForEnd


@dataclass(slots=True)
class Projection:
    """Keeps one cell's view equal to the fold.

    `known` is the cursor at which the view was seen last, None if that must be asked. `touched` holds every entity that
    changed since the cursor `tracked_from`; None: that is not known, so only a rebuild helps.
    """

    known: int | None = None
    touched: Touched = field(default_factory=Touched)
    tracked_from: int | None = None
    end: int | None = None
    seen_chain: str | None = None
    rebuild: Rebuild | None = None

    @property
    def shown(self) -> int | None:
        """The cursor up to which readers see this cell; None while they see nothing, or that must be asked."""
        return None if self.rebuild is not None else self.known

    def before_fold(self, state: CellState, record: LogRecord) -> None:
        """Take in a record, before it is folded."""
        if state.offset + 1 == self.known:
            self._meet(state)
        decision = record.decision
        if self.tracked_from is None or not isinstance(decision, Decision) or decision.version != state.version + 1:
            return
        self.touched.note(state, decision)
        if len(self.touched) > TOUCHED_MAX:
            self.touched.clear()
            self.tracked_from = None

    @property
    def is_unasked(self) -> bool:
        """Whether nothing is known of the view: the next step asks where it stands and changes nothing."""
        return self.known is None and self.rebuild is None

    def loaded(self) -> None:
        """The state was loaded and not folded: what has changed since the cursor of any view is not known."""
        self.touched.clear()
        self.tracked_from = None

    def look_again(self) -> None:
        """Ask before the next step: a quiet reader is not told that its view was flushed."""
        self.known = None

    def step(self, state: CellState) -> Step:
        """What to do next."""
        cursor = state.offset + 1
        if self.rebuild is not None:
            return self.rebuild
        if self.known is None:
            return Ask()
        if self.known == cursor:
            return self._meet(state)
        if self.known > cursor:
            return self._while_ahead(cursor)
        if self.tracked_from is None or self.tracked_from > self.known:
            return self._must_rebuild(self.known, "what changed since its cursor is not known")
        return Apply(self.known)

    def too_much(self) -> Rebuild:
        """What to do where the rows of what was touched are too long for one step."""
        self.loaded()
        return self._must_rebuild(self.known, "too much changed for one step")

    def stands(self, answer: Stands | NotReady) -> None:
        """The answer to Ask."""
        if isinstance(answer, NotReady):
            self._must_rebuild(None, NO_WHOLE_VIEW)
            return
        self.known, self.seen_chain, self.end = answer.cursor, answer.chain, None

    def log_ends_at(self, end: int) -> None:
        """The answer to LookForEnd."""
        self.end = end

    def applied(self, state: CellState, answer: ApplyAnswer) -> None:
        """The answer to Apply."""
        match answer:
            case Applied():
                self._is_at(state)
            case Further() | Behind():
                self.known, self.seen_chain, self.end = answer.cursor, None, None
            case NotReady():
                self._must_rebuild(None, NO_WHOLE_VIEW)

    def begun(self, answer: BeginAnswer) -> None:
        """The answer to the beginning of a rebuild."""
        if isinstance(answer, Further | Busy):
            self.rebuild = self.known = None

    def rebuilt(self, state: CellState, is_ours: bool) -> None:
        """How the rebuild ended: the view is at the state now, or another projector builds it, or rows were lost."""
        self.rebuild = None
        if is_ours:
            self._is_at(state)
        else:
            self.known = None

    def _is_at(self, state: CellState) -> None:
        self.known = self.tracked_from = state.offset + 1
        self.seen_chain = None
        self.touched.clear()

    def _meet(self, state: CellState) -> Rebuild | Rest:
        """The view is where this state is: nothing is left to put. Its log must be this one, then."""
        if self.seen_chain is not None and self.seen_chain != state.chain:
            return self._must_rebuild(self.known, "it was made of another log")
        self._is_at(state)
        return Rest()

    def _while_ahead(self, cursor: int) -> Step:
        assert self.known is not None, "asked before"
        if self.end is None:
            return LookForEnd()
        if self.known > self.end and cursor >= self.end:
            return self._must_rebuild(self.known, "it is ahead of the log")
        return Rest()

    def _must_rebuild(self, seen: int | None, why: str) -> Rebuild:
        self.rebuild = Rebuild(seen, why)
        return self.rebuild
