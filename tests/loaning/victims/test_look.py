"""A look at a whole cell, and what is remembered from one to the next."""

from __future__ import annotations

import pytest

from fallow.services.loaning.policy.preemption.look import Seen, look
from fallow.services.loaning.policy.preemption.memory import PATIENCE_MS, PAUSE_FIRST_MS, WORDS_MS, Asked, Memory
from fallow.services.loaning.service import LoaningService
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy, PreemptionMode
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PreemptionCause, ProposalCode, StopReason
from tests.cluster.worlds.examples import DIGEST, then
from tests.loaning.worlds.crowded import NOW_MS, WAITS, Crowd, Row, Share, state_of

LINE = Queue(name="line", discipline=QueueDiscipline.BEST_EFFORT_FIFO)

FULL = Crowd(nodes=(4,), leaves=(0,), shares=(Share(),), rows=(Row(0, (0,), 2), Row(0, (0,), 2)), gpus=2, priority=1)
"""A node with two jobs of two GPUs, and one of higher priority that wants two."""


def one_more(state: CellState, name: str, gpus: int = 2, priority: int = 1) -> CellState:
    """Another job that waits."""
    spec = JobSpec(id=name, tenant="ada", priority=priority, queue="line", resources=Resources(gpu_milli=1000 * gpus))
    return then(state, e.JobEnqueued(spec=spec, submit_ms=NOW_MS, digest=DIGEST), at_ms=NOW_MS)


def victims(seen: Seen) -> dict[str, list[str]]:
    return {job: [victim.id for victim in found.victims] for job, found in seen.found.items()}


def test_a_victim_yields_to_one_job_only() -> None:
    state, _ = state_of(FULL)
    one_more(state, "next")
    seen = look(state, [LINE], NOW_MS, Memory())
    assert victims(seen) == {WAITS: ["job-1"], "next": ["job-0"]}


def test_what_a_victim_gives_beyond_what_its_job_needs_lets_the_next_one_in() -> None:
    state, _ = state_of(Crowd((4,), (0,), (Share(),), (Row(0, (0,), 4),), gpus=2, priority=1))
    one_more(state, "next")
    assert victims(look(state, [LINE], NOW_MS, Memory())) == {WAITS: ["job-0"]}


def test_a_job_that_fits_needs_nobody() -> None:
    state, _ = state_of(Crowd((4,), (0,), (Share(),), (Row(0, (0,), 2),), gpus=2, priority=1))
    assert victims(look(state, [LINE], NOW_MS, Memory())) == {}


def test_behind_a_head_that_stays_nobody_of_a_strict_line_is_looked_at() -> None:
    crowd = Crowd((4,), (0,), (Share(),), (Row(0, (0,), 2), Row(0, (0,), 2, priority=5)), gpus=4, priority=2)
    state, _ = state_of(crowd)
    one_more(state, "small")
    assert victims(look(state, [LINE], NOW_MS, Memory())) == {"small": ["job-0"]}
    strict = LINE.model_copy(update={"discipline": QueueDiscipline.STRICT_FIFO})
    assert victims(look(state, [strict], NOW_MS, Memory())) == {}


def test_where_too_little_could_become_free_the_missing_gpus_are_told() -> None:
    crowd = Crowd((4,), (0,), (Share(),), (Row(0, (0,), 2), Row(0, (0,), 2, priority=5)), gpus=4, priority=2)
    state, _ = state_of(crowd)
    assert look(state, [LINE], NOW_MS, Memory()).missing == {WAITS: 2}


def test_with_preemption_off_nobody_is_looked_at() -> None:
    state, _ = state_of(FULL)
    then(state, e.PolicySet(policy=CellPolicy(preemption=PreemptionMode.OFF)), at_ms=NOW_MS)
    assert look(state, [LINE], NOW_MS, Memory()) == Seen()


def test_a_state_is_given_back_by_a_look() -> None:
    state, _ = state_of(FULL)
    one_more(state, "next")
    before = one_more(state_of(FULL)[0], "next")
    look(state, [LINE], NOW_MS, Memory())
    assert state == before


# Memory.


def decision(at_ms: int, *effects: e.AnyEffect) -> Decision:
    return Decision(cell="main", version=9, epoch=1, inputs={}, at_ms=at_ms, effects=effects)


