"""The log says which cell file is in force, and a writer that takes the cell over goes by the newest one."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.placement import service
from fallow.services.placement.app.file_warnings import NOT_AS_FILED
from fallow.services.placement.requests import settings
from fallow.services.placement.requests.settings import configure
from fallow.services.placement.service import FILE_FIRST_MAX, PlacementService
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.file_in_force import as_effect, difference, digest_of, from_effect
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import Event
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import (
    CellPolicy,
    Cordon,
    HoldJob,
    Quota,
    ReloadCell,
    RemoveQuota,
    SetPolicy,
    SetQuota,
)
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.log.follower import Follower
from fallow.shared.log.machine.writer import Draft, Writer
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import AppendAnswer, AppendUnknown, Outgoing
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.contract.eventually import eventually
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, Fate, World, admitted, joined, kinds, set_policy, set_quotas, spec_of
from tests.placement.worlds.writers import CELL as WRITTEN
from tests.placement.worlds.writers import LAYOUT, TEXT, PlacementProcess, cluster
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
    """It is unknown which tenants' jobs waited by that file."""
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
    """Otherwise a writer that takes over meanwhile goes back to the older one."""
    world = World(OLD)
    world.tell(joined("n1"))
    new = large()
    world.service.reload(new)
    for number in range(3):
        jobs = [admitted(spec_of(f"j{number}-{each}")) for each in range(600)]
        world.hand_over(*([HoldJob(cell=CELL, job=job.spec.id) for job in jobs] if of_others else jobs), size_bytes=600)
        world.decide()
    assert in_force(world) == new


STEPS: dict[str, Callable[[int], Event]] = {
    "policy": lambda number: set_policy(unknown_dependency_ms=number),
    "quota": lambda number: set_quotas(Quota(tenant="ada", gpu_type="gpu", limit_milli=1_000 * number)),
    "quota of a type of one file": lambda number: set_quotas(Quota(tenant="ada", gpu_type="train", limit_milli=number)),
    "remove": lambda _: RemoveQuota(cell=CELL, tenant="ada"),
    "reload": lambda _: ReloadCell(cell=CELL),
}


ORDERS = st.lists(st.sampled_from([*STEPS, "reload"]), min_size=1, max_size=6)
BATCHES = st.lists(
    st.tuples(ORDERS, st.sampled_from(["train", "late", None]), st.sampled_from(["decide", "rest", "wait"])),
    min_size=1,
    max_size=4,
)


def with_reloads_together(
    batches: list[tuple[list[str], str | None, str]], first: str
) -> list[tuple[list[str], str | None, str]]:
    """These, and behind them a reload that waits while another one with another file comes."""
    second = "late" if first == "train" else "train"
    (names, _, then), *more = batches
    return [*more, (["reload"], first, "wait"), (["reload", *names], second, then)]


