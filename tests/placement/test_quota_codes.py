"""A job that a quota keeps waiting keeps back no job of another tenant that needs the same room."""

from __future__ import annotations

import pytest

from fallow.services.placement.search.reason_precedence import PRECEDENCE, ReasonKind
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import PendingReason
from tests.placement.test_borrowing import share
from tests.placement.world import admitted, cell_with, joined, quota, set_quotas, spec_of

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


def test_what_may_not_be_preempted_is_told_that_too_little_is_left_of_its_guarantee_however_little_is_free() -> None:
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(share("ada", 4), share("bob")))
    world.tell(admitted(spec_of("other", 3, tenant="bob")))
    world.tell(*(admitted(spec_of(name, gpus, preemptible=False)) for name, gpus in (("first", 2), ("second", 4))))
    assert world.state.nodes["n1"].gpus_free == 3
    assert world.job("second").deferred is PendingReason.QUOTA_REACHED
