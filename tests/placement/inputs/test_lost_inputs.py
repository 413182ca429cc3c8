"""An input that has lost records is fenced, with its place; the cell decides on the others, and a person decides."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from fallow.cli.log.repairing import From, repair, survey
from fallow.services.placement.app.watch import input_watch
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.events.effects import InputFenced, InputResumed, JobDeferred, JobStarted, NodeSilent
from fallow.shared.events.fields.values import NodeSpec, WorkerRange
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.nodes import NodeJoined, NodeReport
from fallow.shared.events.operations import HoldJob
from fallow.shared.events.proposals import PreemptionProposed, Victim
from fallow.shared.events.reasons import PendingReason, PreemptionCause, RejectCode
from fallow.shared.log.inputs import damage, losses
from fallow.shared.log.inputs.fenced_input import INPUT_FENCED
from fallow.shared.log.machine.losses import LossKind, Place, loss_of
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.memory.member import MemoryMember
from fallow.shared.log.port import AppendAnswer, AppendUnknown, LogUnavailable, Outgoing, Reader, TopicPartition
from fallow.shared.log.reading import input_checksum
from fallow.shared.runtime.process import Context
from tests.contract.eventually import eventually
from tests.hypothesis_profile import reaches
from tests.placement.worlds.lost_world import CELL, LAYOUT, LostWorld

JOBS = ("test.jobs", 0)


@pytest.fixture
def world(tmp_path: Path) -> LostWorld:
    return LostWorld(tmp_path)


def names(begin: int, end: int) -> list[str]:
    return [f"job-{n}" for n in range(begin, end)]


async def read_and_refill(world: LostWorld, more: int) -> None:
    """Twenty jobs are read; then the topic holds so many others in their place."""
    world.admit(*names(0, 20))
    async with world.placement():
        await world.until_enqueued(20)
    world.broker.cut(JOBS, 0)
    world.admit(*names(100, 100 + more))


async def fenced(context: Context[PlacementSettings], *words: str) -> None:
    await eventually(lambda: all(word in (context.health.waiting_for or "") for word in words))
    assert 'fallow_input_fenced{cell="cell-a",input="jobs"} 1.0' in generate_latest(context.registry).decode()


async def test_jobs_that_stand_where_others_were_read_are_not_passed_over(world: LostWorld) -> None:
    """The topic was lost and filled anew: 20 of its 30 jobs stand before the cursor."""
    await read_and_refill(world, 30)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0", "another record at offset 19")
    assert len(world.enqueued()) == 20, "what came behind the cursor is not taken for all that came"


async def test_a_cursor_beyond_the_end_fences_the_input(world: LostWorld) -> None:
    world.admit(*names(0, 20))
    async with world.placement():
        await world.until_enqueued(20)
    world.broker.cut(JOBS, 5)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0", "was read to offset 20 and ends at 5")
        assert not context.health.is_ready


async def test_jobs_that_were_deleted_unread_fence_their_input(world: LostWorld) -> None:
    world.admit(*names(0, 3))
    async with world.placement():
        await world.until_enqueued(3)
    world.admit(*names(3, 9))
    world.broker.delete_before(JOBS, 5)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0", "2 were deleted unread")
    assert len(world.enqueued()) == 3


def stop_of(number: int) -> PreemptionProposed:
    """A proposal that is refused: there is no such job."""
    return PreemptionProposed(
        cell=CELL, proposal=f"p-{number}", version=0, preemptor="job-0",
        victims=(Victim(job="job-1", attempt=1),), cause=PreemptionCause.PRIORITY,
        places=(WorkerRange(rank=0, node="n1", devices=(0,), gpu_milli=1_000),),
    )  # fmt: skip


@pytest.mark.parametrize("topic", ["operations", "proposals"])
@pytest.mark.parametrize("before", [0, 1])
async def test_what_is_said_once_and_was_deleted_unread_fences_its_input(
    world: LostWorld, topic: str, before: int
) -> None:
    def say(number: int) -> None:
        world.tell(HoldJob(cell=CELL, job=f"job-{number}") if topic == "operations" else stop_of(number))

    if before:
        say(0)
        async with world.placement():
            await eventually(lambda: any(d.inputs.get(f"{topic}-0") == 1 for d in world.decisions()))
    for number in range(1, 5):
        say(number)
    world.broker.delete_before((f"test.{topic}", 0), before + 2)
    async with world.placement() as context:
        await eventually(lambda: f"test.{topic}/0" in (context.health.waiting_for or ""))
        assert "2 were deleted unread" in (context.health.waiting_for or "")
        world.admit("job-0")
        await world.until_enqueued(1)
    assert max(d.inputs.get(f"{topic}-0", 0) for d in world.decisions()) == before


async def test_the_first_jobs_of_a_cell_that_were_deleted_before_it_read_any_fence_their_input(
    world: LostWorld,
) -> None:
    world.admit(*names(0, 5))
    world.broker.delete_before(JOBS, 3)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0", "begins at 3 and was read to 0", "FALLOW_RESUME_INPUTS=jobs-0@0:OFFSET")
        await eventually(lambda: CELL in context.health.progress.version)
        status, _, body = context.health.answer(f"/readyz/{CELL}")
        assert (status, b"begins at 3 and was read to 0" in body) == (503, True)
    assert world.enqueued() == []
    async with world.placement(resume_inputs="jobs-0@0:3") as context:
        await world.until_enqueued(2)
        assert context.health.waiting_for is None
    async with world.placement() as context:
        world.admit("job-last")
        await world.until_enqueued(3)
        assert context.health.waiting_for is None, "it was read since then"


async def test_jobs_that_cannot_be_read_fence_their_input_and_a_person_passes_over_them(world: LostWorld) -> None:
    world.admit(*names(0, 8))
    world.broker.damage(JOBS, 3, 4)
    async with world.placement() as context:
        await fenced(
            context, "test.jobs/0 cannot be read at offset 3", "from offset 5 on it can be", "=jobs-0@3:OFFSET"
        )
        await world.until_enqueued(3)
        world.tell(HoldJob(cell=CELL, job="job-0"))
        await eventually(lambda: world.read("operations") == 1)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0 cannot be read at offset 3")
    async with world.placement(resume_inputs="jobs-0@3:5") as context:
        await world.until_enqueued(6)
        assert context.health.waiting_for is None
    assert world.enqueued() == ["job-0", "job-1", "job-2", "job-5", "job-6", "job-7"]
    assert InputResumed(input="jobs-0", from_offset=3, to_offset=5) in world.effects()


async def test_jobs_that_could_not_be_read_are_read_on_by_the_same_process_once_they_can_be(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another replica leads, or the disk of the broker was repaired."""
    monkeypatch.setattr(damage, "LOOK_AGAIN_S", 0.05)
    world.admit(*names(0, 8))
    world.broker.damage(JOBS, 3, 4)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0 cannot be read at offset 3")
        await world.until_enqueued(3)
        world.broker.partition(JOBS).damaged.clear()
        await world.until_enqueued(8)
        await eventually(lambda: context.health.waiting_for is None)
    assert world.enqueued() == list(names(0, 8))
    assert "".join(capsys.readouterr()).count(INPUT_FENCED) == 1