@given(
    batches=BATCHES | st.builds(with_reloads_together, BATCHES, st.sampled_from(["train", "late"])),
    fates=st.lists(st.sampled_from(Fate), max_size=4),
    stepped=st.booleans(),
)
@example(
    batches=[(["quota of a type of one file", "reload"], "late", "decide")],
    fates=[Fate.BEATEN, Fate.KEPT],
    stepped=False,
)
@example(batches=[(["reload"], "late", "wait"), (["reload"], "train", "decide")], fates=[], stepped=False)
def test_what_came_together_is_done_in_its_order_whether_a_file_or_a_person_says_it(
    batches: list[tuple[list[str], str | None, str]], fates: list[Fate], *, stepped: bool
) -> None:
    """A person who sets something behind a reload is told that it is set: the file does not go over it. What was set
    before the reload does not go over the file. A file that is refused changes nothing.
    """
    met = list(fates)
    if Fate.BEATEN in fates:  # who takes the cell over reads the file as it is then
        batches = [(names, batches[0][1], then) for names, _, then in batches]
    at_once = World(with_limit("train"), stepped=stepped)
    one_by_one = World(with_limit("train"), stepped=stepped)
    at_once.on_append = lambda: met.pop() if met else Fate.KEPT
    numbers = count(1)
    for names, pool, then in batches:
        at_once.file_read = one_by_one.file_read = with_limit(pool) if pool is not None else None
        events = [STEPS[name](next(numbers)) for name in names]
        at_once.hand_over(*events)
        if then != "wait":
            at_once.decide()
        if then == "rest":
            at_once.rest()
        for event in events:
            one_by_one.tell(event)
    at_once.rest()
    assert at_once.state.policy == one_by_one.state.policy
    assert at_once.state.quotas == one_by_one.state.quotas
    assert in_force(at_once) == in_force(one_by_one)
    assert not at_once.service.has_pending
    orders = [(name, pool) for names, pool, _ in batches for name in names]
    reloads = [number for number, (name, pool) in enumerate(orders) if name == "reload" and pool is not None]
    reaches("something is set behind a reload", bool(reloads) and orders[-1][0] != "reload")
    reaches("a reload comes behind what was set", bool(reloads) and orders[0][0] != "reload")
    waiting = [
        {first, second}
        for (before, first, then), (behind, second, _) in pairwise(batches)
        if then == "wait" and before[-1] == behind[0] == "reload"
    ]
    reaches("a reload with another file waits behind one that waits", {"train", "late"} in waiting)


def test_of_reloads_with_other_files_that_follow_each_other_while_one_is_put_in_force_the_last_one_counts() -> None:
    world = World(OLD)
    world.checks = False
    world.file_read = quota_of_many(1, tenants=600)
    world.hand_over(ReloadCell(cell=CELL))
    world.decide()
    for pool in ("train", "late"):
        world.file_read = with_limit(pool)
        world.hand_over(ReloadCell(cell=CELL))
    world.rest()
    assert in_force(world) == with_limit("late")


async def test_a_reload_that_the_shell_refuses_leaves_what_was_set_at_run_time(tmp_path: Path) -> None:
    broker, cell_file = cluster(), tmp_path / "cell.yaml"
    cell_file.write_text(TEXT)
    writer = PlacementProcess(MemoryLog(broker), "one", cell_file=cell_file)
    await writer.start()
    cell_file.write_text("cells: [")
    policy = SetPolicy(cell=WRITTEN, policy=CellPolicy(unknown_dependency_ms=777))
    for number, order in enumerate((policy, ReloadCell(cell=WRITTEN), Cordon(cell=WRITTEN, node="n1"))):
        await MemoryLog(broker).publish([LAYOUT.outgoing(order, id=str(number), source="test", wall_ms=0)])
        follower = Follower(MemoryLog(broker), LAYOUT, WRITTEN)
        await follower.start()

        async def is_read(follower: Follower = follower, offset: int = number + 1) -> bool:
            await follower.catch_up()
            return follower.state.inputs.get("operations-0", 0) >= offset

        await eventually(is_read, within_s=15)
        await follower.stop()
        assert follower.state.policy.unknown_dependency_ms == 777
    await writer.stop()


@pytest.mark.parametrize(("guaranteed", "fits"), [(3, True), (6, False)])
async def test_a_process_that_starts_with_a_file_that_cannot_be_in_force_in_all_it_says_tells_so_in_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], guaranteed: int, *, fits: bool
) -> None:
    """Beside a guarantee of five of the eight GPUs, set at run time."""
    broker, cell_file = cluster(), tmp_path / "cell.yaml"
    sure = Quota(tenant="vision", gpu_type="gpu", guaranteed_milli=5_000)
    order = LAYOUT.outgoing(SetQuota(cell=WRITTEN, quotas=(sure,)), id="1", source="test", wall_ms=0)
    cell_file.write_text(TEXT)
    await run_until_in_force(broker, "one", cell_file, order)
    assert NOT_AS_FILED not in capsys.readouterr().out
    search = f"- {{name: search, quotas: [{{guaranteed: {guaranteed}}}]}}"
    cell_file.write_text(TEXT.replace("[{name: vision}]", f"\n  - {{name: vision}}\n  {search}"))
    await run_until_in_force(broker, "two", cell_file)
    assert (NOT_AS_FILED in capsys.readouterr().out) is not fits


