"""What admission lets in, how it resolves it, and what it can only set aside."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.admission.policy.admissible import Admissible
from fallow.services.admission.policy.resolve import Home
from fallow.services.admission.service import AdmissionService
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota
from fallow.shared.events.base import replace
from fallow.shared.events.codec.encoding import SUBMISSION_BYTES_MAX, Undecodable, encode
from fallow.shared.events.fields.job_ids import digest_of
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.shared.events.validation.unknown_fields import read_valid
from tests.admission.commands import CANCEL, FILE, NOW_MS, SUBMIT, UPDATE, admitted, answer, bytes_of, rejected, submit
from tests.hypothesis_profile import reaches
from tests.strategies import values


def test_a_job_gets_its_cell_queue_and_pools() -> None:
    found = admitted(submit())
    assert (found.cell, found.submit_ms) == ("east", NOW_MS)
    assert (found.spec.cell, found.spec.queue, found.spec.pools) == ("east", "night", ("h100", "a100"))


def test_a_queue_of_the_jobs_own_comes_before_the_tenants_and_the_cells_first_comes_last() -> None:
    assert admitted(submit(queue="default")).spec.queue == "default"
    assert admitted(submit(tenant="any", pools=["h100"])).spec.queue == "default"


def test_a_job_without_a_limit_has_that_of_its_queue_and_is_the_same_job_as_before() -> None:
    told, silent = admitted(submit(queue="short", max_run_ms=5_000)), admitted(submit(queue="short"))
    assert (told.spec.max_run_ms, silent.spec.max_run_ms) == (5_000, 2_000)
    assert admitted(submit(queue="short", kind="inference")).spec.max_run_ms == 2_000
    assert admitted(submit()).spec.max_run_ms is None
    assert silent.digest == digest_of(JobSpec(id="job-1", tenant="ada", queue="short"))


def test_the_order_of_the_jobs_pools_is_kept() -> None:
    assert admitted(submit(pools=["serve", "a100", "h100"])).spec.pools == ("serve", "a100", "h100")


def test_a_training_job_that_names_no_pools_gets_training_pools_and_inference_gets_its_own() -> None:
    assert admitted(submit(kind="training")).spec.pools == ("h100", "a100")
    assert admitted(submit(kind="inference")).spec.pools == ("serve",)


def test_a_service_enters_replica_by_replica_and_a_single_worker_whole() -> None:
    service = admitted(submit(kind="inference", workers=4, workers_min=2, spread="leaf")).spec
    assert (service.gang, service.workers, service.workers_min) == (False, 4, 2)
    assert not admitted(submit(workers=4, gang=False)).spec.gang
    assert admitted(submit(workers=1, gang=False)).spec.gang


def test_of_a_job_without_a_gang_a_pool_has_to_hold_only_what_must_start_together() -> None:
    assert admitted(submit(workers=25, gang=False)).spec.pools == ("h100", "a100")
    assert admitted(submit(workers=25, workers_min=21, gang=False)).spec.pools == ("h100",)


def test_pools_of_another_gpu_type_are_left_out() -> None:
    assert admitted(submit(pools=["h100", "serve", "a100"], gpu_type="a100")).spec.pools == ("serve", "a100")


def test_pools_that_could_never_hold_the_job_are_left_out() -> None:
    assert admitted(submit(workers=21)).spec.pools == ("h100",)
    assert admitted(submit(workers=3, resources={"gpu_milli": 8_000})).spec.pools == ("h100",)


@pytest.mark.parametrize(
    ("run", "pools"),
    [({"driver": "virtual"}, ("west-h100",)), ({"driver": "process", "argv": ["train"]}, ("west-real",))],
)
def test_pools_whose_nodes_cannot_run_what_the_job_runs_are_left_out(run: dict[str, Any], pools: tuple[str]) -> None:
    assert admitted(submit(tenant="quin", run=run)).spec.pools == pools


def test_a_job_that_takes_any_gpu_type_comes_to_scarce_ones_last() -> None:
    pools = (
        Pool(name="few", gpu_type="h100", gpus=16),
        Pool(name="some", gpu_type="a100", gpus=24),
        Pool(name="more", gpu_type="a100", gpus=8),
        Pool(name="as-few", gpu_type="l4", gpus=16),
    )
    file = CellFile(cells=(CellPart(name="main", ordinal=0, pools=pools),), tenants=(Tenant(name="ada"),))

    def pools_of(**job: Any) -> tuple[str, ...]:
        found = AdmissionService(file).answer(SUBMIT, submit(**job), None, NOW_MS)
        assert isinstance(found, JobAdmitted)
        return found.spec.pools

    assert pools_of() == ("some", "more", "few", "as-few")
    assert pools_of(gpu_type="h100") == ("few",)
    assert pools_of(pools=["few", "some"]) == ("few", "some")


def test_the_pools_name_the_cell() -> None:
    assert admitted(submit(tenant="any", pools=["west-h100"])).cell == "west"
    assert admitted(submit(tenant="cleo")).cell == "west"


def test_the_lowest_limit_of_the_tree_counts_and_any_gpu_type_within_its_limit_will_do() -> None:
    assert admitted(submit(tenant="bob", workers=16)).spec.pools == ("h100", "a100")
    assert rejected(submit(tenant="bob", workers=17)).allowed == 16


def test_a_submit_time_is_kept_as_far_as_it_is_near() -> None:
    near = {"job": {"id": "job-1", "tenant": "ada"}, "submit_ms": NOW_MS - 60_000}
    assert admitted(bytes_of(near)).submit_ms == NOW_MS - 60_000


def test_the_digest_is_of_the_content_and_not_of_the_time() -> None:
    job = {"id": "job-1", "tenant": "ada"}
    early, late = bytes_of({"job": job, "submit_ms": NOW_MS - 5}), bytes_of({"job": job, "submit_ms": NOW_MS})
    assert admitted(early).digest == admitted(late).digest
    assert admitted(submit(priority=1)).digest != admitted(submit(priority=2)).digest


@pytest.mark.parametrize(
    "again",
    [
        {"tenant": "ada", "id": "job-1"},
        {"id": "job-1", "tenant": "ada", "priority": 0, "pools": [], "retry": {"budget": 0}},
        {"id": "job-1", "tenant": "ada", "queue": None, "run": {"driver": "virtual", "duration_ms": None}},
    ],
)
def test_the_same_content_written_otherwise_has_the_same_digest(again: dict[str, Any]) -> None:
    text = json.dumps({"job": again}, indent=4)
    assert admitted(text.encode()).digest == admitted(submit()).digest


@given(values(JobSpec))
def test_the_digest_outlives_a_round_through_bytes(spec: JobSpec) -> None:
    again = read_valid(SubmitJob, encode(SubmitJob(job=spec)))
    assert digest_of(again.job) == digest_of(spec)


def test_a_cancel_and_an_update_are_passed_on() -> None:
    found = answer(bytes_of({"job": "job-1", "tenant": "ada", "reason": "enough"}), CANCEL)
    assert found == JobCancelRequested(cell="east", job="ada/job-1", tenant="ada", reason="enough")
    found = answer(bytes_of({"job": "job-1", "tenant": "ada", "changes": {"priority": 3}}), UPDATE)
    assert found == JobUpdateRequested(cell="east", job="ada/job-1", tenant="ada", changes=JobChanges(priority=3))


def test_a_tenant_may_speak_by_its_own_topic() -> None:
    assert isinstance(answer(submit(), topic_tenant="ada"), JobAdmitted)


def test_a_new_cell_file_counts_from_the_next_command_on() -> None:
    service = AdmissionService(FILE)
    service.reload(FILE.model_copy(update={"tenants": FILE.tenants[1:]}))
    found = service.answer(SUBMIT, submit(), None, NOW_MS)
    assert isinstance(found, JobRejected)
    assert found.code is RejectCode.UNKNOWN_TENANT


@pytest.mark.parametrize(
    ("value", "type_", "reason"),
    [
        (None, SUBMIT, DeadLetterReason.UNREADABLE),
        (b"", SUBMIT, DeadLetterReason.UNREADABLE),
        (b"{", SUBMIT, DeadLetterReason.UNREADABLE),
        (b"\xff\xfe", SUBMIT, DeadLetterReason.UNREADABLE),
        (b"[" * 100_000, SUBMIT, DeadLetterReason.UNREADABLE),
        (b'{"job":' * 50_000, SUBMIT, DeadLetterReason.UNREADABLE),
        (b'{"job":{"id":"job-1","tenant":"ada","queue":"\xe9"}}', SUBMIT, DeadLetterReason.UNREADABLE),
        (b'{"job":{"id":"j","tenant":"ada","priority":' + b"9" * 5_000 + b"}}", SUBMIT, DeadLetterReason.UNREADABLE),
        (b"[]", SUBMIT, DeadLetterReason.INVALID),
        (b"null", CANCEL, DeadLetterReason.INVALID),
        (b'{"job":{"id":"UPPER","tenant":"ada"}}', SUBMIT, DeadLetterReason.INVALID),
        (b'{"job":{"id":7,"tenant":"ada"}}', SUBMIT, DeadLetterReason.INVALID),
        (b'{"job":{"tenant":"ada"}}', SUBMIT, DeadLetterReason.INVALID),
        (b'{"job":["id"]}', SUBMIT, DeadLetterReason.INVALID),
        (b" " * (SUBMISSION_BYTES_MAX + 1), SUBMIT, DeadLetterReason.TOO_LARGE),
        (b"{}", "fallow.job.submit.v2", DeadLetterReason.UNKNOWN_TYPE),
        (submit(), JobAdmitted.type, DeadLetterReason.UNKNOWN_TYPE),
        (submit(), "", DeadLetterReason.UNKNOWN_TYPE),
        (submit(), "x" * 10_000, DeadLetterReason.UNKNOWN_TYPE),
    ],
)
def test_what_does_not_say_whose_it_is_can_only_be_set_aside(
    value: bytes | None, type_: str, reason: DeadLetterReason
) -> None:
    found = answer(value, type_)
    assert isinstance(found, Undecodable)
    assert found.reason is reason
    assert len(str(found)) < 1_000


def test_a_broken_command_with_a_readable_id_is_answered_without_a_tenant_if_need_be() -> None:
    assert rejected(b'{"job":{"id":"job-1"}}').tenant is None
    assert rejected(bytes_of({"job": {"id": "job-1", "tenant": "x" * 101}})).tenant is None


def test_to_find_whose_a_broken_command_is_nothing_is_built_of_the_rest_of_it() -> None:
    lists = b"[" + b",".join([b"[]"] * 150_000) + b"]"
    command = b'{"job":{"id":"job-1","tenant":7,"zz":%s}}' % lists
    tracemalloc.start()
    found = answer(command, SUBMIT)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, JobRejected)
    assert (found.job, found.tenant, found.field) == ("job-1", None, "tenant")
    assert peak_bytes < 10 * len(command)


def test_what_is_too_large_or_of_another_version_is_answered_where_it_says_whose_it_is() -> None:
    large = rejected(submit(labels="x" * SUBMISSION_BYTES_MAX))
    assert (large.job, large.tenant, large.code) == ("ada/job-1", "ada", RejectCode.TOO_LARGE)
    newer = rejected(submit(), "fallow.job.submit.v2")
    assert (newer.job, newer.command, newer.code, newer.value) == (
        "ada/job-1",
        "submit",
        RejectCode.UNKNOWN_VERSION,
        "fallow.job.submit.v2",
    )


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, str]:
    """A command of which a few bytes are other ones."""
    command = draw(values(SubmitJob) | values(CancelJob) | values(UpdateJob))
    value = encode(command)
    at = draw(st.integers(0, len(value)))
    return value[:at] + draw(st.binary(max_size=2)) + value[at + draw(st.integers(0, 2)) :], command.type


@given(st.tuples(st.binary(max_size=200), st.sampled_from([SUBMIT, CANCEL, UPDATE, "", "x"])) | damaged())
def test_no_bytes_can_stop_admission(told: tuple[bytes, str]) -> None:
    value, type_ = told
    found = answer(value, type_)
    reaches("bytes are a command", not isinstance(found, Undecodable))
    assert isinstance(found, JobAdmitted | JobRejected | Undecodable)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_no_json_can_stop_admission(inner: Any) -> None:
    found = answer(json.dumps({"job": {"id": "job-1", "tenant": inner, "more": inner}}).encode())
    assert isinstance(found, JobRejected)


UNASKED = (
    *("id", "priority", "preemptible", "checkpoint_interval_ms", "max_run_ms", "estimate_run_ms", "min_run_ms", "hold"),
)


@given(values(JobSpec), values(JobSpec), st.sampled_from(FILE.tenants), st.sampled_from([None, "east", "west"]))
def test_what_no_test_asks_for_changes_no_answer(
    one: JobSpec, other: JobSpec, tenant: Tenant, cell: str | None
) -> None:
    job = replace(one, tenant=tenant.name, cell=cell)
    alike = replace(job, **{name: getattr(other, name) for name in UNASKED})
    remembering = Admissible(FILE)
    has_home = isinstance(remembering.home(job), Home)
    reaches("jobs that differ in what no test asks for have a home", has_home and alike != job)
    assert remembering.home(job) == remembering.home(alike) == Admissible(FILE).home(alike)


ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"workers": 21},
    {"tenant": "bob", "workers": 17},
    {"kind": "inference"},
    {"kind": "inference", "spread": "leaf"},
    {"workers": 25, "gang": False},
    {"workers": 25, "gang": False, "workers_min": 21},
    {"tenant": "quin"},
    {"tenant": "quin", "run": {"driver": "process", "argv": ["train"]}},
    {"queue": "default"},
    {"pools": ["a100"]},
    {"gpu_type": "a100"},
    {"resources": {"gpu_milli": 9_000}},
    {"retry": {"budget": 6}},
    {"topology": {"level": "leaf", "wish": "required"}, "gang": False, "workers": 2},
    {"spread": "leaf"},
    {"fungible": True},
    {"heterogeneous": True},
)


def test_a_remembered_answer_is_for_just_that_wish() -> None:
    service = AdmissionService(FILE)
    commands = [submit(**asked) for asked in ASKED]
    fresh = [answer(command) for command in commands]
    assert [service.answer(SUBMIT, command, None, NOW_MS) for command in commands * 2] == fresh * 2


@pytest.mark.parametrize("may_be_preempted", [True, False])
def test_an_answer_to_what_may_be_preempted_is_none_to_what_may_not(*, may_be_preempted: bool) -> None:
    """Of its guarantee of 4 a tenant's firm jobs may use no more, whichever of the two was answered first."""
    gina = Tenant(name="gina", pools=("h100",), quotas=(TenantQuota(gpu_type="h100", guaranteed=4, limit=16),))
    service = AdmissionService(CellFile(cells=FILE.cells, tenants=(gina,)))
    order = (may_be_preempted, not may_be_preempted)
    commands = [submit(tenant="gina", workers=8, preemptible=preemptible) for preemptible in order]
    answers = [service.answer(SUBMIT, command, None, NOW_MS) for command in commands]
    assert [isinstance(found, JobAdmitted) for found in answers] == [*order]
