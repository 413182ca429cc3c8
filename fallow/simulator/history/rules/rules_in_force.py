"""Quotas and policies are those that a cell file names or an operator has set: nobody else makes any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fallow.shared.events import effects as e
from fallow.shared.events.operations import Operation, Quota, SetPolicy, SetQuota
from fallow.shared.events.values import GPU
from fallow.simulator.history.books import Books
from fallow.simulator.history.evidence import Violation

File = Mapping[str, Any]
_IN_GPUS = ("guaranteed", "limit", "borrow_limit", "lend_limit")
_AS_THEY_ARE = ("weight", "lends", "borrows", "reclaim", "min_run_ms")


class RulesInForce:
    """What may be set in a cell: by which files it has ever gone, and what operators have asked for."""

    def __init__(self, books: Books, files: Sequence[File], operations: Sequence[Operation]) -> None:
        self._books = books
        self._quotas = [quotas_in(file) for file in files]
        self._policies = [policy_in(file, books.cell) for file in files]
        self._set_quotas = [
            (quota, each.fields) for each in operations if isinstance(each, SetQuota) for quota in each.quotas
        ]
        self._set_policies = [each for each in operations if isinstance(each, SetPolicy)]
        self.found: list[Violation] = []

    def before(self) -> Mapping[type, Callable[[Any], None]]:
        """What to call before an effect of these kinds comes into the books."""
        return {e.QuotaSet: self._quota_set, e.PolicySet: self._policy_set}

    def _quota_set(self, effect: e.QuotaSet) -> None:
        quota = effect.quota
        account = (quota.tenant, quota.gpu_type)
        wanted = _fields(quota)
        named = [file.get(account) for file in self._quotas]
        before = self._books.quotas.get(account)
        known = [each for each in named if each is not None]
        # One that contradicts others is set without its guarantee, and where it would close a circle where it stood.
        known += [{**each, "guaranteed_milli": 0} for each in known]
        known += [{**each, "guaranteed_milli": 0, "parent": before.parent if before else None} for each in known]
        # One of a tenant that goes guarantees nothing any more.
        known += [{**_fields(before), "guaranteed_milli": 0}] if before is not None and None in named else []
        is_of_file = wanted in known
        # Where a file has none, one that says nothing means the same.
        is_of_file = is_of_file or (None in named and wanted == _fields(Quota(
            tenant=quota.tenant, gpu_type=quota.gpu_type, parent=quota.parent)))  # fmt: skip
        if not is_of_file and not any(_is_set(quota, each, fields) for each, fields in self._set_quotas):
            self._say(f"the quota {wanted} stands in no cell file, and no operator has set it")

    def _policy_set(self, effect: e.PolicySet) -> None:
        now = {name: getattr(effect.policy, name) for name in effect.policy.__struct_fields__}
        before = {name: getattr(self._books.policy, name) for name in now}
        if any(all(now.get(name) == value for name, value in each.items()) for each in self._policies if each):
            return
        for each in self._set_policies:
            wanted = {name: getattr(each.policy, name) for name in each.fields or now}
            if now == {**before, **wanted}:
                return
        self._say(f"the policy {now} stands in no cell file, and no operator has set it")

    def _say(self, text: str) -> None:
        self.found.append(Violation("I4", text, f"{self._books.cell}, version {self._books.version}"))


def _fields(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in quota.__struct_fields__}


def _is_set(quota: Quota, asked: Quota, fields: Sequence[str]) -> bool:
    if (quota.tenant, quota.gpu_type) != (asked.tenant, asked.gpu_type):
        return False
    return all(getattr(quota, name) == getattr(asked, name, None) for name in fields or quota.__struct_fields__)


def quotas_in(file: File) -> dict[tuple[str, str], dict[str, Any]]:
    """Each tenant's quotas by this file, below its parent's limits also where it names none of a type."""
    tenants = {tenant["name"]: tenant for tenant in file["tenants"]}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, tenant in tenants.items():
        above: str | None = name
        while above is not None:
            for quota in tenants[above].get("quotas", ()):
                kind = quota.get("gpu_type", "gpu")
                said = quota if above == name else {}
                found.setdefault((name, kind), _in_milli(name, kind, tenant.get("parent"), said))
            above = tenants[above].get("parent")
    return found


def _in_milli(tenant: str, kind: str, parent: str | None, said: Mapping[str, Any]) -> dict[str, Any]:
    fields = _fields(Quota(tenant=tenant, gpu_type=kind, parent=parent))
    for name in _IN_GPUS:
        if said.get(name) is not None:
            fields[f"{name}_milli"] = said[name] * GPU
    return {**fields, **{name: said[name] for name in _AS_THEY_ARE if name in said}}


def policy_in(file: File, cell: str) -> dict[str, Any]:
    """What this file says of the policy of the cell."""
    parts = [part for part in file["cells"] if part["name"] == cell]
    return dict(parts[0].get("policy") or {}) if parts else {}