@pytest.mark.parametrize("inputs", list(From))
async def test_an_input_that_a_person_resumes_by_a_repair_is_read_on_by_a_writer_that_rests_meanwhile(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch, inputs: From
) -> None:
    monkeypatch.setattr(input_watch, "LOG_LOOK_S", 0.05)
    await read_and_refill(world, 3)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0")
        log = MemoryLog(world.broker)
        await repair(log, LAYOUT, await survey(log, LAYOUT, CELL), inputs, by="operator", wall_ms=1)
        await eventually(lambda: context.health.waiting_for is None)
        world.admit("job-last")
        await world.until_enqueued(21 if inputs is From.END else 24)


async def test_a_place_that_cannot_be_read_is_told_once_by_a_process_that_takes_its_cell_over_again(
    world: LostWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(MemoryLog):
        is_away = False

        async def append(self, message: Outgoing) -> AppendAnswer:
            if Gone.is_away:
                Gone.is_away = False
                raise LogUnavailable("no answer")
            return await super().append(message)

    world.log = Gone
    world.admit(*names(0, 4))
    world.broker.damage(JOBS, 3)
    async with world.placement() as context:
        await fenced(context, "test.jobs/0 cannot be read at offset 3")
        await world.until_enqueued(3)
        for number in range(2):
            Gone.is_away = True
            world.tell(HoldJob(cell=CELL, job=f"job-{number}"))
            await eventually(partial(has_read, world, number + 1))
            await fenced(context, "test.jobs/0 cannot be read at offset 3")
    said = "".join(capsys.readouterr())
    assert said.count(INPUT_FENCED) == 1
    assert said.count('"event": "writing"') == 3


def has_read(world: LostWorld, operations: int) -> bool:
    return world.read("operations") == operations


async def test_nodes_that_cannot_be_read_are_passed_over_where_a_person_says(world: LostWorld) -> None:
    world.tell(joined("node-0", 0))
    for seq in range(1, 6):
        world.tell(report("node-0", seq))
    world.broker.damage(("test.nodes", 0), 4)
    async with world.placement() as context:
        await eventually(lambda: "test.nodes/0 cannot be read at offset 4" in (context.health.waiting_for or ""))
        await eventually(lambda: world.read("nodes") == 4)
    async with world.placement(resume_inputs="nodes-0@4:5") as context:
        await eventually(lambda: InputResumed(input="nodes-0", from_offset=4, to_offset=5) in world.effects())
        await eventually(lambda: context.health.waiting_for is None)


async def test_a_cell_goes_on_deciding_on_its_other_inputs(world: LostWorld) -> None:
    world.admit("job-0", "job-1")
    async with world.placement():
        await world.until_enqueued(2)
    world.broker.cut(JOBS, 0)
    world.admit("job-9")
    async with world.placement() as context:
        await fenced(context, "ends at 1")
        before = world.end("decisions")
        world.tell(HoldJob(cell=CELL, job="job-0"))
        await eventually(lambda: world.end("decisions") > before)
        assert "test.operations/0" in context.health.progress.cursors


async def test_a_running_writer_notices_that_its_input_was_cut(world: LostWorld) -> None:
    async with world.placement() as context:
        world.admit(*names(0, 4))
        await world.until_enqueued(4)
        world.broker.cut(JOBS, 1)
        world.admit(*names(10, 12))
        await fenced(context, "was read to offset 4 and ends at")
    assert world.enqueued() == list(names(0, 4)), "what came to lie before the cursor is not read as if it were new"


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 0.05)


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("more", [0, 3])
async def test_a_running_writer_at_rest_notices_that_its_input_was_filled_anew(world: LostWorld, more: int) -> None:
    """Also where the new records end exactly where it stands, or where it has read on in them."""
    async with world.placement() as context:
        world.admit(*names(0, 4))
        await world.until_enqueued(4)
        await asyncio.sleep(0.3)  # at rest for longer than two looks
        world.broker.cut(JOBS, 0)
        world.admit(*names(10, 14 + more))
        await fenced(context, "another record at offset 3")
    assert world.enqueued()[:4] == list(names(0, 4))


