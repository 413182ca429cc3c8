"""A queue that backfills: jobs pass a head that does not fit, are marked, and pass it no more once it has waited."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency
from fallow.shared.events.operations import CellPolicy, HoldJob
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import (
    CELL,
    Fate,
    World,
    admitted,
    cancel,
    finished,
    joined,
    lost,
    quota,
    set_policy,
    set_quotas,
    spec_of,
)

WAIT_MS = 10_000
FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100)),
            queues=(Queue(name="line", discipline=QueueDiscipline.BACKFILL),),
            policy=CellPolicy(backfill_wait_ms=WAIT_MS, node_lease_wall_ms=1_000_000),
        ),
    ),
    tenants=(Tenant(name="ada"), Tenant(name="bob")),
)


def blocked_cell(file: CellFile = FILE, **options: Any) -> World:
    """Two nodes of 4 GPUs, one of them in use; `big` needs both and is the head since 0."""
    world = World(file, **options)
    world.tell(joined("n1", 4), joined("n2", 4))
    world.tell(admitted(spec_of("first", 4, pools=("train",))))
    world.tell(admitted(spec_of("big", 4, workers=2, pools=("train",)), 1))
    return world


def submit(world: World, job: str, gpus: int = 1, **spec: Any) -> list[e.AnyEffect]:
    return world.tell(admitted(spec_of(job, gpus, **{"pools": ("train",), **spec}), world.now_ms + 2))


def starts(effects: list[e.AnyEffect]) -> dict[str, str]:
    """Who starts, and which head each of them passes."""
    return {effect.job: effect.backfilled_over for effect in effects if isinstance(effect, e.JobStarted)}


def test_the_first_job_that_does_not_fit_is_the_head_from_then_on() -> None:
    world = blocked_cell()
    assert world.state.heads == {"big": 0}
    world.pass_time(500)
    submit(world, "other", 8)
    assert world.state.heads == {"big": 0}


def test_a_job_started_past_the_head_is_marked_and_names_it() -> None:
    world = blocked_cell()
    assert starts(submit(world, "small")) == {"small": "big"}
    assert (world.job("small").backfilled, world.job("small").backfilled_over) == (True, "big")
    assert not world.job("first").backfilled


def test_when_the_head_has_waited_for_long_nothing_passes_it_any_more() -> None:
    world = blocked_cell()
    world.pass_time(WAIT_MS - 1)
    assert starts(submit(world, "early")) == {"early": "big"}
    world.pass_time(1)
    assert starts(submit(world, "late")) == {}
    assert world.job("late").deferred is PendingReason.BEHIND_HEAD


def test_when_a_head_that_is_due_starts_one_that_stood_behind_it_is_passed_by_none_either() -> None:
    """Though another one has come before it, for which that does not hold."""
    world = blocked_cell()
    world.tell(joined("n3", 4, pool="extra", gpu_type="a100"), joined("n4", 4, pool="extra", gpu_type="a100"))
    submit(world, "busy", pools=("extra",))
    world.pass_time(WAIT_MS)
    submit(world, "either", 4, workers=2, pools=("train", "extra"), priority=-1)
    submit(world, "newer", 4, workers=2)
    world.pass_time(WAIT_MS)
    submit(world, "late", pools=("extra",), priority=-2)
    assert starts(world.tell(finished("first"))) == {"big": ""}
    assert world.state.heads == {"either": WAIT_MS, "newer": 2 * WAIT_MS}


def test_what_could_not_use_what_the_head_needs_passes_it_at_any_time_and_is_not_marked() -> None:
    world = blocked_cell()
    world.tell(joined("n3", 4, pool="extra", gpu_type="a100"))
    world.pass_time(WAIT_MS)
    assert starts(submit(world, "elsewhere", pools=("extra",))) == {"elsewhere": ""}
    assert starts(submit(world, "either", pools=("train", "extra"))) == {"either": ""}
    assert world.nodes_of("either") == ["n3"]


def test_each_pool_has_a_head_of_its_own() -> None:
    world = blocked_cell()
    world.tell(joined("n3", 4, pool="extra", gpu_type="a100"))
    submit(world, "tall", 4, pools=("extra",))
    submit(world, "wide", 3, pools=("extra",))
    assert list(world.state.heads) == ["big", "wide"]


def test_when_the_head_starts_what_waited_behind_it_goes_on() -> None:
    world = blocked_cell()
    world.pass_time(WAIT_MS)
    submit(world, "late")
    assert starts(world.tell(finished("first"))) == {"big": ""}
    assert world.state.heads == {"late": WAIT_MS}


def test_a_head_that_is_cancelled_or_held_is_waited_for_no_more() -> None:
    world = blocked_cell()
    world.pass_time(WAIT_MS)
    submit(world, "late", 4, workers=2)
    submit(world, "later")
    world.tell(cancel("big"))
    assert world.state.heads == {"late": WAIT_MS}
    assert starts(world.tell(HoldJob(cell=CELL, job="late"))) == {}
    assert world.state.heads == {}
    assert world.job("later").workers


@pytest.mark.parametrize(("gpus", "workers"), [(4, 2), (3, 2)])
def test_what_comes_before_a_head_does_not_make_it_wait_anew(gpus: int, workers: int) -> None:
    world = blocked_cell()
    world.pass_time(500)
    submit(world, "urgent", gpus, workers=workers, priority=9)
    assert not world.job("urgent").workers
    world.pass_time(500)
    world.tell(cancel("urgent"))
    assert world.state.heads["big"] == 0


@pytest.mark.parametrize(("gpus", "workers"), [(4, 2), (3, 2)])
def test_what_comes_before_a_head_that_has_waited_for_long_lets_no_other_pass_it(gpus: int, workers: int) -> None:
    world = blocked_cell()
    world.pass_time(WAIT_MS)
    submit(world, "urgent", gpus, workers=workers, priority=9)
    submit(world, "late")
    assert world.state.heads == {"big": 0, "urgent": WAIT_MS}
    assert not world.job("late").workers


@pytest.mark.parametrize(("gpus", "behind"), [(4, "newer"), (3, None)], ids=["a like job", "another one"])
def test_what_comes_before_a_head_counts_as_that_if_it_needs_the_same_and_who_waits_behind_it_is_told(
    gpus: int, behind: str | None
) -> None:
    world = blocked_cell()
    world.pass_time(WAIT_MS)
    submit(world, "newer", gpus, workers=2, priority=1)
    submit(world, "next", priority=1)
    told = why_not(world.state, world.job("next"), FILE.cells[0].queues, world.now_ms)
    assert (told.behind and (told.behind.job, told.behind.since_ms)) == (behind and (behind, 0))
    assert bool(world.job("next").workers) is (behind is None)


def test_a_head_that_no_node_could_hold_for_a_while_has_waited_all_the_same() -> None:
    world = blocked_cell()
    world.pass_time(500)
    world.tell(lost("n2"))
    world.pass_time(500)
    world.tell(joined("n2", 4, boot="boot-2"))
    assert world.state.heads == {"big": 0}


def test_a_job_that_no_node_could_hold_is_no_head() -> None:
    world = blocked_cell()
    world.tell(cancel("big"))
    submit(world, "giant", 1, workers=9)
    assert world.state.heads == {}
    assert starts(submit(world, "small")) == {"small": ""}


def test_a_head_at_the_limit_of_its_tenant_keeps_back_only_jobs_below_that_limit() -> None:
    world = blocked_cell()
    world.tell(cancel("big"), set_quotas(quota("ada", 6)))
    world.tell(set_policy(backfill_wait_ms=0))
    submit(world, "a-lot", 3)
    assert starts(submit(world, "little")) == {}
    assert starts(submit(world, "foreign", tenant="bob")) == {"foreign": ""}


def test_the_wait_can_be_changed_while_the_cell_runs() -> None:
    world = blocked_cell()
    world.pass_time(500)
    world.tell(set_policy(backfill_wait_ms=500))
    assert starts(submit(world, "late")) == {}
    assert starts(world.tell(set_policy(backfill_wait_ms=501))) == {"late": "big"}


def test_since_when_a_head_waits_outlives_its_writer_and_stands_in_snapshots() -> None:
    fates = [Fate.KEPT] * 3 + [Fate.BEATEN]
    world = blocked_cell(on_append=lambda: fates.pop(0) if fates else Fate.KEPT)
    world.pass_time(WAIT_MS - 1)
    assert world.state.heads == world.twin.heads
    assert state_from(rows_of(world.state)).heads == world.state.heads
    assert list(world.state.heads) == ["big"]


def test_who_waits_behind_a_head_that_waited_for_long_is_told_which_and_since_when() -> None:
    world = blocked_cell()
    world.pass_time(WAIT_MS)
    submit(world, "late")
    told = why_not(world.state, world.job("late"), FILE.cells[0].queues, world.now_ms)
    assert told.codes == (PendingReason.BEHIND_HEAD,)
    assert told.behind is not None
    assert (told.behind.job, told.behind.since_ms) == ("big", 0)
    head = why_not(world.state, world.job("big"), FILE.cells[0].queues, world.now_ms)
    assert (head.codes, head.behind) == ((PendingReason.NO_FREE_GPUS,), None)
    assert head.head_since_ms == 0


@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL])
def test_a_job_behind_a_head_is_told_so_when_its_own_wait_is_over(discipline: QueueDiscipline) -> None:
    part = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=8),),
        queues=(Queue(name="line", discipline=discipline),),
        policy=CellPolicy(backfill_wait_ms=0),
    )
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"),)))
    world.tell(joined("n1"), admitted(spec_of("runs", queue="line")), admitted(spec_of("head", 8, queue="line"), 1))
    world.tell(admitted(spec_of("later", queue="line", not_before_ms=world.now_ms + 5_000), 2))
    world.tell(admitted(spec_of("behind", queue="line", after=(Dependency(job="runs"),)), 3))
    assert [world.job(job).deferred for job in ("later", "behind")] == [PendingReason.NOT_BEFORE, PendingReason.AFTER]
    world.pass_time(6_000)
    assert world.job("later").deferred is PendingReason.BEHIND_HEAD


@pytest.mark.parametrize("order", QueueOrder)
def test_a_head_that_its_quota_never_lets_start_any_more_is_none_and_is_cleared(order: QueueOrder) -> None:
    (part,) = FILE.cells
    queue = part.queues[0].model_copy(update={"order": order})
    world = blocked_cell(FILE.model_copy(update={"cells": (part.model_copy(update={"queues": (queue,)}),)}))
    assert "big" in world.state.heads
    made = world.tell(set_quotas(quota("ada", 5)))
    assert [effect.job for effect in made if isinstance(effect, e.HeadCleared)] == ["big"]
    assert "big" not in world.state.heads


def test_a_head_that_is_not_due_is_passed_over_by_no_owner_from_whom_it_would_borrow_since_a_job_has_started() -> None:
    """All come in one record: what `mine` starts with leaves too little of bob's guarantee for the head."""
    world = World(FILE)
    guaranteed = {"ada": 8_000, "bob": 4_000}
    world.tell(*(joined(name, 8, labels={"at": name}) for name in ("n1", "n2")))
    world.tell(set_quotas(*(replace(quota(name, None), guaranteed_milli=milli) for name, milli in guaranteed.items())))
    submit(world, "fill", 6, node_labels=("at=n1",))
    jobs = {"head": ("bob", 4, "n1"), "before": ("ada", 1, "n1"), "mine": ("bob", 2, "n2"), "behind": ("ada", 1, "n1")}
    effects = world.tell(
        *(
            admitted(spec_of(job, gpus, tenant=tenant, pools=("train",), node_labels=(f"at={node}",)), 2)
            for job, (tenant, gpus, node) in jobs.items()
        )
    )
    assert starts(effects) == {"before": "head", "mine": "", "behind": ""}
