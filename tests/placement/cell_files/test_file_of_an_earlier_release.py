"""A cell file that an earlier release put in force is read on, whatever it names that a file is refused for now."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from fallow.cli.cell.reload_answer import obstacle
from fallow.local.joining import other_file
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.model.config import CellFile, CellPart
from fallow.shared.cluster.model.file_in_force import (
    as_effect,
    digest_of,
    from_effect,
    part_in_force,
    queue_in_force,
    waiting_limits_in_force,
)
from fallow.shared.cluster.quota.rules import QUOTAS_MAX
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.effects import CellFileSet, PolicySet
from fallow.shared.events.operations import DAY_MS, CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.validation.rules_told import rule_of
from fallow.shared.log.keys.ed25519 import verify
from fallow.shared.log.keys.signers import keys_only_in_force
from fallow.shared.log.machine.signatures import keys_of
from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file, parse_cell_file
from tests.cli.usage.test_commands import call
from tests.placement.cell_files.test_file_in_force import standby, take_over
from tests.placement.worlds.world import CELL, World, kinds
from tests.signing import NEXT, WRITERS

Bounds = dict[str, tuple[int, int]]


def _bounds() -> Bounds:
    """The least and the most of each number of a policy that a reader of the log takes."""
    info = msgspec.inspect.type_info(CellPolicy)
    assert isinstance(info, msgspec.inspect.StructType)
    return {
        field.name: (field.type.ge or 0, min(field.type.le or LARGEST_INTEGER, LARGEST_INTEGER))
        for field in info.fields
        if isinstance(field.type, msgspec.inspect.IntType)
    }


BOUNDS = _bounds()


def _policies() -> Iterator[dict[str, int]]:
    for name, (least, most) in BOUNDS.items():
        yield from ({name: least}, {name: most}, {name: most - 1})
    for each in range(2):
        yield {name: bounds[each] for name, bounds in BOUNDS.items()}
    yield {"node_lease_wall_ms": 10_000}
    yield {"node_lease_wall_ms": 10_000, "lease_margin_wall_ms": 5_001}


POLICIES = tuple(_policies())

QUEUE = {"name": "batch", "discipline": "strict-fifo", "aging_ms": 60_000}


def content_with(policy: dict[str, int], *, key: str = "", pools: Sequence[str] = ("train",)) -> dict[str, Any]:
    """A cell file in plain tables, with nothing by its default but what it does not name."""
    cell: dict[str, Any] = {
        "name": CELL,
        "ordinal": 0,
        "pools": [{"name": name, "gpus": 16} for name in pools],
        "queues": [QUEUE],
        "policy": policy,
    }
    if key:
        cell["signing"] = {"from_version": 1, "keys": [{"public": key}]}
    return {"cells": [cell], "tenants": [{"name": "acme", "max_pending_jobs": 3}, {"name": "birch"}]}


def in_log(file: dict[str, Any]) -> CellFileSet:
    """The file as an earlier release wrote it."""
    content = json.dumps(file, separators=(",", ":"), sort_keys=True)
    return CellFileSet(digest=digest_of(content), content=content)


def part_of(key: str) -> CellPart:
    return CellFile.model_validate(content_with({}, key=key)).cell(CELL)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_readers_go_by_a_file_that_an_earlier_release_put_in_force(policy: dict[str, int]) -> None:
    effect = in_log(content_with(policy, key=WRITERS.public))
    queue = queue_in_force(effect, CELL, "batch")
    assert (queue.discipline, queue.aging_ms) == (QueueDiscipline.STRICT_FIFO, 60_000)
    limits = waiting_limits_in_force(effect)
    assert limits is not None
    assert limits.of("acme", 100) == 3
    own = keys_of(part_of(NEXT.public), verify)
    found = keys_only_in_force(effect, own, CELL)
    assert found is not None
    assert [key.public for key in found.keys] == [WRITERS.public]
    part = part_in_force(effect, part_of(NEXT.public))
    assert part.policy == CellPolicy(**policy)  # type: ignore[arg-type]  # numbers alone
    read = from_effect(effect)
    assert read.cell(CELL) == part
    assert from_effect(as_effect(read)) == read


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_corrected_file_is_put_in_force_by_a_process_that_starts_with_it(policy: dict[str, int]) -> None:
    before = in_log(content_with(policy))
    world, corrected = World(OLD), CellFile.model_validate(content_with({}, pools=("train", "late")))
    world.written_by_another(before)
    assert other_file(world.state, corrected, "f") is not None
    assert obstacle(corrected, world.state) == ""
    begun = standby(world, corrected)
    assert "CellFileSet" in kinds(take_over(world, begun))
    assert begun.take_contradiction() == ""
    assert world.state.cell_file == as_effect(corrected)


def test_a_restart_with_a_corrected_file_leaves_the_setting_and_a_reload_sets_it_anew() -> None:
    """As docs/quota.md says."""
    world, corrected = World(OLD), CellFile.model_validate(content_with({"stop_grace_wall_ms": 20_000}))
    policy, file = CellPolicy(stop_grace_wall_ms=2 * DAY_MS), content_with({"stop_grace_wall_ms": 2 * DAY_MS})
    world.written_by_another(PolicySet(policy=policy), in_log(file))
    world.service = standby(world, corrected)
    world.regain()
    assert world.state.cell_file == as_effect(corrected)
    assert world.state.policy.stop_grace_wall_ms == 2 * DAY_MS
    world.service.reload(corrected)
    world.rest()
    assert world.state.policy.stop_grace_wall_ms == 20_000


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_who_has_an_older_copy_takes_over_with_the_file_in_force(policy: dict[str, int]) -> None:
    world = World(OLD)
    late = standby(world, OLD)
    world.written_by_another(in_log(content_with(policy, pools=("train", "late"))))
    assert "CellFileSet" not in kinds(take_over(world, late))
    assert "is older and differs in" in late.take_contradiction()
    assert decides_by(late).cell(CELL).policy == CellPolicy(**policy)  # type: ignore[arg-type]  # numbers alone


OLD = CellFile.model_validate(content_with({}))


def decides_by(service: PlacementService) -> CellFile:
    """What it decides by, which it does not tell."""
    return service._file


def crowded() -> dict[str, Any]:
    """A file of more quotas than a cell takes now: each tenant of a hundred inherits those of the one above all."""
    quotas = [{"gpu_type": f"g{number}", "guaranteed": 20} for number in range(QUOTAS_MAX // 100)]
    below = [{"name": f"t{number}", "parent": "acme"} for number in range(100)]
    return content_with({}) | {"tenants": [{"name": "acme", "quotas": quotas}, *below]}


def test_a_file_of_more_quotas_than_a_cell_takes_now_is_read_on_and_refused_from_outside() -> None:
    file = crowded()
    read = from_effect(in_log(file))
    assert len(read.quotas()) == QUOTAS_MAX // 100 * 101
    with pytest.raises(CellFileError, match=f"a cell takes at most {QUOTAS_MAX}"):
        parse_cell_file(json.dumps(file), "cell.yaml")


def is_within(policy: dict[str, int]) -> bool:
    """Whether a file with this policy is taken: judged by the bounds in test_policy_bounds."""
    try:
        CellFile.model_validate(content_with(policy))
    except ValueError:
        return False
    return True


WRONG = tuple(policy for policy in POLICIES if not is_within(policy))


@pytest.mark.parametrize("policy", WRONG, ids=str)
def test_the_same_file_on_disk_is_refused_with_field_value_and_rule(policy: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text(json.dumps(content_with(policy)))
    with pytest.raises(CellFileError) as caught:
        load_cell_file(path)
    lines = str(caught.value).splitlines()
    told = [line for line in lines if "cells[0].policy." in line]
    assert told
    for line in told:
        setting, _, rest = line.partition("cells[0].policy.")[2].partition(" = ")
        value, _, rule = rest.partition(": must be at ")
        assert value.replace("_", "") == str(policy.get(setting, 10_000)), line
        assert rule.startswith(("most", "least")), line


def test_no_command_takes_the_file_that_the_log_is_read_with(tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text(json.dumps(content_with({"node_lease_wall_ms": 10_000})))
    told = "cells[0].policy.lease_margin_wall_ms = 10000: must be at most half of node_lease_wall_ms, which is 10000"
    for command in (("cell", "check", str(path)), ("--cell-file", str(path), "up", "--data", str(tmp_path / "data"))):
        done = call(*command)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cells": [{"margin_ms": 1}]}, "cells[0].policy: 'margin_ms' is no setting of a policy"),
        (
            {"cells": [{"fair_half_life_ms": 2**53 - 1}]},
            "cells[0].policy.fair_half_life_ms = 9007199254740991: must be at most 7776000000",
        ),
        (
            {"cells": [{"stop_grace_wall_ms": "5s"}]},
            "cells[0].policy.stop_grace_wall_ms = '5s': must be a whole number",
        ),
        ({"tenants": [], "limits": {"bound": 1}}, "tenants: must have at least 1 item; and 1 more"),
        ({"tenants": [{"name": "a", "parent": "a"}]}, "tenants.a.parent: the parents form a cycle"),
    ],
    ids=lambda each: "" if isinstance(each, str) else next(iter(each)),
)
def test_a_file_that_cannot_be_read_here_is_told_in_one_line(changed: dict[str, Any], told: str) -> None:
    world, file = World(OLD), content_with({})
    policies = changed.pop("cells", None)
    if policies:
        file["cells"][0]["policy"] = policies[0]
    world.written_by_another(in_log(file | changed))
    late = standby(world, OLD)
    assert "CellFileSet" not in kinds(take_over(world, late))
    notice = late.take_contradiction()
    assert told in notice
    assert "\n" not in notice
    assert "pydantic" not in notice


def test_of_a_long_name_of_no_setting_the_begin_is_told_and_its_length() -> None:
    with pytest.raises(ValueError, match="is no setting of a policy") as caught:
        from_effect(in_log(content_with({"z" * 190_000: 1})))
    assert str(caught.value) == f"cells[0].policy: '{'z' * 96}... of 190,000 characters is no setting of a policy"


def test_a_file_that_cannot_be_read_is_looked_at_once_and_one_of_its_mistakes_is_worded() -> None:
    effect, own = in_log(content_with({}) | {"tenants": [{}] * 2_000}), part_of(NEXT.public)
    for times in (1, 0):
        with calls_counted() as calls:
            assert (part_in_force(effect, own), waiting_limits_in_force(effect)) == (own, None)
        assert calls[rule_of.__qualname__] == times
    with pytest.raises(ValueError, match=r"^tenants\[0\]\.name: is missing; and 1999 more$"):
        from_effect(effect)


@contextmanager
def calls_counted() -> Iterator[Counter[str]]:
    """How often each function is called meanwhile, by its name."""
    calls = Counter[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        calls[frame.f_code.co_qualname] += event == "call"

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_a_file_in_force_without_the_cell_is_told_so() -> None:
    world = World(OLD)
    file = content_with({})
    file["cells"][0]["name"] = "other"
    world.written_by_another(in_log(file))
    late = standby(world, OLD)
    take_over(world, late)
    assert f"(cells: none of them is {CELL})" in late.take_contradiction()
