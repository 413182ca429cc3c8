"""Every code by which a command is turned away comes from the production admission, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fallow.shared.cluster.model.config import (
    CellFile,
    CellPart,
    Limits,
    Pool,
    Queue,
    SubmissionRate,
    Tenant,
    TenantQuota,
)
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import JobSpec, NodeSpec, ProcessRun, Resources
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.trace.cell import VirtualCell

FILE = CellFile(
    cells=(
        CellPart(name="c", ordinal=0, pools=(Pool(name="train", gpus=16), Pool(name="night", gpus=8))),
        CellPart(name="d", ordinal=1, pools=(Pool(name="far", gpus=16),), queues=(Queue(name="other"),)),
    ),
    tenants=(
        Tenant(name="ada", pools=("train",), submissions=SubmissionRate(per_s=2)),
        Tenant(name="bob", quotas=(TenantQuota(limit=4),)),
        Tenant(name="eve"),
    ),
    limits=Limits(gpus_per_job=32, not_before_ahead_ms=1_000),
)


def admission() -> VirtualCell:
    """The services of a cell. The file has a second one."""
    return VirtualCell(FILE, (NodeSpec(id="n1", pool="train", gpus=8),))


def answer(topic_tenant: str | None = None, submit_ms: int | None = None, **spec: Any) -> JobRejected:
    """What admission says to this job of ada's."""
    job = JobSpec(**{"id": "job", "tenant": "ada", "resources": Resources(gpu_milli=1000), **spec})
    command = SubmitJob(job=job, submit_ms=submit_ms)
    return rejection(admission().admission.answer(command.type, encode(command), topic_tenant, 0))


def rejection(found: object) -> JobRejected:
    assert isinstance(found, JobRejected), found
    return found


def of_another_version() -> JobRejected:
    command = SubmitJob(job=JobSpec(id="job", tenant="ada", resources=Resources(gpu_milli=1000)))
    return rejection(admission().admission.answer("fallow.job.submit.v9", encode(command), None, 0))


def third_in_a_second() -> JobRejected:
    cell = admission()
    job = JobSpec(id="job", tenant="ada", resources=Resources(gpu_milli=1000))
    command = SubmitJob(job=job)
    answers = [cell.admission.over_rate(command.type, encode(command), None, 0) for _ in range(3)]
    return rejection(answers[2])


REJECTED: dict[RejectCode, tuple[Callable[[], JobRejected], str, int | None, int | None]] = {
    RejectCode.INVALID_FIELD: (lambda: answer(workers=0), "workers", None, None),
    RejectCode.UNKNOWN_TENANT: (lambda: answer(tenant="zoe"), "tenant", None, None),
    RejectCode.UNKNOWN_POOL: (lambda: answer(pools=("moon",)), "pools", None, None),
    RejectCode.UNKNOWN_CELL: (lambda: answer(cell="e"), "cell", None, None),
    RejectCode.UNKNOWN_QUEUE: (lambda: answer(queue="other"), "queue", None, None),
    RejectCode.UNKNOWN_GPU_TYPE: (lambda: answer(gpu_type="h9"), "gpu_type", None, None),
    RejectCode.CELL_NEEDED: (lambda: answer(tenant="eve"), "cell", None, None),
    RejectCode.POOL_NOT_ALLOWED: (lambda: answer(pools=("night",)), "pools", None, None),
    RejectCode.POOLS_IN_SEVERAL_CELLS: (lambda: answer(tenant="eve", pools=("train", "far")), "pools", None, None),
    RejectCode.TENANT_NOT_OF_TOPIC: (lambda: answer(topic_tenant="bob"), "tenant", None, None),
    RejectCode.LARGER_THAN_POOL: (lambda: answer(workers=17), "workers", 17, 16),
    RejectCode.OVER_TENANT_LIMIT: (lambda: answer(tenant="bob", cell="c", workers=5), "workers", 5, 4),
    RejectCode.OVER_JOB_LIMIT: (lambda: answer(workers=33), "resources.gpu_milli", 33, 32),
    RejectCode.SUBMIT_TIME_TOO_FAR: (lambda: answer(submit_ms=10_001), "submit_ms", 10_001, 10_000),
    RejectCode.NOT_BEFORE_TOO_FAR: (lambda: answer(not_before_ms=2_000), "not_before_ms", 2_000, 1_000),
    RejectCode.TOO_LARGE: (lambda: answer(run=ProcessRun(argv=("x" * 4_000,) * 200)), "", None, None),
    RejectCode.TOO_MANY_SUBMISSIONS: (third_in_a_second, "tenant", 3, 2),
    RejectCode.UNKNOWN_VERSION: (of_another_version, "ce_type", None, None),
    RejectCode.UNSUPPORTED: (lambda: answer(run=ProcessRun(argv=("true",))), "run.driver", None, None),
}
"""Who says no, the field that is named, what was wanted and what is allowed."""


def test_there_is_a_command_for_every_code() -> None:
    assert set(REJECTED) == set(RejectCode)


@pytest.mark.parametrize("code", REJECTED)
def test_what_can_never_be_is_turned_away_with_its_code_and_numbers(code: RejectCode) -> None:
    says_no, field, wanted, allowed = REJECTED[code]
    found = says_no()
    assert (found.code, found.field, found.wanted, found.allowed) == (code, field, wanted, allowed)
    assert found.rule
