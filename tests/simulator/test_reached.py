"""Fault worlds come to every effect and fault, and to nearly every reason. What they never come to is named here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import chain
from random import Random

from fallow.faults.fault_worlds import Story, Told, tell
from fallow.simulator.history.reached import EFFECTS, REASONS
from fallow.simulator.trouble.faults import LASTING_MS, Fault, Faults
from fallow.simulator.world import World

WORLDS_MAX = 90

PROPOSED_BY_NO_POLICY_YET = frozenset(
    {
        "JobResized",
        "NodeLent",
        "NodeLoanDraining",
        "NodeReclaimed",
    }
)
"""Loans and resizing are judged and not carried out."""

PERSONS_DECISIONS = frozenset({"LogRepaired"})
"""Made while all services are stopped, and none is in a world: tests/cli/log/test_repairing.py."""

IN_SOME_WORLDS = frozenset({"HeadCleared", "InputFenced", "QuotaRemoved", "JobPreempted", "RoomHeld", "RoomReleased"})
"""Not in each few dozen: tests/placement/backfill/test_backfill.py, test_lost_inputs.py, test_tenants_go.py and
test_room.py.
"""

GIVEN_BY_NO_POLICY_YET = frozenset(
    {
        "PendingReason.backoff",
        "PendingReason.held",
        "RefuseCode.unknown_node",
        "StopReason.loan_reclaim",
        "StopReason.migration",
    }
)

OF_OTHER_SETTINGS = frozenset(
    {
        "PendingReason.record_too_large",  # no world has the thousands of nodes that it takes
        "ProposalCode.unsupported",  # nothing that is unsupported is asked for; so the next two
        "RefuseCode.unsupported",
        "RejectCode.unsupported",
        "RefuseCode.not_the_tenants_job",  # admission turns strangers away: a job's name tells whose it is
        "RefuseCode.submission_too_old",  # the judge forgets no job, so its cells do not; so the next one
        "RefuseCode.request_too_old",
        "DeadLetterReason.node_not_allowed",  # every pool takes every node
        "DeadLetterReason.too_many_nodes",  # tests/placement/nodes/test_many_nodes.py; so the next one
        "DeadLetterReason.too_many_labels",
        "DeadLetterReason.too_many",  # by a tenant's own topic only
        "DeadLetterReason.unwritable",  # admission and the bounds of nodes let in nothing that no record can hold
    }
)
"""What the worlds' cell files and clients give no cause for: tests of their own bring it about."""

SELDOM = frozenset(
    {
        "HeadCleared",
        "ClearReason.held",
        "ClearReason.lapsed",
        "ClearReason.nodes_gone",
        "DeadLetterReason.handler_failed",
        "DeadLetterReason.too_large",
        "DeadLetterReason.sequence_too_far",
        "DeadLetterReason.unknown_device",
        "DeadLetterReason.unknown_node",
        "DeadLetterReason.unknown_pool",
        "DeadLetterReason.larger_than_pool",
        "DeadLetterReason.wrong_cell",
        "PendingReason.maintenance",
        "PendingReason.topology",
        "PendingReason.nodes_silent",
        "PendingReason.reserved_for_other",
        "PendingReason.no_such_nodes",
        "PendingReason.making_room",
        "PreemptionCause.backfill",
        "PreemptionCause.fair_share",
        "PreemptionCause.priority",
        "PreemptionCause.quota_reclaim",
        "ProposalCode.attempt_over",
        "ProposalCode.beneficiary_gone",
        "ProposalCode.does_not_help",
        "ProposalCode.not_allowed",
        "ProposalCode.room_held",
        "ProposalCode.too_many_victims",
        "RequeueReason.preempted",
        "StopReason.backfill_timeout",
        "StopReason.fair_share",
        "StopReason.priority",
        "StopReason.quota_reclaim",
        "RefuseCode.after_itself",
        "RefuseCode.after_too_many",
        "RefuseCode.tenant_has_too_many_waiting",
        "RefuseCode.too_many_waiting",
        "RefuseCode.wrong_state",
        "RejectCode.cell_needed",
        "RejectCode.invalid_field",
        "RejectCode.over_job_limit",
        "RejectCode.pool_not_allowed",
        "RejectCode.pools_in_several_cells",
        "RejectCode.submit_time_too_far",
        "RejectCode.too_large",
        "RejectCode.too_many_submissions",
        "RejectCode.unknown_cell",
        "RejectCode.unknown_gpu_type",
        "RejectCode.unknown_pool",
        "RejectCode.unknown_queue",
        "RejectCode.unknown_version",
        "FailReason.node_faults",
        "StopReason.device_failed",
        "StopReason.node_lost",
        "StopReason.worker_failed",
    }
)
"""Not reached in each few dozen worlds: nearly all of them in those that are recorded."""

