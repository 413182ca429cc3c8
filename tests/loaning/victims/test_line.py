"""Equal jobs that share a search get the victims that a search for each alone would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.loaning.policy.preemption.holdings import Holdings
from fallow.services.loaning.policy.preemption.look import look
from fallow.services.loaning.policy.preemption.memory import Memory
from fallow.services.loaning.policy.preemption.search import EXACT_MAX, Found, find_victims
from fallow.services.loaning.policy.preemption.trial import enters, leave
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from tests.cluster.worlds.examples import DIGEST, then
from tests.hypothesis_profile import reaches
from tests.loaning.worlds.crowded import NOW_MS, WAITS, Crowd, Row, Share, state_of

Told = list[tuple[str, tuple[str, ...]]]
NODES, GPUS, MORE = 4, 4, 7

rows = st.builds(
    Row, tenant=st.sampled_from([1, 2]), nodes=st.just((0,)), age_s=st.integers(1, 3), priority=st.sampled_from([0, 1])
)


@given(st.lists(rows, min_size=NODES * GPUS, max_size=NODES * GPUS), st.sampled_from([1, 2]))
def test_equal_jobs_get_whom_each_would_find_alone(drawn: list[Row], gpus: int) -> None:
    placed = tuple(replace_nodes(row, at // GPUS) for at, row in enumerate(drawn))
    shares = (Share(guaranteed=NODES * GPUS), Share(), Share())
    crowd = Crowd((GPUS,) * NODES, (0,) * NODES, shares, placed, gpus=gpus)
    together = told_together(crowded(crowd), crowd)
    assert together == told_one_by_one(crowded(crowd), crowd)
    reaches("jobs found in line", sum(len(gone) for _, gone in together) < NODES * GPUS - EXACT_MAX + 2)


def replace_nodes(row: Row, node: int) -> Row:
    return Row(row.tenant, (node,), row.gpus, row.priority, row.age_s)


def crowded(crowd: Crowd) -> CellState:
    state, job = state_of(crowd)
    for number in range(MORE):
        spec = replace(job.spec, id=f"{WAITS}-{number}")
        then(state, e.JobEnqueued(spec=spec, submit_ms=NOW_MS // 2 + number, digest=DIGEST), at_ms=NOW_MS)
    return state


def told_together(state: CellState, crowd: Crowd) -> Told:
    found = look(state, [crowd.queue], NOW_MS, Memory()).found
    return [(job, tuple(each.spec.id for each in theirs.victims)) for job, theirs in found.items()]


def told_one_by_one(state: CellState, crowd: Crowd) -> Told:
    told: Told = []
    holdings, mark = Holdings.of(state), state.checkpoint()
    for name in (WAITS, *(f"{WAITS}-{number}" for number in range(MORE))):
        job = state.jobs[name]
        found = find_victims(state, job, crowd.queue, NOW_MS, holdings)
        if not isinstance(found, Found):
            break
        told.append((name, tuple(each.spec.id for each in found.victims)))
        leave(state, found.victims)
        for each in found.victims:
            holdings.go(state, each)
        enters(state, job, found.places)
    state.rollback(mark)
    return told
