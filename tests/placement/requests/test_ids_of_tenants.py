"""Jobs of one id that belong to several tenants, as admission names them: none is in another's way, and none is too
long.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.admission.policy.beside_room import ARRAY_BYTES_MAX, ELEMENT_BYTES
from fallow.services.admission.service import AdmissionService
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import AfterWhen, Dependency, JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobRejected
from fallow.shared.events.operations import HoldJob, ReleaseJob
from fallow.shared.events.reasons import CancelReason, RefuseCode
from fallow.shared.events.submissions import CancelJob, SubmitJob
from tests.placement.worlds.vast import is_sound
from tests.placement.worlds.world import CELL, World, failed, finished, joined, started

LONGEST_TENANT, LONGEST_ID = "t" * 63, "x" * 124
FILE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=1_000_000),)),),
    tenants=(Tenant(name="ada"), Tenant(name="bob"), Tenant(name=LONGEST_TENANT)),
)


def answer(event: SubmitJob | CancelJob) -> Event:
    found = AdmissionService(FILE).answer(event.type, encode(event), None, 0)
    assert isinstance(found, Event)
    return found


def submitted(tenant: str, job: str, **fields: Any) -> Event:
    return answer(SubmitJob(job=JobSpec(id=job, tenant=tenant, **fields)))


def cancelled(tenant: str, job: str) -> Event:
    return answer(CancelJob(job=job, tenant=tenant))


@pytest.fixture
def world() -> World:
    world = World(FILE)
    world.tell(joined("n1"))
    return world


def statuses(world: World) -> dict[str, JobStatus]:
    return {job.id: job.status for job in world.state.jobs.values()}


def test_jobs_of_one_id_run_beside_each_other_and_end_each_for_itself(world: World) -> None:
    world.tell(submitted("ada", "hello"), submitted("bob", "hello", priority=1))
    assert statuses(world) == {"ada/hello": JobStatus.STARTING, "bob/hello": JobStatus.STARTING}
    world.tell(started("ada/hello"), started("bob/hello"), failed("ada/hello"))
    assert statuses(world) == {"bob/hello": JobStatus.RUNNING}
    world.tell(submitted("bob", "bob/hello", priority=1))
    assert statuses(world) == {"bob/hello": JobStatus.RUNNING}


def test_a_cancel_reaches_the_own_job_and_no_other(world: World) -> None:
    world.tell(submitted("ada", "hello", hold=True), submitted("bob", "hello", hold=True))
    assert isinstance(cancelled("bob", "ada/hello"), JobRejected)
    (over,) = world.tell(cancelled("bob", "hello"))
    assert isinstance(over, e.JobCancelled)
    assert statuses(world) == {"ada/hello": JobStatus.HELD}


def test_whether_others_have_a_job_of_this_id_is_not_told(world: World) -> None:
    before = world.tell(cancelled("bob", "hello"))
    world.tell(submitted("ada", "hello", hold=True))
    assert world.tell(cancelled("bob", "hello")) == before
    (told,) = before
    assert isinstance(told, e.JobRefused)
    assert (told.job, told.code) == ("bob/hello", RefuseCode.UNKNOWN_JOB)


@pytest.mark.parametrize("is_there", [True, False])
def test_who_waits_for_an_id_waits_for_the_own_job_of_that_id(world: World, is_there: bool) -> None:
    world.tell(submitted("ada", "first"))
    world.tell(*([submitted("bob", "first", hold=True)] if is_there else []))
    world.tell(submitted("bob", "next", after=(Dependency(job="first"),)))
    world.tell(started("ada/first"), failed("ada/first"))
    assert statuses(world)["bob/next"] is JobStatus.AWAITING
    if is_there:
        world.tell(ReleaseJob(cell=CELL, job="bob/first"))
        world.tell(started("bob/first"), finished("bob/first"))
        assert statuses(world) == {"bob/next": JobStatus.STARTING}
    else:
        made = world.pass_time(world.state.policy.unknown_dependency_ms)
        (gone,) = [effect for effect in made if isinstance(effect, e.JobCancelled)]
        assert (gone.reason, gone.because_of) == (CancelReason.DEPENDENCY_UNKNOWN, "bob/first")


def test_arrays_of_two_tenants_that_are_called_alike_are_apart(world: World) -> None:
    assert isinstance(submitted("ada", "many.1", hold=True), JobRejected), "only an element is called so"
    world.tell(*(submitted(tenant, "many", array=2, hold=True) for tenant in ("ada", "bob")))
    assert {*statuses(world)} == {"ada/many.0", "ada/many.1", "bob/many.0", "bob/many.1"}
    world.tell(HoldJob(cell=CELL, job="ada/many.1"), cancelled("bob", "many"))
    assert {*statuses(world)} == {"ada/many.0", "ada/many.1"}


def test_the_largest_array_of_the_longest_names_fits_its_record() -> None:
    after = tuple(Dependency(job=f"{number:03}-{LONGEST_ID}", when=AfterWhen.ANY) for number in range(1))
    fields = {"after": after, "hold": True, "not_before_ms": 1}
    one = submitted(LONGEST_TENANT, LONGEST_ID, array=100, **fields)
    assert isinstance(one, JobAdmitted)
    most = ARRAY_BYTES_MAX // (len(encode(one.spec)) + 3 * len(one.spec.id) + ELEMENT_BYTES)
    assert isinstance(submitted(LONGEST_TENANT, LONGEST_ID, array=most + 1, **fields), JobRejected)
    array = submitted(LONGEST_TENANT, LONGEST_ID, array=most, **fields)
    assert isinstance(array, JobAdmitted)
    world = World(FILE)
    world.checks = False
    world.tell(joined("n1"))
    world.hand_over(array, size_bytes=len(encode(array)) * most)
    world.rest()
    world.tell(cancelled(LONGEST_TENANT, LONGEST_ID))
    is_sound(world)
    assert len(world.state.finished) == most + 1
    assert max(len(record.value) for record in world.log) > ARRAY_BYTES_MAX * 3 // 4
