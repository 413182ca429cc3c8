"""The tree of quotas as a table and as an object."""

from __future__ import annotations

from typing import Any

from fallow.cli.quota.words import quota_rules
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.summary import QuotaRow, quota_rows
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota

COLUMNS = (
    "TENANT",
    "GPU TYPE",
    ">GUARANTEED",
    ">LIMIT",
    ">IN USE",
    ">BORROWED",
    ">LENT",
    ">AVAILABLE",
    ">WEIGHT",
    "RULES",
)


SPARE = ("WEIGHT", "LENT", "BORROWED")


def table(state: CellState, tenant: str | None = None) -> list[tuple[str, ...]]:
    """The rows of the table, in GPUs; children stand below their parent, two columns to the right. Of a tenant only
    those of it, of the tenants above it and of those below it.
    """
    return [_row(state, row) for row in _rows(state, tenant)]


def _rows(state: CellState, tenant: str | None) -> list[QuotaRow]:
    if tenant is None:
        return quota_rows(state)
    found, path = list[QuotaRow](), list[QuotaRow]()
    for row in quota_rows(state):
        path = [*path[: row.depth], row]
        if row.tenant == tenant:
            found += path
        elif any(above.tenant == tenant for above in path):
            found.append(row)
    return found


def _is_of_file(state: CellState, row: QuotaRow) -> bool | None:
    """Whether the quota is as a cell file has set it; None where there is none. Else a person has set it, or changed
    it, at run time.
    """
    account = (row.tenant, row.gpu_type)
    return state.quotas_of_file.get(account, False) if account in state.quotas else None


def _row(state: CellState, row: QuotaRow) -> tuple[str, ...]:
    quota, at_run_time = row.quota, ["set at run time"] if _is_of_file(state, row) is False else []
    return (
        "  " * row.depth + row.tenant,
        row.gpu_type,
        _gpus(row.guaranteed_milli),
        _gpus_or_none(None if quota is None else quota.limit_milli),
        _gpus(row.used_milli),
        _gpus(row.borrowed_milli),
        _gpus(row.lent_milli),
        _gpus(row.available_milli),
        "" if quota is None else str(quota.weight),
        "" if quota is None else ", ".join(quota_rules(quota) + at_run_time),
    )


def as_object(state: CellState, tenant: str | None = None) -> dict[str, Any]:
    """The quotas for programs, in milli-GPUs."""
    return {
        "cell": state.cell,
        "version": state.version,
        "at_ms": state.at_ms,
        "quotas": [_object(state, row) for row in _rows(state, tenant)],
    }


def _object(state: CellState, row: QuotaRow) -> dict[str, Any]:
    quota = row.quota or Quota(tenant=row.tenant, gpu_type=row.gpu_type)
    return {
        "tenant": row.tenant,
        "gpu_type": row.gpu_type,
        "parent": quota.parent,
        "depth": row.depth,
        "has_quota": row.quota is not None,
        "of_file": _is_of_file(state, row),
        "guaranteed_milli": row.guaranteed_milli,
        "limit_milli": quota.limit_milli,
        "borrow_limit_milli": quota.borrow_limit_milli,
        "lend_limit_milli": quota.lend_limit_milli,
        "weight": quota.weight,
        "lends": quota.lends,
        "borrows": quota.borrows,
        "reclaim": quota.reclaim.value,
        "min_run_ms": quota.min_run_ms,
        "reclaimable": quota.reclaimable,
        "used_milli": row.used_milli,
        "borrowed_milli": row.borrowed_milli,
        "lent_milli": row.lent_milli,
        "available_milli": row.available_milli,
    }


def _gpus(milli: int) -> str:
    return f"{milli / GPU:g}"


def _gpus_or_none(milli: int | None) -> str:
    return "none" if milli is None else _gpus(milli)
