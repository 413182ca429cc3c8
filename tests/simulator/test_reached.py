"""Fault worlds come to every effect and fault, and to nearly every reason. What they never come to is named here."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

from services.cli.fault_worlds import Story, Told, tell
from services.simulator.faults import Fault
from services.simulator.history.reached import EFFECTS, REASONS
from services.simulator.world import World

WORLDS_MOST = 90

PROPOSED_BY_NO_POLICY_YET = frozenset(
    {
        "JobPreempted",
        "JobResized",
        "NodeLent",
        "NodeLoanDraining",
        "NodeReclaimed",
        "ReservationCleared",
        "ReservationSet",
    }
)
"""Loans, preemption, resizing and reservations are judged and not carried out."""

PERSONS_DECISIONS = frozenset({"InputResumed", "LogRepaired"})
"""Nobody looks at a world while it runs: tests/placement/test_lost_inputs.py and tests/cli/test_repairing.py."""

OF_MASS_SILENCE = frozenset({"EvictionsHeld", "EvictionsResumed", "NodeRemoved"})
"""Reached in some worlds, not in each few dozen: tests/placement/test_breaker.py and test_removal.py."""

GIVEN_BY_NO_POLICY_YET = frozenset(
    {
        *(reason for reason in REASONS if reason.startswith("ClearReason.")),
        "DeferCode.backoff",
        "DeferCode.held",
        "ProposalCode.attempt_over",
        "ProposalCode.beneficiary_gone",
        "ProposalCode.does_not_help",
        "RefuseCode.unknown_node",
        "RequeueReason.preempted",
        "StopReason.backfill_timeout",
        "StopReason.loan_reclaim",
        "StopReason.migration",
        "StopReason.priority",
        "StopReason.quota_reclaim",
    }
)

OF_OTHER_SETTINGS = frozenset(
    {
        "DeadLetterReason.handler_failed",
        "DeadLetterReason.too_large",
        "DeadLetterReason.unwritable",
        "ProposalCode.unsupported",
        "RefuseCode.submission_too_old",
        "RefuseCode.too_many_waiting",
        "RefuseCode.unsupported",
        "RejectCode.pool_not_allowed",
        "RejectCode.pools_in_several_cells",
        "RejectCode.submit_time_too_far",
        "RejectCode.tenant_not_of_topic",
        "RejectCode.too_large",
        "RejectCode.too_many_submissions",
        "RejectCode.unsupported",
    }
)
"""What the worlds' cell files and clients give no cause for: tests of their own bring it about."""

SELDOM = frozenset(
    {
        "DeadLetterReason.unknown_device",
        "DeadLetterReason.unknown_node",
        "DeadLetterReason.unknown_pool",
        "DeadLetterReason.larger_than_pool",
        "DeadLetterReason.wrong_cell",
        "DeferCode.maintenance",
        "DeferCode.topology",
        "DeferCode.nodes_silent",
        "DeferCode.reserved_for_other",
        "DeferCode.no_such_nodes",
        "ProposalCode.not_allowed",
        "RefuseCode.after_itself",
        "RefuseCode.submission_too_old",
        "RefuseCode.wrong_state",
        "RejectCode.cell_needed",
        "RejectCode.invalid_field",
        "RejectCode.over_job_limit",
        "RejectCode.unknown_cell",
        "RejectCode.unknown_gpu_type",
        "RejectCode.unknown_pool",
        "RejectCode.unknown_queue",
        "RejectCode.unknown_version",
        "StopReason.device_failed",
        "StopReason.node_lost",
    }
)
"""Reached in hundreds of worlds, not in each few dozen."""


def seeds() -> list[int]:
    """Some worlds of each of the two faults that happen in few, and then one after the other."""
    rare = [seed for seed in range(120) if is_rare(World(seed, Random(seed)))]
    return [*rare[:6], *(seed for seed in range(WORLDS_MOST) if seed not in rare[:6])][:WORLDS_MOST]


def is_rare(world: World) -> bool:
    return world.faults.loses_tail or world.faults.is_forged


@cache
def worlds() -> list[Told]:
    """So many that every effect and every kind of fault was there, or as many as may be."""
    not_wanted = PROPOSED_BY_NO_POLICY_YET | PERSONS_DECISIONS | OF_MASS_SILENCE
    found, wanted = list[Told](), {*EFFECTS, *Fault} - not_wanted
    for seed in seeds():
        told = tell(Story(seed))
        found.append(told)
        wanted -= {*told.reached, *told.injected}
        if not wanted and len(found) > WORLDS_MOST // 3:
            break
    return found


def test_every_effect_is_reached_that_some_policy_proposes() -> None:
    reached = sum((told.reached for told in worlds()), Counter[str]())
    never = {effect for effect in EFFECTS if not reached[effect]}
    assert never - OF_MASS_SILENCE == PROPOSED_BY_NO_POLICY_YET | PERSONS_DECISIONS


def test_every_kind_of_fault_happens() -> None:
    injected = sum((told.injected for told in worlds()), Counter[str]())
    assert [fault.value for fault in Fault if not injected[fault.value]] == []


def test_every_reason_is_given_but_those_that_are_named() -> None:
    reached = sum((told.reached for told in worlds()), Counter[str]())
    named = GIVEN_BY_NO_POLICY_YET | OF_OTHER_SETTINGS | SELDOM
    assert {reason for reason in REASONS if not reached[reason]} <= named


def test_what_no_policy_gives_is_not_given() -> None:
    reached = sum((told.reached for told in worlds()), Counter[str]())
    assert [reason for reason in GIVEN_BY_NO_POLICY_YET if reached[reason]] == []