async def until_put_back(world: LostWorld, *fences: InputFenced) -> None:
    await eventually(lambda: [e for e in world.effects() if isinstance(e, InputFenced)] == list(fences))


async def resumed_from_the_beginning(world: LostWorld) -> None:
    """A person has the input read from its beginning: nothing that came in the place of the jobs is passed over."""
    (fence,) = [effect for effect in world.effects() if isinstance(effect, InputFenced)]
    resume = f"jobs-0@{fence.to_offset}:0"
    async with world.placement(resume_inputs=resume) as context:
        await eventually(lambda: set(world.enqueued()) == {*names(0, 4), *names(10, 17)})
        assert context.health.waiting_for is None
        world.admit("job-last")
        await eventually(lambda: "job-last" in world.enqueued())
    async with world.placement(resume_inputs=resume) as context:
        world.admit("job-behind")
        await eventually(lambda: "job-behind" in world.enqueued())
        assert context.health.waiting_for is None


def checksum_of(world: LostWorld, offset: int) -> int:
    return input_checksum(world.broker.partition(JOBS).records[offset])


@pytest.mark.usefixtures("quick_looks")
async def test_a_loss_behind_which_an_input_was_read_on_fences_it_until_a_person_decides(world: LostWorld) -> None:
    """Also for a process that starts anew: the cursor that the log has by then is whole."""
    async with world.placement() as context:
        world.admit(*names(0, 4))
        await world.until_enqueued(4)
        checksum = checksum_of(world, 3)
        await asyncio.sleep(0.3)
        world.broker.cut(JOBS, 0)
        world.admit(*names(10, 17))
        await fenced(context, "another record at offset 3", "FALLOW_RESUME_INPUTS=jobs-0@4:OFFSET")
        read = world.read("jobs")
        assert read == 7, "it was read on before the loss was found"
        await until_put_back(world, InputFenced(input="jobs-0", from_offset=7, to_offset=4, checksum=checksum))
    for _ in range(2):
        async with world.placement() as context:
            await fenced(context, "another record at offset 3", "FALLOW_RESUME_INPUTS=jobs-0@4:OFFSET")
    await resumed_from_the_beginning(world)


