"""Proposals are looked at on the newest state: what holds is carried out, all else is refused once with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.cluster.model.config import PreemptRule
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Level, Position, TopologyRequest, Wish
from fallow.shared.events.operations import PreemptionMode, ReclaimFrom
from fallow.shared.events.reasons import PreemptionCause, StopReason
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import World, admitted, cancel, finished, joined, lost, set_quotas, spec_of, stopped
from tests.placement.yielding.proposals import place, proposal, refusal, yielding_cell

RECLAIM = PreemptionCause.QUOTA_RECLAIM
FOUR = place(0, "n1", 0, 1, 2, 3)


def full_cell(preempt: PreemptRule = PreemptRule.LOWER, **policy: Any) -> World:
    """n1 has `a` on its first four GPUs and `b` on the others; `high` wants four."""
    world = yielding_cell(8, preempt=preempt, **policy)
    world.run(spec_of("a", 4))
    world.run(spec_of("b", 4, priority=1))
    world.tell(admitted(spec_of("high", 4, priority=5), 1))
    return world


def told(world: World, *args: Any, **more: Any) -> tuple[str, str] | None:
    """What a proposal is told; a refusal changes nothing else."""
    effects = world.tell(proposal(world, *args, **more))
    found = refusal(effects)
    if found is not None:
        assert [type(each) for each in effects] == [e.ProposalRefused]
    return found


def test_a_proposal_that_holds_is_carried_out() -> None:
    world = full_cell()
    assert told(world, "high", ["a"], [FOUR]) is None
    assert (world.job("a").status, world.job("b").status) == (JobStatus.STOPPING, JobStatus.RUNNING)


def test_the_same_proposal_comes_too_late_the_second_time() -> None:
    world = full_cell()
    event = proposal(world, "high", ["a"], [FOUR])
    assert refusal(world.tell(event)) is None
    assert refusal(world.tell(event)) == ("room_held", "room is held for job high already")


def test_room_that_is_held_for_one_job_is_proposed_to_another_in_vain() -> None:
    world = full_cell()
    world.tell(admitted(spec_of("higher", 4, priority=9), 2))
    assert told(world, "high", ["a"], [FOUR]) is None
    assert told(world, "higher", ["b"], [FOUR]) == ("room_held", "room on node n1 is held for another job")


def test_a_preemptor_that_does_not_wait_any_more_makes_it_stale() -> None:
    world = full_cell()
    event = proposal(world, "high", ["a"], [FOUR])
    world.tell(cancel("high"))
    assert refusal(world.tell(event)) == ("beneficiary_gone", "job high does not wait")


def test_a_victim_that_is_over_or_in_another_attempt_makes_it_stale() -> None:
    world = full_cell()
    event = proposal(world, "high", ["a"], [FOUR])
    other = replace(event, victims=(replace(event.victims[0], attempt=2),))
    assert refusal(world.tell(other)) == ("attempt_over", "attempt 2 of job a is over")
    world.tell(admitted(spec_of("first", 4, priority=9), 2), finished("a"))
    assert refusal(world.tell(event)) == ("attempt_over", "attempt 1 of job a is over")


def test_a_victim_that_is_told_to_stop_already_yields_no_second_time() -> None:
    world = full_cell()
    world.tell(cancel("a"))
    assert told(world, "high", ["a"], [FOUR]) == ("not_allowed", "job a holds no places, or leaves them already")


@pytest.mark.parametrize(
    ("victims", "places", "code", "words"),
    [
        (["a"], [place(0, "n1", 4, 5, 6, 7)], "does_not_help", "job high would not start there without them"),
        (["a", "b"], [FOUR], "too_many_victims", "job high would start there beside job b"),
        (["a", "a"], [FOUR], "too_many_victims", "job a is named twice"),
        (["a"], [place(0, "n1", 0, 1)], "node_changed", "these are no places for job high"),
        (["a"], [place(0, "n9", 0, 1, 2, 3)], "node_changed", "these are no places for job high"),
        (["high"], [FOUR], "attempt_over", "attempt 1 of job high is over"),
    ],
)
def test_what_does_not_hold_is_refused(victims: list[str], places: list[Any], code: str, words: str) -> None:
    world = full_cell()
    found = told(world, "high", victims, places)
    assert found is not None
    assert found[0] == code
    assert found[1].startswith(words)


MODES = {
    (PreemptionMode.OFF, PreemptionCause.PRIORITY): False,
    (PreemptionMode.OFF, RECLAIM): False,
    (PreemptionMode.RECLAIM, PreemptionCause.PRIORITY): False,
    (PreemptionMode.RECLAIM, RECLAIM): True,
    (PreemptionMode.ALL, PreemptionCause.PRIORITY): True,
    (PreemptionMode.ALL, RECLAIM): True,
}


@pytest.mark.parametrize(("mode", "cause"), MODES)
def test_the_policy_says_which_causes_are_carried_out(mode: PreemptionMode, cause: PreemptionCause) -> None:
    world = lender(preemption=mode)
    devices = world.job("borrowed").workers[0].devices
    found = told(world, "wanted", ["borrowed"], [place(0, "n1", *devices)], cause)
    assert (found is None) is MODES[mode, cause]
    assert found is None or found == (
        "not_allowed",
        "job wanted may not preempt for this cause: the policy of the cell says so",
    )


def lender(reclaim: ReclaimFrom = ReclaimFrom.ANY, priority: int = 1, /, min_run_ms: int = 0, **policy: Any) -> World:
    """bob is guaranteed 4 of 8 GPUs and uses none; ada is guaranteed 4 and runs two jobs of 4."""
    world = yielding_cell(8, **policy)
    shares = (share("ada", 4, min_run_ms=min_run_ms), share("bob", 4, reclaim=reclaim))
    world.tell(set_quotas(*shares))
    world.run(spec_of("own", 4, priority=2))
    world.tell(set_quotas(share("bob", 0)))
    world.run(spec_of("borrowed", 4))
    world.tell(set_quotas(*shares))
    assert world.nodes_of("borrowed") == ["n1"]
    world.tell(admitted(spec_of("wanted", 4, tenant="bob", priority=priority), 1))
    return world


def test_an_owner_takes_back_what_is_guaranteed_to_it() -> None:
    world = lender()
    devices = world.job("borrowed").workers[0].devices
    assert told(world, "wanted", ["borrowed"], [place(0, "n1", *devices)], RECLAIM) is None
    assert world.job("borrowed").stop_why is StopReason.QUOTA_RECLAIM


@pytest.mark.parametrize(
    ("reclaim", "priority", "words"),
    [
        (ReclaimFrom.ANY, -5, None),
        (ReclaimFrom.LOWER_PRIORITY, 1, None),
        (ReclaimFrom.LOWER_PRIORITY, 0, "job borrowed is not of lower priority"),
        (ReclaimFrom.NEVER, 9, "job wanted is of a tenant that takes nothing back"),
    ],
)
def test_the_quota_says_from_whom(reclaim: ReclaimFrom, priority: int, words: str | None) -> None:
    world = lender(reclaim, priority)
    devices = world.job("borrowed").workers[0].devices
    found = told(world, "wanted", ["borrowed"], [place(0, "n1", *devices)], RECLAIM)
    assert found == (None if words is None else ("not_allowed", words))


def test_a_borrowing_tenant_keeps_what_is_guaranteed_to_it() -> None:
    """Both of its jobs are more than it borrows."""
    world = lender()
    world.tell(set_quotas(share("ada", 4), share("bob", 8)))
    world.tell(admitted(spec_of("large", 8, tenant="bob", priority=9), 2))
    found = told(world, "large", ["borrowed", "own"], [place(0, "n1", *range(8))], RECLAIM)
    assert found == ("not_allowed", "job borrowed is not of a tenant that borrows")


def test_priority_takes_nothing_of_what_is_guaranteed_to_another_tenant() -> None:
    world = lender(ReclaimFrom.ANY, 9)
    own = world.job("own").workers[0].devices
    world.tell(finished("borrowed"))
    world.tell(admitted(spec_of("more", 4, tenant="bob", priority=9), 3))
    found = told(world, "more", ["own"], [place(0, "n1", *own)])
    assert found == ("not_allowed", "job own would leave its tenant less than what is guaranteed to it")


def borrower_of_one() -> World:
    """ada is guaranteed 8 of 16 GPUs and runs three jobs of 4: one of them is borrowed from bob, who wants 4."""
    world = yielding_cell(8, 8)
    shares = (share("ada", 8), share("bob", 8))
    world.tell(set_quotas(share("ada", 8), share("bob", 0)))
    for name in ("one", "two", "three"):
        world.run(spec_of(name, 4))
    world.run(spec_of("own", 4, tenant="bob"))
    world.tell(set_quotas(*shares))
    world.tell(admitted(spec_of("wanted", 4, tenant="bob", priority=9), 1))
    return world


@pytest.mark.parametrize("cause", [RECLAIM, PreemptionCause.PRIORITY])
def test_what_stops_already_is_not_counted_as_what_a_tenant_keeps(cause: PreemptionCause) -> None:
    world = borrower_of_one()
    (held,) = world.job("two").workers
    event = proposal(world, "wanted", ["two"], [place(0, held.node, *held.devices)], cause)
    world.listens = False
    world.tell(cancel("three"))
    assert world.job("three").status is JobStatus.STOPPING
    found = refusal(world.tell(event))
    assert found is not None
    assert found[0] == "not_allowed"
    assert found[1] in {
        "job two is not of a tenant that borrows",
        "job two would leave its tenant less than what is guaranteed to it",
    }


@pytest.mark.parametrize("cause", [RECLAIM, PreemptionCause.PRIORITY])
def test_while_none_of_its_jobs_stops_a_borrower_gives_back_what_it_borrows(cause: PreemptionCause) -> None:
    world = borrower_of_one()
    (held,) = world.job("two").workers
    assert told(world, "wanted", ["two"], [place(0, held.node, *held.devices)], cause) is None


def test_who_asks_for_more_than_its_guarantee_takes_nothing_back() -> None:
    world = lender()
    world.tell(admitted(spec_of("large", 5, tenant="bob", priority=9), 2))
    found = told(world, "large", ["borrowed"], [place(0, "n1", 0, 1, 2, 3, 4)], RECLAIM)
    assert found == ("not_allowed", "job large asks for more than what is left of its guarantee")


def test_a_tenant_that_is_not_reclaimable_yields_to_no_other() -> None:
    world = lender()
    world.tell(set_quotas(share("ada", 4, reclaimable=False)))
    for cause in (RECLAIM, PreemptionCause.PRIORITY):
        found = told(world, "wanted", ["borrowed"], [FOUR], cause, name=f"p-{cause.value.replace('_', '-')}")
        assert found == ("not_allowed", "job borrowed is of a tenant from which nothing is taken")


def test_a_minimum_run_time_protects() -> None:
    world = lender(min_run_ms=60_000)
    devices = world.job("borrowed").workers[0].devices
    world.listens = False
    world.pass_time(59_999)
    event = proposal(world, "wanted", ["borrowed"], [place(0, "n1", *devices)], RECLAIM)
    assert refusal(world.tell(event)) == ("not_allowed", "job borrowed has not run for its minimum yet")
    world.pass_time(1)
    assert refusal(world.tell(event)) is None


def test_a_jobs_own_minimum_protects_it_within_its_tenant() -> None:
    world = yielding_cell(8)
    world.run(spec_of("low", 8, min_run_ms=10_000))
    world.tell(admitted(spec_of("high", 8, priority=1), 1))
    event = proposal(world, "high", ["low"], [place(0, "n1", *range(8))])
    assert refusal(world.tell(event)) == ("not_allowed", "job low has not run for its minimum yet")
    world.pass_time(10_000)
    assert refusal(world.tell(event)) is None


def test_a_job_that_is_not_preemptible_yields_to_nobody() -> None:
    world = yielding_cell(8)
    world.run(spec_of("low", 8, preemptible=False))
    world.tell(admitted(spec_of("high", 8, priority=1), 1))
    found = told(world, "high", ["low"], [place(0, "n1", *range(8))])
    assert found == ("not_allowed", "job low is not preemptible")


@pytest.mark.parametrize("preempt", PreemptRule)
def test_the_queue_says_whether_an_older_job_goes_before_a_newer_one_of_its_priority(preempt: PreemptRule) -> None:
    world = yielding_cell(8, preempt=preempt)
    world.tell(admitted(spec_of("first", 8), 10))
    world.run(spec_of("new", 8))
    assert world.nodes_of("first") == ["n1"]
    found = told(world, "new", ["first"], [place(0, "n1", *range(8))])
    words = {
        PreemptRule.NEVER: "job new waits in a queue whose jobs preempt none",
        PreemptRule.LOWER: "job first is not of lower priority",
        PreemptRule.LOWER_OR_NEWER_EQUAL: None,
    }[preempt]
    assert found == (None if words is None else ("not_allowed", words))


def test_nobody_yields_to_one_job_twice() -> None:
    world = full_cell()
    assert told(world, "high", ["a"], [FOUR]) is None
    world.tell(stopped("a"))
    assert world.nodes_of("high") == ["n1"]
    world.tell(joined("n2", 4))
    assert world.nodes_of("a") == ["n2"]
    world.tell(lost("n1"))
    assert world.job("high").status is JobStatus.QUEUED
    found = told(world, "high", ["a"], [place(0, "n2", 0, 1, 2, 3)], name="p-2")
    assert found == ("not_allowed", "job a has yielded to that job before")


def test_places_that_break_the_wish_for_the_network_are_no_places() -> None:
    world = yielding_cell(1)
    for number, leaf in enumerate(("x", "x", "y"), 2):
        world.tell(joined(f"n{number}", 4, position=Position(leaf=leaf)))
    world.run(spec_of("low", 4, workers=3))
    near = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    world.tell(admitted(spec_of("high", 4, workers=2, priority=3, topology=near), 1))
    four = (0, 1, 2, 3)
    assert told(world, "high", ["low"], [place(0, "n3", *four), place(1, "n4", *four)]) is not None
    assert told(world, "high", ["low"], [place(0, "n2", *four), place(1, "n3", *four)]) is None


@pytest.mark.parametrize("field", ["turn", "since_ms"])
def test_places_are_those_of_a_fresh_start(field: str) -> None:
    code, text = told(full_cell(), "high", ["a"], [replace(FOUR, **{field: 1})]) or ("", "")
    assert (code, text) == ("node_changed", "these are places of a worker that enters job high while it runs")


def test_places_that_another_job_is_leaving_come_free_without_it_being_a_victim() -> None:
    world = yielding_cell(8)
    world.run(spec_of("a", 4))
    world.run(spec_of("b", 4))
    world.tell(cancel("a"), admitted(spec_of("high", 8, priority=5), 1))
    eight = place(0, "n1", *range(8))
    assert told(world, "high", ["b"], [eight]) is None
    world.tell(stopped("b"))
    assert world.nodes_of("high") == []
    world.tell(stopped("a"))
    assert world.nodes_of("high") == ["n1"]


@pytest.mark.parametrize("many", [40, 80])
def test_any_number_of_victims_yields_for_a_quota_as_long_as_all_are_needed(many: int) -> None:
    world = yielding_cell(*[8] * (many // 4))
    world.tell(set_quotas(share("ada", 0, limit=many)))
    names = [f"low-{number}" for number in range(many)]
    world.run(*(spec_of(name) for name in names))
    workers = many // 8
    world.tell(admitted(spec_of("high", 8, workers=workers, priority=5), 1))
    free = [name for name, node in world.state.nodes.items() if node.gpus_free == 8]
    places = [place(rank, node, *range(8)) for rank, node in enumerate(free)]
    assert len(places) == workers
    assert told(world, "high", names, places) is None


def test_of_many_victims_for_a_quota_one_too_many_is_told() -> None:
    world = yielding_cell(*[8] * 10)
    world.tell(set_quotas(share("ada", 0, limit=41)))
    names = [f"low-{number}" for number in range(40)]
    world.run(*(spec_of(name) for name in names))
    world.tell(admitted(spec_of("high", 8, workers=5, priority=5), 1))
    free = [name for name, node in world.state.nodes.items() if node.gpus_free == 8]
    code, _ = told(world, "high", names, [place(rank, node, *range(8)) for rank, node in enumerate(free)]) or ("", "")
    assert code == "too_many_victims"
