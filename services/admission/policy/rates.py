"""How many submissions and updates a tenant may send: a token bucket for each tenant that has a limit, and another one,
ten times as large, for its cancels: a tenant over its limit can still end its jobs.

A bucket holds up to `burst` tokens and gains `per_s` of them a second; each one that is admitted takes one, and an
array takes one for each of its elements. One with more elements than the bucket holds takes a full bucket into debt.
Time is
that of the records, as the broker stamped them: so a batch that is handled twice is judged alike, and what piled up
while admission was away is not taken for a flood. Tokens are counted in millionths, so that no fraction is lost.

A tenant's records lie in several partitions, and of a backlog one is read far ahead of another. So a bucket keeps its
course: one that comes behind later ones takes its token at its own time, if that leaves enough for the later ones.

Several admissions share a tenant's limit by the partitions that each of them owns, since a job's id leads it to any of
them alike.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from services.admission.policy.resolve import Rejection
from shared.cluster.config import CellFile, SubmissionRate
from shared.events.reasons import RejectCode

TOKEN = 1_000_000
SECOND_MS = 1_000

STEPS_MOST = 16_384
"""So many steps of a course are kept: what is older than all of them counts as of the oldest."""

LOOKED_AT_MOST = 1_000
"""So many steps behind a late one are looked at, and pay for it."""


CANCELS_PER_SUBMISSION = 10


@dataclass(frozen=True, slots=True)
class Wish:
    """So many millionths of tokens, and the level that they may bring a bucket down to: below 0 for an array only."""

    tokens: int
    floor: int


@dataclass(slots=True)
class Course:
    """A bucket's levels in millionths of tokens, each as of a time in milliseconds, the oldest first, and how much was
    taken in each of these steps.
    """

    times_ms: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    is_cut: bool = False
    """Whether older steps were dropped."""

    def copy(self) -> Course:
        """One of its own."""
        return Course(self.times_ms[:], self.levels[:], self.taken[:], self.is_cut)

    def level_at(self, at_ms: int, most: int, gain: int) -> int:
        """The level at a time behind which nothing is known."""
        return min(most, self.levels[-1] + (at_ms - self.times_ms[-1]) * gain) if self.levels else most

    def go_on(self, at_ms: int, level: int, taken: int, step_ms: int) -> None:
        """This is the level now that so much was taken. What lies within one step is one."""
        if self.times_ms and at_ms // step_ms == self.times_ms[-1] // step_ms:
            self.times_ms[-1], self.levels[-1] = at_ms, level
            self.taken[-1] += taken
            return
        self.times_ms.append(at_ms)
        self.levels.append(level)
        self.taken.append(taken)
        if len(self.levels) > STEPS_MOST:
            older = slice(STEPS_MOST // 2)
            del self.times_ms[older], self.levels[older], self.taken[older]
            self.is_cut = True

    def take_late(self, at_ms: int, wish: Wish, most: int, gain: int, step_ms: int) -> bool:
        """Take tokens at a time that is past. False, and nothing taken, where they were not there, or were used
        since.
        """
        times_ms, levels = self.times_ms, self.levels
        place = bisect_left(times_ms, at_ms // step_ms * step_ms)
        is_known = place < len(times_ms) and (times_ms[place] // step_ms == at_ms // step_ms)
        if not is_known and not (self.is_cut and place == 0):
            since_ms = at_ms - times_ms[place - 1] if place else 0
            before = min(most, levels[place - 1] + since_ms * gain) if place else most
            times_ms.insert(place, at_ms)
            levels.insert(place, before)
            self.taken.insert(place, 0)
        paid = self._paid(place, wish, gain)
        for number, level in enumerate(paid):
            levels[place + number] = level
        self.taken[place] += wish.tokens if paid else 0
        return bool(paid)

    def _paid(self, place: int, wish: Wish, gain: int) -> list[int]:
        """The levels from this place on once this is taken there, as far as they change; none if one had too little.
        What a full bucket could not take up makes good for it.
        """
        times_ms, levels, paid, less = self.times_ms, self.levels, list[int](), wish.tokens
        for number in range(place, min(len(levels), place + LOOKED_AT_MOST)):
            if number > place:
                gained = (times_ms[number] - times_ms[number - 1]) * gain
                less -= max(0, levels[number - 1] + gained - self.taken[number] - levels[number])
            if less <= 0:
                break
            if levels[number] - less < wish.floor:
                return []
            paid.append(levels[number] - less)
        return paid


BucketName = tuple[str, bool]
"""A tenant, and whether it is the bucket of its cancels."""

Kept = dict[BucketName, Course | None]
"""The courses as they were, of buckets whose course has changed since. None: there was none."""


class SubmissionRates:
    """The buckets of one process. What it decides depends on the records and their order alone."""

    def __init__(self, file: CellFile) -> None:
        self._limits = _limits_of(file)
        self._courses: dict[BucketName, Course] = {}
        self._kept: Kept = {}
        self._owned, self._partitions = 1, 1

    def reload(self, file: CellFile) -> None:
        """Limits that stay keep their levels."""
        self._limits = _limits_of(file)
        self._courses = {name: course for name, course in self._courses.items() if name[0] in self._limits}

    def share(self, owned: int, partitions: int) -> None:
        """This process owns so many of so many partitions."""
        self._owned, self._partitions = max(1, min(owned, partitions)), max(1, partitions)

    def keep(self) -> Kept:
        """The courses as they are from now on, for a batch that may have to be handled again."""
        self._kept = {}
        return self._kept

    def back(self, kept: Kept) -> None:
        """Come back to what was kept last."""
        for name, course in kept.items():
            self._courses.pop(name, None)
            if course is not None:
                self._courses[name] = course
        self._kept = {}

    def refusal(
        self, tenant: str, at_ms: int, tokens: int = 1, *, taken: int = 0, are_cancels: bool = False
    ) -> Rejection | None:
        """Why a command of this time (milliseconds, as the broker stamped it) is one too many, or None: then it has
        taken its tokens. `taken` are those that the same command took before.
        """
        limit = self._limits.get(tenant)
        if limit is None:
            return None
        if are_cancels:
            limit = _for_cancels(limit)
        course = self._course((tenant, are_cancels))
        most = max(TOKEN, limit.at_once * TOKEN * self._owned // self._partitions)
        gain, step_ms = self._gain(limit), _step_ms(limit)
        wish = Wish(tokens * TOKEN, min(0, most - (taken + tokens) * TOKEN))
        if course.times_ms and at_ms < course.times_ms[-1]:
            if course.take_late(at_ms, wish, most, gain, step_ms):
                return None
            level = min(most, course.levels[-1])
        else:
            level = course.level_at(at_ms, most, gain)
            is_taken = level - wish.tokens >= wish.floor
            less = wish.tokens if is_taken else 0
            course.go_on(at_ms, level - less, less, step_ms)
            if is_taken:
                return None
        wait_ms = max(0, -(-(min(most, (taken + tokens) * TOKEN) - level) // gain))
        rule = _rule(limit, taken + tokens, wait_ms, are_cancels=are_cancels)
        wanted = limit.at_once + taken + tokens
        return Rejection(RejectCode.TOO_MANY_SUBMISSIONS, "tenant", tenant, rule, wanted, limit.at_once)

    @property
    def has_any(self) -> bool:
        """Whether the commands of any tenant are counted."""
        return bool(self._limits)

    def _course(self, name: BucketName) -> Course:
        """This bucket, to be changed."""
        course = self._courses.get(name)
        if name not in self._kept:
            self._kept[name] = None if course is None else course.copy()
        if course is None:
            course = self._courses[name] = Course()
        return course

    def _gain(self, limit: SubmissionRate) -> int:
        """Millionths of tokens a millisecond."""
        return max(1, limit.per_s * (TOKEN // SECOND_MS) * self._owned // self._partitions)


def _for_cancels(limit: SubmissionRate) -> SubmissionRate:
    per_s, burst = limit.per_s * CANCELS_PER_SUBMISSION, limit.at_once * CANCELS_PER_SUBMISSION
    return limit.model_copy(update={"per_s": per_s, "burst": burst})


def _rule(limit: SubmissionRate, tokens: int, wait_ms: int, *, are_cancels: bool) -> str:
    verb = "cancel" if are_cancels else "submit or update"
    rule = f"a tenant may {verb} {limit.per_s} a second and {limit.at_once} at once"
    array = f", and an array counts as its {tokens} elements" if tokens > 1 else ""
    return f"{rule}{array}; try again in {wait_ms} ms"


def _step_ms(limit: SubmissionRate) -> int:
    """What comes within so long counts as of one time: a bucket gains little of what it holds meanwhile."""
    return max(1, min(SECOND_MS, limit.at_once * SECOND_MS // (4 * limit.per_s)))


def _limits_of(file: CellFile) -> dict[str, SubmissionRate]:
    return {tenant.name: tenant.submissions for tenant in file.tenants if tenant.submissions is not None}
