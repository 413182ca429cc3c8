"""Quotas are removed when nothing needs them, and the jobs of a tenant that a cell file no longer names are held."""

from __future__ import annotations

from random import Random

import pytest

from fallow.cli.job.story.reason import as_object, lines, reason_in
from fallow.services.admission.service import AdmissionService
from fallow.services.placement.requests.tenants import NOT_IN_THE_FILE
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.model.config import CellFile, Tenant, TenantQuota
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import RetryPolicy
from fallow.shared.events.jobs import JobCancelRequested
from fallow.shared.events.operations import DeclareLost, HoldJob, Quota, ReleaseJob, RemoveQuota
from fallow.shared.events.submissions import CancelJob
from tests.placement.worlds.world import (
    CELL,
    FILE,
    Fate,
    World,
    admitted,
    cell_with,
    failed,
    finished,
    joined,
    kinds,
    quota,
    report,
    set_quotas,
    spec_of,
    started,
)

REMOVE = RemoveQuota(cell=CELL, tenant="ada")


def texts(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, e.ProposalRefused)]


def file_of(*tenants: str, limit: int | None = None) -> CellFile:
    quotas = () if limit is None else (TenantQuota(limit=limit),)
    return FILE.model_copy(update={"tenants": tuple(Tenant(name=name, quotas=quotas) for name in tenants)})


def reload(world: World, *tenants: str, limit: int | None = None) -> list[e.AnyEffect]:
    world.file = file_of(*tenants, limit=limit)
    world.service.reload(world.file)
    return world.rest()


# Quotas.


def test_a_quota_that_nothing_needs_is_removed() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 4), quota("ada", 2, gpu_type="a100"), quota("bob", 1)))
    assert kinds(world.tell(REMOVE)) == ["QuotaRemoved", "QuotaRemoved"]
    assert list(world.state.quotas) == [("bob", "gpu")]


def test_of_one_gpu_type_alone_where_that_is_named() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 4), quota("ada", 2, gpu_type="a100")))
    world.tell(RemoveQuota(cell=CELL, tenant="ada", gpu_type="a100"))
    assert list(world.state.quotas) == [("ada", "gpu")]


def test_what_the_quota_kept_for_its_tenant_is_there_for_others() -> None:
    world = cell_with(joined("n1", 1))
    kept = Quota(tenant="ada", gpu_type="gpu", guaranteed_milli=1_000, lends=False)
    world.tell(set_quotas(kept))
    world.tell(admitted(spec_of("job", tenant="bob")))
    assert world.job("job").status is JobStatus.QUEUED
    world.tell(REMOVE)
    assert world.job("job").status is JobStatus.STARTING


def test_a_quota_that_is_not_there_is_not_removed() -> None:
    world = cell_with(joined("n1"))
    assert texts(world.tell(REMOVE)) == ["tenant ada has no quota"]
    assert texts(world.tell(RemoveQuota(cell=CELL, tenant="ada", gpu_type="x"))) == ["tenant ada has no quota of x"]


def test_no_quota_is_removed_under_jobs_that_live_and_none_of_the_others_either() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 1), quota("ada", 2, gpu_type="a100")))
    world.run(spec_of("runs"))
    world.tell(admitted(spec_of("waits")))
    (text,) = texts(world.tell(REMOVE))
    assert text.startswith("1 jobs of ada wait and 1 run: cancel them or let them end first")
    assert len(world.state.quotas) == 2
    world.tell(finished("runs"))
    world.tell(started("waits"), finished("waits"))
    assert kinds(world.tell(REMOVE)) == ["QuotaRemoved", "QuotaRemoved"]


def test_no_quota_is_removed_from_above_others() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 4), quota("bob", 1, parent="ada")))
    (text,) = texts(world.tell(REMOVE))
    assert text.startswith("tenant bob stands below ada")
    world.tell(RemoveQuota(cell=CELL, tenant="bob"))
    assert kinds(world.tell(REMOVE)) == ["QuotaRemoved"]


def test_a_removal_that_does_not_get_into_the_log_is_tried_again() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 4)))
    fates = iter([Fate.LOST, Fate.BEATEN, Fate.LATE])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(REMOVE)
    assert not world.state.quotas
    world.check()


