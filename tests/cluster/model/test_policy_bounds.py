"""Every number of a policy has a bound, wherever one asks for it; what a log holds is folded all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import Decision, Undecodable, decode, encode
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.effects import PolicySet, ProposalRefused
from fallow.shared.events.fields.value import model_of, replace
from fallow.shared.events.operations import CellPolicy, SetPolicy
from fallow.shared.events.reasons import ProposalCode
from fallow.shared.events.validation.mistakes_told import mistakes_in
from tests.cluster.model.test_config import file_with
from tests.placement.cell_files.test_settings import file_with as file_of
from tests.placement.cell_files.test_settings import refusal
from tests.placement.worlds.world import World, set_policy

NUMBERS = tuple(name for name in CellPolicy.__struct_fields__ if name not in {"placement", "preemption", "estimator"})
SCHEMA: dict[str, dict[str, Any]] = model_of(CellPolicy).model_json_schema()["properties"]
REAL_MAX = 2**40
"""A terabyte, and more milliseconds than 30 years have: no setting of a real cell is above it."""
HALF = "must be at most half of node_lease_wall_ms, which is 10000: set both"


def mistakes_of(policy: dict[str, Any]) -> list[str]:
    """What is told of a cell file with this policy."""
    with pytest.raises(ValidationError) as caught:
        CellFile.model_validate(file_with("cells.0.policy", policy))
    return mistakes_in("cell.yaml", caught.value.errors())


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_beyond_its_bound_is_refused_in_a_cell_file_and_in_an_operation(name: str) -> None:
    most = SCHEMA[name]["maximum"]
    assert most <= REAL_MAX
    assert mistakes_of({name: most + 1}) == [f"cell.yaml: cells[0].policy.{name} = {most + 1}: must be at most {most}"]
    asked = {"cell": "c", "policy": {name: most + 1}, "fields": [name]}
    found = decode(SetPolicy.type, json.dumps(asked).encode())
    assert isinstance(found, Undecodable)
    assert (found.field, found.value, found.rule) == (f"policy.{name}", str(most + 1), f"must be at most {most}")
    asked["policy"] = {name: most}
    assert isinstance(decode(SetPolicy.type, json.dumps(asked).encode()), SetPolicy)


BOUND_FROM_THE_FIRST = (
    "fair_half_life_ms",
    "breaker_wait_wall_ms",
    "breaker_nodes_per_minute",
    "remove_lost_ms",
    "reservations_max",
    "reservation_ttl_ms",
    "preempt_grace_wall_ms",
    "hold_lapse_ms",
)
"""No log holds more of these: no release took it."""


def test_a_log_with_numbers_beyond_all_bounds_is_folded_and_its_snapshot_is_read() -> None:
    largest: dict[str, Any] = {name: LARGEST_INTEGER for name in NUMBERS if name not in BOUND_FROM_THE_FIRST}
    policy = CellPolicy(**largest)
    said = Decision(cell="c", version=1, epoch=1, at_ms=0, effects=(PolicySet(policy=policy),))
    read = decode(Decision.type, encode(said))
    assert isinstance(read, Decision), read
    state = CellState("c")
    for effect in read.effects:
        apply(state, effect, 0)
    assert state.policy == policy
    again = state_from(rows_of(state))
    assert (again.policy, digest_of(again)) == (policy, digest_of(state))


def test_a_decision_that_cannot_be_read_for_a_field_to_come_is_not_told_by_a_bound_that_its_readers_have_not() -> None:
    said = Decision(
        cell="c", version=1, epoch=1, at_ms=0, effects=(PolicySet(policy=CellPolicy(stop_grace_wall_ms=2**52)),)
    )
    content = json.loads(encode(said))
    content["effects"][0]["to_come"] = 1
    read = decode(Decision.type, json.dumps(content).encode())
    assert isinstance(read, Undecodable)
    assert (read.field, read.rule) == ("effects[0].to_come", "unknown field")


@pytest.mark.parametrize(
    "lease", [{"node_lease_wall_ms": 10_000}, {"node_lease_wall_ms": 10_000, "lease_margin_wall_ms": 5_001}]
)
def test_a_margin_above_half_of_its_lease_is_refused(lease: dict[str, int]) -> None:
    margin_ms = lease.get("lease_margin_wall_ms", 10_000)
    assert mistakes_of(lease) == [f"cell.yaml: cells[0].policy.lease_margin_wall_ms = {margin_ms}: {HALF}"]
    world = World(file_of())
    made = world.tell(replace(set_policy(**lease), fields=tuple(lease)))
    assert [effect.code for effect in made if isinstance(effect, ProposalRefused)] == [ProposalCode.NOT_ALLOWED]
    assert refusal(made) == f"lease_margin_wall_ms = {margin_ms}: {HALF}"
    world.tell(set_policy(node_lease_wall_ms=10_000, lease_margin_wall_ms=5_000))
    assert world.state.policy.lease_margin_wall_ms == 5_000


def test_a_lease_that_an_earlier_release_took_is_in_the_way_of_no_other_setting() -> None:
    world = World(file_of())
    long = CellPolicy(lease_margin_wall_ms=LARGEST_INTEGER)
    world.state.policy = long
    world.tell(replace(set_policy(stop_grace_wall_ms=7_000), fields=("stop_grace_wall_ms",)))
    assert world.state.policy == replace(long, stop_grace_wall_ms=7_000)
    made = world.tell(replace(set_policy(node_lease_wall_ms=60_000), fields=("node_lease_wall_ms",)))
    assert [effect.code for effect in made if isinstance(effect, ProposalRefused)] == [ProposalCode.NOT_ALLOWED]
    world.tell(replace(set_policy(lease_margin_wall_ms=15_000), fields=("lease_margin_wall_ms",)))
    assert world.state.policy.lease_margin_wall_ms == 15_000
