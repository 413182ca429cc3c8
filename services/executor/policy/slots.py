"""Which slots one executor process looks after, and how it comes by one: a state machine without I/O.

A slot that is ours by the group is taken over in three steps. The log is folded to where it ended when we heard of it,
so that the nodes wait for no read. Then its reign is taken: from there on no other process writes into its diaries.
Then the log is folded once more, to where it ends now: the one before us may have begun what was decided up to that
moment, and what a diary tells can be judged only by a process that has read as much as its writer.
"""

from __future__ import annotations

from typing import NamedTuple

FENCED_PAUSE_MS = 1_000
"""How long a slot is left alone after its reign was found to belong to another process."""


class Share(NamedTuple):
    """What a new share of the slots means: those to let go of at once, and those that are to come."""

    lost: list[int]
    new: list[int]


class Claim(NamedTuple):
    """A slot whose reign is ours already: its numbers begin at `seq`, and the log is to be folded to `end`."""

    seq: int
    end: int


class Slots:
    """The slots of one cell in one process. `held` are those that are looked after."""

    def __init__(self) -> None:
        self.held: dict[int, None] = {}
        self._assigned: frozenset[int] = frozenset()
        self._coming: dict[int, tuple[int, int]] = {}
        self._claims: dict[int, Claim] = {}

    def assign(self, owned: frozenset[int], with_nodes: list[int]) -> Share:
        """These slots should be ours now; `with_nodes` are those that matter."""
        self._assigned = owned
        lost = [slot for slot in (*self.held, *self._claims) if slot not in owned]
        self._let_go(lost)
        self._coming = {slot: due for slot, due in self._coming.items() if slot in owned}
        self._claims = {slot: claim for slot, claim in self._claims.items() if slot in owned}
        known = (self.held, self._coming, self._claims)
        return Share(lost, [s for s in with_nodes if s in owned and not any(s in part for part in known)])

    def come(self, slots: list[int], end: int) -> None:
        """The log ended at `end` after these were heard of: once it is folded to there, their reigns can be taken."""
        self._coming.update({slot: (end, 0) for slot in slots if slot in self._assigned})

    def cut(self, end: int) -> None:
        """The log ends at `end` now: where that is less than is waited for, it has lost the rest, and no slot waits for
        what is never read.
        """
        self._coming = {slot: (min(known, end), due) for slot, (known, due) in self._coming.items()}
        self._claims = {slot: Claim(claim.seq, min(claim.end, end)) for slot, claim in self._claims.items()}

    def to_claim(self, next_offset: int, now_ms: int) -> list[int]:
        """The slots whose reign is to be taken now. Each is answered by `claimed`, or asked for again."""
        return [slot for slot, (end, due_ms) in self._coming.items() if end <= next_offset and due_ms <= now_ms]

    def claimed(self, slot: int, seq: int, end: int) -> bool:
        """The slot's reign is ours, with this number, and behind that the log ended at `end`. Whether it still counts:
        the slot may belong to another process meanwhile.
        """
        if self._coming.pop(slot, None) is None:
            return False
        self._claims[slot] = Claim(seq, end)
        return True

    def to_adopt(self, next_offset: int) -> dict[int, int]:
        """The slots that are held from now on, and the number above which their nodes' words begin."""
        found = {slot: claim.seq for slot, claim in self._claims.items() if claim.end <= next_offset}
        for slot in found:
            del self._claims[slot]
            self.held[slot] = None
        return found

    def fenced(self, slots: list[int], now_ms: int) -> list[int]:
        """The reigns of these slots belong to other processes. Returns those of them that were held. They are asked for
        again later.

        `now_ms` is monotonic.
        """
        lost = [slot for slot in slots if slot in self.held]
        self._let_go(lost)
        again = (0, now_ms + FENCED_PAUSE_MS)
        self._coming.update({slot: again for slot in lost if slot in self._assigned})
        return lost

    def put_off(self) -> list[int]:
        """None is looked after until further notice: those that were held. They are on their way to us again."""
        lost = list(self.held)
        self._let_go(lost)
        self._coming.update(dict.fromkeys(lost, (0, 0)))
        return lost

    def next_claim_ms(self) -> int | None:
        """When (monotonic) the next slot may be asked for, if one waits for its time."""
        return min((due_ms for _, due_ms in self._coming.values() if due_ms), default=None)

    @property
    def is_coming(self) -> bool:
        """Whether a slot is on its way to us."""
        return bool(self._coming or self._claims)

    def _let_go(self, slots: list[int]) -> None:
        for slot in slots:
            self.held.pop(slot, None)