@pytest.mark.parametrize("what", ["unknown", "in use", "above others"])
def test_the_fold_refuses_to_forget_a_quota_that_counts(what: str) -> None:
    world = cell_with(joined("n1"))
    if what != "unknown":
        world.tell(set_quotas(quota("ada", 4), quota("bob", 1, parent="ada" if what == "above others" else None)))
    if what == "in use":
        world.run(spec_of("job"))
    with pytest.raises(IllegalEffect):
        apply(world.state, e.QuotaRemoved(tenant="ada", gpu_type="gpu"), world.now_ms)


# Tenants.


def test_a_tenant_that_the_file_no_longer_names_keeps_what_runs_and_its_waiting_jobs_are_held() -> None:
    world = cell_with(joined("n1", 1))
    world.run(spec_of("runs"))
    world.tell(admitted(spec_of("waits")), admitted(spec_of("other", tenant="bob")))
    made = reload(world, "bob")
    assert [x.reason for x in made if isinstance(x, e.JobHeld)] == [NOT_IN_THE_FILE]
    assert {name: job.status for name, job in world.state.jobs.items()} == {
        "runs": JobStatus.RUNNING,
        "waits": JobStatus.HELD,
        "other": JobStatus.QUEUED,
    }


@pytest.mark.parametrize("job", ["runs", "waits", "many", "many.1"])
def test_such_a_job_ends_by_a_cancel_that_admission_passes_on(job: str) -> None:
    world = cell_with(joined("n1", 1))
    world.run(spec_of("ada/runs"))
    world.tell(admitted(spec_of("ada/many", array=3)), admitted(spec_of("ada/waits", 2)))
    reload(world, "bob")
    wish = encode(CancelJob(job=job, tenant="ada"))
    requested = AdmissionService(world.file).answer(CancelJob.type, wish, None, 0)
    assert isinstance(requested, JobCancelRequested)
    made = kinds(world.tell(requested))
    assert made == {"runs": ["JobStopping"], "many": ["JobCancelled"] * 3}.get(job, ["JobCancelled"])


def test_who_asks_why_such_a_job_waits_is_told() -> None:
    world = cell_with()
    world.tell(admitted(spec_of("waits")))
    reload(world, "bob")
    world.tell(joined("n1", 1))
    found = reason_in(world.state, "waits", ())
    assert found is not None
    told = [*lines(*found)]
    assert any(line.startswith("why it waits: held") for line in told)
    assert f"  it is held: {NOT_IN_THE_FILE}" in told
    assert as_object(found[0])["held_why"] == NOT_IN_THE_FILE


def test_what_comes_back_to_the_queue_is_held_too() -> None:
    world = cell_with(joined("n1", 1))
    world.run(spec_of("runs", retry=RetryPolicy(budget=5, backoff_ms=0)))
    reload(world, "bob")
    world.restart()
    assert "JobHeld" in kinds(world.tell(failed("runs")))
    assert world.job("runs").held_why == NOT_IN_THE_FILE


def test_a_tenant_that_is_back_gets_its_jobs_back_in_the_queue_but_those_that_it_held_itself() -> None:
    world = cell_with(joined("n1", 1))
    world.tell(admitted(spec_of("waits", 2)), admitted(spec_of("held", hold=True)))
    reload(world, "bob")
    reload(world, "ada", "bob")
    assert {name: job.status for name, job in world.state.jobs.items()} == {
        "waits": JobStatus.QUEUED,
        "held": JobStatus.HELD,
    }


def test_a_job_that_a_person_holds_while_its_tenant_is_gone_stays_held_when_the_tenant_is_back() -> None:
    world = cell_with(joined("n1", 1))
    world.tell(admitted(spec_of("waits", 2)))
    reload(world, "bob")
    assert kinds(world.tell(HoldJob(cell=CELL, job="waits"))) == ["JobHeld"]
    assert world.tell(HoldJob(cell=CELL, job="waits")) == []
    reload(world, "ada", "bob")
    assert (world.job("waits").status, world.job("waits").held_why) == (JobStatus.HELD, "")
    world.tell(ReleaseJob(cell=CELL, job="waits"))
    assert world.job("waits").status is JobStatus.QUEUED


def test_an_operator_may_let_a_held_job_of_a_tenant_that_is_gone_run() -> None:
    world = cell_with(joined("n1", 1))
    world.tell(admitted(spec_of("waits")))
    reload(world, "bob")
    world.tell(ReleaseJob(cell=CELL, job="waits"))
    assert (world.job("waits").status, world.job("waits").held_why) == (JobStatus.STARTING, "")


