"""What an operator wishes for quotas, from options or from a file, in the language of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.output.when import DURATION_RULE, duration_of
from fallow.shared.cluster.model.config import CellFile, TenantQuota
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.base import Name
from fallow.shared.events.codec.encoding import shorten, written
from fallow.shared.events.fields.value import plain
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota
from fallow.shared.events.validation.rules_told import is_shown, rule_broken
from fallow.shared.near import meant
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file
from fallow.shared.runtime.files.yaml_text import YamlTextError, field_name, read_yaml

NONE = "none"

GPUS_DIGITS_MAX = len(str(2**53 // GPU)) - 1
"""Every number of so many digits can be counted in thousandths."""


class NamedQuota(TenantQuota):
    """A row of a file of quotas: those of the cell file, with their tenant, and another parent than the file's."""

    tenant: Name
    parent: Name | None = None


def changed_fields(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a quota that the options name, in the units of the log; ends the command where one is not valid.

    Options that were not given are None. `none` in words takes a limit, a time or the parent away.
    """
    found = {name: value for name, value in options.items() if value is not None}
    for name in ("guaranteed", "limit", "borrow_limit", "lend_limit"):
        if name in found:
            found[f"{name}_milli"] = _milli(name, found.pop(name))
    if "min_run" in found:
        found["min_run_ms"] = _duration(found.pop("min_run"))
    if found.get("parent") == NONE:
        found["parent"] = None
    return found


def _milli(name: str, text: str) -> int | None:
    if text == NONE and name != "guaranteed":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= GPUS_DIGITS_MAX):
        or_none = "" if name == "guaranteed" else f", or {NONE}"
        _refuse(name, text, f"must be a number of GPUs of up to {GPUS_DIGITS_MAX} digits{or_none}")
    return int(text) * GPU


def _duration(text: str) -> int | None:
    if text == NONE:
        return None
    found_ms = duration_of(text)
    if found_ms is None:
        _refuse("min_run", text, f"must be {DURATION_RULE}, or {NONE}")
    return found_ms


def _refuse(name: str, text: str, rule: str) -> None:
    end_with(Exit.USAGE, f"fallow: --{name.replace('_', '-')} = {shorten(repr(text))}: {rule}")


def read_quotas(path: Path, file: CellFile) -> list[dict[str, Any]]:
    """The quotas of a file; ends the command where it holds none, or one that is not valid. A row without a parent
    keeps that of the cell file.
    """
    try:
        data = read_yaml(read_text_file(path, may_be_pipe=True))
    except (TextFileError, YamlTextError) as error:
        end_with(Exit.USAGE, f"fallow: {path}: {error}")
    rows = data.get("quotas") if isinstance(data, dict) and set(data) == {"quotas"} else data
    if not isinstance(rows, list) or not rows:
        rule = f"must hold a list of quotas, or one under the key `quotas` (got {written(data)})"
        end_with(Exit.USAGE, f"fallow: {path}: {rule}")
    parents = {tenant.name: tenant.parent for tenant in file.tenants}
    quotas = [_quota(path, number, row, parents) for number, row in enumerate(rows)]
    _are_once(path, quotas)
    return [plain(quota) for quota in quotas]


def _are_once(path: Path, quotas: list[Quota]) -> None:
    """Ends the command where a tenant has two rows for one GPU type: which row is meant cannot be told."""
    seen: dict[Account, int] = {}
    for number, quota in enumerate(quotas):
        first = seen.setdefault((quota.tenant, quota.gpu_type), number)
        if first != number:
            rule = f"tenant {quota.tenant} has a row for GPU type {quota.gpu_type} in quotas[{first}] already"
            end_with(Exit.USAGE, f"fallow: {path}: quotas[{number}]: {rule}")


def _unknown(field: str) -> str:
    known = list(NamedQuota.model_fields)
    return f"unknown field{meant(field, known)}; there are {', '.join(known)}"


def _quota(path: Path, number: int, row: Any, parents: dict[str, str | None]) -> Quota:
    try:
        named = NamedQuota.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        rule = rule_broken(first) if first["type"] != "extra_forbidden" else _unknown(str(first["loc"][-1]))
        shown = f" = {written(first['input'])}" if is_shown(first["type"], first["input"]) else ""
        at = field_name(("quotas", number, *first["loc"]))
        end_with(Exit.USAGE, f"fallow: {path}: {at}{shown}: {rule}")
    is_told = "parent" in named.model_fields_set
    return named.in_milli(named.tenant, named.parent if is_told else parents.get(named.tenant))
