"""How long a tenant's job may run before another tenant takes back what it borrows."""

from __future__ import annotations

from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.cluster.quota.tree import Quotas


def min_run_ms(quotas: Quotas, preemptor: str, victim: str, gpu_type: str) -> int:
    """The minimum run time that protects the victim's jobs from the preemptor's: that of the victim's line just below
    where the two lines part, or of the next one above that names one; 0 if none does.

    So it is a rule between the two branches that meet there, and not what the victim says of itself. Within one tenant
    its own holds.
    """
    above = dict.fromkeys(accounts(quotas, preemptor, gpu_type))
    line = accounts(quotas, victim, gpu_type)
    own = [at for at, account in enumerate(line) if account not in above]
    for account in line[own[-1] if own else 0 :]:
        quota = quotas.get(account)
        if quota is not None and quota.min_run_ms is not None:
            return quota.min_run_ms
    return 0