class AwayOnce(MemoryLog):
    """An append is not acknowledged: the first that `holds` these bytes, once told `unsure`. Behind it the log is away
    for a moment, and then `back`.
    """

    def __init__(self, broker: MemoryBroker, state: str, holds: bytes = b"") -> None:
        super().__init__(broker)
        self.state, self._holds = state, holds

    async def append(self, message: Outgoing) -> AppendAnswer:
        if self.state == "unsure" and self._holds in (message.value or b""):
            self.state = "away"
            return AppendUnknown(reason="no answer")
        return await super().append(message)

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.state == "away":
            self.state = "back"
            raise LogUnavailable("no answer")
        return await super().end_offsets(tps)


@pytest.mark.usefixtures("quick_looks")
async def test_a_fence_that_did_not_get_into_the_log_before_that_was_away_is_put_there_when_it_is_back(
    world: LostWorld,
) -> None:
    """The cursor from which the cell is taken over anew is whole, and the look that found the loss is over."""
    log = AwayOnce(world.broker, "unsure", holds=b"InputFenced")
    world.log = lambda _: log
    async with world.placement() as context:
        world.admit(*names(0, 4))
        await world.until_enqueued(4)
        checksum = checksum_of(world, 3)
        await asyncio.sleep(0.3)
        world.broker.cut(JOBS, 0)
        world.admit(*names(10, 17))
        await eventually(lambda: log.state == "back")
        await until_put_back(world, InputFenced(input="jobs-0", from_offset=7, to_offset=4, checksum=checksum))
        await fenced(context, "another record at offset 3", "FALLOW_RESUME_INPUTS=jobs-0@4:OFFSET")


