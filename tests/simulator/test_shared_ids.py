"""Worlds in which tenants use the same ids, for jobs, for arrays and for what they wait for, and mean each other's."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.simulator.draws.workload import draw_setting
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import History
from fallow.simulator.world import World

SEEDS = range(150)


@cache
def events(seed: int) -> list[Event]:
    return [item.event for item in draw_setting(Engine(Random(seed))).items]


def jobs(seed: int) -> list[JobSpec]:
    return [event.job for event in events(seed) if isinstance(event, SubmitJob) and "/" not in event.job.id]


def shared(specs: list[JobSpec]) -> set[str]:
    """The ids that several tenants use."""
    users = Counter(job for job, _ in {(spec.id, spec.tenant) for spec in specs})
    return {job for job, count in users.items() if count > 1}


def test_in_every_world_tenants_use_the_same_ids() -> None:
    assert [seed for seed in SEEDS if not shared(jobs(seed))] == []


def test_so_do_arrays() -> None:
    assert [seed for seed in SEEDS if shared([job for job in jobs(seed) if job.array is not None])]


def test_and_what_is_waited_for_has_the_id_of_a_strangers_job_too() -> None:
    waiting = [(job, shared(jobs(seed))) for seed in SEEDS for job in jobs(seed) if job.after]
    assert any(each.job in ids for job, ids in waiting for each in job.after)


def test_a_job_waits_for_its_tenants_by_either_name_and_for_a_strangers() -> None:
    named = [(job.tenant, each.job) for seed in SEEDS for job in jobs(seed) for each in job.after]
    whose = {tenant == job.partition("/")[0] if "/" in job else None for tenant, job in named}
    assert whose == {None, True, False}


def test_strangers_cancel_and_change_jobs_and_elements_and_want_their_names() -> None:
    found = set[str]()
    for event in [event for seed in SEEDS for event in events(seed)]:
        if isinstance(event, CancelJob | UpdateJob) and is_anothers(event.tenant, event.job):
            found |= {event.type, "element"} if "." in event.job else {event.type}
        elif isinstance(event, SubmitJob) and is_anothers(event.job.tenant, event.job.id):
            found.add(event.type)
    assert found == {CancelJob.type, UpdateJob.type, SubmitJob.type, "element"}


def is_anothers(tenant: str, job: str) -> bool:
    return "/" in job and not job.startswith(f"{tenant}/")


def test_what_a_stranger_wants_reaches_nobodys_job() -> None:
    history = told(next(seed for seed in SEEDS if any(claims(event) for event in events(seed))))
    rejected = [each.event() for each in history.records("jobs")]
    assert any(isinstance(event, JobRejected) and event.field == "id" for event in rejected)


def claims(event: Event) -> bool:
    return isinstance(event, SubmitJob) and is_anothers(event.job.tenant, event.job.id)


def told(seed: int) -> History:
    """The world without faults."""
    return World(seed, Random(seed), faults=()).run()
