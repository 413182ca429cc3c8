"""The course of a token bucket: what was taken of it and when, so that what is read late takes its tokens at its own
time.

A course is kept in steps, and the older they are, the more time is one step: what lies within one counts as of one
time. So a course of any age has some hundred steps, and all that lie behind a late command are looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter

import msgspec

STEPS_MAX = 512
"""A course of more steps is joined. That leaves fewer than 400 of a year, however dense they were."""

AGE_PER_WIDTH = 8
"""Steps are joined where all of one takes no more than this part of the time that went by since."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many millionths of tokens a bucket holds at most, and gains a millisecond; and what is one step of time."""

    most: int
    gain: int
    step_ms: int


class Step(msgspec.Struct, frozen=True, gc=False):
    """From when to when so many millionths of tokens were taken, the level at the end, and how low that may be: below 0
    where an array took the bucket into debt.
    """

    first_ms: int
    last_ms: int
    taken: int
    level: int
    floor: int


_END_MS = attrgetter("last_ms")


class Course:
    """The steps of one bucket, in the order of time. It was full before the first one."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    def copy(self) -> Course:
        """One of its own."""
        return Course(self._steps[:])

    def level(self, at_ms: int, bucket: Bucket) -> int:
        """The level at this time, or at the end of the course if that is later."""
        return _level(self._steps[-1] if self._steps else None, at_ms, bucket)

    def take(self, at_ms: int, tokens: int, floor: int, bucket: Bucket) -> bool:
        """Take so much at this time. False, and nothing taken, where it brings the level below the floor, then or at
        any time since: what has taken the bucket into debt itself needed no more than one token.
        """
        steps = self._steps
        if steps and at_ms < steps[-1].last_ms:
            is_taken = self._take_late(at_ms, tokens, floor, bucket)
        else:
            is_taken = self._take_now(at_ms, tokens, floor, bucket)
        if len(steps) > STEPS_MAX:
            self._join()
        return is_taken

    def _take_now(self, at_ms: int, tokens: int, floor: int, bucket: Bucket) -> bool:
        steps, level = self._steps, self.level(at_ms, bucket) - tokens
        if level < floor:
            return False
        last = steps[-1] if steps else None
        if last is not None and last.first_ms // bucket.step_ms == at_ms // bucket.step_ms:
            steps[-1] = Step(last.first_ms, at_ms, last.taken + tokens, level, min(last.floor, floor))
        else:
            steps.append(Step(at_ms, at_ms, tokens, level, floor))
        return True

    def _take_late(self, at_ms: int, tokens: int, floor: int, bucket: Bucket) -> bool:
        steps, now = self._steps, at_ms // bucket.step_ms
        place = bisect_left(steps, at_ms, key=_END_MS)
        before = steps[place - 1] if place else None
        if before is not None and before.last_ms // bucket.step_ms == now and steps[place].first_ms > at_ms:
            place -= 1
            before = steps[place - 1] if place else None
        step, is_known = steps[place], steps[place].first_ms // bucket.step_ms <= now
        if is_known:
            # It becomes as long as it takes to hold this time.
            first_ms, last_ms = min(step.first_ms, at_ms), max(step.last_ms, at_ms)
            level, floor_then = _level(step, last_ms, bucket), min(step.floor, floor)
            step = Step(first_ms, last_ms, step.taken + tokens, level, floor_then)
        else:
            step = Step(at_ms, at_ms, tokens, _level(before, at_ms, bucket), floor)
        behind = islice(steps, place + is_known, None)
        changed = _with_less(before, chain([step], behind), tokens, floor, bucket)
        if changed:
            steps[place : place + len(changed) - (not is_known)] = changed
        return bool(changed)

    def _join(self) -> None:
        """Make one of steps that lie close together for their age."""
        now_ms, joined = self._steps[-1].last_ms, self._steps[:1]
        for step in self._steps[1:]:
            first = joined[-1]
            if (step.last_ms - first.first_ms) * AGE_PER_WIDTH <= now_ms - step.last_ms:
                floor = min(first.floor, step.floor)
                joined[-1] = Step(first.first_ms, step.last_ms, first.taken + step.taken, step.level, floor)
            else:
                joined.append(step)
        self._steps[:] = joined


def _level(before: Step | None, at_ms: int, bucket: Bucket) -> int:
    """The level at a time before which this was the last step."""
    if before is None:
        return bucket.most
    return min(bucket.most, before.level + max(0, at_ms - before.last_ms) * bucket.gain)


def _with_less(before: Step | None, steps: Iterable[Step], tokens: int, floor: int, bucket: Bucket) -> list[Step]:
    """These steps once so much more is taken in the first of them, as far as they change; none where a level would come
    below the floor. What a full bucket could not take up makes good for it.
    """
    changed, less = list[Step](), tokens
    for step in steps:
        level = _level(before, step.first_ms, bucket) + (step.last_ms - step.first_ms) * bucket.gain - step.taken
        less = min(less, max(0, step.level - level))
        if less and step.level - less < min(floor, step.floor):
            return []
        before = Step(step.first_ms, step.last_ms, step.taken, step.level - less, step.floor)
        changed.append(before)
        if not less:
            break
    return changed
