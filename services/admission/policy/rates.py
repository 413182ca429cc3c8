"""How many submissions and updates a tenant may send: a token bucket for each tenant that has a limit.

A bucket holds up to `burst` tokens and gains `per_s` of them a second; each one that is admitted takes one. Time is
that of the records, as the broker stamped them: so a batch that is handled twice is judged alike, and what piled up
while admission was away is not taken for a flood. Tokens are counted in millionths, so that no fraction is lost.

Several admissions share a tenant's limit by the partitions that each of them owns, since a job's id leads it to any of
them alike.
"""

from __future__ import annotations

from services.admission.policy.resolve import Rejection
from shared.cluster.config import CellFile, SubmissionRate
from shared.events.reasons import RejectCode

TOKEN = 1_000_000
SECOND_MS = 1_000

Level = tuple[int, int]
"""Millionths of tokens, and the time in milliseconds at which they were counted."""

Kept = dict[str, Level]


class SubmissionRates:
    """The buckets of one process. What it decides depends on the records and their order alone."""

    def __init__(self, file: CellFile) -> None:
        self._limits = _limits_of(file)
        self._levels: Kept = {}
        self._owned, self._partitions = 1, 1

    def reload(self, file: CellFile) -> None:
        """Limits that stay keep their levels."""
        self._limits = _limits_of(file)
        self._levels = {tenant: level for tenant, level in self._levels.items() if tenant in self._limits}

    def share(self, owned: int, partitions: int) -> None:
        """This process owns so many of so many partitions."""
        self._owned, self._partitions = max(1, min(owned, partitions)), max(1, partitions)

    def keep(self) -> Kept:
        """The levels as they are, for a batch that may have to be handled again."""
        return dict(self._levels)

    def back(self, kept: Kept) -> None:
        """Come back to levels that were kept."""
        self._levels = kept

    def refusal(self, tenant: str, at_ms: int) -> Rejection | None:
        """Why a submission or an update of this time (milliseconds, as the broker stamped it) is one too many, or None:
        then it has taken its token.
        """
        limit = self._limits.get(tenant)
        if limit is None:
            return None
        level, now_ms = self._level(tenant, limit, at_ms)
        if level >= TOKEN:
            self._levels[tenant] = (level - TOKEN, now_ms)
            return None
        self._levels[tenant] = (level, now_ms)
        wait_ms = -(-(TOKEN - level) // self._gain(limit))
        most = f"{limit.per_s} a second and {limit.at_once} at once"
        rule = f"a tenant may submit or update {most}; try again in {wait_ms} ms"
        return Rejection(RejectCode.TOO_MANY_SUBMISSIONS, "tenant", tenant, rule, limit.at_once + 1, limit.at_once)

    def _level(self, tenant: str, limit: SubmissionRate, at_ms: int) -> Level:
        """The bucket as it is now. Records of several partitions come in no order: time only goes forward."""
        most = max(TOKEN, limit.at_once * TOKEN * self._owned // self._partitions)
        known = self._levels.get(tenant)
        if known is None:
            return most, at_ms
        level, then_ms = known
        if at_ms <= then_ms:
            return min(level, most), then_ms
        return min(most, level + (at_ms - then_ms) * self._gain(limit)), at_ms

    def _gain(self, limit: SubmissionRate) -> int:
        """Millionths of tokens a millisecond."""
        return max(1, limit.per_s * (TOKEN // SECOND_MS) * self._owned // self._partitions)


def _limits_of(file: CellFile) -> dict[str, SubmissionRate]:
    return {tenant.name: tenant.submissions for tenant in file.tenants if tenant.submissions is not None}