def released_in_a_full_cell(held_by: str = "the file") -> World:
    """Ada is gone, and her job that waits was let go by an operator; it does not fit before `full` is over."""
    world = cell_with(joined("n1", 1), file=file_of("ada", "bob"))
    world.run(spec_of("full", tenant="bob"))
    world.tell(admitted(spec_of("waits", hold=held_by == "its tenant")))
    reload(world, "bob")
    world.tell(ReleaseJob(cell=CELL, job="waits"))
    assert world.job("waits").status is JobStatus.QUEUED
    return world


@pytest.mark.parametrize("held_by", ["the file", "its tenant"])
@pytest.mark.parametrize("then", ["regain", "restart", "snapshot", "the same file", "another file"])
def test_a_job_that_was_let_go_though_its_tenant_is_gone_waits_for_room_whoever_writes(then: str, held_by: str) -> None:
    world = released_in_a_full_cell(held_by)
    for _ in range(2):
        match then:
            case "snapshot":
                world.restart_from_snapshot(Random(1))
            case "the same file":
                reload(world, "bob")
            case "another file":
                reload(world, "bob", "eve", limit=4)
            case _:
                getattr(world, then)()
        world.rest()
    assert world.job("waits").status is JobStatus.QUEUED
    world.tell(finished("full"))
    assert world.job("waits").status is JobStatus.STARTING
    world.check()


@pytest.mark.parametrize("reads", ["at a reload", "when it starts"])
def test_a_job_that_was_let_go_is_held_again_when_a_file_names_its_tenant_and_a_later_one_does_not(reads: str) -> None:
    world = released_in_a_full_cell()
    for tenants in (("ada", "bob"), ("bob",)):
        assert world.job("waits").status is JobStatus.QUEUED
        if reads == "at a reload":
            reload(world, *tenants)
        else:
            world.file = file_of(*tenants)
            world.restart()
            world.rest()
    assert world.job("waits").held_why == NOT_IN_THE_FILE


def test_a_job_that_was_let_go_is_held_again_when_it_comes_back_to_the_queue() -> None:
    world = released_in_a_full_cell()
    world.tell(finished("full"))
    world.tell(started("waits"))
    world.restart()
    world.tell(DeclareLost(cell=CELL, node="n1"))
    world.tell(report("n1"))
    assert world.job("waits").held_why == NOT_IN_THE_FILE


def test_the_quotas_of_a_tenant_go_with_it_if_nothing_needs_them() -> None:
    world = cell_with(joined("n1", 1))
    reload(world, "ada", "bob", limit=4)
    world.tell(set_quotas(quota("ada", 1, gpu_type="a100", parent=None), quota("guest", 1)))
    reload(world, "bob", limit=4)
    assert sorted(world.state.quotas) == [("bob", "gpu"), ("guest", "gpu")]


def test_quotas_of_a_tenant_that_is_gone_stay_while_its_jobs_live() -> None:
    world = cell_with(joined("n1", 1))
    reload(world, "ada", "bob", limit=4)
    world.run(spec_of("runs"))
    reload(world, "bob", limit=4)
    assert ("ada", "gpu") in world.state.quotas
    world.tell(finished("runs"))
    assert kinds(world.tell(REMOVE)) == ["QuotaRemoved"]


def test_a_quota_that_a_reloaded_file_no_longer_has_is_removed() -> None:
    world = cell_with(joined("n1", 8))
    reload(world, "ada", "bob", limit=2)
    world.tell(set_quotas(quota("ada", 1, gpu_type="a100", parent=None)))
    made = reload(world, "ada", "bob")
    assert [x.tenant for x in made if isinstance(x, e.QuotaRemoved)] == ["ada", "bob"]
    assert sorted(world.state.quotas) == [("ada", "a100")], "what no file named stays"
    world.check()


def test_a_quota_of_living_jobs_that_a_reloaded_file_no_longer_has_limits_and_guarantees_nothing_any_more() -> None:
    world = cell_with(joined("n1", 8))
    kept = (TenantQuota(guaranteed=4, limit=4, lends=False),)
    world.file = FILE.model_copy(update={"tenants": (Tenant(name="ada", quotas=kept), Tenant(name="bob"))})
    world.service.reload(world.file)
    world.rest()
    world.run(spec_of("runs"))
    world.tell(admitted(spec_of("waits", 4)), admitted(spec_of("other", 2, tenant="bob")))
    world.tell(set_quotas(quota("ada", 3, parent=None)))
    reload(world, "ada", "bob")
    assert world.state.quotas["ada", "gpu"] == Quota(tenant="ada", gpu_type="gpu")
    assert world.job("waits").status is JobStatus.STARTING
    world.check()


