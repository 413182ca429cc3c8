"""A job that waits keeps back no job that is like it but for its tenant or its GPU type."""

from __future__ import annotations

import pytest

from fallow.services.placement.search.reason_precedence import PRECEDENCE, ReasonKind
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import admitted, cell_with, joined, quota, set_quotas, spec_of

QUOTAS: dict[PendingReason, Quota] = {PendingReason.QUOTA_REACHED: quota("ada", 1)}
"""For each code a quota of ada's under which it starts one job of one GPU, and its second one waits with the code."""


def test_there_is_a_case_for_each_code_of_quotas() -> None:
    assert set(QUOTAS) == {code for code, kind in PRECEDENCE.items() if kind is ReasonKind.QUOTA}


@pytest.mark.parametrize("code", QUOTAS)
def test_a_job_that_its_tenants_quota_keeps_blocks_no_like_job_of_another_tenant(code: PendingReason) -> None:
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(QUOTAS[code]))
    jobs = (spec_of("first"), spec_of("second"), spec_of("other", tenant="bob"))
    world.tell(*(admitted(spec, submit_ms) for submit_ms, spec in enumerate(jobs)))
    found = {job.id: (job.status, job.deferred) for job in world.state.jobs.values()}
    started = (JobStatus.STARTING, None)
    assert found == {"first": started, "second": (JobStatus.QUEUED, code), "other": started}


def test_a_job_that_finds_no_gpu_of_its_type_blocks_no_like_job_of_another_type() -> None:
    world = cell_with(joined("n1", 1, gpu_type="a100"), joined("n2", 1, gpu_type="h100"))
    jobs = (
        spec_of("first", gpu_type="a100"),
        spec_of("second", gpu_type="a100"),
        spec_of("other", gpu_type="h100"),
    )
    world.tell(*(admitted(spec, submit_ms) for submit_ms, spec in enumerate(jobs)))
    assert {job.id: world.nodes_of(job.id) for job in jobs} == {"first": ["n1"], "second": [], "other": ["n2"]}


def test_like_jobs_that_come_together_go_each_to_the_gpu_type_that_it_names() -> None:
    world = cell_with(joined("n1", 8, gpu_type="a100"), joined("n2", 8, gpu_type="h100"))
    types = ("a100", "a100", "a100", "h100", "a100", "h100", "h100")
    jobs = [spec_of(f"job-{number}", gpu_type=each) for number, each in enumerate(types)]
    world.tell(*(admitted(spec, submit_ms) for submit_ms, spec in enumerate(jobs)))
    nodes = {"a100": ["n1"], "h100": ["n2"]}
    assert [world.nodes_of(job.id) for job in jobs] == [nodes[each] for each in types]


def test_of_like_jobs_that_come_together_each_tenants_quota_holds_for_its_own() -> None:
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(quota("bob", 1)))
    tenants = ("ada", "ada", "ada", "bob", "bob", "ada", "bob")
    jobs = [spec_of(f"job-{number}", tenant=tenant) for number, tenant in enumerate(tenants)]
    world.tell(*(admitted(spec, submit_ms) for submit_ms, spec in enumerate(jobs)))
    assert [bool(world.nodes_of(job.id)) for job in jobs] == [True, True, True, True, False, True, False]


def test_what_may_not_be_preempted_is_told_that_too_little_is_left_of_its_guarantee_however_little_is_free() -> None:
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(share("ada", 4), share("bob")))
    world.tell(admitted(spec_of("other", 3, tenant="bob")))
    world.tell(*(admitted(spec_of(name, gpus, preemptible=False)) for name, gpus in (("first", 2), ("second", 4))))
    assert world.state.nodes["n1"].gpus_free == 3
    assert world.job("second").deferred is PendingReason.QUOTA_REACHED