async def test_a_writer_that_loses_the_log_for_a_moment_still_compares_what_it_had_read_before(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the cell over anew, and the cursor from which it reads on is whole: before it reads on, and not at the
    next look.
    """
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 600.0)

    log = AwayOnce(world.broker, "")
    world.log = lambda _: log
    async with world.placement() as context:
        world.admit(*names(0, 4))
        await world.until_enqueued(4)
        world.broker.cut(JOBS, 0)
        world.admit(*names(10, 17))
        await world.until_enqueued(7)
        assert context.health.waiting_for is None, "no look is due yet"
        log.state = "unsure"
        world.tell(HoldJob(cell=CELL, job="job-0"))
        await eventually(lambda: log.state == "back")
        await fenced(context, "test.jobs/0", "another record at offset", "FALLOW_RESUME_INPUTS=jobs-0@")
    await resumed_from_the_beginning(world)


class AwayUntilToldBack(MemoryLog):
    """When told `unsure`, an append of it is not acknowledged, and then the log answers nothing until told `back`."""

    state = ""

    async def append(self, message: Outgoing) -> AppendAnswer:
        if self.state == "unsure":
            self.state = "away"
            return AppendUnknown(reason="no answer")
        return await super().append(message)

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.state == "away":
            self.state = "asked"
            await eventually(lambda: self.state == "back")
            raise LogUnavailable("no answer")
        return await super().end_offsets(tps)


async def away_while_refilled(world: LostWorld, log: AwayUntilToldBack) -> None:
    """A writer has read four jobs; while it waits for an answer of the log, seven others come in their place."""
    world.admit(*names(0, 4))
    await world.until_enqueued(4)
    log.state = "unsure"
    world.tell(HoldJob(cell=CELL, job="job-0"))
    await eventually(lambda: log.state == "asked")
    world.broker.cut(JOBS, 0)
    world.admit(*names(10, 17))


async def test_a_writer_between_whose_tenures_another_wrote_does_not_compare_what_it_had_read_before(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lost meanwhile the other has told, and a person has decided about it."""
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 600.0)

    class Elsewhere(MemoryLog):
        """For a process that the group took in when the other one had gone."""

        def member(self, group: str, topic: str) -> MemoryMember:
            return super().member(f"{group}-later", topic)

    log = AwayUntilToldBack(world.broker)
    world.log = lambda _: log
    async with world.placement() as context:
        await away_while_refilled(world, log)
        world.log = Elsewhere
        async with world.placement(resume_inputs="jobs-0@4:0"):
            await world.until_enqueued(11)
        log.state = "back"
        world.admit("job-last")
        await world.until_enqueued(12)
        assert context.health.waiting_for is None


