"""The log says which cell file is in force, and whoever takes the cell over goes by the newest one."""

from __future__ import annotations

import json

import pytest

from fallow.services.placement.service import FILE_FIRST_MOST, PlacementService
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.file_in_force import as_effect, difference, digest_of, from_effect
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.operations import HoldJob, Quota, SetQuota
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.values import NodeStatus
from fallow.shared.log.machine.writer import Draft, Writer
from tests.placement.world import CELL, World, admitted, joined, kinds, spec_of
from tests.signing import WRITERS, public, signed_file


def file_with(pool: str = "train", *tenants: str) -> CellFile:
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name=pool, gpus=1_000),))
    return CellFile(cells=(part,), tenants=tuple(Tenant(name=name) for name in tenants or ("ada",)))


OLD, NEW, NEWEST = file_with(), file_with("late"), file_with("last", "ada", "birch")


def standby(world: World, file: CellFile) -> PlacementService:
    """Another process that has read this file now, and folds the log along: here, by sharing the state."""
    return PlacementService(world.state, file, writer="standby")


def take_over(world: World, service: PlacementService) -> list[e.AnyEffect]:
    """The standby takes the cell over; what its first record holds."""
    service.take_over(world.wall_ms)
    writer = Writer(world.state)
    writer.begin()
    tried = service.start(world.now_ms, world.wall_ms)
    draft = writer.draft(tried.effects, tried.inputs, tried.at_ms)
    assert isinstance(draft, Draft)
    assert writer.appended(world.state.offset + 1)
    service.accepted(tried)
    return list(draft.decision.effects)


def in_force(world: World) -> CellFile:
    assert world.state.cell_file is not None
    return from_effect(world.state.cell_file)


def test_a_standby_that_started_before_a_reload_takes_over_with_the_new_file() -> None:
    world = World(OLD)
    other = standby(world, OLD)
    world.service.reload(NEW)
    world.rest()
    assert kinds(take_over(world, other)) == ["WriterStarted"]
    assert in_force(world) == NEW
    assert "is older and differs in main.pools" in other.take_contradiction().replace(CELL, "main")
    assert other.take_contradiction() == "", "it is told once"


def test_the_file_that_it_takes_over_with_is_the_one_that_it_decides_by() -> None:
    world = World(OLD)
    other = standby(world, OLD)
    world.service.reload(NEW)
    world.rest()
    world.service = other
    world.regain()
    assert kinds(world.tell(joined("n1", pool="late"))) == ["NodeChanged"]
    assert world.state.nodes["n1"].status is NodeStatus.READY


def test_a_process_that_starts_with_a_newer_file_puts_it_in_force_when_it_takes_over() -> None:
    world = World(OLD)
    late = standby(world, NEW)
    assert in_force(world) == OLD, "until it takes over nothing has changed"
    assert kinds(take_over(world, late)) == ["WriterStarted", "CellFileSet"]
    assert (in_force(world), late.take_contradiction()) == (NEW, "")


def test_of_two_processes_that_started_with_other_files_the_later_writer_goes_by_what_the_log_holds() -> None:
    world = World(OLD)
    first, second = standby(world, NEW), standby(world, NEWEST)
    take_over(world, first)
    assert kinds(take_over(world, second)) == ["WriterStarted"]
    assert in_force(world) == NEW
    assert "pools, tenants" in second.take_contradiction()


def test_a_file_that_was_put_back_in_force_is_newer_than_one_that_was_read_before_it_was_replaced() -> None:
    world = World(OLD)
    other = standby(world, NEW)
    for file in (NEW, OLD):
        world.service.reload(file)
        world.rest()
    assert kinds(take_over(world, other)) == ["WriterStarted"]
    assert in_force(world) == OLD
    assert "is older" in other.take_contradiction()


def test_a_reload_that_did_not_get_into_the_log_is_not_in_force() -> None:
    world = World(OLD)
    other = standby(world, OLD)
    world.service.reload(NEW)
    take_over(world, other)
    assert in_force(world) == OLD
    take_over(world, world.service)
    assert in_force(world) == NEW, "the file that was read last, and nothing was put in force since"


def test_a_restart_with_the_same_file_writes_nothing_of_it() -> None:
    world = World(OLD)
    world.restart()
    assert kinds(world.decisions[-1].effects) == ["WriterStarted"]


def test_a_quota_that_a_file_between_did_not_have_comes_back_though_jobs_of_its_tenant_have_lived_on() -> None:
    """The file between left it as one that says nothing. What a person set at run time stays."""
    rich, poor = guaranteed(ada=8, birch=8), guaranteed(ada=None, birch=8)
    world = World(rich)
    world.tell(admitted(spec_of("job", tenant="ada")))
    world.tell(SetQuota(cell=CELL, quotas=(Quota(tenant="birch", gpu_type="gpu", guaranteed_milli=3_000),)))
    assert "QuotaSet" in kinds(take_over(world, standby(world, poor)))
    assert world.state.quotas["ada", "gpu"].guaranteed_milli == 0
    assert "QuotaSet" in kinds(take_over(world, standby(world, rich)))
    assert world.state.quotas["ada", "gpu"].guaranteed_milli == 8_000
    assert world.state.quotas["birch", "gpu"].guaranteed_milli == 3_000


