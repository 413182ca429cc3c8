"""Where the policy that minds fragments lets workers go, and what holds wherever it does."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.policy.frag_aware.demand import ask_of
from fallow.services.placement.policy.frag_aware.node_score_index import NodeScoreIndex, board_of
from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.policy.pods import cell, machine, nodes_of, pod, start, wait

GPU_TYPES = ("gpu", "old")
MACHINES = st.lists(
    st.tuples(
        st.integers(1, 4), st.sampled_from((4_000, 16_000)), st.sampled_from((8, 64)), st.sampled_from(GPU_TYPES)
    ),
    min_size=1,
    max_size=6,
)
PODS = st.lists(
    st.tuples(
        st.sampled_from((0, 110, 320, 470, 810, 1_000, 2_000)),
        st.sampled_from((0, 1_000, 6_000)),
        st.sampled_from((0, 8)),
        st.sampled_from(((), GPU_TYPES[:1], GPU_TYPES)),
    ),
    min_size=1,
    max_size=24,
)
Drawn = tuple[int, int, int, str]
Wanted = tuple[int, int, int, tuple[str, ...]]


def nodes_from(drawn: list[Drawn], names: list[int] | None = None) -> list[NodeSpec]:
    return [
        machine(f"n{name:02}", gpus, cpu, memory, pool=kind, gpu_type=kind)
        for name, (gpus, cpu, memory, kind) in zip(names or range(len(drawn)), drawn, strict=True)
    ]


def pods_from(wanted: list[Wanted]) -> list[JobSpec]:
    return [pod(f"job-{number:02}", *each) for number, each in enumerate(wanted)]


def looks(state: CellState) -> Counter[object]:
    """What the nodes are and what is free on them, whatever they are called."""
    return Counter(
        (n.spec.gpu_type, n.spec.gpus, n.cpu_used, n.memory_used, n.gpus_free, tuple(sorted(n.shares.values())))
        for n in state.nodes.values()
    )


def test_a_share_fills_the_device_that_it_leaves_no_rest_on() -> None:
    state = cell([machine("n1", 2)])
    wait(state, [pod(f"usual-{milli}-{number}", milli) for number in range(4) for milli in (700, 300)])
    assert nodes_of(state, [pod("a", 700), pod("b", 500)]) == ["n1", "n1"]
    last = start(state, pod("c", 300))
    assert last is not None
    assert (last.devices, state.nodes["n1"].shares) == ((0,), {0: 0, 1: 500})


def test_a_worker_of_many_cpus_goes_where_cpus_are_to_spare() -> None:
    state = cell([machine("lean", 2, cpu=8_000), machine("rich", 2, cpu=64_000)])
    wait(state, [pod(f"usual-{number}", 1_000, cpu=4_000) for number in range(8)])
    assert nodes_of(state, [pod("heavy", 1_000, cpu=8_000), pod("light", 1_000, cpu=1_000)]) == ["rich", "lean"]


def test_work_without_gpus_goes_where_no_gpu_waits_for_its_cpus() -> None:
    state = cell([machine("n1", 1, cpu=8_000), machine("n2", 1, cpu=8_000)])
    (busy,) = nodes_of(state, [pod("usual", 1_000, cpu=4_000)])
    place = start(state, pod("cpus", 0, cpu=4_000))
    assert place is not None
    assert (place.node, place.devices, place.gpu_milli) == (busy, (), 0)


def test_who_can_go_anywhere_leaves_the_nodes_that_others_need() -> None:
    state = cell([machine("n1", 2, pool="a"), machine("n2", 2, pool="b")])
    wait(state, [pod(f"usual-{number}", 1_000, pools=("a",)) for number in range(4)])
    assert nodes_of(state, [pod("free", 1_000), pod("bound", 1_000, pools=("a",))]) == ["n2", "n1"]


def test_a_whole_node_is_kept_for_jobs_of_all_its_gpus() -> None:
    state = cell([machine("n1", 4), machine("n2", 4)])
    wait(state, [pod(f"usual-{number}", 4_000) for number in range(4)])
    first, second = nodes_of(state, [pod("a", 1_000), pod("b", 1_000)])
    assert first == second


def test_a_gang_starts_whole_or_not_at_all() -> None:
    state = cell([machine("n1", 2), machine("n2", 2)])
    wait(state, [gang := replace(pod("gang", 1_000), workers=4), larger := replace(pod("larger", 1_000), workers=5)])
    found = place_gang(state, gang)
    assert not isinstance(found, PendingReason)
    assert len(found) == gang.workers
    assert isinstance(place_gang(state, larger), PendingReason)


@given(drawn=MACHINES, wanted=PODS)
def test_nothing_is_ever_promised_twice(drawn: list[Drawn], wanted: list[Wanted]) -> None:
    state = cell(nodes_from(drawn))
    placed = nodes_of(state, pods_from(wanted))
    reaches("some pods find places, and for others nothing is left", {"-"} < {*placed})
    assert check_state(state) == []
    assert all(n.cpu_used <= n.spec.cpu_milli and n.memory_used <= n.spec.memory_mib for n in state.nodes.values())


@given(drawn=MACHINES, wanted=PODS, data=st.data())
def test_other_names_of_the_nodes_change_nothing_but_names(
    drawn: list[Drawn], wanted: list[Wanted], data: st.DataObject
) -> None:
    names = data.draw(st.permutations(range(len(drawn))))
    one, other = cell(nodes_from(drawn)), cell(nodes_from(drawn, list(names)))
    placed, placed_other = nodes_of(one, pods_from(wanted)), nodes_of(other, pods_from(wanted))
    reaches("other names of nodes are in another order", names != sorted(names) and {*placed} != {"-"})
    assert [node == "-" for node in placed] == [node == "-" for node in placed_other]
    assert looks(one) == looks(other)


@given(drawn=MACHINES, wanted=PODS, data=st.data())
def test_costs_kept_by_delta_are_those_counted_from_nothing(
    drawn: list[Drawn], wanted: list[Wanted], data: st.DataObject
) -> None:
    state, specs = cell(nodes_from(drawn)), pods_from(wanted)
    undone, kept = False, False
    for spec in specs:
        mark = state.checkpoint()
        is_started, is_undone = start(state, spec) is not None, data.draw(st.booleans())
        undone, kept = undone or (is_started and is_undone), kept or (is_started and not is_undone)
        state.rollback(mark) if is_undone else state.commit(mark)
        if data.draw(st.booleans()):
            node = data.draw(st.sampled_from(list(state.nodes.values())))
            status = data.draw(st.sampled_from((NodeStatus.READY, NodeStatus.CORDONED)))
            apply(state, e.NodeChanged(spec=node.spec, boot=node.boot, status=status), 0)
        for pool in state.pools.values():
            board = board_of(state, pool)
            anew = NodeScoreIndex.of(state, pool, board.demand)
            asks = [ask_of(each) for each in specs]
            assert [board.least(ask, None) for ask in asks] == [anew.least(ask, None) for ask in asks]
            assert [board.least(ask, 1) for ask in asks] == [anew.least(ask, 1) for ask in asks]
    reaches("the start of one pod is undone, and that of another one stays", undone and kept)
