"""Placement accepts and refuses proposals as an oracle does that shares no code with it, for each of the reasons."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

from hypothesis import example, given
from hypothesis import strategies as st

from fallow.shared.cluster.model.config import PreemptRule
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.codec.ranges import ranges_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import PreemptionMode, ReclaimFrom
from fallow.shared.events.reasons import PreemptionCause
from tests.hypothesis_profile import reaches
from tests.placement.oracles.naive_yielding import verdict
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import World, admitted, set_quotas, spec_of
from tests.placement.yielding.proposals import place, proposal, refusal, yielding_cell

GPUS = 4
_PRIORITY, _RECLAIM = PreemptionCause.PRIORITY, PreemptionCause.QUOTA_RECLAIM
CAUSES = (_PRIORITY, _PRIORITY, _PRIORITY, _RECLAIM, _RECLAIM, _RECLAIM, PreemptionCause.BACKFILL)

JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(1, GPUS),
            "tenant": st.sampled_from(("ada", "bob")),
            "priority": st.integers(-1, 1),
            "preemptible": st.sampled_from((True, True, True, True, False)),
            "min_run_ms": st.sampled_from((0, 0, 0, 50)),
        }
    ),
    min_size=1,
    max_size=4,
)
QUOTAS = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "guaranteed": st.sampled_from((0, 0, 2, 8, 8)),
            "reclaim": st.sampled_from((ReclaimFrom.ANY, ReclaimFrom.ANY, *ReclaimFrom)),
            "reclaimable": st.sampled_from((True, True, True, False)),
            "min_run_ms": st.sampled_from((None, None, 0, 50)),
        }
    ),
    min_size=2,
    max_size=2,
)
WAITING = st.fixed_dictionaries(
    {
        "gpus": st.integers(1, GPUS),
        "workers": st.sampled_from((1, 1, 1, 2)),
        "tenant": st.sampled_from(("ada", "bob")),
        "priority": st.sampled_from((-1, 0, 2, 2, 2)),
    }
)
PLAY = st.fixed_dictionaries(
    {
        "nodes": st.sampled_from((1, 1, 1, 2)),
        "mode": st.sampled_from((*PreemptionMode, PreemptionMode.ALL, PreemptionMode.ALL, PreemptionMode.ALL)),
        "preempt": st.sampled_from((*PreemptRule, PreemptRule.LOWER)),
        "jobs": JOBS,
        "quotas": QUOTAS,
        "waiting": WAITING,
        "is_first": st.booleans(),
        "cause": st.sampled_from(CAUSES),
        "chosen": st.lists(st.integers(0, 3), min_size=1, max_size=3),
        "slip": st.sampled_from((*("",) * 8, "attempt", "devices", "node", "gone")),
        "is_tidy": st.sampled_from((True, True, True, False)),
    }
)


def cell_of(play: dict[str, Any]) -> World:
    """Jobs run, one a little later than the other, and one waits, submitted before or after them."""
    world = yielding_cell(*(GPUS,) * play["nodes"], preempt=play["preempt"], preemption=play["mode"])
    world.listens = False
    for number, job in enumerate(play["jobs"]):
        spec = spec_of(f"job-{number}", **job)
        world.tell(admitted(spec, 10 + number))
        if world.nodes_of(spec.id):
            world.run()
        world.pass_time(20)
    if play["quotas"] is not None:
        shares = [share(name, **each) for name, each in zip(("ada", "bob"), play["quotas"], strict=True)]
        world.tell(set_quotas(*shares))
    # Larger than what is free anywhere, where there is such a size: else it starts, and waits for nothing.
    gpus = max(play["waiting"]["gpus"], *(node.gpus_free + 1 for node in world.state.nodes.values()), 0)
    waits = {**play["waiting"], "gpus": min(gpus, GPUS)}
    world.tell(admitted(spec_of("waits", **waits), 1 if play["is_first"] else 90))
    return world


def proposed(world: World, play: dict[str, Any]) -> Any:
    """A proposal: of some jobs that run, in places that they and free devices make up, with a slip at times."""
    running = [job for job in world.state.jobs.values() if job.workers and job.id != "waits"]
    victims = [running[number % len(running)] for number in play["chosen"]] if running else []
    victims = list({victim.id: victim for victim in victims}.values()) if play["is_tidy"] else victims
    free = {node.id: [at for at in range(GPUS) if node.free >> at & 1] for node in world.state.nodes.values()}
    for victim in {each.id: each for each in victims}.values():
        for held in victim.workers:
            free[held.node] = [*held.devices, *free[held.node]]
    gpus, places = world.job("waits").spec.resources.gpu_milli // 1_000, []
    for rank in range(play["waiting"]["workers"]):
        node = max(free, key=lambda name: len(free[name]))
        places.append(place(rank, node, *sorted(free[node][:gpus])))
        free[node] = free[node][gpus:]
    event = proposal(world, "waits", [victim.id for victim in victims] or ["job-0"], places)
    event = replace(event, cause=play["cause"])
    first = event.victims[0]
    match play["slip"]:
        case "attempt":
            return replace(event, victims=(replace(first, attempt=first.attempt + 1), *event.victims[1:]))
        case "devices":
            moved = [place(each.rank, each.node, *(GPUS - 1 - d for d in each.devices)) for each in places]
            return replace(event, places=ranges_of(moved))
        case "node":
            return replace(event, places=ranges_of([place(0, "n9", *places[0].devices), *places[1:]]))
        case "gone":
            return replace(event, preemptor="nobody")
    return event


def job(priority: int = 0, tenant: str = "ada", gpus: int = 2) -> dict[str, Any]:
    """A job that runs, and could yield."""
    return {"gpus": gpus, "tenant": tenant, "priority": priority, "preemptible": True, "min_run_ms": 0}


def quota_of(guaranteed: int) -> dict[str, Any]:
    """A quota that takes back from all."""
    return {"guaranteed": guaranteed, "reclaim": ReclaimFrom.ANY, "reclaimable": True, "min_run_ms": None}


PLAIN: dict[str, Any] = {
    "nodes": 1,
    "mode": PreemptionMode.ALL,
    "preempt": PreemptRule.LOWER,
    "jobs": [job(), job()],
    "quotas": None,
    "waiting": {"gpus": 2, "workers": 1, "tenant": "bob", "priority": 2},
    "is_first": False,
    "cause": _PRIORITY,
    "chosen": [0],
    "slip": "",
    "is_tidy": True,
}
OWNER = {**PLAIN, "quotas": [quota_of(0), quota_of(8)], "cause": _RECLAIM}


@example({**PLAIN, "slip": "devices"}, "does_not_help")
@example({**PLAIN, "chosen": [0, 1]}, "too_many_victims")
@example(OWNER, None)
@example({**OWNER, "quotas": [quota_of(4), quota_of(2)]}, "not_allowed")
@example({**OWNER, "quotas": [quota_of(2), quota_of(2)]}, None)
@given(PLAY, st.just(ANY))
def test_a_proposal_is_accepted_or_refused_as_the_oracle_says(play: dict[str, Any], code: Any) -> None:
    world = cell_of(play)
    event = proposed(world, play)
    wanted = verdict(world.state, event, play["preempt"], world.now_ms)
    effects = world.tell(event)
    found = refusal(effects)
    assert (None if found is None else found[0]) == wanted.code, (wanted, found)
    assert wanted.code == code
    if found is None:
        assert set(world.state.rooms) == {"waits"}
        assert all(world.job(each.job).status is JobStatus.STOPPING for each in event.victims)
    else:
        assert not world.state.rooms
    reaches(f"a proposal is {wanted.code or 'accepted'}: {wanted.why}", True)