class AnswerLost(MemoryLog):
    """The answer to the first append that says so of the cell file is lost: its record is there."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.lost = 0

    async def append(self, message: Outgoing) -> AppendAnswer:
        answer = await super().append(message)
        if not self.lost and b'"cell-file"' in (message.value or b""):
            self.lost += 1
            return AppendUnknown("the answer was lost")
        return answer


async def test_what_of_a_cell_file_is_not_in_force_is_told_once_also_where_the_answer_to_that_record_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, cell_file = cluster(), tmp_path / "cell.yaml"
    sure = Quota(tenant="vision", gpu_type="gpu", guaranteed_milli=5_000)
    order = LAYOUT.outgoing(SetQuota(cell=WRITTEN, quotas=(sure,)), id="1", source="test", wall_ms=0)
    cell_file.write_text(TEXT)
    await run_until_in_force(broker, "one", cell_file, order)
    search = "- {name: search, quotas: [{guaranteed: 6}]}"
    cell_file.write_text(TEXT.replace("[{name: vision}]", f"\n  - {{name: vision}}\n  {search}"))
    log = AnswerLost(broker)
    await run_until_in_force(broker, "two", cell_file, log=log)
    assert (log.lost, capsys.readouterr().out.count(NOT_AS_FILED)) == (1, 1)


async def test_a_node_that_is_called_like_the_cell_file_brings_no_warning_of_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, cell_file = cluster(), tmp_path / "cell.yaml"
    cell_file.write_text(TEXT)
    sure = Quota(tenant="vision", gpu_type="gpu", guaranteed_milli=5_000)
    orders = [Cordon(cell=WRITTEN, node="cell-file"), SetQuota(cell=WRITTEN, quotas=(sure,))]
    sent = [LAYOUT.outgoing(each, id=str(number), source="test", wall_ms=0) for number, each in enumerate(orders)]
    await run_until_in_force(broker, "one", cell_file, *sent)
    told = [json.loads(record.value or b"{}") for record in broker.partition(LAYOUT.tp("decisions", WRITTEN)).records]
    assert "cell-file" in [effect.get("proposal") for decision in told for effect in decision["effects"]]
    assert NOT_AS_FILED not in capsys.readouterr().out


async def run_until_in_force(
    broker: MemoryBroker, name: str, cell_file: Path, *orders: Outgoing, log: MemoryLog | None = None
) -> None:
    """Run a process until its cell file is in force and it has done what it was asked for."""
    writer = PlacementProcess(log or MemoryLog(broker), name, cell_file=cell_file)
    await MemoryLog(broker).publish(list(orders))
    await writer.start()
    follower = Follower(MemoryLog(broker), LAYOUT, WRITTEN)
    await follower.start()
    file = load_cell_file(cell_file)

    async def is_in_force() -> bool:
        await follower.catch_up()
        found, quotas = follower.state.cell_file, follower.state.quotas
        return found is not None and found.digest == as_effect(file).digest and ("vision", "gpu") in quotas

    await eventually(is_in_force, within_s=15)
    await follower.stop()
    await writer.stop()


def quota_of_many(limit: int, tenants: int = 300) -> CellFile:
    """A file that needs more than one record; that of `zed` comes in the last one."""
    types = [f"{'g' * 50}{number}" for number in range(10)]
    root = Tenant(name="root", quotas=tuple(TenantQuota(gpu_type=each, limit=limit) for each in types))
    below = tuple(Tenant(name=f"{'t' * 40}{number}", parent="root") for number in range(tenants))
    zed = Tenant(name="zed", quotas=(TenantQuota(gpu_type="gpu", limit=99),))
    return OLD.model_copy(update={"tenants": (root, *below, zed)})


@pytest.mark.parametrize("is_new", [False, True])
def test_what_is_set_behind_a_reload_of_a_file_of_several_records_stays_set(*, is_new: bool) -> None:
    file = quota_of_many(1)
    world = World(quota_of_many(1, tenants=0) if is_new else file)
    world.checks = False
    world.rest()
    if not is_new:
        changed = [replace(quota, limit_milli=7_000) for quota in world.state.quotas.values()]
        for first in range(0, len(changed), 500):
            world.tell(set_quotas(*changed[first : first + 500]))
    world.file_read = file
    before = len(world.decisions)
    zed = Quota(tenant="zed", gpu_type="gpu", limit_milli=5_000)
    world.tell(set_policy(unknown_dependency_ms=555), ReloadCell(cell=CELL), set_policy(unknown_dependency_ms=777))
    world.tell(set_quotas(zed))
    assert [record.effects for record in world.decisions[before:]][-1][-1] == e.QuotaSet(quota=zed)
    assert world.state.policy.unknown_dependency_ms == 777
    assert len(world.decisions) - before >= 3, "the file needs several records"


def test_operations_wait_for_a_file_of_several_records_and_nodes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes much is no reason to hear nothing for long."""
    monkeypatch.setattr(service, "FILE_FIRST_MAX", 1)
    world = World(OLD)
    world.checks = False
    world.file_read = quota_of_many(1, tenants=600)
    world.hand_over(ReloadCell(cell=CELL), set_policy(unknown_dependency_ms=777), joined("n1"))
    heard = decisions = 0
    while world.state.policy.unknown_dependency_ms != 777:
        assert world.service.others_pending
        world.decide()
        decisions += 1
        heard = heard or (decisions if "n1" in world.state.nodes else 0)
    assert heard == 2 < decisions, (heard, decisions)


