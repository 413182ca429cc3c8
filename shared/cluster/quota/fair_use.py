"""What each tenant has used of late, for fair shares: GPU time that counts half after each half-life.

Cell time is cut into ticks of a 64th of the half-life, at the same moments for everybody. At the end of each, what was
used in it is added to what was used before, and all of it multiplied by 2^(-1/64). So what was used of late changes at
these moments alone, and an order by it does. All of it in integers, and counted once for each decision: every reader
that folds the same log comes to the same numbers.

An account counts with all below it in the tree of tenants, as its use does; what a tenant used before it moved stays
with those who were above it then. Nothing is counted, and nothing costs, where the policy has no `fair_half_life_ms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt
from typing import Final, NamedTuple

from fallow.shared.cluster.quota.quota import Account, Usage

TICKS = 64
"""Ticks to a half-life."""

BITS = 32
ONE: Final = 1 << BITS


class Used(NamedTuple):
    """Milli-GPU-milliseconds: decayed, up to the tick of cell time `at_ms`, and in this tick so far."""

    milli_ms: int
    tick_milli_ms: int
    at_ms: int


def _root(power: int) -> int:
    """2^(-power/64), with 32 bits behind the point."""
    root = 1 << TICKS * BITS - power
    for _ in range(6):
        root = isqrt(root)
    return root


KEPT: Final = tuple(_root(power) for power in range(TICKS))
"""What is left of one after so many ticks."""

FADED_TICKS: Final = (BITS + 1) * TICKS + 1
"""After so many ticks nothing is left of what was used before, nor comes more to what is held for longer."""

SUM_MAX: Final = (KEPT[1] << BITS) // (ONE - KEPT[1])
"""What a one in each tick adds up to in the end, if each is decayed from the end of its tick on."""


def tick_ms(half_life_ms: int) -> int:
    """How long a tick is."""
    return max(1, half_life_ms // TICKS)


def kept(ticks: int) -> int:
    """What is left of one after so many ticks, with 32 bits behind the point."""
    halves = ticks // TICKS
    return KEPT[ticks % TICKS] >> halves if halves <= BITS else 0


def used_at(used: Used, held_milli: int, now_ms: int, half_life_ms: int) -> Used:
    """This account at a later time, if it held so many milli-GPUs all the time since then."""
    milli_ms, tick_milli_ms, at_ms = used
    tick = tick_ms(half_life_ms)
    ticks = now_ms // tick - at_ms // tick
    if not ticks:
        return Used(milli_ms, tick_milli_ms + held_milli * (now_ms - at_ms), now_ms)
    begun = (milli_ms + tick_milli_ms + held_milli * (tick - at_ms % tick)) * kept(ticks) >> BITS
    whole = held_milli * tick * (SUM_MAX * (ONE - kept(ticks - 1)) >> BITS) >> BITS
    return Used(begun + whole, held_milli * (now_ms % tick), now_ms)


@dataclass(slots=True)
class FairUse:
    """The accounts of one cell. `held` is the use in milli-GPUs that counts from the last decision on."""

    half_life_ms: int = 0
    used: dict[Account, Used] = field(default_factory=dict)
    held: Usage = field(default_factory=dict)
    changed_ms: int = field(default=0, compare=False)
    """When some account last came to hold more or less."""

    def is_settled(self, now_ms: int) -> bool:
        """Whether all ticks after this moment leave every account as it is, while all hold what they hold."""
        if not self.half_life_ms or not self.used:
            return True
        tick = tick_ms(self.half_life_ms)
        return now_ms // tick - self.changed_ms // tick >= FADED_TICKS

    def of(self, account: Account, now_ms: int) -> int:
        """What an account used up to the tick of `now_ms`: milli-GPU-milliseconds, decayed."""
        known = self.used.get(account)
        if known is None:
            return 0
        return used_at(known, self.held.get(account, 0), now_ms, self.half_life_ms).milli_ms

    def begin(self, half_life_ms: int, usage: Usage) -> None:
        """What was read of a snapshot goes on from there."""
        self.half_life_ms = half_life_ms
        self.held = dict(usage) if half_life_ms else {}
        self.changed_ms = max((used.at_ms for used in self.used.values()), default=0)

    def follow(self, half_life_ms: int, usage: Usage, at_ms: int) -> None:
        """A decision is in force: this is the use from `at_ms` on, and the half-life."""
        if half_life_ms != self.half_life_ms:
            self._change_half_life(half_life_ms, at_ms)
        used, held = self.used, self.held
        if not half_life_ms or usage == held:
            return
        self.changed_ms = at_ms
        for account in [each for each, milli in held.items() if usage.get(each) != milli]:
            used[account] = used_at(used[account], held[account], at_ms, half_life_ms)
        more = sum(account not in used for account in usage)
        if more and (len(used) + more).bit_length() > len(used).bit_length():
            self._forget_faded(at_ms)
        for account in usage:
            if account not in used:
                used[account] = Used(0, 0, at_ms)
            elif account not in held:
                used[account] = used_at(used[account], 0, at_ms, half_life_ms)
        self.held = dict(usage)

    def _forget_faded(self, at_ms: int) -> None:
        """Let go of accounts whose use has faded to nothing. They are looked for whenever there are twice as many as
        before, so their number is bounded by those whose use counts.
        """
        for account in [account for account in self.used if account not in self.held]:
            if used_at(self.used[account], 0, at_ms, self.half_life_ms)[:2] == (0, 0):
                del self.used[account]

    def _change_half_life(self, half_life_ms: int, at_ms: int) -> None:
        """Every account keeps its mean use; without a half-life nothing is kept."""
        if not half_life_ms:
            self.used, self.held = {}, {}
        for account, known in self.used.items():
            now = used_at(known, self.held.get(account, 0), at_ms, self.half_life_ms)
            milli_ms = (now.milli_ms + now.tick_milli_ms) * tick_ms(half_life_ms) // tick_ms(self.half_life_ms)
            self.used[account] = Used(milli_ms, 0, at_ms)
        self.half_life_ms, self.changed_ms = half_life_ms, at_ms