def test_quotas_of_a_whole_line_of_tenants_go_with_one_reload_also_record_by_record() -> None:
    world = cell_with(joined("n1", 8))

    def tree(*quotas: TenantQuota) -> CellFile:
        names = [f"t{number}" for number in range(12)]
        above = [None, *names]
        tenants = [Tenant(name=name, parent=parent) for name, parent in zip(names, above, strict=False)]
        tenants[0] = tenants[0].model_copy(update={"quotas": quotas})
        return FILE.model_copy(update={"tenants": tuple(tenants)})

    world.file = tree(TenantQuota(limit=4))
    world.service.reload(world.file)
    world.rest()
    assert len(world.state.quotas) == 12
    fates = iter([Fate.LOST, Fate.LATE])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.file = tree()
    world.service.reload(world.file)
    world.rest()
    assert not world.state.quotas
    world.check()


def test_a_file_that_comes_to_nothing_at_first_is_followed_all_the_same() -> None:
    world = cell_with(joined("n1", 1))
    world.tell(*(admitted(spec_of(f"job-{number}", 2)) for number in range(5)))
    fates = iter([Fate.LOST, Fate.LATE])
    world.on_append = lambda: next(fates, Fate.KEPT)
    reload(world, "bob")
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.HELD}
    world.check()


# Another writer, which reads its cell file when it starts.


@pytest.mark.parametrize("how", ["restart", "regain"])
def test_a_quota_that_was_removed_stays_so_with_another_writer_though_the_cell_file_names_it(how: str) -> None:
    world = cell_with(joined("n1", 8), file=file_of("ada", "bob", limit=2))
    world.tell(REMOVE)
    getattr(world, how)()
    assert ("ada", "gpu") not in world.state.quotas
    world.service.reload(world.file)
    world.rest()
    assert ("ada", "gpu") in world.state.quotas, "a reload puts the file in force anew"


def test_a_quota_that_is_new_in_the_cell_file_is_set_by_the_next_writer() -> None:
    world = cell_with(joined("n1", 8), file=file_of("ada", "bob"))
    world.file = file_of("ada", "bob", limit=2)
    world.restart()
    assert sorted(world.state.quotas) == [("ada", "gpu"), ("bob", "gpu")]


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_quota_that_is_out_of_the_file_of_the_next_writer_goes_unless_it_was_changed_at_run_time(
    is_changed: bool,
) -> None:
    world = cell_with(joined("n1", 8), file=file_of("ada", "bob", limit=2))
    if is_changed:
        world.tell(set_quotas(quota("ada", 3, parent=None)))
    world.file = file_of("ada", "bob")
    world.restart()
    world.rest()
    assert sorted(world.state.quotas) == ([("ada", "gpu")] if is_changed else [])


def test_a_tenant_that_went_or_came_back_while_no_writer_was_there_is_followed_by_the_next_one() -> None:
    world = cell_with(joined("n1", 1), file=file_of("ada", "bob"))
    world.tell(admitted(spec_of("a")), admitted(spec_of("b")))
    world.file = file_of("bob")
    world.restart()
    world.rest()
    assert (world.job("b").status, world.job("b").held_why) == (JobStatus.HELD, NOT_IN_THE_FILE)
    world.file = file_of("ada", "bob")
    world.restart()
    world.rest()
    assert world.job("b").status is JobStatus.QUEUED


def test_a_job_that_admission_let_in_before_its_tenant_went_is_held_when_it_comes() -> None:
    world = cell_with(joined("n1", 8), file=file_of("ada", "bob", limit=2))
    reload(world, "bob")
    world.tell(admitted(spec_of("late")))
    assert (world.job("late").status, world.job("late").held_why) == (JobStatus.HELD, NOT_IN_THE_FILE)


def test_a_dropped_quota_goes_with_the_reload_that_puts_what_stood_below_it_elsewhere() -> None:
    world = cell_with(joined("n1", 8))
    limit = (TenantQuota(limit=4),)
    below = (Tenant(name="lab", quotas=limit), Tenant(name="ada", parent="lab", quotas=limit))
    for tenants in (below, (Tenant(name="lab"), Tenant(name="ada", quotas=limit))):
        world.file = FILE.model_copy(update={"tenants": tenants})
        world.service.reload(world.file)
        world.rest()
    assert sorted(world.state.quotas) == [("ada", "gpu")]
    assert world.state.quotas["ada", "gpu"].parent is None
    world.check()
