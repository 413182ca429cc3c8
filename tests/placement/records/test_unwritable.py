"""No input makes a record that a reader could not read: what is too much is split, a culprit is set aside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.job.story.reason import lines
from fallow.services.placement.decision.inbox import Inbox, Input
from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.capacity.gang_bytes import (
    GANG_BYTES_MAX,
    bytes_of,
    fewest_bytes,
    max_workers,
    workers_per_node,
)
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.codec.ranges import ranges_of
from fallow.shared.events.fields.values import (
    GPU,
    LABELS_MAX,
    JobSpec,
    NodeStatus,
    ProcessRun,
    Resources,
    RetryPolicy,
    RunStatus,
    WorkerPlace,
)
from fallow.shared.events.jobs import AdmittedJob, JobsAdmitted
from fallow.shared.events.nodes import NodesReported, RunsReported, RunStatusUpdate
from fallow.shared.events.operations import Cordon, Drain, PlanMaintenance, Quota, ReloadCell, SetQuota
from fallow.shared.events.reasons import DeadLetterReason, PendingReason, ProposalCode
from fallow.shared.log.machine.tenure import Tenure
from fallow.shared.log.machine.writer import UnwritableDecision
from tests.hypothesis_profile import reaches
from tests.placement.worlds.vast import at_length, is_sound, long_names, quick, wide
from tests.placement.worlds.world import (
    CELL,
    DIGEST,
    World,
    admitted,
    failed,
    joined,
    kinds,
    lost,
    quota,
    report,
    set_policy,
    set_quotas,
    spec_of,
    started,
    update,
)

FAR_MS = 2**62
"""No reader takes this for a time."""

LABELS = {f"label-{number:03}": "v" * 32 for number in range(48)}
"""2.3 kB."""


def large(job: str, kb: int = 450) -> JobSpec:
    return spec_of(job, run=ProcessRun(argv=tuple("x" * 8_000 for _ in range(kb // 8))))


# A culprit.


def far(job: str) -> AdmittedJob:
    return AdmittedJob(spec=spec_of(job), submit_ms=FAR_MS, digest=DIGEST)


def near(job: str) -> AdmittedJob:
    return AdmittedJob(spec=spec_of(job), submit_ms=0, digest=DIGEST)


@pytest.mark.parametrize("at", [0, 1, 137, 299])
def test_one_input_of_many_that_cannot_be_written_is_set_aside_and_the_others_count(at: int) -> None:
    world = quick()
    jobs = [admitted(spec_of(f"job-{number}")) for number in range(300)]
    jobs[at] = admitted(spec_of(f"job-{at}"), submit_ms=FAR_MS)
    world.tell(*jobs)
    world.check()
    ((item, stray),) = world.service.take_strays()
    assert (item.next_offset, stray.reason) == (at + 1, DeadLetterReason.UNWRITABLE)
    assert stray.text.startswith("effects[0].JobEnqueued.submit_ms: must be at most")
    assert str(FAR_MS) in stray.text
    assert sorted(world.state.jobs) == sorted(f"job-{number}" for number in range(300) if number != at)
    assert world.service.read["jobs-0"] == 300


def test_one_job_of_a_record_of_many_is_set_aside_alone() -> None:
    world = quick()
    jobs = tuple(far(f"job-{number}") if number == 41 else near(f"job-{number}") for number in range(100))
    world.tell(JobsAdmitted(cell=CELL, jobs=jobs), admitted(spec_of("next")))
    world.check()
    assert len(world.service.take_strays()) == 1
    assert sorted(world.state.jobs) == sorted(["next", *(f"job-{n}" for n in range(100) if n != 41)])
    assert world.service.read["jobs-0"] == 2


def test_several_culprits_are_found_one_by_one() -> None:
    world = quick(joined("n1"))
    jobs = [admitted(spec_of(f"job-{n}"), submit_ms=FAR_MS if n % 50 == 7 else 0) for n in range(200)]
    world.tell(*jobs, report("n1"))
    world.check()
    assert [item.next_offset for item, _ in world.service.take_strays()] == [8, 58, 108, 158]
    assert len(world.state.jobs) == 196


def test_a_record_is_read_only_with_its_last_part() -> None:
    world = quick()
    world.service.take_strays()
    jobs = tuple(far(f"job-{number}") if number == 99 else near(f"job-{number}") for number in range(100))
    world.tell(JobsAdmitted(cell=CELL, jobs=jobs))
    read = [decision.inputs.get("jobs-0", 0) for decision in world.decisions]
    assert all(earlier <= later for earlier, later in pairwise(read))
    parts = [decision for decision in world.decisions if "JobEnqueued" in kinds(decision.effects)]
    assert len(parts) > 1
    assert all("jobs-0" not in decision.inputs for decision in parts)
    assert world.service.read["jobs-0"] == 1


def test_a_new_writer_reads_a_half_read_record_once_more_and_no_job_comes_twice() -> None:
    world = quick()
    jobs = tuple(far(f"job-{number}") if number == 60 else near(f"job-{number}") for number in range(100))
    world.hand_over(JobsAdmitted(cell=CELL, jobs=jobs))
    while not world.state.jobs:
        world.decide()
    assert 0 < len(world.state.jobs) < 100
    world.restart()
    world.check()
    assert len(world.state.jobs) == 99


def test_what_is_due_by_itself_and_cannot_be_written_stops_the_cell_and_says_why() -> None:
    world = quick(joined("n1"))
    world.run(spec_of("a", max_run_ms=1_000))
    world.state.policy = world.state.policy.__class__(stop_grace_wall_ms=FAR_MS)
    world.now_ms += 2_000
    with pytest.raises(UnwritableDecision, match="grace_wall_ms"):
        decide_again_and_again(world)


def decide_again_and_again(world: World) -> None:
    tenure = Tenure(world.state, world.service)
    for _ in range(30):
        tenure.begin()
        tried = world.service.decide(world.now_ms, world.wall_ms)
        assert tried is not None
        tenure.draft(tried)


def test_what_is_due_is_due_again_after_a_decision_that_could_not_be_written() -> None:
    world = quick(joined("n1"))
    world.run(spec_of("a", max_run_ms=1_000))
    world.hand_over(admitted(spec_of("far"), submit_ms=FAR_MS))
    world.now_ms += 2_000
    world.rest()
    world.check()
    assert world.job("a").status is JobStatus.STOPPING
    assert len(world.service.take_strays()) == 1


def test_a_node_that_is_due_to_be_forgotten_in_a_record_that_cannot_be_written_is_forgotten_by_the_next_one() -> None:
    world = quick(joined("n1"), joined("n2"))
    world.tell(set_policy(remove_lost_ms=1_000), lost("n1"))
    world.hand_over(admitted(spec_of("far"), submit_ms=FAR_MS))
    world.now_ms += 2_000
    world.rest()
    world.check()
    assert list(world.state.nodes) == ["n2"]
    assert len(world.service.take_strays()) == 1


# Too much for one record.


def test_updates_of_large_jobs_are_counted_with_all_that_the_jobs_hold() -> None:
    world = quick()
    names = ("a", "b", "c")
    world.tell(*(admitted(large(name)) for name in names), size_bytes=460_000)
    world.tell(*(update(name, priority=7) for name in names))
    is_sound(world)
    assert [world.job(name).spec.priority for name in names] == [7, 7, 7]


def test_nodes_with_many_labels_join_at_once() -> None:
    world = quick(*(joined(f"n{number:03}", labels=LABELS) for number in range(500)))
    is_sound(world)
    assert len(world.state.nodes) == 500


def lost_nodes(count: int) -> World:
    world = quick(*(joined(f"n{number:04}", labels=LABELS) for number in range(count)))
    world.tell(*(lost(f"n{number:04}") for number in range(count)))
    assert {node.status for node in world.state.nodes.values()} == {NodeStatus.LOST}
    return world


def test_a_thousand_lost_nodes_report_back_in_one_record() -> None:
    world = lost_nodes(1_000)
    reports = tuple(report(f"n{number:04}") for number in range(1_000))
    numbered = tuple(type(each)(cell=CELL, node=each.node, boot=each.boot, seq=5_000) for each in reports)
    world.tell(NodesReported(cell=CELL, reports=numbered))
    is_sound(world)
    assert {node.status for node in world.state.nodes.values()} == {NodeStatus.READY}


def test_a_node_of_thousands_of_jobs_is_lost_in_several_records() -> None:
    world = crowded()
    before = len(world.log)
    world.tell(lost("n1"))
    is_sound(world, since=before)
    assert len(world.log) - before > 2
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.QUEUED}


def crowded() -> World:
    """A node with thousands of jobs of long names."""
    world = quick(joined("n1", 4_000))
    names = [f"job-{number:04}-{'x' * 100}" for number in range(4_000)]
    world.tell(*(admitted(spec_of(name)) for name in names))
    world.tell(*(started(name) for name in names))
    return world


def test_a_writer_that_takes_over_goes_on_with_a_node_that_is_half_lost() -> None:
    world = crowded()
    world.hand_over(lost("n1"))
    world.decide()
    running = [job for job in world.state.jobs.values() if job.status is JobStatus.RUNNING]
    assert 0 < len(running) < 4_000
    world.restart()
    is_sound(world)
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.QUEUED}


def test_a_node_that_comes_back_while_it_is_half_lost_works_again_when_nothing_of_it_is_left() -> None:
    world = crowded()
    world.tell(joined("n1", 4_000, boot="boot-2"))
    assert statuses(world) == [NodeStatus.LOST]
    world.tell(joined("n1", 4_000, boot="boot-2"))
    is_sound(world)
    assert statuses(world) == [NodeStatus.READY]


def test_a_half_lost_node_that_reports_works_again_only_when_the_log_has_the_end_of_its_runs() -> None:
    world = crowded()
    world.hand_over(lost("n1"))
    world.decide()
    assert any(job.status is JobStatus.RUNNING for job in world.state.jobs.values())
    world.tell(report("n1"))
    assert statuses(world) == [NodeStatus.LOST]
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.QUEUED}
    world.tell(report("n1"))
    is_sound(world)
    assert statuses(world) == [NodeStatus.READY]


def statuses(world: World) -> list[NodeStatus]:
    return [node.status for node in world.state.nodes.values()]


@pytest.mark.parametrize("kind", ["drain", "maintenance"])
def test_a_node_of_thousands_of_jobs_is_emptied_in_several_records(kind: str) -> None:
    world = crowded()
    before = len(world.log)
    if kind == "drain":
        world.tell(Drain(cell=CELL, node="n1"))
    else:
        world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=0, end_ms=10_000))
    is_sound(world, since=before)
    assert len(world.log) - before > 2
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.STOPPING}


def test_long_words_of_a_thousand_failures_come_in_several_records() -> None:
    world = quick(joined("n1", 1_000))
    names = [f"job-{number:04}" for number in range(1_000)]
    world.run(*(spec_of(name) for name in names))
    words = tuple(
        RunStatusUpdate(
            node="n1", boot="boot-1", seq=9_000 + n, job=name, attempt=1, status=RunStatus.FAILED, text="\0" * 500
        )
        for n, name in enumerate(names)
    )
    before = len(world.log)
    world.tell(RunsReported(cell=CELL, words=words))
    is_sound(world, since=before)
    assert len(world.log) - before > 2
    assert world.state.jobs == {}


def of_many_tenants(count: int) -> CellFile:
    """So many tenants with four quotas each, which all but one of them have from the tenant above them."""
    quotas = tuple(TenantQuota(gpu_type=f"type-{number}-{'x' * 100}", limit=10**9) for number in range(4))
    below = (Tenant(name=f"tenant-{number:05}-{'x' * 40}", parent="lab") for number in range(1, count))
    return CellFile(cells=wide().cells, tenants=(Tenant(name="lab", quotas=quotas), *below))


def test_a_cell_file_of_thousands_of_quotas_is_put_in_force_by_several_records() -> None:
    world = quick(file=of_many_tenants(1_500))
    is_sound(world)
    assert len(world.state.quotas) == 6_000


def test_a_writer_that_takes_over_goes_on_with_a_cell_file_that_is_half_in_force() -> None:
    world = World(of_many_tenants(1_500))
    world.checks = False
    assert 0 < len(world.state.quotas) < 6_000
    world.restart()
    is_sound(world)
    assert len(world.state.quotas) == 6_000


def test_a_reloaded_cell_file_of_thousands_of_quotas_is_put_in_force_by_several_records() -> None:
    world = quick()
    world.service.reload(of_many_tenants(1_500))
    world.tell(ReloadCell(cell=CELL))
    is_sound(world)
    assert len(world.state.quotas) == 6_000


def test_quotas_that_no_record_holds_are_refused_with_their_size() -> None:
    world = quick()
    most = 2**53 - 1
    quotas = tuple(
        Quota(tenant="ada", gpu_type=f"{'t' * 100}{number}", limit_milli=most, borrow_limit_milli=most)
        for number in range(2_500)
    )
    world.tell(SetQuota(cell=CELL, quotas=quotas))
    is_sound(world)
    (refused,) = [each for each in world.decisions[-1].effects if isinstance(each, e.ProposalRefused)]
    assert refused.code is ProposalCode.NOT_ALLOWED
    assert refused.text.startswith("2500 quotas need ")


def test_a_node_that_tells_too_much_of_itself_is_set_aside_with_the_figure() -> None:
    labels = {at_length(f"label-{number:03}"): at_length("v") for number in range(LABELS_MAX)}
    world = quick(joined("n1", labels=labels), joined("n2"))
    ((_, stray),) = world.service.take_strays()
    size = len(encode(joined("n1", labels=labels).spec))
    assert stray.reason is DeadLetterReason.TOO_LARGE
    assert stray.text == f"spec: {size} bytes, a node has at most 64000 with all of its labels"
    world.tell(Cordon(cell=CELL, node="n2"))
    assert list(world.state.nodes) == ["n2"]


@pytest.mark.parametrize("gang", [True, False])
def test_the_longest_pause_before_a_new_try_ends_with_cell_time(gang: bool) -> None:
    world = quick(joined("n1"))
    world.now_ms = 1_700_000_000_000
    retry = RetryPolicy(budget=3, backoff_ms=LARGEST_INTEGER, backoff_max_ms=LARGEST_INTEGER)
    longest = RetryPolicy(budget=3, backoff_ms=LATEST_MS, backoff_max_ms=LATEST_MS)
    world.run(spec_of("a", retry=retry, gang=gang), spec_of("b", retry=longest, gang=gang))
    world.tell(*(failed(job, rank=None if gang else 0) for job in ("a", "b")))
    is_sound(world)
    assert world.job("a").not_before_ms == 1_700_000_000_000 + LARGEST_INTEGER
    assert world.job("b").not_before_ms == LATEST_MS


def test_limits_of_tenants_are_read_by_every_reader() -> None:
    world = quick(joined("n1", 8))
    world.tell(set_quotas(quota("ada", 2**53 // 1000 - 1)))
    world.tell(admitted(spec_of("a", workers=2)))
    is_sound(world)
    assert world.job("a").status is JobStatus.STARTING
    assert world.job("a").spec.resources == Resources(gpu_milli=1000)


def run_to_the_end(world: World, job: str, nodes: list[str]) -> None:
    """All of these nodes say that the job runs there, and then that it has finished."""
    for number, status in enumerate((RunStatus.RUNNING, RunStatus.FINISHED)):
        words = [
            RunStatusUpdate(node=node, boot="boot-1", seq=9_000 + number, job=job, attempt=1, status=status)
            for node in nodes
        ]
        world.tell(*(RunsReported(cell=CELL, words=tuple(words[at : at + 500])) for at in (0, 500, 1_000)))
    is_sound(world)
    assert world.state.finished[job].status is JobStatus.FINISHED


def test_a_gang_of_ten_thousand_workers_starts_runs_and_ends() -> None:
    nodes = [f"gpu-node-{number:04}.cluster" for number in range(1_250)]
    world = quick(*(joined(node, 8) for node in nodes))
    world.tell(admitted(spec_of("huge", workers=10_000)))
    is_sound(world)
    assert sorted(set(world.nodes_of("huge"))) == nodes
    run_to_the_end(world, "huge", nodes)


@pytest.mark.parametrize("placement", ["best-fit", "e-binpack", "spread"])
def test_a_gang_of_ten_thousand_workers_on_nodes_of_the_longest_names_starts_runs_and_ends(placement: str) -> None:
    nodes = long_names(1_250)
    world = quick(*(joined(node, 8) for node in nodes), file=wide(placement=placement))
    world.tell(admitted(spec_of("huge", workers=10_000)))
    is_sound(world)
    assert sorted(set(world.nodes_of("huge"))) == nodes
    assert max(len(record.value) for record in world.log if b"JobStarted" in record.value) < 300_000
    run_to_the_end(world, "huge", nodes)


def test_a_gang_that_no_record_holds_waits_with_a_code_of_its_own_and_the_cell_goes_on() -> None:
    """One worker on each of 10,000 nodes of long names: nearly two megabytes, however they are written."""
    nodes = long_names(10_000)
    world = quick(*(joined(node, 1) for node in nodes))
    world.tell(admitted(spec_of("huge", workers=10_000)))
    huge = world.job("huge")
    assert huge.deferred is PendingReason.RECORD_TOO_LARGE
    found = why_not(world.state, huge, (), world.state.at_ms)
    assert found.codes == (PendingReason.RECORD_TOO_LARGE,)
    each = [WorkerPlace(rank=rank, node=node, devices=(0,), gpu_milli=GPU) for rank, node in enumerate(nodes)]
    figure = f"its places need {len(msgspec.json.encode(each))} bytes, the record in which it starts takes 950000"
    assert figure in "\n".join(lines(found, huge.spec))
    world.tell(admitted(spec_of("next", workers=100)))
    is_sound(world)
    assert world.job("next").status is JobStatus.STARTING
    assert world.job("huge").status is JobStatus.QUEUED


def test_workers_of_a_job_that_is_no_gang_start_as_far_as_a_record_tells_of_them() -> None:
    world = quick(*(joined(node, 1) for node in long_names(6_000)))
    world.tell(admitted(spec_of("many", workers=6_000, workers_min=3_000, gang=False)))
    is_sound(world)
    assert len(world.job("many").workers) == 6_000
    first = next(effect for effect in effects_of(world) if isinstance(effect, e.JobStarted))
    assert 3_000 <= len(first.workers) < 6_000


def test_a_job_that_is_no_gang_and_of_which_no_record_holds_the_fewest_workers_waits_with_that_code() -> None:
    world = quick(*(joined(node, 1) for node in long_names(6_000)))
    world.tell(admitted(spec_of("many", workers=6_000, workers_min=5_900, gang=False)))
    is_sound(world)
    assert world.job("many").deferred is PendingReason.RECORD_TOO_LARGE


def effects_of(world: World) -> Iterator[e.AnyEffect]:
    return (effect for decision in world.decisions for effect in decision.effects)


def test_a_gang_that_is_too_large_for_a_record_in_one_pool_starts_in_another() -> None:
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="a", gpus=9_000), Pool(name="b", gpus=9_000)))
    world = quick(file=CellFile(cells=(part,), tenants=(Tenant(name="ada"),)))
    world.tell(*(joined(node, 1, pool="a") for node in long_names(9_000)))
    world.tell(*(joined(f"b{number}", 1, pool="b") for number in range(9_000)))
    world.tell(admitted(spec_of("huge", workers=9_000)))
    is_sound(world)
    assert world.job("huge").status is JobStatus.STARTING
    assert world.job("huge").workers[0].node.startswith("b")


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """What a worker needs, how many GPUs a node has, and how many workers sit on each of some nodes."""
    gpus_per_node = draw(st.integers(1, 40))
    gpu_milli = draw(st.sampled_from((1, 250, 500, 999)) | st.integers(1, gpus_per_node).map(lambda gpus: gpus * GPU))
    most = min(workers_per_node(gpu_milli, gpus_per_node), 500)
    return gpu_milli, gpus_per_node, draw(st.lists(st.integers(1, most) | st.just(most), min_size=1, max_size=90))


@given(layouts())
def test_no_gang_takes_less_than_what_admission_takes_for_the_least(layout: tuple[int, int, list[int]]) -> None:
    gpu_milli, gpus_per_node, on_nodes = layout
    reaches("several workers sit on each of several nodes", len(on_nodes) > 1 and min(on_nodes) > 1)
    needed, places = max(1, gpu_milli // GPU), list[WorkerPlace]()
    for node, workers in enumerate(on_nodes):
        for at in range(workers):
            per_device = 1 if gpu_milli >= GPU else GPU // gpu_milli
            first = at // per_device * needed
            devices = tuple(range(first, first + needed))
            places.append(WorkerPlace(rank=len(places), node=chr(200 + node), devices=devices, gpu_milli=gpu_milli))
    text = msgspec.json.encode(ranges_of(places)).decode()  # names of one sign
    assert fewest_bytes(len(places), gpu_milli, gpus_per_node) <= len(text)
    assert bytes_of(tuple(places)) >= len(text) - 2 * len(on_nodes)


@pytest.mark.parametrize(("workers", "gpus"), [(65, 1), (80, 8), (1_001, 1), (12_344, 4)])
def test_the_least_that_a_gang_takes_is_what_it_takes_on_full_nodes_of_short_names(workers: int, gpus: int) -> None:
    places = tuple(
        WorkerPlace(
            rank=rank,
            node=f"{rank * gpus // 8:x}"[-1],
            devices=tuple(range(rank * gpus % 8, rank * gpus % 8 + gpus)),
            gpu_milli=gpus * GPU,
        )
        for rank in range(workers)
    )
    ranks = sum(len(str(first.rank)) for first in ranges_of(places))
    least = sum(len(str(number)) for number in range(len(ranges_of(places))))
    assert fewest_bytes(workers, gpus * GPU, 8) - least == bytes_of(places) - ranks - 1


def test_the_most_workers_of_a_gang_fit_into_a_record_and_one_more_does_not() -> None:
    for gpu_milli, gpus_per_node in ((1_000, 1), (1_000, 2), (8_000, 8), (4_000, 8)):
        most = max_workers(gpu_milli, gpus_per_node)
        assert fewest_bytes(most, gpu_milli, gpus_per_node) <= GANG_BYTES_MAX
        assert fewest_bytes(most + 1, gpu_milli, gpus_per_node) > GANG_BYTES_MAX


def test_of_an_input_that_was_set_aside_it_is_known_which_record_was_read() -> None:
    inbox, culprit = Inbox(as_they_came=False), Input("jobs-0", 5, None, checksum=77)
    inbox.add([culprit])
    inbox.drop_first(culprit)
    assert [item.checksum for item in inbox.new_jobs] == [77]
