"""Keeps the number of metric series bounded: the first tenants get names of their own, the rest share one."""

from __future__ import annotations

OTHERS = "_others"
"""No name of a tenant."""


class TenantLabels:
    """Names for at most `most` tenants."""

    def __init__(self, most: int = 200) -> None:
        self._max = most
        self._known: dict[str, None] = {}

    def label(self, tenant: str) -> str:
        """The name under which this tenant is counted, the same each time."""
        if tenant in self._known or tenant == OTHERS:
            return tenant
        if len(self._known) >= self._max:
            return OTHERS
        self._known[tenant] = None
        return tenant
