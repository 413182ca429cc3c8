"""Worlds draw every policy, network, type and wish that this version carries out, and nothing that it does not."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from fallow.services.admission.policy.limits import unsupported
from fallow.services.placement.policy.policies import POLICIES
from fallow.shared.events.fields.values import JobSpec, Level, Wish
from fallow.shared.events.operations import SetPolicy
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.draws.wired import grants
from fallow.simulator.draws.workload import Setting, draw_setting
from fallow.simulator.engine import Engine

SEEDS = range(150)
MORE_SEEDS = range(500)
"""For what is drawn in few worlds."""

MANY = 10_000


@cache
def setting(seed: int) -> Setting:
    return draw_setting(Engine(Random(seed)))


def jobs(seed: int) -> list[JobSpec]:
    """Those that are no mistakes."""
    drawn = [item.event.job for item in setting(seed).items if isinstance(item.event, SubmitJob)]
    return [job for job in drawn if job.cell in setting(seed).nodes and job.workers < MANY and not is_of_nowhere(job)]


def is_of_nowhere(job: JobSpec) -> bool:
    return "none" in (job.gpu_type, *job.pools)


ALL = [job for seed in SEEDS for job in jobs(seed)]


def test_every_placement_policy_is_drawn_and_set_at_run_time() -> None:
    assert {cell.policy.placement for seed in SEEDS for cell in setting(seed).file.cells} == set(POLICIES)
    later = [item.event for seed in MORE_SEEDS for item in setting(seed).items if isinstance(item.event, SetPolicy)]
    assert {event.policy.placement for event in later} == set(POLICIES)


def test_every_kind_of_job_is_drawn() -> None:
    wishes = [job.topology for job in ALL if job.topology is not None]
    assert {wish.level for wish in wishes} == set(Level)
    assert {wish.wish for wish in wishes} == set(Wish)
    assert {wish.slice_workers is None for wish in wishes} == {True, False}
    assert {job.gpu_type for job in ALL} == {None, "h100", "a100"}
    assert {job.preemptible for job in ALL} == {True, False}
    assert {job.hold for job in ALL} == {True, False}
    assert {job.retry.backoff_ms for job in ALL} >= {0, 1, 300, 1_200}
    assert {job.resources.gpu_milli for job in ALL} >= {1, 333, 999, 1_000, 2_000}
    assert {job.array is None for job in ALL} == {True, False}


def test_nothing_is_drawn_that_is_not_supported() -> None:
    assert [job.id for job in ALL if unsupported(job) is not None] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_required_place_in_the_network_is_there(seed: int) -> None:
    found = setting(seed)
    for job in jobs(seed):
        if job.topology is not None and job.topology.wish is Wish.REQUIRED:
            specs = found.nodes[job.cell or ""] + found.machines[job.cell or ""]
            assert grants(specs, job)
