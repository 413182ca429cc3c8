"""How much longer a gang's training is estimated to take where it lies, than where it could lie."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.metrics.policy.kant.communication import RING, UNSTRETCHED, Ring, Spread
from fallow.services.metrics.policy.kant.fewest import Fewest, Kind
from fallow.services.metrics.policy.kant.jtted import Jtted
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, NodeStatus, Position, Resources, WorkerPlace
from tests.hypothesis_profile import reaches
from tests.metrics.logs import Log

ONE_GPU = Kind("pool-a", "gpu", GPU)
WHOLE_NODE = Kind("pool-a", "gpu", 8 * GPU)


def node(log: Log, name: str, leaf: str, gpus: int = 8, status: NodeStatus = NodeStatus.READY) -> None:
    spec = NodeSpec(id=name, pool="pool-a", gpus=gpus, position=Position(leaf=leaf))
    log.decide(log.state.at_ms, e.NodeChanged(spec=spec, boot="boot-1", status=status))


def two_leaves(log: Log) -> None:
    """Two leaf groups of two nodes of 8."""
    for name, leaf in (("a1", "leaf-a"), ("a2", "leaf-a"), ("b1", "leaf-b"), ("b2", "leaf-b")):
        node(log, name, leaf)


def gang(log: Log, job: str, *nodes: str, gpus: int = 8, estimate_run_ms: int | None = None) -> None:
    """A worker of so many GPUs on each of these nodes."""
    spec = JobSpec(
        id=job,
        tenant="acme",
        workers=len(nodes),
        resources=Resources(gpu_milli=gpus * GPU),
        estimate_run_ms=estimate_run_ms,
    )
    log.decide(log.state.at_ms, e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32))
    places = tuple(
        WorkerPlace(rank=rank, node=name, devices=tuple(range(gpus)), gpu_milli=gpus * GPU)
        for rank, name in enumerate(nodes)
    )
    log.decide(log.state.at_ms, e.JobStarted(job=job, attempt=1, workers=places))


# The model.


@pytest.mark.parametrize(
    ("spread", "stretch"),
    [
        # 16 GPUs compute and pass on for 11 each; two nodes are left once each, for 8; two leaf groups likewise.
        (Spread(gpus=16, nodes=2, leaves=1, nodes_fewest=2, leaves_fewest=1), 1_000),
        (Spread(gpus=16, nodes=2, leaves=2, nodes_fewest=2, leaves_fewest=1), 1_000 * (176 + 16 + 16) // (176 + 16)),
        (Spread(gpus=16, nodes=16, leaves=2, nodes_fewest=2, leaves_fewest=1), 1_000 * (176 + 128 + 16) // (176 + 16)),
        (Spread(gpus=8, nodes=2, leaves=1, nodes_fewest=1, leaves_fewest=1), 1_000 * (88 + 16) // 88),
    ],
)
def test_a_ring_takes_longer_by_the_hops_that_leave_nodes_and_leaf_groups(spread: Spread, stretch: int) -> None:
    assert RING.stretch(spread) == stretch


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_nothing_is_quicker_than_the_best_place(nodes: int, leaves: int, nodes_fewest: int, leaves_fewest: int) -> None:
    gpus = 8 * max(nodes, nodes_fewest)
    is_better, is_worse = nodes < nodes_fewest, leaves > leaves_fewest
    reaches("a place is better in one way and worse in the other one", is_better and is_worse)
    assert RING.stretch(Spread(gpus, nodes, leaves, nodes_fewest, leaves_fewest)) >= UNSTRETCHED


def test_a_model_without_a_network_stretches_nothing() -> None:
    model = Ring(node_hop=0, leaf_hop=0)
    assert model.stretch(Spread(gpus=64, nodes=64, leaves=8, nodes_fewest=8, leaves_fewest=1)) == UNSTRETCHED


# The best place.


@pytest.mark.parametrize(
    ("kind", "workers", "best"), [(ONE_GPU, 8, (1, 1)), (ONE_GPU, 9, (2, 1)), (WHOLE_NODE, 3, (3, 2))]
)
def test_the_fewest_nodes_and_leaf_groups_are_those_of_the_empty_pool(
    kind: Kind, workers: int, best: tuple[int, int]
) -> None:
    log = Log()
    two_leaves(log)
    gang(log, "in-the-way", "a1", "b1")
    assert Fewest().count(log.state, kind, workers) == best


def test_a_gang_that_no_pool_holds_gets_all_there_is() -> None:
    log = Log()
    two_leaves(log)
    assert Fewest().count(log.state, WHOLE_NODE, 100) == (4, 2)


def test_a_larger_node_that_comes_is_counted_and_one_that_goes_is_not_forgotten() -> None:
    fewest = Fewest()
    log = Log()
    two_leaves(log)
    assert fewest.count(log.state, ONE_GPU, 16) == (2, 1)
    node(log, "c1", "leaf-c", gpus=16)
    fewest.acts[e.NodeChanged](log.state, log.decisions[-1].effects[0], 0)
    assert fewest.count(log.state, ONE_GPU, 16) == (1, 1)
    log.lose(0, "c1")
    assert fewest.count(log.state, ONE_GPU, 16) == (1, 1)


def test_a_share_of_a_gpu_counts_as_often_as_a_gpu_holds_it() -> None:
    log = Log()
    node(log, "a1", "leaf-a", gpus=2)
    node(log, "a2", "leaf-a", gpus=2)
    assert Fewest().count(log.state, Kind("pool-a", "gpu", 300), 6) == (1, 1)
    assert Fewest().count(log.state, Kind("pool-a", "gpu", 300), 7) == (2, 1)


# The distribution.


def test_a_gang_across_two_leaf_groups_is_stretched_and_one_within_is_not() -> None:
    jtted = Jtted()
    log = Log(jtted.take)
    two_leaves(log)
    gang(log, "within", "a1", "a2")
    gang(log, "across", "b1", "b2")
    assert jtted.merged("pool")["pool-a"].counts == {1_000: 2}
    log.finish(0, "within")
    log.finish(0, "across")
    gang(log, "apart", "a1", "b1")
    assert jtted.merged("size_class")["9-16"].counts == {1_000: 2, 1_083: 1}


def test_one_worker_has_no_better_place() -> None:
    jtted = Jtted()
    log = Log(jtted.take)
    two_leaves(log)
    gang(log, "alone", "b2")
    assert jtted.merged("tenant")["acme"].counts == {1_000: 1}


def test_what_submitters_told_is_stretched_likewise() -> None:
    jtted = Jtted()
    log = Log(jtted.take)
    two_leaves(log)
    gang(log, "apart", "a1", "b1", estimate_run_ms=100_000)
    stretches = jtted.merged("pool")["pool-a"]
    assert (stretches.told_ms, stretches.estimated_ms) == (100_000, 108_300)


def test_percentiles_are_values_that_were_there() -> None:
    jtted = Jtted()
    log = Log(jtted.take)
    two_leaves(log)
    gang(log, "within", "a1", "a2")
    log.finish(0, "within")
    gang(log, "apart", "a1", "b1")
    stretches = jtted.merged("pool")["pool-a"]
    assert [stretches.percentile(percent) for percent in (0, 50, 51, 100)] == [1_000, 1_000, 1_083, 1_083]


@dataclass(frozen=True)
class PerNode:
    """A model of a user's own."""

    name: str = "per-node"

    def stretch(self, spread: Spread) -> int:
        return UNSTRETCHED * spread.nodes // spread.nodes_fewest


def test_another_model_may_be_put_in() -> None:
    jtted = Jtted(PerNode())
    log = Log(jtted.take)
    two_leaves(log)
    gang(log, "thin", "a1", "a2", "b1", "b2", gpus=4)
    assert jtted.merged("pool")["pool-a"].counts == {2_000: 1}


def test_a_start_of_an_unknown_job_is_measured_too() -> None:
    jtted = Jtted()
    log = Log()
    two_leaves(log)
    gang(log, "apart", "a1", "b1")
    state: CellState = log.state
    log.finish(0, "apart")
    jtted.take(state, log.decisions[-2])
    assert jtted.merged("size_class")["9-16"].counts == {1_083: 1}
