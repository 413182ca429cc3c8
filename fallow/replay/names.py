"""Names from foreign traces, made to satisfy the rules for names here: the same trace gives the same names again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME_CHARS_MAX = 63
JOB_ID_CHARS_MAX = 128
_NOT_IN_NAME = re.compile(r"[^a-z0-9-]+")
_NOT_IN_ID = re.compile(r"[^a-z0-9._-]+")
_END_OF_ELEMENTS = re.compile(r"\.([0-9]+)$")
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9._/-]+")


@dataclass(slots=True)
class Namer:
    """Gives each foreign name one of ours. Two that would become equal get numbers, in the order in which they came."""

    illegal: re.Pattern[str]
    chars_max: int
    empty: str
    given: dict[str, str] = field(default_factory=dict)
    taken: dict[str, None] = field(default_factory=dict)
    are_jobs: bool = False
    """Whether no name may end in a dot and a number: the cell names the elements of arrays so, and no other job."""
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    """The lowest number of so many digits that may be free behind a beginning, or one of more digits."""

    def name(self, foreign: str) -> str:
        """Our name for this foreign one; the same for the same."""
        known = self.given.get(foreign)
        return known if known is not None else self.fresh(foreign)

    def fresh(self, foreign: str) -> str:
        """A name for this foreign one that nothing has yet, not even the same foreign name before."""
        plain = self.illegal.sub("-", foreign.lower())[: self.chars_max].strip("._/-") or self.empty
        plain = _END_OF_ELEMENTS.sub(r"-\1", plain) if self.are_jobs else plain
        ours = self._numbered(plain) if plain in self.taken else plain
        self.taken[ours] = None
        self.given.setdefault(foreign, ours)
        return ours

    def _numbered(self, plain: str) -> str:
        """The name with the first number from 2 on that nothing has; no number is tried twice behind one beginning."""
        number = 2
        while True:
            digits = len(str(number))
            stem = plain[: self.chars_max - digits - 1]
            number = self.next.get((stem, digits), number)
            if len(str(number)) == digits:
                self.next[stem, digits] = number + 1
                ours = f"{stem}-{number}"
                if ours not in self.taken:
                    return ours
                number += 1


def tenant_names(empty: str = "default") -> Namer:
    """For tenants and pools."""
    return Namer(_NOT_IN_NAME, NAME_CHARS_MAX, empty)


def job_ids() -> Namer:
    """For jobs."""
    return Namer(_NOT_IN_ID, JOB_ID_CHARS_MAX, "job", are_jobs=True)


def node_ids() -> Namer:
    """For nodes."""
    return Namer(_NOT_IN_ID, JOB_ID_CHARS_MAX, "node")


def label(foreign: str) -> str:
    """A GPU type; types that differ only in what is not allowed become one."""
    return _NOT_IN_LABEL.sub("-", foreign)[:JOB_ID_CHARS_MAX].strip("._/-")