async def test_what_a_writer_had_read_before_an_input_was_resumed_is_not_compared_with_what_is_read_since(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the loss as it takes the cell over anew, and a person had decided beforehand."""
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 600.0)
    log = AwayUntilToldBack(world.broker)
    world.log = lambda _: log
    async with world.placement(resume_inputs="jobs-0@4:0") as context:
        await away_while_refilled(world, log)
        log.state = "back"
        await world.until_enqueued(11)
        assert context.health.waiting_for is None


class FilledAnew(MemoryLog):
    """When the first reader of jobs is opened, the topic is cut and filled anew beyond the place of the reader."""

    world: LostWorld
    is_due = False

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:
        if FilledAnew.is_due and JOBS in positions:
            FilledAnew.is_due = False
            FilledAnew.world.broker.cut(JOBS, 0)
            FilledAnew.world.admit(*names(100, 105))
        return super().reader(positions, patient_ms=patient_ms)


async def test_a_writer_notices_that_its_input_was_filled_anew_right_behind_the_look_with_which_it_began(
    world: LostWorld,
) -> None:
    world.admit(*names(0, 2))
    async with world.placement():
        await world.until_enqueued(2)
    FilledAnew.world, world.log = world, FilledAnew
    FilledAnew.is_due = True
    async with world.placement() as context:
        await fenced(context, "another record at offset 1")
    assert world.enqueued() == names(0, 2), "nothing is read of it"


async def test_a_writer_that_leaves_soon_tells_that_its_input_was_filled_anew(
    world: LostWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenure that is shorter than the time between two looks; the next writer finds its place in the new topic."""
    async with world.placement():
        world.admit(*names(0, 2))
        await world.until_enqueued(2)
        world.broker.cut(JOBS, 0)
        world.admit(*names(100, 105))
        await world.until_enqueued(5)
        assert INPUT_FENCED not in "".join(capsys.readouterr())
    assert INPUT_FENCED in "".join(capsys.readouterr())
    async with world.placement() as context:
        await fenced(context, "test.jobs/0", "another record at offset")


async def test_a_person_decides_from_where_an_input_is_read_on(world: LostWorld) -> None:
    await read_and_refill(world, 3)
    async with world.placement(resume_inputs="jobs-0@20:0") as context:
        await world.until_enqueued(23)
        assert context.health.waiting_for is None
    resumed = [e for d in world.decisions() for e in d.effects if isinstance(e, InputResumed)]
    assert resumed == [InputResumed(input="jobs-0", from_offset=20, to_offset=0)]

    async with world.placement(resume_inputs="jobs-0@20:0"):
        world.admit("job-last")
        await world.until_enqueued(24)
    assert len([e for d in world.decisions() for e in d.effects if isinstance(e, InputResumed)]) == 1, "said once"


async def lose_again(world: LostWorld, times: int) -> None:
    """The input, which was read to 20, is lost anew and filled with twenty others, none of which may be passed over."""
    world.broker.cut(JOBS, 0)
    world.admit(*names(times * 1_000, times * 1_000 + 20))


async def test_what_a_person_decided_is_good_for_one_loss_however_long_it_stays_in_the_environment(
    world: LostWorld,
) -> None:
    await read_and_refill(world, 20)
    for times in (2, 3):
        resume = "jobs-0@20:0" if times == 2 else f"jobs-0@20:0:{times - 1}"
        async with world.placement(resume_inputs=resume):
            await world.until_enqueued(20 * times)
        await lose_again(world, times)
        for _ in range(2):  # also a process that knows nothing but the log
            async with world.placement(resume_inputs=resume) as context:
                await fenced(context, "another record at offset 19", f"from 0 once more: jobs-0@20:0:{times}")
        assert len(world.enqueued()) == 20 * times
    resumed = [e for d in world.decisions() for e in d.effects if isinstance(e, InputResumed)]
    assert resumed == 2 * [InputResumed(input="jobs-0", from_offset=20, to_offset=0)]
    async with world.placement(resume_inputs="jobs-0@20:10"):
        await world.until_enqueued(70)


async def test_decisions_for_several_losses_at_one_place_are_each_used_for_its_own(world: LostWorld) -> None:
    await read_and_refill(world, 20)
    resume = "jobs-0@20:0,jobs-0@20:0:2"
    for times in (2, 3):
        async with world.placement(resume_inputs=resume):
            await world.until_enqueued(20 * times)
        await lose_again(world, times)
    async with world.placement(resume_inputs=resume) as context:
        await fenced(context, "another record at offset 19", "from 0 once more: jobs-0@20:0:3")
    assert len(world.enqueued()) == 60


async def test_a_decision_that_was_meant_for_a_later_loss_is_not_used_before(world: LostWorld) -> None:
    await read_and_refill(world, 3)
    async with world.placement(resume_inputs="jobs-0@20:0:2") as context:
        await fenced(context, "FALLOW_RESUME_INPUTS=jobs-0@20:OFFSET")
    assert len(world.enqueued()) == 20


@pytest.mark.parametrize("is_there", [False, True])
async def test_what_a_person_decided_is_put_in_the_log_until_it_is_in_force(
    world: LostWorld, *, is_there: bool
) -> None:
    """The first appends of it are not acknowledged; the last of them is there, or none is."""

    class Forgetful(MemoryLog):
        left = 3

        async def append(self, message: Outgoing) -> AppendAnswer:
            if Forgetful.left and b"InputResumed" in (message.value or b""):
                Forgetful.left -= 1
                if is_there and not Forgetful.left:
                    await super().append(message)
                return AppendUnknown(reason="no answer")
            return await super().append(message)

    await read_and_refill(world, 3)
    world.log = Forgetful
    async with world.placement(resume_inputs="jobs-0@20:0") as context:
        await world.until_enqueued(23)
        await eventually(lambda: context.health.waiting_for is None)
    resumed = [e for d in world.decisions() for e in d.effects if isinstance(e, InputResumed)]
    assert resumed == [InputResumed(input="jobs-0", from_offset=20, to_offset=0)]


async def test_an_input_that_was_resumed_unnoticed_is_not_called_fenced_any_more(world: LostWorld) -> None:
    """The record is there, but the log did not answer behind it, and the cell was taken over anew."""

    class Gone(MemoryLog):
        state = "here"

        async def append(self, message: Outgoing) -> AppendAnswer:
            answer = await super().append(message)
            if Gone.state == "here" and b"InputResumed" in (message.value or b""):
                Gone.state = "away"
                return AppendUnknown(reason="no answer")
            return answer

        async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            if Gone.state == "away":
                Gone.state = "back"
                raise LogUnavailable("no answer")
            return await super().end_offsets(tps)

    await read_and_refill(world, 3)
    world.log = Gone
    async with world.placement(resume_inputs="jobs-0@20:0") as context:
        await world.until_enqueued(23)
        assert Gone.state == "back"
        await eventually(lambda: context.health.waiting_for is None)


async def test_words_of_nodes_that_were_deleted_unread_are_counted_and_passed_over(world: LostWorld) -> None:
    """A later report says again what an older one said."""
    nodes = ("test.nodes", 0)
    for _ in range(3):
        world.broker.write_marker(nodes)
    world.broker.delete_before(nodes, 3)
    async with world.placement() as context:
        world.admit("job-0")
        await world.until_enqueued(1)
        assert context.health.waiting_for is None
    text = generate_latest(context.registry).decode()
    assert 'fallow_inputs_deleted_unread_total{cell="cell-a",input="nodes"} 3.0' in text


async def test_a_transaction_in_an_input_topic_is_no_loss(world: LostWorld) -> None:
    """Its end takes an offset: positions need not be adjacent, and a cursor may end at one."""
    world.admit("job-0")
    world.broker.write_marker(JOBS)
    async with world.placement():
        await world.until_enqueued(1)
    world.broker.write_marker(JOBS)
    world.admit("job-1")
    world.broker.write_marker(JOBS)
    async with world.placement() as context:
        await world.until_enqueued(2)
        assert context.health.waiting_for is None


async def test_a_transaction_in_the_decisions_does_not_stop_the_writer(world: LostWorld) -> None:
    async with world.placement():
        world.admit("job-0")
        await world.until_enqueued(1)
        world.broker.write_marker((LAYOUT.topic("decisions"), 0))
        world.admit("job-1")
        await world.until_enqueued(2)
    assert world.enqueued() == ["job-0", "job-1"]


@pytest.mark.parametrize("words", ["jobs", "jobs-0@x:1", "jobs-0@1:2,", "jobs-0@1", "jobs-0@1:2:0", "jobs-0@1:2:"])
def test_a_resume_that_means_nothing_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match="resume_inputs"):
        PlacementSettings(resume_inputs=words)