def asked_for(service: LoaningService, state: CellState, now_ms: int = NOW_MS) -> list[str]:
    return [proposal.preemptor for proposal in service.propose(state, [LINE], now_ms)]


def test_nothing_is_proposed_again_while_a_proposal_waits_for_its_answer() -> None:
    state, _ = state_of(FULL)
    service = LoaningService("one")
    assert asked_for(service, state) == [WAITS]
    assert asked_for(service, state) == []
    assert asked_for(service, state, NOW_MS + PATIENCE_MS) == []
    assert asked_for(service, state, NOW_MS + PATIENCE_MS + PAUSE_FIRST_MS) == [WAITS]


def test_who_comes_behind_counts_on_what_is_proposed_already() -> None:
    state, _ = state_of(FULL)
    service = LoaningService("one")
    (first,) = service.propose(state, [LINE], NOW_MS)
    one_more(state, "next")
    (second,) = service.propose(state, [LINE], NOW_MS)
    assert [each.job for each in first.victims + second.victims] == ["job-1", "job-0"]
    assert first.proposal != second.proposal


def test_behind_a_refusal_the_next_proposal_waits_and_each_time_twice_as_long() -> None:
    state, _ = state_of(FULL)
    service, now_ms = LoaningService("one"), NOW_MS
    for pause_ms in (PAUSE_FIRST_MS, 2 * PAUSE_FIRST_MS, 4 * PAUSE_FIRST_MS):
        (proposal,) = service.propose(state, [LINE], now_ms)
        refusal = e.ProposalRefused(proposal=proposal.proposal, code=ProposalCode.DOES_NOT_HELP)
        service.on_folded(decision(now_ms, refusal))
        assert asked_for(service, state, now_ms + pause_ms - 1) == []
        assert service.next_ms() == now_ms + pause_ms
        now_ms += pause_ms


def test_a_new_owner_of_the_cell_remembers_nothing() -> None:
    state, _ = state_of(FULL)
    service = LoaningService("one")
    assert asked_for(service, state) == [WAITS]
    service.on_take_over()
    assert asked_for(service, state) == [WAITS]


def test_a_look_is_due_when_something_has_changed() -> None:
    state, _ = state_of(FULL)
    service = LoaningService("one")
    assert service.is_due(NOW_MS)
    service.propose(state, [LINE], NOW_MS)
    assert not service.is_due(NOW_MS)
    service.on_folded(decision(NOW_MS, e.JobCancelled(job="job-0")))
    assert service.is_due(NOW_MS)


def test_a_pause_that_is_over_makes_one_look_due_and_no_more() -> None:
    state, _ = state_of(FULL)
    service = LoaningService("one")
    (proposal,) = service.propose(state, [LINE], NOW_MS)
    then(state, e.JobStopping(job="job-0", attempt=1, why=StopReason.DRAINED, grace_wall_ms=1), at_ms=NOW_MS)
    then(state, e.JobStopping(job="job-1", attempt=1, why=StopReason.DRAINED, grace_wall_ms=1), at_ms=NOW_MS)
    service.on_folded(decision(NOW_MS, e.ProposalRefused(proposal=proposal.proposal, code=ProposalCode.ATTEMPT_OVER)))
    after_ms = NOW_MS + PAUSE_FIRST_MS
    assert service.is_due(after_ms)
    assert service.propose(state, [LINE], after_ms) == []
    assert not service.is_due(after_ms)
    assert service.next_ms() is None


def test_a_memory_forgets_jobs_that_wait_no_more() -> None:
    memory = Memory()
    state, _ = state_of(FULL)
    found = look(state, [LINE], NOW_MS, memory).found[WAITS]
    memory.on_proposed(WAITS, Asked("one.1", found, NOW_MS))
    memory.on_folded(decision(NOW_MS, e.JobCancelled(job=WAITS)))
    assert not memory.asked


def with_elements(state: CellState, elements: int, running_max: int, priority: int = 1) -> CellState:
    """Elements of an array wait, each of two GPUs."""
    for index in range(elements):
        spec = JobSpec(
            id=f"arr.{index}", tenant="ada", priority=priority, queue="line", resources=Resources(gpu_milli=2_000),
            array_of="arr", array_index=index, array=elements, array_max_running=running_max,
        )  # fmt: skip
        then(state, e.JobEnqueued(spec=spec, submit_ms=NOW_MS, digest=DIGEST), at_ms=NOW_MS)
    return state


