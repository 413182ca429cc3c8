"""An id belongs to its tenant: whatever others call their jobs, and none can be named by another tenant's command."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.requests.arrays import ids
from fallow.shared.cluster.model.arrays import is_element_of
from fallow.shared.events.fields.values import AfterWhen, Dependency
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import SubmitJob
from tests.admission.commands import CANCEL, UPDATE, admitted, answer, bytes_of, rejected, submit
from tests.hypothesis_profile import reaches

LONGEST_TENANT = "t" * 63


def of(tenant: str, job: str, **more: Any) -> bytes:
    return bytes_of({"job": job, "tenant": tenant, **more})


def test_two_tenants_have_a_job_of_one_id_each() -> None:
    ours, theirs = admitted(submit(id="hello")), admitted(submit(id="hello", tenant="bob", pools=["h100"]))
    assert (ours.spec.id, theirs.spec.id) == ("ada/hello", "bob/hello")
    assert (ours.key(), theirs.key()) == ("ada/hello", "bob/hello")


def test_its_own_tenant_before_an_id_changes_nothing() -> None:
    after = [{"job": "first"}, {"job": "x", "when": "any"}]
    in_full = [{"job": "ada/first"}, {"job": "ada/x", "when": "any"}]
    plain = admitted(submit(id="hello", after=after))
    assert admitted(submit(id="ada/hello", after=in_full)) == plain
    assert admitted(submit(id="ada/hello", after=after)) == plain
    assert plain.spec.after == (Dependency(job="ada/first"), Dependency(job="ada/x", when=AfterWhen.ANY))


def test_a_cancel_and_an_update_may_name_the_job_in_full() -> None:
    assert answer(of("ada", "ada/hello"), CANCEL) == answer(of("ada", "hello"), CANCEL)
    changes = {"priority": 1}
    in_full = answer(of("ada", "ada/hello", changes=changes), UPDATE)
    assert in_full == answer(of("ada", "hello", changes=changes), UPDATE)
    assert isinstance(in_full, JobUpdateRequested)


@pytest.mark.parametrize(
    ("value", "type_", "field", "rule"),
    [
        (submit(id="bob/hello"), SubmitJob.type, "id", "must be the id alone, or begin with the job's tenant: ada/"),
        (submit(after=[{"job": "ok"}, {"job": "bob/hello"}]), SubmitJob.type, "after", "must be a job of tenant ada"),
        (of("ada", "bob/hello"), CANCEL, "job", "must be the id alone, or begin with the job's tenant: ada/"),
        (
            of("ada", "bob/hello", changes={"priority": 1}),
            *(UPDATE, "job", "must be the id alone, or begin with the job's tenant: ada/"),
        ),
    ],
)
def test_a_job_of_another_tenant_is_turned_away_whether_there_is_one_or_not(
    value: bytes, type_: str, field: str, rule: str
) -> None:
    found = rejected(value, type_)
    assert (found.code, found.field, found.value, found.rule) == (RejectCode.INVALID_FIELD, field, "bob/hello", rule)
    assert found.tenant == "ada"


@pytest.mark.parametrize("tenant", [b"7", b"null", b'"' + b"x" * 101 + b'"'])
def test_what_does_not_say_for_whom_is_no_answer_about_anybodys_job(tenant: bytes) -> None:
    found = rejected(b'{"job":{"id":"bob/hello","tenant":%s}}' % tenant)
    assert (found.job, found.tenant) == ("hello", None)


@pytest.mark.parametrize("named", ["hello", "ada/hello"])
def test_a_job_that_waits_for_itself_or_twice_for_another_is_told_however_it_names_them(named: str) -> None:
    itself = rejected(submit(id="hello", after=[{"job": named}]))
    assert (itself.field, itself.value, itself.rule) == ("after", "hello", "names the job itself")
    twice = rejected(submit(after=[{"job": "hello"}, {"job": named}]))
    assert (twice.field, twice.value, twice.rule) == ("after", "hello", "stands twice")


@pytest.mark.parametrize("array", [None, 3])
@pytest.mark.parametrize("own", ["hello.0", "hello.7", "a.007", "llama-3.1", "2026.11.29", "0.0", "a..5", "many.3.4"])
def test_no_submission_takes_an_id_that_elements_have(own: str, array: int | None) -> None:
    """Such a job would be taken for an element, of an array that may not even be there."""
    for named in (own, f"ada/{own}"):
        found = rejected(submit(id=named, array=array))
        assert (found.code, found.field, found.value) == (RejectCode.INVALID_FIELD, "id", own)
        assert found.rule == "must not end in a dot and a number: only elements of arrays are named so"
        assert (found.job, found.tenant) == (f"ada/{own}", "ada")


@pytest.mark.parametrize("own", ["hello", "7", "hello-0", "hello.0x", "hello.x0", "llama-3.1-a", "3.1.b", "x_0"])
def test_any_other_end_of_an_id_is_free(own: str) -> None:
    assert admitted(submit(id=own)).spec.id == f"ada/{own}"


ids_of_few_signs = st.text(st.sampled_from("a07.-"), min_size=1, max_size=6).filter(lambda own: own.strip(".-") == own)


@given(ids_of_few_signs, st.none() | st.integers(1, 12))
def test_of_what_is_admitted_the_elements_alone_are_named_as_elements(own: str, array: int | None) -> None:
    found = answer(submit(id=own, array=array))
    is_free = re.search(r"\.[0-9]+$", own) is None
    reaches("an id ends as an element's does", not is_free)
    assert isinstance(found, JobAdmitted) == is_free
    if isinstance(found, JobAdmitted):
        own_id, *elements = ids(found.spec)
        assert all(is_element_of(each, own_id) for each in elements)
        assert not is_element_of(own_id, own_id.rpartition(".")[0])


names = st.sampled_from(["ada", "bob", "eve", LONGEST_TENANT])
own_ids = st.sampled_from(["hello", "hello.3", "x" * 128, "a.b_c-d"])


@given(names, own_ids, st.none() | names, st.sampled_from(["submit", "cancel", "update"]), st.none() | names)
def test_whatever_a_tenant_sends_is_about_its_own_job_or_a_no_to_it(
    tenant: str, own: str, before: str | None, kind: str, topic_tenant: str | None
) -> None:
    job = own if before is None else f"{before}/{own}"
    value, type_ = {
        "submit": (submit(id=job, tenant=tenant), SubmitJob.type),
        "cancel": (of(tenant, job), CANCEL),
        "update": (of(tenant, job, changes={"priority": 1}), UPDATE),
    }[kind]
    found = answer(value, type_, topic_tenant)
    is_own = before in (None, tenant) and topic_tenant in (None, tenant)
    reaches("a command is about another tenant's job", not is_own)
    if isinstance(found, JobRejected):
        assert found.tenant == (topic_tenant or tenant)
        assert found.job == (f"{tenant}/{own}" if before is None else job)
    else:
        assert is_own
        assert found.key() == f"{tenant}/{own}"  # type: ignore[union-attr]
        assert isinstance(found, JobAdmitted | JobCancelRequested | JobUpdateRequested)


@pytest.mark.parametrize("elements", [1, 11, 101])
def test_an_array_of_the_longest_id_has_elements_of_ids_that_may_be_named(elements: int) -> None:
    longest = 127 - len(str(elements - 1))
    spec = admitted(submit(id="x" * longest, array=elements)).spec
    assert spec.id == f"ada/{'x' * longest}"
    for each in ids(spec):
        assert isinstance(answer(of("ada", each), CANCEL), JobCancelRequested)
