"""The generated day."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fallow.replay.generate import DAY_MS, HOUR_MS, TENANTS, generate
from fallow.replay.workload import Workload, WorkloadError
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.fields.values import JobKind, VirtualRun
from fallow.shared.events.submissions import CancelJob, SubmitJob

DAY = generate(count=1_000, nodes=64, seed=1)


def submits(day: Workload, kind: JobKind | None = None) -> list[SubmitJob]:
    found = [timed.command for timed in day.commands if isinstance(timed.command, SubmitJob)]
    return [submit for submit in found if kind is None or submit.job.kind is kind]


def runs(day: Workload) -> Iterator[tuple[SubmitJob, VirtualRun]]:
    return ((s, s.job.run) for s in submits(day, JobKind.TRAINING) if isinstance(s.job.run, VirtualRun))


def wanted_gpus(day: Workload, at_ms: int) -> int:
    return sum(
        submit.job.gpus_milli // 1000
        for submit, run in runs(day)
        if (submit.submit_ms or 0) <= at_ms < (submit.submit_ms or 0) + (run.duration_ms or 0)
    )


def test_the_same_seed_gives_the_same_day_and_another_another() -> None:
    assert generate(count=100, nodes=8, seed=7) == generate(count=100, nodes=8, seed=7)
    assert generate(count=100, nodes=8, seed=7) != generate(count=100, nodes=8, seed=8)


def test_a_day_does_not_depend_on_the_order_in_which_python_hashes() -> None:
    code = """from fallow.replay.generate import generate
day = generate(count=50, nodes=8, seed=3)
print(day.commands, day.nodes, day.cell_file, sorted(day.endless))"""
    days = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert days[0] == days[1]


def test_a_day_has_as_many_jobs_as_asked_for_from_five_tenants_and_of_both_kinds() -> None:
    assert len(submits(DAY)) == 1_000
    assert {submit.job.tenant for submit in submits(DAY)} == set(TENANTS)
    assert len(submits(DAY, JobKind.INFERENCE)) == 30


def test_sizes_go_from_1_to_256_gpus() -> None:
    sizes = {submit.job.gpus_milli // 1000 for submit in submits(DAY, JobKind.TRAINING)}
    assert sizes == {1, 2, 4, 8, 16, 32, 64, 128, 256}


def test_durations_have_a_heavy_tail() -> None:
    durations = sorted(run.duration_ms or 0 for _, run in runs(DAY))
    mean = sum(durations) / len(durations)
    assert mean > 1.5 * durations[len(durations) // 2]


def test_more_is_wanted_at_noon_than_there_is_and_less_in_the_night() -> None:
    gpus = sum(node.gpus for node in DAY.nodes if node.pool == "train")
    assert wanted_gpus(DAY, 12 * HOUR_MS) > gpus
    assert wanted_gpus(DAY, 4 * HOUR_MS) < gpus // 2


def test_every_inference_job_runs_without_end_and_is_cancelled_at_the_end_of_the_day() -> None:
    services = {submit.job.id for submit in submits(DAY, JobKind.INFERENCE)}
    last = [timed.command for timed in DAY.commands if timed.at_ms == DAY_MS]
    assert {cancel.job for cancel in last if isinstance(cancel, CancelJob)} == services
    assert all(submit.job.run == VirtualRun() for submit in submits(DAY, JobKind.INFERENCE))


def test_some_jobs_are_cancelled_some_fail_and_recover_and_some_fail_for_good() -> None:
    cancelled = [t for t in DAY.commands if isinstance(t.command, CancelJob) and t.at_ms < DAY_MS]
    recovering = [run for _, run in runs(DAY) if run.fail_at_ms is not None and run.fail_attempts is not None]
    failing = [run for _, run in runs(DAY) if run.fail_at_ms is not None and run.fail_attempts is None]
    assert min(len(cancelled), len(recovering)) > 20
    assert len(failing) > 5


def test_every_command_of_a_day_is_valid_and_they_come_in_order() -> None:
    assert [timed.at_ms for timed in DAY.commands] == sorted(timed.at_ms for timed in DAY.commands)
    assert all(decode(timed.command.type, encode(timed.command)) == timed.command for timed in DAY.commands)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_day_fits_few_nodes_too(nodes: int) -> None:
    day = generate(count=40, nodes=nodes, seed=1)
    pools = {pool.name: pool.gpus for pool in day.cell_file.cells[0].pools}
    assert all(submit.job.gpus_milli // 1000 <= pools[submit.job.pools[0]] for submit in submits(day))


@pytest.mark.parametrize(("count", "nodes"), [(0, 1), (1, 0)])
def test_numbers_that_make_no_day_are_refused(count: int, nodes: int) -> None:
    with pytest.raises(WorkloadError, match="must be at least 1"):
        generate(count=count, nodes=nodes, seed=1)