@given(begin=st.integers(0, 9), length=st.integers(0, 9), read=st.integers(0, 20), checksum=st.none() | st.just(7))
def test_a_place_is_whole_only_where_the_log_continues_it(
    begin: int, length: int, read: int, checksum: int | None
) -> None:
    end = begin + length
    kinds = set[LossKind | None]()
    for found in (None, 7, 8):
        loss = loss_of(JOBS, Place(read, checksum), begin, end, found)
        kinds.add(None if loss is None else loss.kind)
        assert (loss is not None and loss.kind is LossKind.BEYOND_END) == (read > end)
        assert (loss is not None and loss.kind is LossKind.DELETED_UNREAD) == (read < begin)
        if loss is None and checksum is not None and read > begin:
            assert found in (None, checksum), "None: all that is left before it is the end of a transaction"

    reaches("a place is whole with one checksum and lost with another one", len(kinds) > 1)


def rejected(number: int) -> JobRejected:
    """What admission says of a bad submission: an input without effects."""
    return JobRejected(
        cell=CELL, job=f"bad-{number}", tenant="acme", command="submit", code=RejectCode.INVALID_FIELD, field="x",
        value="y", rule="z",
    )  # fmt: skip


@pytest.mark.parametrize("is_stopped_at_once", [True, False])
async def test_what_was_read_and_then_deleted_by_age_needs_nobody_also_where_nothing_followed_from_it(
    world: LostWorld, *, is_stopped_at_once: bool
) -> None:
    world.admit("job-0")
    async with world.placement() as context:
        await world.until_enqueued(1)
        for number in range(3):
            world.tell(rejected(number))
        if is_stopped_at_once:
            await eventually(lambda: context.health.progress.cursors.get("test.jobs/0") == 4)
        else:
            await eventually(lambda: world.decisions()[-1].inputs == {"jobs-0": 4})
    assert world.decisions()[-1].inputs == {"jobs-0": 4}
    world.broker.delete_before(JOBS, world.end("jobs"))
    async with world.placement() as context:
        world.admit("job-1")
        await world.until_enqueued(2)
        assert context.health.is_ready


