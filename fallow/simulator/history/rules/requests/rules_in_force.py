"""Quotas and policies are those that a cell file names or an operator has set: no other source makes any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Operation, Quota, SetPolicy, SetQuota
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
        self._untold: dict[tuple[str, str], str] = {}
        self.found: list[Violation] = []

    def before(self) -> Mapping[type, Callable[[Any], None]]:
        """What to call before an effect of these kinds comes into the books."""
        return {
            e.QuotaSet: self._quota_set,
            e.PolicySet: self._policy_set,
            e.ProposalRefused: self._told,
            e.CellFileSet: self._file_set,
        }

    def _quota_set(self, effect: e.QuotaSet) -> None:
        quota = effect.quota
        account, wanted = (quota.tenant, quota.gpu_type), _fields(quota)
        named = [file.get(account) for file in self._quotas]
        before = self._books.quotas.get(account)
        self._untold.pop(account, None)
        if not effect.of_file:
            if not any(_is_set(quota, each, fields) for each, fields in self._set_quotas):
                self._say(f"no operator has set the quota {wanted}")
            return
        if wanted in named:
            return
        if None in named and (
            _says_nothing(wanted) or (before and wanted == {**_fields(before), "guaranteed_milli": 0})
        ):
            return  # what a file has not guarantees nothing any more; one that says nothing means the same as none
        text = f"the quota {wanted} stands in no cell file"
        parents = [before.parent] if before else [None]
        if any(each and _is_lesser(wanted, each, parents) for each in named):
            self._untold[account] = text
        else:
            self._say(text)

    def _told(self, effect: e.ProposalRefused) -> None:
        if effect.proposal == "cell-file":
            self._untold.clear()

    def _file_set(self, _: e.CellFileSet) -> None:
        """What contradicts others is not set as its file has it, and that is told before the file is in force."""
        for text in self._untold.values():
            self._say(f"{text}; nothing is told of it")
        self._untold.clear()

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


def _says_nothing(quota: Mapping[str, Any]) -> bool:
    """Whether this quota means the same as none, wherever it stands."""
    none = Quota(tenant=quota["tenant"], gpu_type=quota["gpu_type"], parent=quota["parent"])
    return quota == _fields(none)


def _is_lesser(quota: Mapping[str, Any], of_file: Mapping[str, Any], parents: Sequence[str | None]) -> bool:
    """Whether this is the quota of a file without its guarantee, where the file has it or at one of these parents."""
    is_there = quota["parent"] in (of_file["parent"], *parents)
    return is_there and quota == {**of_file, "guaranteed_milli": 0, "parent": quota["parent"]}


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