def guaranteed(**gpus: int | None) -> CellFile:
    """A file in which these tenants have so much guaranteed, or no quota at all."""
    quotas = {name: () if each is None else (TenantQuota(guaranteed=each),) for name, each in gpus.items()}
    tenants = tuple(Tenant(name=name, quotas=quota) for name, quota in quotas.items())
    return OLD.model_copy(update={"tenants": tenants})


def with_a_file_of_a_newer_release(world: World) -> str:
    """The newer release's record, with a field that this one does not know. The file's digest."""
    known = as_effect(NEW)
    content = json.dumps({**json.loads(known.content), "a_field_to_come": 1})
    world.written_by_another(e.CellFileSet(digest=digest_of(content), content=content))
    return digest_of(content)


def digest_in_force(world: World) -> str:
    assert world.state.cell_file is not None
    return world.state.cell_file.digest


@pytest.mark.parametrize("is_read_later", [False, True])
def test_a_file_that_cannot_be_read_here_is_not_replaced_until_a_person_reloads(*, is_read_later: bool) -> None:
    world = World(OLD)
    other = None if is_read_later else standby(world, NEWEST)
    digest = with_a_file_of_a_newer_release(world)
    other = other or standby(world, NEWEST)
    world.service = other
    world.regain()
    assert digest_in_force(world) == digest
    assert f"cell file {digest[:8]} is in force and cannot be read here" in other.take_contradiction()
    other.reload(NEWEST)
    world.regain()
    other.reload(NEWEST)
    world.rest()
    assert in_force(world) == NEWEST
    assert other.take_contradiction() == ""


def test_a_reload_over_a_file_that_cannot_be_read_here_holds_what_waits_of_all_tenants_that_it_does_not_name() -> None:
    """Nobody knows whose jobs waited by that file."""
    world = World(NEWEST)
    world.tell(*(admitted(spec_of(tenant, tenant=tenant)) for tenant in ("ada", "birch")))
    with_a_file_of_a_newer_release(world)
    world.service.reload(OLD)
    world.rest()
    assert {name: job.status for name, job in world.state.jobs.items()} == {
        "ada": JobStatus.QUEUED,
        "birch": JobStatus.HELD,
    }


@pytest.mark.parametrize("file", [OLD, NEW, NEWEST])
def test_a_file_comes_back_as_it_was(file: CellFile) -> None:
    effect = as_effect(file)
    assert (from_effect(effect), digest_of(effect.content)) == (file, effect.digest)


def test_a_difference_names_the_parts() -> None:
    strict = CellPart(
        name=CELL,
        ordinal=0,
        pools=OLD.cells[0].pools,
        queues=(Queue(name="q", discipline=QueueDiscipline.STRICT_FIFO),),
    )
    assert difference(OLD, OLD.model_copy(update={"cells": (strict,)}), CELL) == f"{CELL}.queues"


def test_files_with_other_keys_differ_in_them() -> None:
    other = signed_file(public(WRITERS), cell=CELL)
    assert difference(signed_file(cell=CELL), other, CELL) == f"{CELL}.signing"


def test_files_that_keep_records_for_other_times_differ_in_that() -> None:
    assert difference(OLD, OLD.model_copy(update={"retention_hours": {"jobs": 5}}), CELL) == "retention_hours"


def large(*tenants: str) -> CellFile:
    return file_with("late", "ada", *tenants, *(f"team-{number:05}-of-our-company" for number in range(4_000)))


@pytest.mark.parametrize("of_others", [False, True])
def test_a_reloaded_file_is_in_the_log_before_a_backlog_is_taken_in(*, of_others: bool) -> None:
    """Else whoever takes over meanwhile goes back to the older one."""
    world = World(OLD)
    world.tell(joined("n1"))
    new = large()
    world.service.reload(new)
    for number in range(3):
        jobs = [admitted(spec_of(f"j{number}-{each}")) for each in range(600)]
        world.hand_over(*([HoldJob(cell=CELL, job=job.spec.id) for job in jobs] if of_others else jobs), size_bytes=600)
        world.decide()
    assert in_force(world) == new


def test_a_writer_that_begins_with_a_backlog_puts_its_own_file_in_force_first() -> None:
    world = World(OLD)
    world.service = standby(world, large())
    world.hand_over(*(admitted(spec_of(f"j-{number}")) for number in range(600)), size_bytes=600)
    world.regain()
    kinds_of_records = [kinds(record.effects) for record in world.decisions]
    assert max(number for number, each in enumerate(kinds_of_records) if "CellFileSet" in each) < min(
        number for number, each in enumerate(kinds_of_records) if "JobEnqueued" in each
    )
    assert len(world.state.jobs) == 600


def test_a_file_that_changes_much_does_not_keep_inputs_waiting_until_all_of_it_is_in_force() -> None:
    """Each record that puts it in force has room for so many quotas that go."""
    names = [f"t{number}" for number in range(1_500)]
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=1_000_000),))
    tenants = tuple(Tenant(name=name, quotas=(TenantQuota(limit=8),)) for name in names)
    world = World(CellFile(cells=(part,), tenants=tenants))
    world.checks = False
    world.rest()
    file = CellFile(cells=(part,), tenants=tuple(Tenant(name=name) for name in names))
    world.service.reload(file)
    held = 0
    while in_force(world) != file:
        world.hand_over(admitted(spec_of(f"j{len(world.decisions)}", tenant="t0")))
        waiting = world.service.new_jobs_pending
        assert world.decide()
        held = held + 1 if world.service.new_jobs_pending == waiting else 0
        assert held <= FILE_FIRST_MOST
    assert len(world.state.quotas) <= 1