THREE = Crowd((6,), (0,), (Share(),), tuple(Row(0, (0,), 2) for _ in range(3)), gpus=6, priority=0)
"""A node with three jobs of two GPUs, and one of their priority that wants all six."""


def test_of_an_array_only_as_many_elements_get_victims_as_may_run() -> None:
    state, _ = state_of(THREE)
    with_elements(state, 3, 1)
    one_more(state, "next")
    memory = Memory()
    seen = look(state, [LINE], NOW_MS, memory)
    assert victims(seen) == {"arr.0": ["job-2"], "next": ["job-1"]}
    memory.on_proposed("arr.0", Asked("p-1", seen.found["arr.0"], NOW_MS))
    assert "arr.1" not in look(state, [LINE], NOW_MS, memory).found


def room_of(job: str) -> e.RoomHeld:
    """Two GPUs of the node are held for a job."""
    places = (WorkerPlace(rank=0, node="n0", devices=(0, 1), gpu_milli=2_000),)
    return e.RoomHeld(
        job=job, cause=PreemptionCause.PRIORITY, workers=places, victims=1, until_ms=2 * NOW_MS, proposal="p", version=1
    )


@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BEST_EFFORT_FIFO])
def test_elements_of_a_full_array_keep_no_other_job_from_victims(discipline: QueueDiscipline) -> None:
    state, _ = state_of(THREE)
    with_elements(state, 200, 1, priority=9)
    then(state, room_of("arr.0"), at_ms=NOW_MS)
    one_more(state, "next", priority=2)
    found = look(state, [LINE.model_copy(update={"discipline": discipline})], NOW_MS, Memory()).found
    assert [*found] == ["next"]


def test_behind_a_refused_proposal_its_victims_are_there_for_the_next_job() -> None:
    state, _ = state_of(Crowd((4,), (0,), (Share(),), (Row(0, (0,), 4),), gpus=4, priority=2))
    one_more(state, "next", gpus=4)
    service = LoaningService("one")
    (proposal,) = service.propose(state, [LINE], NOW_MS)
    assert proposal.preemptor == WAITS
    service.on_folded(decision(NOW_MS, e.ProposalRefused(proposal=proposal.proposal, code=ProposalCode.DOES_NOT_HELP)))
    assert service.is_due(NOW_MS)
    assert asked_for(service, state) == ["next"]


# Nodes that are silent, and those that have not confirmed.


def test_a_job_on_a_silent_node_yields_only_where_no_other_would_do() -> None:
    crowd = Crowd((2, 2, 2), (0, 0, 0), (Share(limit=4),), (Row(0, (0,), 2), Row(0, (1,), 2)), gpus=2, priority=1)
    state, _ = state_of(crowd)
    assert victims(look(state, [LINE], NOW_MS, Memory())) == {WAITS: ["job-1"]}
    then(state, e.NodeSilent(node="n1", boot=state.nodes["n1"].boot, silent_wall_ms=20_000), at_ms=NOW_MS)
    assert victims(look(state, [LINE], NOW_MS, Memory())) == {WAITS: ["job-0"]}
    then(state, e.NodeSilent(node="n0", boot=state.nodes["n0"].boot, silent_wall_ms=20_000), at_ms=NOW_MS)
    assert victims(look(state, [LINE], NOW_MS, Memory())) == {WAITS: ["job-1"]}


def test_a_job_for_which_idle_room_will_do_once_its_node_speaks_takes_nothing_for_a_minute() -> None:
    crowd = Crowd((2, 2), (0, 0), (Share(),), (Row(0, (0,), 2),), gpus=2, priority=1)
    state, _ = state_of(crowd)
    then(state, e.NodeSilent(node="n1", boot=state.nodes["n1"].boot, silent_wall_ms=20_000), at_ms=NOW_MS)
    memory = Memory()
    seen = look(state, [LINE], NOW_MS, memory)
    assert (victims(seen), seen.again_ms) == ({}, NOW_MS + WORDS_MS)
    assert victims(look(state, [LINE], NOW_MS + WORDS_MS - 1, memory)) == {}
    assert victims(look(state, [LINE], NOW_MS + WORDS_MS, memory)) == {WAITS: ["job-0"]}