def joined(node: str, seq: int = 1) -> NodeJoined:
    return NodeJoined(cell=CELL, node=node, boot="boot-1", seq=seq, spec=NodeSpec(id=node, pool="pool-0", gpus=8))


def report(node: str, seq: int) -> NodeReport:
    return NodeReport(cell=CELL, node=node, boot="boot-1", seq=seq)


async def test_nothing_is_started_while_the_reports_of_nodes_cannot_be_read(world: LostWorld) -> None:
    """No node could confirm a start, or tell of an end: what was started would hold its places for ever."""
    world.tell(joined("node-1"))
    async with world.placement():
        await eventually(lambda: any(d.inputs.get("nodes-0") == 1 for d in world.decisions()))
    world.broker.cut(("test.nodes", 0), 0)
    async with world.placement() as context:
        world.admit("job-0")
        await eventually(lambda: JobDeferred(job="job-0", code=PendingReason.NODES_SILENT) in world.effects())
        assert "nothing new is started" in (context.health.waiting_for or "")
    assert not any(isinstance(effect, JobStarted) for effect in world.effects())

    world.tell(report("node-1", 2))
    async with world.placement(resume_inputs="nodes-0@1:0") as context:
        await eventually(lambda: any(isinstance(effect, JobStarted) for effect in world.effects()))
        assert context.health.waiting_for is None


async def test_nothing_more_is_started_from_the_moment_at_which_the_reports_are_lost(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 0.05)
    world.tell(joined("node-1"))
    async with world.placement() as context:
        await eventually(lambda: any(d.inputs.get("nodes-0") == 1 for d in world.decisions()))
        world.broker.cut(("test.nodes", 0), 0)
        await eventually(lambda: "nothing new is started" in (context.health.waiting_for or ""))
        await eventually(lambda: any(isinstance(effect, NodeSilent) for effect in world.effects()))
        world.admit("job-0")
        await eventually(lambda: JobDeferred(job="job-0", code=PendingReason.NODES_SILENT) in world.effects())
    assert not any(isinstance(effect, JobStarted) for effect in world.effects())


OPERATIONS = ("test.operations", 0)


@pytest.mark.parametrize("is_behind_a_restart", [False, True])
async def test_the_end_of_a_transaction_that_is_deleted_by_age_needs_nobody(
    world: LostWorld, *, is_behind_a_restart: bool
) -> None:
    """It takes an offset, and is no record that could be read."""
    world.tell(HoldJob(cell=CELL, job="job-0"))
    if is_behind_a_restart:
        async with world.placement():
            await eventually(lambda: world.read("operations") == 1)
    world.broker.write_marker(OPERATIONS)
    world.broker.write_marker(OPERATIONS)
    async with world.placement() as context:
        await eventually(lambda: world.read("operations") == 3, 10)
        assert context.health.progress.cursors["test.operations/0"] == 3, "and no lag is left"
    world.broker.delete_before(OPERATIONS, 3)
    async with world.placement() as context:
        world.admit("job-0")
        await world.until_enqueued(1)
        assert context.health.waiting_for is None


async def test_a_loss_before_the_end_of_a_transaction_is_noticed(world: LostWorld) -> None:
    """The record that was read last stands some offsets before the cursor."""
    world.admit("job-0")
    world.broker.write_marker(JOBS)
    async with world.placement():
        await eventually(lambda: world.read("jobs") == 2, 10)
    world.broker.cut(JOBS, 0)
    world.admit("job-1")
    world.broker.write_marker(JOBS)
    world.admit("job-2")
    async with world.placement() as context:
        await fenced(context, "another record at offset 1")
