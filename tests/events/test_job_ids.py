"""The two names of a job, and what becomes of one in the other."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fallow.shared.events.base import JobId, Name
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.job_ids import as_file_name, full_id, in_full, in_short, own_id, parted
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency, JobSpec
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob

IS_ID = TypeAdapter[str](JobId).validate_python
tenants = st.from_regex(get_args(Name)[1].pattern[1:-1], fullmatch=True)
own_ids = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?", fullmatch=True)


@given(tenants, own_ids)
@example("t" * 63, "x" * 128)
def test_the_full_id_names_the_tenant_and_the_id(tenant: str, own: str) -> None:
    job = full_id(tenant, own)
    assert IS_ID(job) == job
    assert (parted(job), own_id(job)) == ((tenant, own), own)
    assert full_id("other", job) == full_id(tenant, job) == job
    assert (parted(own), own_id(own)) == (("", own), own)


@pytest.mark.parametrize("no_name", ["", "Not a name", "a/b", "a.b", "t\n", "t" * 64])
def test_under_what_is_no_tenant_an_id_stays_alone(no_name: str) -> None:
    assert full_id(no_name, "hello") == "hello"


@given(tenants, st.lists(st.tuples(st.none() | tenants, own_ids), min_size=1, max_size=4))
def test_a_job_in_full_and_in_short_is_the_same_job(tenant: str, named: list[tuple[str | None, str]]) -> None:
    jobs = [own if before is None else f"{before}/{own}" for before, own in named]
    spec = JobSpec(id=own_id(jobs[0]), tenant=tenant, after=tuple(Dependency(job=job) for job in jobs[1:]))
    job, after = in_full(spec)
    full = replace(spec, id=job, after=after)
    assert all("/" in each for each in (job, *(each.job for each in after)))
    assert (full.id, full.after) == in_full(full)
    assert in_short(full) == in_short(spec) == in_short(in_short(spec))
    assert encode(in_short(full)) == encode(in_short(spec))
    assert in_short(full).id == spec.id


def test_what_is_in_short_already_is_not_made_anew() -> None:
    spec = JobSpec(id="hello", tenant="vision", after=(Dependency(job="first"), Dependency(job="search/first")))
    assert in_short(spec) is spec


def test_all_commands_about_a_job_have_one_key_however_they_name_it() -> None:
    keys = {
        key
        for named in ("hello", "vision/hello")
        for key in (
            SubmitJob(job=JobSpec(id=named, tenant="vision")).key(),
            CancelJob(job=named, tenant="vision").key(),
            UpdateJob(job=named, tenant="vision", changes=JobChanges(priority=1)).key(),
        )
    }
    assert keys == {"vision/hello"}
    assert CancelJob(job="hello", tenant="search").key() == "search/hello"


@given(tenants, own_ids, tenants, own_ids)
def test_no_two_jobs_have_one_file_name_and_each_can_be_one(tenant: str, own: str, other: str, others: str) -> None:
    ids = {own, others, f"{tenant}/{own}", f"{other}/{others}", f"{tenant}/{others}"}
    names = {as_file_name(job) for job in ids}
    assert len(names) == len(ids)
    assert not any("/" in name or name in ("", ".", "..") or name.startswith(".") for name in names)
