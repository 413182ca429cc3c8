"""A job that is tried again gets the places that a cell without the nodes of its last failures would give it, unless
there are none or they are worse for it than those that the whole cell gives it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import combinations

from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.placement.search.elsewhere import place_job, places_elsewhere_first
from fallow.services.placement.search.gang import POLICIES, Places, place_gang
from fallow.services.placement.search.partial_start import places_for
from fallow.shared.cluster.capacity.capacity import recount
from fallow.shared.cluster.capacity.topology import differs_from_recount
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, NodeStatus, TopologyRequest, Wish, WorkerPlace
from fallow.shared.events.reasons import PendingReason, RequeueReason
from tests.hypothesis_profile import reaches
from tests.placement.policy.test_every_policy import GANGS, SHARES
from tests.placement.worlds.networks import MACHINES, Machine, gang, indices_of, network, start, walked

NAMES = st.sampled_from(sorted(POLICIES))
AVOIDED = st.lists(st.integers(0, 3) | st.integers(0, 8), min_size=1, max_size=4, unique=True)
WHICH = st.lists(st.integers(0, 3), max_size=3, unique=True)
ZONED = MACHINES.map(
    lambda machines: [dataclasses.replace(each, zone="inference") if each.zone == "z2" else each for each in machines]
)
"""Some of the nodes are kept for inference."""

LOOSE = st.builds(
    lambda spec, service: replace(spec, gang=False, topology=None, kind=JobKind.INFERENCE if service else spec.kind),
    GANGS | SHARES,
    st.booleans(),
)


def names(numbers: list[int]) -> tuple[str, ...]:
    """Nodes by their numbers; some of them have never been."""
    return tuple(f"n{number:03}" for number in numbers)


def retried(spec: JobSpec, avoid: tuple[str, ...]) -> Job:
    return Job(spec, 0, "0" * 32, avoid=avoid)


def without(machines: list[Machine], policy: str, avoid: Sequence[str]) -> CellState:
    """The cell in which the avoided nodes take nothing new."""
    state = network(machines, policy)
    for node in [state.nodes[each] for each in avoid if each in state.nodes]:
        apply(state, e.NodeChanged(spec=node.spec, boot=node.boot, status=NodeStatus.CORDONED), 0)
    return state


LEVELS = (Level.NODE, Level.DOMAIN, Level.LEAF, Level.SPINE, Level.SUPERSPINE)


def unit(state: CellState, place: WorkerPlace, level: Level) -> str:
    at = state.nodes[place.node].spec.position
    path = f"{at.superspine}/{at.spine}/{at.leaf}/{at.domain}/{place.node}".split("/")
    return "/".join(path[: 5 - LEVELS.index(level)])


def harms(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> list[int]:
    """How far these places are from what the job asked for: neighbours where it is to be spread, replicas outside of
    the zone of inference, and of a wish for one unit of the network how far out a slice goes, and in how many they are.
    """
    found = []
    if spec.kind is JobKind.INFERENCE:
        found.append(sum(state.nodes[place.node].spec.labels.get("zone") != "inference" for place in places))
    if spec.spread is not None:
        units = [unit(state, place, spec.spread) for place in places]
        found.append(sum(a == b for a, b in combinations(units, 2)))
    if spec.topology is not None:
        size = spec.topology.slice_workers or len(places)
        wished = LEVELS.index(spec.topology.level)
        furthest = 0
        for begin in range(0, len(places), size):
            one = places[begin : begin + size]
            apart = [len({unit(state, place, level) for place in one}) > 1 for level in LEVELS[wished:]]
            furthest = max(furthest, sum(apart))
        found += [furthest, len({unit(state, place, LEVELS[wished]) for place in places})]
    return found


def the_better(
    state: CellState, spec: JobSpec, elsewhere: Places | PendingReason, anywhere: Places | PendingReason
) -> Places | PendingReason:
    """What the job is to get: the places elsewhere, unless there are none or they harm it more."""
    if isinstance(elsewhere, PendingReason) or isinstance(anywhere, PendingReason):
        return anywhere if isinstance(elsewhere, PendingReason) else elsewhere
    there, here = harms(state, spec, elsewhere), harms(state, spec, anywhere[: len(elsewhere)])
    return anywhere if any(a > b for a, b in zip(there, here, strict=True)) else elsewhere


def failed_on(numbers: list[int], which: list[int], anywhere: Places | PendingReason) -> tuple[str, ...]:
    """Nodes that a job has failed on: these, and some of those that it would get again."""
    taken = [] if isinstance(anywhere, PendingReason) else sorted({place.node for place in anywhere})
    return tuple(dict.fromkeys((*names(numbers), *(taken[each] for each in which if each < len(taken)))))


def first_found(
    avoid: Sequence[str], anywhere: Places | PendingReason, search: Callable[[Sequence[str]], Places | PendingReason]
) -> Places | PendingReason:
    """Without all of these nodes, or without as many of the last of them as the job can do without."""
    found = search(avoid)
    for most in range(len(avoid) - 1, 0, -1):
        if isinstance(found, PendingReason) and not isinstance(anywhere, PendingReason):
            found = search(avoid[-most:])
    return found


TOGETHER = st.builds(
    gang,
    st.just("gang"),
    st.integers(2, 4),
    st.integers(2, 5),
    topology=st.builds(TopologyRequest, level=st.sampled_from((Level.LEAF, Level.SPINE)), wish=st.just(Wish.PREFERRED)),
)
"""Gangs that wish to be in one unit of the network, as most of those that are worse off elsewhere do."""


@given(machines=ZONED, spec=GANGS | SHARES | TOGETHER, policy=NAMES, numbers=AVOIDED, which=WHICH.filter(bool))
@example(machines=[Machine("a"), Machine("a")], spec=gang("gang", 1), policy="best-fit", numbers=[], which=[0])
def test_a_gang_gets_what_a_cell_without_these_nodes_gives_unless_the_whole_one_gives_better(
    machines: list[Machine], spec: JobSpec, policy: str, numbers: list[int], which: list[int]
) -> None:
    anywhere, cell = place_gang(network(machines, policy), spec), network(machines, policy)
    avoid = failed_on(numbers, which, anywhere)
    elsewhere = first_found(avoid, anywhere, lambda ids: place_gang(without(machines, policy, ids), spec))
    oracle = the_better(cell, spec, elsewhere, anywhere)
    reaches("a gang starts elsewhere, since it has failed where it would start", oracle != anywhere)
    reaches("a gang starts where it has failed, since it would be worse off elsewhere", oracle == anywhere != elsewhere)
    assert place_job(cell, retried(spec, avoid)) == oracle


@given(
    machines=ZONED,
    spec=LOOSE,
    policy=NAMES,
    numbers=AVOIDED,
    which=WHICH,
    fewest=st.integers(1, 3),
    more=st.integers(0, 4),
)
def test_so_do_the_workers_of_jobs_that_are_no_gangs_and_replicas(
    machines: list[Machine],
    spec: JobSpec,
    policy: str,
    numbers: list[int],
    which: list[int],
    fewest: int,
    more: int,
) -> None:
    most, cell = fewest + more, network(machines, policy)
    anywhere = places_for(network(machines, policy), retried(spec, ()), fewest, most, 0)
    avoid = failed_on(numbers, which, anywhere)
    elsewhere = first_found(
        avoid,
        anywhere,
        lambda ids: places_for(without(machines, policy, ids), retried(spec, ()), fewest, most, 0),
    )
    oracle = the_better(cell, spec, elsewhere, anywhere)
    reaches("workers and replicas start elsewhere, since they have failed where they would start", oracle != anywhere)
    assert places_for(cell, retried(spec, avoid), fewest, most, 0) == oracle


@given(machines=MACHINES, specs=st.lists(GANGS | SHARES, min_size=1, max_size=5), policy=NAMES, numbers=AVOIDED)
def test_to_look_elsewhere_leaves_no_trace_in_the_state_and_its_indices(
    machines: list[Machine], specs: list[JobSpec], policy: str, numbers: list[int]
) -> None:
    state = network(machines, policy)
    is_elsewhere = False
    for number, spec in enumerate(specs):
        anywhere = place_gang(state, spec)
        before = digest_of(state)
        found = place_job(state, retried(spec, names(numbers)))
        is_elsewhere |= found != anywhere
        assert digest_of(state) == before
        assert not any(node.is_full for node in state.nodes.values())
        if not isinstance(found, PendingReason):
            start(state, replace(spec, id=f"gang-{number}"), found)
    reaches("a job that looks elsewhere finds other places", is_elsewhere)
    assert check_state(state) == []
    assert state.pools == recount(state.nodes)
    views = [view for pool in state.pools.values() for view in indices_of(pool)]
    assert [differs_from_recount(view) for view in views] == [None] * len(views)


def waiting(machines: list[Machine], policy: str, avoided: list[list[int]], gpus: int) -> CellState:
    """Jobs that are alike, each of which has failed on nodes of its own."""
    state = network(machines, policy)
    for number, avoid in enumerate(avoided):
        spec = gang(f"job-{number:02}", gpus)
        apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32), 0)
        state.jobs[spec.id].avoid = names(avoid)
    return state


@given(
    machines=MACHINES,
    policy=st.sampled_from(("best-fit", "e-binpack")),
    avoided=st.lists(st.just([]) | AVOIDED, min_size=2, max_size=10),
    gpus=st.integers(1, 3),
)
def test_jobs_that_are_alike_but_for_their_failures_start_as_if_each_was_placed_alone(
    machines: list[Machine], policy: str, avoided: list[list[int]], gpus: int
) -> None:
    together, alone = (waiting(machines, policy, avoided, gpus) for _ in range(2))
    names_in_order = tuple(f"job-{number:02}" for number in range(len(avoided)))
    expected = []
    for name in names_in_order:
        job = alone.jobs[name]
        found = place_job(alone, job)
        if not isinstance(found, PendingReason):
            apply(alone, e.JobStarted(job=job.id, attempt=1, workers=found), 0)
            expected.append((job.id, found))
    has_failed = any({*alone.jobs[name].avoid} & {*alone.nodes} for name, _ in expected)
    reaches("of jobs that are alike one starts that has failed on a node", has_failed)
    assert walked(together) == expected


def test_nodes_that_are_gone_or_take_nothing_new_cost_no_second_search() -> None:
    state, searches = network([Machine("a"), Machine("a")]), []
    node = state.nodes["n001"]
    apply(state, e.NodeChanged(spec=node.spec, boot=node.boot, status=NodeStatus.CORDONED), 0)

    def search() -> PendingReason:
        searches.append(1)
        return PendingReason.NO_FREE_GPUS

    places_elsewhere_first(state, retried(gang("job"), ("n001", "gone")), search)
    assert searches == [1]


def test_a_requeued_job_knows_its_last_failures_in_the_log() -> None:
    state = network([Machine("a")])
    spec = gang("job")
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason)
    start(state, spec, found)
    requeued = e.JobRequeued(
        job="job", reason=RequeueReason.WORKER_FAILED, not_before_ms=0, failures=1, avoid=("n000",)
    )
    apply(state, requeued, 0)
    assert state.jobs["job"].avoid == ("n000",)
