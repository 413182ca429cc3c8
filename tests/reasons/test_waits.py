"""Every code for which a job waits comes from the production services in virtual time, and is told with its numbers."""

from __future__ import annotations

import pytest

from fallow.cli.job.story.reason import as_object, lines
from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.effects import NodeSilent
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency, Level, NodeRole, NodeSpec, Position, TopologyRequest, Wish
from fallow.shared.events.operations import HoldJob
from fallow.shared.events.reasons import PendingReason
from fallow.simulator.trace.cell import VirtualCell
from tests.reasons.cells import (
    CELLS,
    LATE,
    TENANTS,
    behind_a_head_that_waited_for_long,
    cell,
    leaves,
    strict_line_with_an_owner_behind_a_borrower,
    submit,
    told,
    topology,
    waiting,
)

TOLD_BY_ITS_STATE = (PendingReason.BACKOFF, PendingReason.HELD)
"""The log need not say these: what holds the job is what the log says of it."""

NUMBERS: dict[PendingReason, tuple[str, ...]] = {
    PendingReason.NO_SUCH_NODES: (
        "2 of 3 workers would fit now, 2 if it were empty",
        "each worker needs 8 GPUs, 0 CPUs and 0 MiB; the most that any node has that it may use: 8 GPUs",
    ),
    PendingReason.RECORD_TOO_LARGE: ("its places need 1165601 bytes, the record in which it starts takes 950000",),
    PendingReason.QUOTA_REACHED: (
        "tenant ada, gpu: 8 GPUs in use, a limit of 12 GPUs; 8 GPUs more would pass it",
        "missing: 4 gpu less in use by ada",
    ),
    PendingReason.NO_FREE_GPUS: ("0 GPUs free of 16 GPUs", "0 of 1 worker would fit now, 4 if it were empty"),
    PendingReason.FRAGMENTED: (
        "6 GPUs free of 16 GPUs, 0 of 2 nodes whole",
        "missing: room for 1 more worker in train",
    ),
    PendingReason.UNACKNOWLEDGED: ("2 nodes with unconfirmed starts",),
    PendingReason.NODES_SILENT: ("2 nodes of which nothing is heard",),
    PendingReason.TOPOLOGY: (
        "8 of 11 nodes whole; 5 of 8 workers in leaf-7, 3 of 8 in leaf-8 would fit now",
        "leaf leaf-7 has 5 of 8 whole nodes, 40 GPUs free, room for 5 of its workers",
        "leaf leaf-8 has 3 of 3 whole nodes",
        "missing: 3 more whole nodes in leaf-7",
    ),
    PendingReason.RESERVED_FOR_OTHER: ("1 of 1 worker would fit now", "tenant bob, gpu: 0 GPUs in use"),
    PendingReason.BEHIND_HEAD: (
        "it may not pass ada/head, the head of queue line (strict-fifo), which waits for 16 GPUs in train",
        "ahead of it in queue line: 1 job for 16 GPUs: ada/head",
    ),
    PendingReason.MAKING_ROOM: (
        "room is held for it (priority) on n7-1 until day 0 00:10:00.002 at the latest: ada/other has still to leave",
    ),
    PendingReason.BACKOFF: ("not before day 0 00:00:10.010",),
    PendingReason.MAINTENANCE: ("maintenance of node n7-0 begins at day 0 00:00:01.000",),
    PendingReason.NOT_BEFORE: ("not before day 0 01:00:00.000",),
    PendingReason.AFTER: ("it waits for the end of ada/first",),
    PendingReason.ARRAY_LIMIT: ("1 of 2 nodes whole",),
    PendingReason.HELD: ("no job is ahead of it in queue line",),
}


def test_there_is_a_cell_for_every_code() -> None:
    assert set(CELLS) == set(NUMBERS) == set(PendingReason)


@pytest.mark.parametrize("code", CELLS)
def test_a_job_that_waits_for_this_is_told_so_first(code: PendingReason) -> None:
    cell = CELLS[code]()
    assert told(cell).codes[0] is code
    assert waiting(cell).deferred is (None if code in TOLD_BY_ITS_STATE else code)


@pytest.mark.parametrize("code", CELLS)
def test_the_numbers_stand_beside_it(code: PendingReason) -> None:
    cell = CELLS[code]()
    text = "\n".join(lines(told(cell), waiting(cell).spec))
    assert [number for number in NUMBERS[code] if number not in text] == []


def test_a_head_that_waited_for_long_is_named_with_the_time_since_when_it_is_one() -> None:
    cell = behind_a_head_that_waited_for_long()
    text = "\n".join(lines(told(cell), waiting(cell).spec))
    assert told(cell).codes == (PendingReason.BEHIND_HEAD,)
    assert (
        "it may not pass ada/head, since day 0 00:00:00.001 the head of queue line (backfill), which waits for" in text
    )


