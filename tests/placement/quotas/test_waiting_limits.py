"""How many jobs of one tenant may wait, and how much the texts of its jobs may take: no tenant fills the cell and keeps
all others out.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.cli.quota.shares import as_object
from fallow.services.placement.explain.fair_share import shares_of
from fallow.shared.cluster.model.config import CellFile, Tenant
from fallow.shared.cluster.quota.waiting_limits import WaitingLimits
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import ProcessRun
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import RefuseCode
from tests.placement.worlds.world import (
    FILE,
    World,
    admitted,
    cancel,
    codes,
    finished,
    joined,
    kinds,
    lost,
    set_policy,
    spec_of,
)

CELL_MAX = 10


def file_of(*tenants: Tenant) -> CellFile:
    (part,) = FILE.cells
    policy = CellPolicy(max_pending_jobs=CELL_MAX)
    return CellFile(cells=(part.model_copy(update={"policy": policy}),), tenants=tenants)


ADA, BOB, EVE = Tenant(name="ada"), Tenant(name="bob"), Tenant(name="eve")


def submit(world: World, tenant: str, count: int, first: int = 0, **spec: Any) -> list[e.AnyEffect]:
    numbers = range(first, first + count)
    return world.tell(*(admitted(spec_of(f"{tenant}-{number}", tenant=tenant, **spec)) for number in numbers))


def accepted(effects: list[e.AnyEffect]) -> int:
    return kinds(effects).count("JobEnqueued")


def refusals(effects: list[e.AnyEffect]) -> list[e.JobRefused]:
    return [effect for effect in effects if isinstance(effect, e.JobRefused)]


def test_a_tenant_that_sends_more_than_the_cell_takes_keeps_no_other_tenant_out() -> None:
    world = World(file_of(ADA, BOB))
    flood = submit(world, "ada", 3 * CELL_MAX)
    assert accepted(flood) == CELL_MAX // 2
    assert {*codes(flood)} == {RefuseCode.TENANT_HAS_TOO_MANY_WAITING}
    assert accepted(submit(world, "bob", CELL_MAX // 2)) == CELL_MAX // 2
    assert codes(submit(world, "bob", 1, 100)) == [RefuseCode.TOO_MANY_WAITING], "the cell is full now"


def test_the_refusal_names_the_tenant_its_figure_and_its_limit() -> None:
    world = World(file_of(ADA, BOB))
    (refused,) = refusals(submit(world, "ada", CELL_MAX // 2 + 1))
    assert (refused.tenant, refused.text) == ("ada", "tenant ada has 5 waiting jobs; its limit is 5")


def test_alone_in_the_file_a_tenant_may_fill_the_cell() -> None:
    world = World(file_of(ADA))
    assert accepted(submit(world, "ada", 3 * CELL_MAX)) == CELL_MAX


def test_a_tenants_own_limit_is_what_the_file_says() -> None:
    world = World(file_of(Tenant(name="ada", max_pending_jobs=2), Tenant(name="bob", max_pending_jobs=8)))
    assert (accepted(submit(world, "ada", 9)), accepted(submit(world, "bob", 9))) == (2, 8)


def test_a_limit_above_the_cells_is_the_cells() -> None:
    world = World(file_of(Tenant(name="ada", max_pending_jobs=1_000), BOB))
    assert codes(submit(world, "ada", CELL_MAX + 1)) == [RefuseCode.TOO_MANY_WAITING]


def test_an_array_counts_as_its_elements_and_is_refused_whole() -> None:
    world = World(file_of(ADA, BOB))
    assert accepted(submit(world, "ada", 1, array=3)) == 3
    (refused,) = refusals(submit(world, "ada", 1, 1, array=3))
    assert refused.code is RefuseCode.TENANT_HAS_TOO_MANY_WAITING
    assert refused.text == "tenant ada has 3 waiting jobs and this array has 3; its limit is 5"
    assert accepted(submit(world, "ada", 1, 2, array=2)) == 2


def test_what_starts_or_ends_waits_no_more() -> None:
    world = World(file_of(ADA, BOB))
    submit(world, "ada", 5)
    world.tell(cancel("ada-4"))
    assert accepted(submit(world, "ada", 2, 5)) == 1
    world.tell(joined("n1"))
    assert world.state.waiting_of == {}
    assert accepted(submit(world, "ada", 6, 10)) == 5


def test_a_job_that_comes_back_to_its_queue_waits_beyond_the_limit() -> None:
    world = World(file_of(ADA, BOB))
    world.tell(joined("n1"))
    world.run(spec_of("runs", 8))
    submit(world, "ada", 5, gpus=8)
    world.tell(lost("n1"))
    assert (world.job("runs").status, world.state.waiting_of) == ("queued", {"ada": 6})


def test_a_limit_may_be_raised_with_the_file_and_at_run_time() -> None:
    world = World(file_of(ADA, BOB))
    submit(world, "ada", CELL_MAX)
    world.service.reload(file_of(Tenant(name="ada", max_pending_jobs=7), BOB))
    world.rest()
    assert accepted(submit(world, "ada", CELL_MAX, 100)) == 2
    world.service.reload(file_of(ADA, BOB))
    world.rest()
    world.tell(set_policy(max_pending_jobs=20))
    assert accepted(submit(world, "ada", CELL_MAX, 200)) == 3


def test_a_second_tenant_finds_room_in_the_smallest_cell() -> None:
    limits = WaitingLimits(file_of(ADA, BOB))
    assert [limits.of("ada", most) for most in (1, 2, 3, 1_000_000)] == [1, 1, 1, 500_000]


@pytest.mark.parametrize(("own", "most"), [(None, 5), (3, 3)])
def test_a_person_sees_how_many_wait_and_how_many_may(own: int | None, most: int) -> None:
    world = World(file_of(Tenant(name="ada", max_pending_jobs=own), BOB))
    submit(world, "ada", 2)
    found = as_object(world.state, shares_of(world.state, 0))["shares"]
    assert [(each["tenant"], each["waiting"], each["waiting_max"]) for each in found] == [("ada", 2, most)]


TEXT = ProcessRun(argv=("x" * 36,))
TEXT_BYTES = 100


def limited(*tenants: Tenant, bytes_max: int = 10 * TEXT_BYTES) -> World:
    (part,) = FILE.cells
    policy = CellPolicy(live_bytes_max=bytes_max)
    return World(CellFile(cells=(part.model_copy(update={"policy": policy}),), tenants=tenants))


def test_long_texts_of_one_tenant_keep_no_other_tenant_out() -> None:
    world = limited(ADA, BOB)
    flood = submit(world, "ada", 30, run=TEXT)
    assert (accepted(flood), {*codes(flood)}) == (5, {RefuseCode.TENANT_HAS_TOO_MANY_WAITING})
    (text,) = {refused.text for refused in refusals(flood)}
    assert text == "the jobs of tenant ada that wait or run take 500 bytes and this one takes 100; its limit is 500"
    assert accepted(submit(world, "ada", 9, 100)) == 9, "jobs without texts take none"
    assert accepted(submit(world, "bob", 5, run=TEXT)) == 5
    (refused,) = refusals(submit(world, "bob", 1, 100, run=TEXT))
    assert refused.code is RefuseCode.TOO_MANY_WAITING
    assert refused.text == "the jobs that wait or run take 1000 bytes and this one takes 100, the cell takes 1000"


def test_the_texts_of_jobs_that_run_count_until_these_are_over() -> None:
    world = limited(ADA, BOB)
    world.tell(joined("n1"))
    submit(world, "ada", 5, run=TEXT)
    assert world.state.waiting == 0
    assert codes(submit(world, "ada", 1, 5, run=TEXT)) == [RefuseCode.TENANT_HAS_TOO_MANY_WAITING]
    world.tell(finished("ada-0"))
    assert accepted(submit(world, "ada", 2, 6, run=TEXT)) == 1


def test_the_texts_of_an_array_count_for_each_element() -> None:
    world = limited(ADA, BOB)
    (refused,) = refusals(submit(world, "ada", 1, run=TEXT, array=6))
    assert refused.text == (
        "the jobs of tenant ada that wait or run take 0 bytes and the 6 of this array take 600; its limit is 500"
    )
    assert accepted(submit(world, "ada", 1, 1, run=TEXT, array=5)) == 5
    assert world.state.live_bytes == 500
    world.tell(cancel("ada-1"))
    assert (world.state.live_bytes, world.state.live_bytes_of) == (0, {})


def test_what_a_tenants_texts_may_take_is_what_the_file_says() -> None:
    world = limited(Tenant(name="ada", live_bytes_max=2 * TEXT_BYTES), Tenant(name="bob", live_bytes_max=10**9))
    assert accepted(submit(world, "ada", 9, run=TEXT)) == 2
    assert accepted(submit(world, "bob", 19, run=TEXT)) == 8, "no more than the cell takes"


def test_a_limit_of_texts_may_be_raised_at_run_time_and_is_seen() -> None:
    world = limited(ADA, BOB)
    submit(world, "ada", 9, run=TEXT)
    world.tell(set_policy(live_bytes_max=20 * TEXT_BYTES))
    assert accepted(submit(world, "ada", 9, 100, run=TEXT)) == 5
    (found,) = as_object(world.state, shares_of(world.state, 0))["shares"]
    assert (found["live_bytes"], found["live_bytes_max"]) == (1_000, 1_000)


def test_jobs_without_texts_are_accepted_also_where_the_limit_was_lowered() -> None:
    world = limited(ADA)
    submit(world, "ada", 9, run=TEXT)
    world.tell(set_policy(live_bytes_max=1))
    assert (accepted(submit(world, "ada", 1, 100)), accepted(submit(world, "ada", 1, 101, run=TEXT))) == (1, 0)


def test_a_repeated_submission_gets_its_answer_again_also_at_the_limit() -> None:
    world = World(file_of(ADA, BOB))
    submit(world, "ada", 5)
    again = replace(admitted(spec_of("ada-0", tenant="ada")), sent_ms=None)
    assert world.tell(again) == []
