"""Whose turn it is in a queue by shares, where only what is held now counts."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from fallow.shared.events.fields.values import GPU, NodeStatus
from fallow.simulator.history.books import Books

Shares = Mapping[str, Fraction]
"""By tenant, with all below it: the largest part of a GPU type that it holds, over its weight."""


def shares_in(books: Books) -> Shares:
    """The shares of all tenants; none where what was held of late counts, too."""
    if books.policy.fair_half_life_ms:
        return {}
    totals: dict[str, int] = {}
    for node in books.nodes.values():
        if node.status is not NodeStatus.LOST:
            kind = node.spec.gpu_type
            totals[kind] = totals.get(kind, 0) + GPU * (node.spec.gpus - len(node.failed))
    tenants = dict.fromkeys([page.spec.tenant for page in books.jobs.values()] + [name for name, _ in books.quotas])
    return {tenant: _share(books, tenant, totals) for tenant in tenants}


def _share(books: Books, tenant: str, totals: Mapping[str, int]) -> Fraction:
    found = Fraction(0)
    for kind, total in totals.items():
        quota = books.quotas.get((tenant, kind))
        weight = 1 if quota is None else quota.weight
        if total and weight:
            found = max(found, Fraction(books.used_below(tenant, kind), total * weight))
    return found


def comes_first(books: Books, tenant: str, other: str) -> bool:
    """Whether a tenant surely comes before another one now. Never said of tenants one of which stands above the other,
    nor where what was held of late counts.
    """
    own, theirs, shares = _line(books, tenant), _line(books, other), shares_in(books)
    while own and theirs and own[0] == theirs[0]:
        own, theirs = own[1:], theirs[1:]
    if not own or not theirs or own[0] not in shares or theirs[0] not in shares:
        return False
    return shares[own[0]] < shares[theirs[0]]


def _line(books: Books, tenant: str) -> list[str]:
    """The tenant and those above it, from the root down."""
    types = dict.fromkeys(kind for _, kind in books.quotas)
    lines = [books.ancestors(tenant, kind) for kind in types] or [[tenant]]
    return max(lines, key=len)[::-1]
