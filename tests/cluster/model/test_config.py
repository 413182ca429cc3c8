"""The cell file as a value: what it refuses, and the quotas that it gives."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError

from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from tests.cluster.worlds.histories import CELL, extending

FILE: dict[str, Any] = {
    "cells": [
        {
            "name": "cell-a",
            "ordinal": 0,
            "pools": [
                {"name": "train", "gpus": 512, "gpu_type": "h100"},
                {"name": "serve", "gpus": 64, "role": "inference"},
            ],
            "queues": [{"name": "main", "discipline": "strict-fifo"}, {"name": "side"}],
            "policy": {"node_lease_wall_ms": 50_000},
        },
        {"name": "cell-b", "ordinal": 1, "pools": [{"name": "far", "gpus": 8}]},
    ],
    "tenants": [
        {"name": "ada", "parent": "lab", "pools": ["train"], "queue": "main"},
        {"name": "lab", "parent": "firm", "quotas": [{"gpu_type": "h100", "guaranteed": 8, "limit": 16}]},
        {"name": "firm", "quotas": [{"gpu_type": "h100", "limit": 64}, {"gpu_type": "gpu", "limit": 8}]},
        {"name": "bob"},
    ],
}


def file_with(path: str, value: Any) -> dict[str, Any]:
    """The file with another value at a path such as `cells.0.name`."""
    changed = deepcopy(FILE)
    part: Any = changed
    *steps, last = path.split(".")
    for step in steps:
        part = part[int(step)] if step.isdigit() else part[step]
    part[int(last) if last.isdigit() else last] = value
    return changed


def test_a_cell_file_is_one_frozen_value() -> None:
    file = CellFile.model_validate(FILE)
    assert file.cell("cell-a").queues[0].discipline is QueueDiscipline.STRICT_FIFO
    assert file.cell("cell-a").policy == CellPolicy(node_lease_wall_ms=50_000)
    assert file.cell("cell-b").queues[0].name == "default"
    with pytest.raises(ValidationError, match="frozen"):
        file.limits = file.limits  # type: ignore[misc] # that is the point


def test_a_cell_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="cell-c"):
        CellFile.model_validate(FILE).cell("cell-c")


# Where the mistake stands, what stands there, and words of the message.
MISTAKES: dict[str, tuple[str, Any, str]] = {
    "no cells": ("cells", [], "at least 1 item"),
    "no tenants": ("tenants", [], "at least 1 item"),
    "no pools": ("cells.0.pools", [], "at least 1 item"),
    "no queues": ("cells.0.queues", [], "at least 1 item"),
    "a misspelt key": ("cells.0.ordinl", 3, "Extra inputs are not permitted"),
    "a lease too short to look at": ("cells.0.policy.node_lease_wall_ms", 999, "must be at least 1000"),
    "a misspelt key of the policy": ("cells.0.policy.lease_wal_ms", 3, "'lease_wal_ms' is no setting of a policy"),
    "a misspelt key of a quota": ("tenants.1.quotas.0.guarantee", 3, "Extra inputs are not permitted"),
    "a name that is none": ("cells.0.name", "Cell A", "should match pattern"),
    "two cells of one name": ("cells.1.name", "cell-a", "cell 'cell-a' stands twice"),
    "two cells of one ordinal": ("cells.1.ordinal", 0, "ordinal '0' stands twice"),
    "a negative ordinal": ("cells.1.ordinal", -1, "greater than or equal to 0"),
    "an ordinal that is true": ("cells.1.ordinal", True, "valid integer"),
    "an ordinal in quotes": ("cells.1.ordinal", "1", "valid integer"),
    "one pool in two cells": ("cells.1.pools.0.name", "train", "pool 'train' stands twice"),
    "one pool twice in a cell": ("cells.0.pools.1.name", "train", "pool 'train' stands twice"),
    "one queue twice": ("cells.0.queues.1.name", "main", "queue 'main' stands twice"),
    "a pool without GPUs": ("cells.0.pools.0.gpus", 0, "greater than or equal to 1"),
    "half a GPU": ("cells.0.pools.0.gpus", 1.5, "valid integer"),
    "a role that is none": ("cells.0.pools.0.role", "batch", "'training' or 'inference'"),
    "a discipline that is none": ("cells.0.queues.0.discipline", "lifo", "'best-effort-fifo' or 'backfill'"),
    "two tenants of one name": ("tenants.3.name", "ada", "tenant 'ada' stands twice"),
    "a pool that no cell has": ("tenants.0.pools", ["near"], r"tenants.ada.pools: 'near' is not defined"),
    "a queue that no cell has": ("tenants.0.queue", "vip", r"tenants.ada.queue: 'vip' is not defined"),
    "a parent that is no tenant": ("tenants.0.parent", "moon", r"tenants.ada.parent: 'moon' is not defined"),
    "its own parent": ("tenants.3.parent", "bob", r"tenants.bob.parent: the parents form a cycle"),
    "parents in a circle": ("tenants.2.parent", "ada", "the parents form a cycle"),
    "two quotas of one type": (
        "tenants.2.quotas.1.gpu_type",
        "h100",
        "GPU type of tenants.firm.quotas 'h100' stands twice",
    ),
    "a limit below the guarantee": ("tenants.1.quotas.0.limit", 7, "limit 7 is below guaranteed 8"),
    "a job of no workers": ("limits", {"workers_per_job": 0}, "greater than or equal to 1"),
    "a limit beyond the log": (
        "tenants.1.quotas.0.limit",
        10**13,
        "less than or equal to 9007199254740",
    ),
    "a pool beyond what the log can count": ("cells.0.pools.0.gpus", 10**13, "less than or equal to 9007199254740"),
    "a policy time beyond all": (
        "cells.0.policy.start_timeout_wall_ms",
        2**53,
        "less than or equal to 86400000",
    ),
    "a policy time of nothing": ("cells.0.policy.node_lease_wall_ms", 0, "greater than or equal to 1"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_cell_file_refuses(what: str) -> None:
    path, value, message = MISTAKES[what]
    with pytest.raises(ValidationError, match=message):
        CellFile.model_validate(file_with(path, value))


def test_quotas_come_parents_first_in_milli_gpus() -> None:
    quotas = CellFile.model_validate(FILE).quotas()
    assert [(quota.tenant, quota.gpu_type, quota.guaranteed_milli, quota.limit_milli) for quota in quotas] == [
        ("firm", "h100", 0, 64_000),
        ("firm", "gpu", 0, 8_000),
        ("lab", "h100", 8_000, 16_000),
        ("lab", "gpu", 0, None),
        ("ada", "h100", 0, None),
        ("ada", "gpu", 0, None),
    ]


def test_the_limits_of_ancestors_bind_a_tenant_without_a_quota_of_its_own() -> None:
    parents = {(quota.tenant, quota.gpu_type): quota.parent for quota in CellFile.model_validate(FILE).quotas()}
    assert parents["ada", "gpu"] == "lab"
    assert parents["lab", "gpu"] == "firm"


def test_the_log_takes_the_quotas_in_their_order() -> None:
    effects = [e.QuotaSet(quota=quota) for quota in CellFile.model_validate(FILE).quotas()]
    state = CellState(CELL)
    assert len(fold(state, extending(state, effects)).quotas) == len(effects)