@pytest.mark.parametrize(
    ("quota", "told_of_ada"),
    [
        (TenantQuota(guaranteed=128), "8 GPUs in use, 128 GPUs guaranteed, no limit"),
        (TenantQuota(guaranteed=8, limit=12), "8 GPUs in use, 8 GPUs guaranteed, a limit of 12 GPUs; 8 GPUs more"),
        (TenantQuota(limit=64), "8 GPUs in use, a limit of 64 GPUs"),
    ],
)
def test_a_guarantee_stands_beside_the_limit(quota: TenantQuota, told_of_ada: str) -> None:
    full = cell(tenants=(Tenant(name="ada", quotas=(quota,)), Tenant(name="bob")))
    submit(full, "first")
    submit(full, "other", tenant="bob")
    submit(full, LATE)
    text = "\n".join(lines(told(full), waiting(full).spec))
    assert f"tenant ada, gpu: {told_of_ada}" in text


def test_programs_are_told_the_same() -> None:
    found = as_object(told(topology()))
    assert (found["code"], found["kind"]) == ("topology", "topology")
    assert found["to_free"] == ["3 more whole nodes in leaf-7"]
    assert [(unit["unit"], unit["nodes_whole"], unit["nodes"]) for unit in found["pools"][0]["units"]] == [
        ("leaf-7", 5, 8),
        ("leaf-8", 3, 3),
    ]


def test_in_a_strict_queue_no_room_is_kept_for_an_owner_behind_the_head_or_both_would_wait_for_ever() -> None:
    cell = strict_line_with_an_owner_behind_a_borrower()
    cell.advance(None)
    assert cell.state.jobs == {}


def test_a_job_that_waits_for_one_that_nobody_knows_is_told_that_first_though_there_is_no_room_either() -> None:
    full = cell()
    submit(full, "first", workers=2)
    submit(full, LATE, after=(Dependency(job="frist"),))
    found = told(full)
    assert found.codes == (PendingReason.AFTER, PendingReason.NO_FREE_GPUS)
    assert found.unknown == ("ada/frist",)
    assert "no such job is known: ada/frist; submit it, or cancel this one" in "\n".join(
        lines(found, waiting(full).spec)
    )


def test_of_a_dependency_that_is_known_nothing_is_said() -> None:
    full = cell()
    submit(full, "first", workers=2)
    submit(full, LATE, after=(Dependency(job="first"),))
    assert told(full).unknown == ()


def test_a_held_job_that_could_never_run_is_told_the_latter_first() -> None:
    small = cell(*leaves(2))
    submit(small, LATE, workers=3)
    small.tell(HoldJob(cell="c", job=f"ada/{LATE}"))
    small.settle()
    assert told(small).codes == (PendingReason.NO_SUCH_NODES, PendingReason.HELD)


def test_idle_gpus_of_pools_that_a_job_may_not_use_are_named() -> None:
    part = CellPart(
        name="c",
        ordinal=0,
        pools=(Pool(name="train", gpus=16), Pool(name="serve", gpus=16, role=NodeRole.INFERENCE)),
        queues=(Queue(name="line"),),
    )
    both = VirtualCell(
        CellFile(cells=(part,), tenants=TENANTS),
        (*leaves(2), *(NodeSpec(id=f"s{n}", pool="serve", gpus=8, role=NodeRole.INFERENCE) for n in (1, 2))),
    )
    both.begin()
    submit(both, "first", workers=2)
    submit(both, LATE)
    found = told(both)
    assert (found.codes, found.elsewhere) == ((PendingReason.NO_FREE_GPUS,), (("serve", 16),))
    assert "  16 GPUs are idle in pool serve, which it may not use" in list(lines(found, waiting(both).spec))


def test_what_nodes_lack_that_a_job_may_not_use_is_no_reason_for_it() -> None:
    tainted = tuple(replace(node, taints=("slow",)) for node in leaves(1))
    found = cell(*tainted, *leaves(0, 1))
    submit(found, "first")
    submit(found, LATE)
    node = found.state.nodes["n7-0"]
    apply(found.state, NodeSilent(node=node.id, boot=node.boot, silent_wall_ms=15_000), found.now_ms)
    assert told(found).codes == (PendingReason.NO_FREE_GPUS,)
    submit(found, "other", tolerations=("slow",))
    why = why_not(found.state, found.state.jobs["ada/other"], found.file.cells[0].queues, found.now_ms)
    assert why.codes == (PendingReason.NODES_SILENT,)


def test_of_a_pool_whose_nodes_name_no_leaf_it_is_told_that_no_leaf_holds_the_job() -> None:
    found = cell(*(replace(node, position=Position()) for node in leaves(2)))
    submit(found, LATE, workers=2, topology=TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED))
    text = list(lines(told(found), waiting(found).spec))
    [pool] = [line for line in text if line.startswith("  pool train: ")]
    assert pool.endswith("; 0 of 2 workers in one leaf would fit now, 0 if it were empty")
    assert "    no node here names its leaf" in text
