"""The hard load of the pipeline has in it what it says."""

from __future__ import annotations

from collections import Counter

import pytest

from fallow.bench.load.job_mix import Ready, number_of
from fallow.bench.load.stages import LAB
from fallow.bench.real.cell import ends_of_fillers, fillers, real_cell
from fallow.bench.real.mix import (
    KINDS,
    PRIORITIES,
    TENANTS,
    JobClass,
    RealMix,
    asked_of_share,
)
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import ENDLESS, VirtualRun, Wish
from fallow.shared.events.submissions import CancelJob, SubmitJob

COUNTS = (250, 1_000, 2_000)
JOBS, RUN_MS = 20_000, 1_600


def sent(mix: RealMix, count: int = JOBS) -> list[Ready]:
    return mix.maker(RUN_MS, 12, 0).some(count)


def submitted(jobs: list[Ready]) -> list[SubmitJob]:
    """The jobs as admission reads them."""
    events = [decode(SubmitJob.type, job.value) for job in jobs]
    return [event for event in events if isinstance(event, SubmitJob)]


def runs(jobs: list[Ready]) -> list[VirtualRun]:
    return [event.job.run for event in submitted(jobs) if isinstance(event.job.run, VirtualRun)]


@pytest.mark.parametrize("count", COUNTS)
def test_there_are_fifty_tenants_of_five_priorities_and_as_many_classes_as_asked_for(count: int) -> None:
    classes = RealMix(count).classes
    assert len({(each.tenant, each.priority) for each in classes}) == TENANTS * PRIORITIES == 250
    assert len(set(classes)) == len(classes) == count


@pytest.mark.parametrize("count", COUNTS)
def test_each_kind_has_its_part_of_the_classes_to_one(count: int) -> None:
    found = Counter(each.kind for each in RealMix(count).classes)
    assert all(abs(found[kind.name] - count * kind.percent / 100) < 1 for kind in KINDS)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [1, *COUNTS])
def test_cpus_and_memory_are_mixed_and_at_most_four_fifths_of_their_gpus_share_in_the_mean(
    count: int, seed: int
) -> None:
    mix = RealMix(count, seed)
    assert max(asked_of_share(mix.classes)) <= 0.8
    if count >= 250:
        assert len({each.cpu_milli for each in mix.classes if each.kind == "1-gpu"}) == 5
        assert any(asked_of_share([each])[0] > 1 for each in mix.classes)


def test_no_worker_wants_more_than_a_node_has() -> None:
    assert all(each.gpus < 8 or max(asked_of_share([each])) <= 1 for each in RealMix().classes)


def test_gangs_have_wishes_for_a_place_in_the_network_of_both_sorts() -> None:
    gangs = [each for each in RealMix().classes if each.workers > 1]
    wishes = Counter(None if each.topology is None else each.topology.wish for each in gangs)
    assert wishes[None] == wishes[Wish.PREFERRED] == 60
    assert wishes[Wish.REQUIRED] == 40


def test_two_percent_of_the_jobs_fail_or_are_cancelled() -> None:
    jobs = sent(RealMix())
    failing = sum(run.fail_at_ms is not None for run in runs(jobs))
    cancelled = [decode(CancelJob.type, job.cancel.value) for job in jobs if job.cancel is not None]
    assert failing / JOBS == pytest.approx(0.01, abs=0.003)
    assert len(cancelled) / JOBS == pytest.approx(0.01, abs=0.003)
    names = {event.job.id: event.job.tenant for event in submitted(jobs)}
    assert all(isinstance(each, CancelJob) and names[each.job] == each.tenant for each in cancelled)


def test_a_job_is_cancelled_while_it_would_still_run() -> None:
    for job, run in zip(jobs := sent(RealMix()), runs(jobs), strict=True):
        assert run.duration_ms is not None
        assert job.cancel is None or job.cancel_after_s * 1_000 < run.duration_ms


def test_jobs_need_as_many_gpus_as_their_classes_in_the_mean_and_run_as_long_as_asked_for() -> None:
    mix = RealMix()
    jobs = sent(mix)
    gpus = sum(event.job.gpus_milli for event in submitted(jobs)) / 1_000 / JOBS
    times = [run.duration_ms or 0 for run in runs(jobs)]
    assert gpus == pytest.approx(mix.gpus_mean, rel=0.05)
    assert sum(times) / JOBS == pytest.approx(RUN_MS, rel=0.02)


@pytest.mark.parametrize("count", [1, 250, 2_000])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(count: int) -> None:
    assert sent(RealMix(count), 200) == sent(RealMix(count), 200)
    assert sent(RealMix(count), 200) != sent(RealMix(count, 2), 200)


def test_jobs_of_different_classes_are_different_to_the_scheduler() -> None:
    specs = [replace(event.job, id="any", run=ENDLESS) for event in submitted(sent(RealMix(250), 5_000))]
    assert len({encode(spec) for spec in specs}) == 250


def test_shares_of_tenants_come_to_one_whatever_the_classes() -> None:
    for count in (1, 7, 250):
        shares = RealMix(count).shares()
        assert len(shares) == TENANTS
        assert sum(shares.values()) == pytest.approx(1.0)


def test_waits_are_told_by_kind_by_priority_and_by_both() -> None:
    one = JobClass("1-gpu", "tenant-00", 3, 1, 1, 0, 0, None)
    assert one.labels == ("1-gpu", "priority-3", "1-gpu/priority-3")


def guaranteed(nodes: int, mix: RealMix) -> dict[str, int]:
    """What each tenant below the cohort is guaranteed, in GPUs."""
    tenants = real_cell(nodes, mix).cell_file.tenants
    assert all(tenant.parent == LAB for tenant in tenants[1:])
    return {tenant.name: tenant.quotas[0].guaranteed for tenant in tenants[1:]}


@pytest.mark.parametrize("nodes", [50, 5_000])
def test_each_tenant_is_guaranteed_about_half_of_what_it_uses_and_has_to_borrow_the_rest(nodes: int) -> None:
    mix, gpus = RealMix(), nodes * 8
    found = guaranteed(nodes, mix)
    assert len(found) == TENANTS
    assert all(gpus * share / 2 - 1 < found[tenant] <= gpus * share / 2 for tenant, share in mix.shares().items())


def test_nodes_have_the_cpus_and_memory_of_which_a_gpu_has_its_share() -> None:
    node = real_cell(1, RealMix()).nodes[0]
    assert (node.gpus, node.cpu_milli, node.memory_mib) == (8, 96_000, 1_048_576)


def test_a_filler_takes_a_node_until_its_cancel_and_is_no_job_of_the_load() -> None:
    jobs = [decode(SubmitJob.type, each.value) for each in fillers(3, 12, 0)]
    ends = [decode(CancelJob.type, each.value) for each in ends_of_fillers(3, 12, 0)]
    assert [each.job.id for each in jobs if isinstance(each, SubmitJob)] == [
        each.job for each in ends if isinstance(each, CancelJob)
    ]
    assert all(isinstance(each, SubmitJob) and each.job.gpus_milli == 8_000 for each in jobs)
    assert [number_of(each.job) for each in ends if isinstance(each, CancelJob)] == [None] * 3