@pytest.mark.parametrize("between", [(), (set_policy(),)])
def test_reloads_that_come_together_put_a_file_in_force_once_where_nothing_stands_between(
    between: tuple[Event, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, times = World(OLD), list[int]()

    def counted(*args: Any, **named: Any) -> bool:
        times.append(len(world.decisions))
        return configure(*args, **named)

    monkeypatch.setattr(settings, "configure", counted)
    world.file_read = OLD
    orders = (ReloadCell(cell=CELL), *between) * 5
    for _ in range(2):
        world.hand_over(*orders)
    most = 0
    while world.service.has_pending:
        before = len(times)
        world.decide()
        most = max(most, len(times) - before)
    assert most == 1, "each holds up the cell"
    assert len(times) == (10 if between else 1)


def test_a_file_that_did_not_get_into_the_log_is_put_there_though_another_record_comes_first() -> None:
    fates = [Fate.LOST]
    world = World(with_limit("train"), on_append=lambda: fates.pop() if fates else Fate.KEPT)
    world.file_read = with_limit("late")
    world.hand_over(ReloadCell(cell=CELL))
    world.decide()
    world.writer.begin()
    tried = world.service.fence({"jobs-0": (0, None)}, world.now_ms, world.wall_ms)
    assert world._append(tried)
    world.rest()
    assert in_force(world) == with_limit("late")
    assert world.state.quotas["ada", "late"].limit_milli == 98_000


def with_limit(pool: str) -> CellFile:
    """A file of one tenant with limits, of which one is of the type of this name: no other such file has that."""
    tenant = Tenant(name="ada", quotas=(TenantQuota(gpu_type="gpu", limit=99), TenantQuota(gpu_type=pool, limit=98)))
    pools = tuple(Pool(name=each, gpu_type=each, gpus=1_000) for each in ("gpu", "train", "late"))
    part = CellPart(name=CELL, ordinal=0, pools=pools)
    return CellFile(cells=(part,), tenants=(tenant,))


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
        assert held <= FILE_FIRST_MAX
    assert len(world.state.quotas) <= 1
