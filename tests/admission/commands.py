"""A cell file with something to trip over, and commands as bytes."""

from __future__ import annotations

import json
from typing import Any

from fallow.services.admission.service import AdmissionService
from fallow.shared.cluster.model.config import CellFile, CellPart, Limits, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.fields.values import NodeRole
from fallow.shared.events.jobs import JobAdmitted, JobRejected
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob

SUBMIT, CANCEL, UPDATE = SubmitJob.type, CancelJob.type, UpdateJob.type
NOW_MS = 1_000_000_000

EAST = CellPart(
    name="east",
    ordinal=0,
    pools=(
        Pool(name="h100", gpu_type="h100", gpus=64),
        Pool(name="a100", gpu_type="a100", gpus=20, gpus_per_node=8),
        Pool(name="serve", gpu_type="a100", gpus=16, role=NodeRole.INFERENCE),
    ),
    queues=(Queue(name="default"), Queue(name="night"), Queue(name="short", default_run_ms=2_000, max_run_ms=5_000)),
)
WEST = CellPart(
    name="west",
    ordinal=1,
    pools=(
        Pool(name="west-h100", gpu_type="h100", gpus=8),
        Pool(name="west-real", gpu_type="h100", gpus=8, driver="process"),
    ),
)
FILE = CellFile(
    cells=(EAST, WEST),
    tenants=(
        Tenant(name="ada", pools=("h100", "a100", "serve"), queue="night"),
        Tenant(name="any"),
        Tenant(name="lab", quotas=(TenantQuota(gpu_type="h100", limit=16),)),
        Tenant(
            name="bob",
            pools=("h100", "a100"),
            parent="lab",
            quotas=(TenantQuota(gpu_type="h100", limit=32), TenantQuota(gpu_type="a100", limit=4)),
        ),
        Tenant(name="cleo", pools=("west-h100",)),
        Tenant(name="pia", pools=("west-real",)),
        Tenant(name="quin", pools=("west-h100", "west-real"), max_priority=5),
    ),
    limits=Limits(workers_per_job=100, gpus_per_job=60, retry_budget=5, submit_skew_ms=60_000),
)


def bytes_of(command: dict[str, Any]) -> bytes:
    """The command as an upstream system would send it."""
    return json.dumps(command).encode()


def submit(**job: Any) -> bytes:
    """A submit of ada's, with these fields of the job."""
    return bytes_of({"job": {"id": "job-1", "tenant": "ada", **job}})


def answer(value: bytes | None, type_: str = SUBMIT, topic_tenant: str | None = None) -> Event | Undecodable:
    """What admission makes of it."""
    return AdmissionService(FILE).answer(type_, value, topic_tenant, NOW_MS)


def admitted(value: bytes) -> JobAdmitted:
    """The job that it lets in."""
    found = answer(value)
    assert isinstance(found, JobAdmitted), found
    return found


def rejected(value: bytes, type_: str = SUBMIT, topic_tenant: str | None = None) -> JobRejected:
    """The rejection."""
    found = answer(value, type_, topic_tenant)
    assert isinstance(found, JobRejected), found
    return found