HARDLY_EVER = frozenset(
    {
        "RefuseCode.after_itself",
        "RefuseCode.after_too_many",
        "RejectCode.pools_in_several_cells",
        "RejectCode.too_large",
        "RejectCode.unknown_version",
        "FailReason.node_faults",
        "StopReason.device_failed",
        "ClearReason.held",
        "PreemptionCause.backfill",
        "PreemptionCause.quota_reclaim",
        "StopReason.backfill_timeout",
        "StopReason.quota_reclaim",
    }
)
"""In no recorded world: tests of placement and admission bring each about."""

RECORDED = (
    5,
    12,
    16,
    21,
    36,
    38,
    41,
    44,
    81,
    105,
    106,
    112,
    122,
    174,
    200,
    204,
    207,
    218,
    297,
    313,
    330,
    394,
    662,
    2_056,
)
"""Worlds that came together to all the others. Where placement or the generator decides
otherwise, other worlds do, which are looked for then, up to a bound: a reason that is not found again is one that the
generator hardly makes any more. `fallow faults --first-seed SEED --seeds 1 --json` prints what a world reaches.
"""

MORE_WORLDS = range(200, 300)


def seeds() -> list[int]:
    """Some worlds of each of the faults that happen in few, and then one after the other."""
    found: dict[int, None] = {}
    for is_rare in RARE:
        found |= dict.fromkeys([seed for seed, faults in drawn().items() if is_rare(faults)][:RARE_WORLDS])
    return list(found | dict.fromkeys(range(WORLDS_MAX)))[:WORLDS_MAX]


RARE_WORLDS = 3
RARE: tuple[Callable[[Faults], object], ...] = (
    lambda faults: faults.loses_tail,
    lambda faults: faults.is_forged,
    lambda faults: faults.decision_bytes_max,
    lambda faults: faults.denies,
    *(lambda faults, kind=kind: faults.intervals_ms[kind] for kind in LASTING_MS),
)


@cache
def drawn() -> dict[int, Faults]:
    """What may happen in each of the first worlds."""
    return {seed: World(seed, Random(seed)).faults for seed in range(120)}


@cache
def world_of(seed: int) -> Told:
    """What a world with all faults came to."""
    return tell(Story(seed))


@cache
def worlds() -> list[Told]:
    """So many that every effect and every kind of fault was there, or as many as may be."""
    not_wanted = PROPOSED_BY_NO_POLICY_YET | PERSONS_DECISIONS | IN_SOME_WORLDS
    found, wanted = list[Told](), {*EFFECTS, *Fault} - not_wanted
    for seed in seeds():
        told = world_of(seed)
        found.append(told)
        wanted -= {*told.reached, *told.injected}
        if not wanted and len(found) > WORLDS_MAX // 3:
            break
    return found


def test_every_effect_is_reached_that_some_policy_proposes() -> None:
    reached = sum((told.reached for told in worlds()), Counter[str]())
    never = {effect for effect in EFFECTS if not reached[effect]}
    assert never - IN_SOME_WORLDS == PROPOSED_BY_NO_POLICY_YET | PERSONS_DECISIONS


def test_every_kind_of_fault_happens() -> None:
    injected = sum((told.injected for told in worlds()), Counter[str]())
    assert [fault.value for fault in Fault if not injected[fault.value]] == []


def test_every_reason_is_given_but_those_that_are_named() -> None:
    reached = sum((told.reached for told in worlds()), Counter[str]())
    named = GIVEN_BY_NO_POLICY_YET | OF_OTHER_SETTINGS | SELDOM
    assert {reason for reason in REASONS if not reached[reason]} <= named


def test_what_no_policy_gives_and_what_is_of_other_settings_is_not_given() -> None:
    reached = sum((told.reached for told in worlds()), Counter[str]())
    assert [reason for reason in GIVEN_BY_NO_POLICY_YET | OF_OTHER_SETTINGS if reached[reason]] == []


def test_what_is_seldom_reached_is_reached_in_the_worlds_that_are_recorded() -> None:
    missing = SELDOM - HARDLY_EVER
    for seed in chain(RECORDED, MORE_WORLDS):
        missing = missing.difference(world_of(seed).reached)
        if not missing:
            break
    assert sorted(missing) == []
