"""Effects whose size grows with workers or nodes, where jobs and nodes have the longest names: each fits its record."""

from __future__ import annotations

from collections.abc import Iterator

from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, NodeStatus, Resources, RunStatus
from fallow.shared.events.nodes import RunsReported, RunStatusUpdate
from fallow.shared.events.operations import Drain
from tests.placement.worlds.replicas import service
from tests.placement.worlds.vast import at_length, is_sound, long_names, quick
from tests.placement.worlds.world import CELL, World, admitted, joined, lost, spec_of, update

JOB = at_length("job")
SHARE = Resources(gpu_milli=1)


def found(world: World, kind: type[e.Effect]) -> Iterator[e.AnyEffect]:
    return (effect for decision in world.decisions for effect in decision.effects if isinstance(effect, kind))


def say(world: World, words: list[RunStatusUpdate]) -> None:
    world.tell(*(RunsReported(cell=CELL, words=tuple(words[at : at + 1_000])) for at in range(0, len(words), 1_000)))


def words(world: World, status: RunStatus, seq: int, text: str = "") -> list[RunStatusUpdate]:
    """The same word of all nodes of the gang, one after the other."""
    on = dict.fromkeys(place.node for place in world.job(JOB).workers)
    return [
        RunStatusUpdate(node=node, boot="boot-1", seq=seq, job=JOB, attempt=1, status=status, text=text) for node in on
    ]


def test_a_gang_on_thousands_of_nodes_starts_fails_on_all_of_them_and_waits_again() -> None:
    """JobStarted, RunObserved, JobRunning, JobStopping, NodeFailures, JobRequeued."""
    world = quick(*(joined(node, 1) for node in long_names(4_500)))
    retry = spec_of(JOB).retry.__class__(budget=1)
    world.tell(admitted(spec_of(JOB, workers=4_500, retry=retry)))
    say(world, words(world, RunStatus.RUNNING, 9_000))
    assert world.job(JOB).status is JobStatus.RUNNING
    say(world, words(world, RunStatus.FAILED, 9_001, text="\0" * 500))
    is_sound(world)
    assert len(list(found(world, e.RunObserved))) >= 4_499
    assert world.job(JOB).failures == 1
    assert world.job(JOB).workers == ()


def test_a_snapshot_too_names_each_node_of_a_gang_once_and_holds_the_same_state() -> None:
    world = quick(*(joined(node, 8) for node in long_names(100)))
    world.tell(admitted(spec_of(JOB, workers=800)))
    rows = list(rows_of(world.state))
    (row,) = (row for row in rows if row.startswith('["job"'))
    assert row.count(long_names(1)[0]) == 2, "with its workers and with what it has said"
    again = state_from(rows)
    assert again.jobs == world.state.jobs
    assert list(rows_of(again)) == rows


def test_thousands_of_nodes_are_lost_under_one_gang() -> None:
    """LeaseExpired and RunObserved."""
    nodes = long_names(2_000)
    world = quick(*(joined(node, 1) for node in nodes))
    world.tell(admitted(spec_of(JOB, workers=2_000)))
    world.tell(*(lost(node) for node in nodes))
    is_sound(world)
    assert {node.status for node in world.state.nodes.values()} == {NodeStatus.LOST}
    assert world.job(JOB).status is JobStatus.QUEUED


def single_workers(count: int) -> World:
    """A job that is no gang with all of its workers on one node, which share its devices."""
    node = at_length("n")
    world = quick(joined(node, count // 1_000))
    world.tell(admitted(spec_of(JOB, workers=count, workers_min=1, gang=False, resources=SHARE)))
    assert len(world.job(JOB).workers) == count
    return world


def test_a_node_of_thousands_of_single_workers_of_one_job_is_lost() -> None:
    """JobStarted, JobResizing with places, WorkersSettled."""
    world = single_workers(6_000)
    world.tell(lost(at_length("n")))
    is_sound(world)
    (settled,) = (effect for effect in found(world, e.WorkersSettled) if isinstance(effect, e.WorkersSettled))
    assert len(settled.gone) == 6_000
    assert world.job(JOB).status is JobStatus.QUEUED


def test_a_node_of_thousands_of_single_workers_of_one_job_is_emptied() -> None:
    """JobResizing with ranks to leave."""
    world = single_workers(6_000)
    world.tell(Drain(cell=CELL, node=at_length("n")))
    is_sound(world)
    assert len(world.job(JOB).leaving) == 6_000


def test_a_service_of_thousands_of_replicas_gives_up_all_but_one() -> None:
    world = quick(*(joined(node, 1) for node in long_names(2)))
    world.tell(admitted(service(JOB, 2_000, workers_min=1, resources=SHARE)))
    world.tell(update(JOB, workers=1))
    is_sound(world)
    assert len(world.job(JOB).leaving) == 1_999
    assert world.job(JOB).spec.resources.gpu_milli < GPU
