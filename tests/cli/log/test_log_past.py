from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import typer

from fallow.cli.log.at import as_object
from fallow.cli.log.diff import Change, changes_between, portrait
from fallow.cli.log.past import Then, open_past, then
from fallow.cli.log.why import DEFERRED, REJECTIONS_MAX, explain
from fallow.cli.output.durations import DAY_MS, MINUTE_MS
from fallow.cli.output.when import duration_of, moment_of
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.base import CALENDAR_FROM_MS
from fallow.shared.events.effects import JobCancelled, JobDeferred, JobEnqueued, JobRefused, JobRequeued, LeaseExpired
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason, RefuseCode, RejectCode, RequeueReason
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import Catalogue
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.snapshots import NoUsableSnapshot, write_snapshot
from tests.cli.worlds.cells import publish
from tests.cli.worlds.logs import LogWriter, an_honest_log, enqueued, node, place, started

LAYOUT = Layout("t", {"main": 0})


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in ("decisions", "snapshots", "jobs"):
        made.create_topic(f"t.{topic}", 1)
    return made


@pytest.fixture
async def log(broker: MemoryBroker) -> MemoryLog:
    found = MemoryLog(broker)
    await publish(found, an_honest_log().records, "t")
    return found


async def test_a_cell_is_shown_as_it_was_behind_a_version(log: MemoryLog) -> None:
    async with open_past(log, LAYOUT, "main", Then(version=5)) as past:
        found = as_object(await past.go_to(Then(version=5)))
    assert (found["version"], found["at_ms"], found["offset"]) == (5, 5, 5)
    assert found["jobs_by_status"] == {"running": 1}
    assert [job["nodes"] for job in found["jobs"]] == [["node-0"]]
    assert [row["gpus_free"] for row in found["nodes"]] == [6, 8]
    assert found["use"] == [
        {"tenant": "vision", "gpu_type": "gpu", "used_milli": 2000, "guaranteed_milli": 0, "limit_milli": 16_000}
    ]


async def test_a_cell_is_shown_as_it_was_at_a_time(log: MemoryLog) -> None:
    async with open_past(log, LAYOUT, "main", Then(at_ms=7)) as past:
        assert (await past.go_to(Then(at_ms=7))).version == 7
        assert (await past.go_to(Then(at_ms=MINUTE_MS))).version == 9


NOW_MS = 1_800_000_000_000
"""A time of the calendar, in 2027."""


def a_calendar_log(begin_ms: int, *later_ms: int) -> LogWriter:
    log = LogWriter()
    log.write(node(0), at_ms=begin_ms)
    for number, at_ms in enumerate(later_ms):
        log.write(enqueued(f"job-{number}"), at_ms=at_ms)
    return log


async def shown_at(broker: MemoryBroker, written: LogWriter, when: Then, now_ms: int = NOW_MS) -> int:
    """The version of the cell that is shown to a command that asks at `now_ms`."""
    log = MemoryLog(broker)
    await publish(log, written.records, "t")
    async with open_past(log, LAYOUT, "main", when, wall=lambda: now_ms) as past:
        return (await past.go_to(when)).version


@pytest.mark.parametrize(
    ("asked_ms", "version"), [(-60_000, 1), (-59_999, 1), (-30_001, 1), (-30_000, 2), (-1, 2), (0, 2)]
)
async def test_any_time_from_the_first_decision_until_now_is_shown(
    broker: MemoryBroker, asked_ms: int, version: int
) -> None:
    written = a_calendar_log(NOW_MS - 60_000, NOW_MS - 30_000)
    assert await shown_at(broker, written, Then(at_ms=NOW_MS + asked_ms)) == version


@pytest.mark.parametrize(
    ("asked_ms", "told"),
    [
        (NOW_MS - 60_001, "2027-01-15 07:58:59.999Z is before the log begins: 2027-01-15 07:59:00.000Z, version 1"),
        (3 * DAY_MS, "day 3 00:00:00.000 is before the log begins: 2027-01-15 07:59:00.000Z, version 1"),
        (NOW_MS + 1, "2027-01-15 08:00:00.001Z has not come: the log ends at 2027-01-15 07:59:30.000Z, version 2"),
    ],
)
async def test_a_time_before_the_cell_or_to_come_is_a_no(
    broker: MemoryBroker, capsys: pytest.CaptureFixture[str], asked_ms: int, told: str
) -> None:
    with pytest.raises(typer.Exit) as caught:
        await shown_at(broker, a_calendar_log(NOW_MS - 60_000, NOW_MS - 30_000), Then(at_ms=asked_ms))
    assert (caught.value.exit_code, capsys.readouterr().err) == (1, f"fallow: {told}\n")


async def test_a_time_of_the_calendar_never_comes_to_a_cell_with_an_origin_of_its_own(
    log: MemoryLog, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_past(log, LAYOUT, "main", Then(at_ms=NOW_MS - 1), wall=lambda: NOW_MS) as past:
        with pytest.raises(typer.Exit):
            await past.go_to(Then(at_ms=NOW_MS - 1))
    told = "2027-01-15 07:59:59.999Z has not come: the log ends at day 0 00:00:00.009, version 9"
    assert capsys.readouterr().err == f"fallow: {told}\n"


@pytest.mark.parametrize("asked_ms", [NOW_MS + 5_000, NOW_MS + 6_000])
async def test_a_cell_whose_clock_is_ahead_of_this_machine_is_shown_at_its_own_times(
    broker: MemoryBroker, asked_ms: int
) -> None:
    written = a_calendar_log(NOW_MS - 60_000, NOW_MS + 5_000)
    assert await shown_at(broker, written, Then(at_ms=asked_ms)) == 2


async def test_a_cell_without_a_decision_has_no_time(broker: MemoryBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        await shown_at(broker, LogWriter(), Then(at_ms=NOW_MS))
    assert capsys.readouterr().err == "fallow: the log of cell main holds no decision yet\n"


async def test_a_past_is_folded_from_the_nearest_snapshot_before_it(broker: MemoryBroker) -> None:
    log, written = MemoryLog(broker), an_honest_log()
    await publish(log, written.records, "t")
    await write_snapshot(log, LAYOUT, written.state, Catalogue(), writer="w", wall_ms=0)
    later = len(written.records)
    written.write(enqueued("fourth"))
    await publish(log, written.records[later:], "t")
    broker.delete_before(("t.decisions", 0), later)
    async with open_past(log, LAYOUT, "main", Then(version=10)) as past:
        assert past.state.version == 9
        assert (await past.go_to(Then(version=10))).version == 10


async def test_what_was_before_all_that_is_kept_cannot_be_shown(broker: MemoryBroker) -> None:
    log = MemoryLog(broker)
    await publish(log, an_honest_log().records, "t")
    broker.delete_before(("t.decisions", 0), 4)
    async with AsyncExitStack() as stack:
        with pytest.raises(NoUsableSnapshot):
            await stack.enter_async_context(open_past(log, LAYOUT, "main", Then(version=5)))


async def test_a_version_that_is_not_there_yet_is_a_no(log: MemoryLog, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_past(log, LAYOUT, "main", Then(version=50)) as past:
        with pytest.raises(typer.Exit):
            await past.go_to(Then(version=50))
    assert capsys.readouterr().err == "fallow: the log ends at version 9, not at 50\n"


async def test_what_changed_between_two_versions_is_told_thing_by_thing(log: MemoryLog) -> None:
    async with open_past(log, LAYOUT, "main", Then(version=5)) as past:
        before = portrait(await past.go_to(Then(version=5)))
        after = portrait(await past.go_to(Then(version=9)))
    running = "running on node-0, attempt 1: 1 worker of 2 GPUs, priority 0"
    assert changes_between(before, after)[:2] == [
        Change("jobs", "first", running, "finished"),
        Change(
            "jobs",
            "second",
            None,
            "running on node-0, node-1, attempt 1: 2 workers of 4 GPUs, priority 0",
        ),
    ]
    assert [(c.kind, c.name) for c in changes_between(before, after)[2:]] == [
        ("jobs", "third"),
        ("nodes", "node-0"),
        ("nodes", "node-1"),
        ("use", "vision gpu"),
    ]


async def test_nothing_changes_between_a_version_and_itself(log: MemoryLog) -> None:
    async with open_past(log, LAYOUT, "main", Then(version=5)) as past:
        before = portrait(await past.go_to(Then(version=5)))
        assert changes_between(before, portrait(await past.go_to(Then(version=5)))) == []


async def test_why_tells_every_decision_that_touched_a_job(log: MemoryLog) -> None:
    found = await explain(log, LAYOUT, "main", "first")
    assert [(step.version, len(step.sentences)) for step in found.steps] == [(4, 2), (5, 1), (8, 1)]
    assert found.summary() == "In all it waited 0 ms, started once, held its places for 4 ms, and is finished."


async def test_why_knows_with_which_version_the_log_begins(log: MemoryLog) -> None:
    assert (await explain(log, LAYOUT, "main", "nosuch")).first_version == 1
    await log.delete_before(LAYOUT.tp("decisions", "main"), 3)
    assert (await explain(log, LAYOUT, "main", "nosuch")).first_version == 4


async def test_why_tells_what_happened_to_the_nodes_on_which_a_job_was(broker: MemoryBroker) -> None:
    written = LogWriter()
    written.write(node(0), node(1))
    written.write(enqueued("a", 8))
    written.write(JobDeferred(job="a", code=PendingReason.NO_FREE_GPUS))
    written.write(started("a", place(0, 0, 1, 2, 3, 4, 5, 6, 7)))
    written.write(
        JobRequeued(job="a", reason=RequeueReason.INFRASTRUCTURE, failures=0, not_before_ms=0),
        LeaseExpired(node="node-0", boot="node-0.1"),
    )
    written.write_unchecked(LeaseExpired(node="node-1", boot="node-1.1"))
    log = MemoryLog(broker)
    await publish(log, written.records, "t")
    found = await explain(log, LAYOUT, "main", "a")
    assert [(step.version, len(step.sentences)) for step in found.steps] == [(2, 1), (3, 1), (4, 1), (5, 2)]
    assert found.steps[1].sentences == ("Job a goes on waiting: no_free_gpus: fewer GPUs are free than it needs.",)
    assert found.summary() == "In all it waited 3 ms, started once, held its places for 1 ms so far."


@pytest.mark.parametrize("origin_ms", [0, CALENDAR_FROM_MS])
async def test_why_counts_what_a_living_job_does_until_now(broker: MemoryBroker, origin_ms: int) -> None:
    """Of a cell that runs by the calendar time has passed since its newest decision, which was about others."""
    written, log = LogWriter(), MemoryLog(broker)
    written.write(node(0), node(1), at_ms=origin_ms)
    written.write(enqueued("a", 8), at_ms=origin_ms + 1_000)
    written.write(started("a", place(0, *range(8))), at_ms=origin_ms + 4_000)
    written.write(enqueued("b", 8), at_ms=origin_ms + 9_000)
    await publish(log, written.records, "t")
    found = await explain(log, LAYOUT, "main", "a", wall=lambda: CALENDAR_FROM_MS + 64_000)
    held = "1 min" if origin_ms else "5.0 s"
    assert found.summary() == f"In all it waited 3.0 s, started once, held its places for {held} so far."
    waits = await explain(log, LAYOUT, "main", "b", wall=lambda: CALENDAR_FROM_MS + 64_000)
    assert waits.waited_ms == (55_000 if origin_ms else 0)


def a_log_with_a_head() -> LogWriter:
    """One node; a job of the strict queue, to which a job without a queue belongs, needs two: another queue waits."""
    queues = (Queue(name="urgent", discipline=QueueDiscipline.STRICT_FIFO), Queue(name="default"))
    part = CellPart(name="main", ordinal=0, pools=(Pool(name="training", gpus=16),), queues=queues)
    in_force = as_effect(CellFile(cells=(part,), tenants=(Tenant(name="vision"),)))
    late = enqueued("late")
    written = LogWriter()
    written.write(in_force, node(0), node(1))
    written.write(enqueued("first", 8), started("first", place(0, *range(8))))
    written.write(enqueued("head", 8, workers=2), JobDeferred(job="head", code=PendingReason.NO_FREE_GPUS))
    written.write(replace(late, spec=replace(late.spec, queue="default")))
    written.write(JobDeferred(job="late", code=PendingReason.BEHIND_HEAD))
    return written


BEHIND = "Job late goes on waiting: behind_head: it may not pass head, the head of queue urgent (strict-fifo), which"


async def test_why_names_the_head_that_kept_a_job_back_then(broker: MemoryBroker) -> None:
    written, log = a_log_with_a_head(), MemoryLog(broker)
    written.write(JobCancelled(job="head"), started("late", place(1, 0)))
    await publish(log, written.records, "t")
    found = await explain(log, LAYOUT, "main", "late")
    assert [step.sentences[0] for step in found.steps if step.version == 5] == [
        f"{BEHIND} waits for 16 GPUs in training."
    ]


async def test_why_tells_its_story_of_a_damaged_log_too(broker: MemoryBroker) -> None:
    written, log = a_log_with_a_head(), MemoryLog(broker)
    damaged = LogWriter()
    damaged.write(node(0))
    damaged.write_unchecked(enqueued("other"), JobCancelled(job="absent"))
    for record in written.records[2:]:
        damaged.records.append(record)
    await publish(log, damaged.records, "t")
    found = await explain(log, LAYOUT, "main", "late")
    assert [step.version for step in found.steps] == [4, 5]


async def test_why_names_no_head_where_the_log_keeps_nothing_from_before(broker: MemoryBroker) -> None:
    written, log = a_log_with_a_head(), MemoryLog(broker)
    await publish(log, written.records, "t")
    broker.delete_before(("t.decisions", 0), 4)
    found = await explain(log, LAYOUT, "main", "late")
    assert [step.sentences for step in found.steps] == [
        ("Job late goes on waiting: behind_head: it stands behind a head, which goes first.",)
    ]


async def test_why_tells_that_admission_turned_a_job_away(log: MemoryLog) -> None:
    event = JobRejected(cell="main", job="vision/x", tenant="vision", command="submit", code=RejectCode.UNKNOWN_POOL)
    await log.publish([LAYOUT.outgoing(event, id="1", source="test", wall_ms=0)])
    found = await explain(log, LAYOUT, "main", "vision/x")
    assert [step.sentences for step in found.steps] == [("Job vision/x is rejected (unknown_pool).",)]


async def test_of_a_job_that_never_was_no_command_of_a_stranger_is_told(log: MemoryLog) -> None:
    event = JobRejected(cell="main", job="vision/x", tenant="speech", command="cancel", code=RejectCode.INVALID_FIELD)
    await log.publish([LAYOUT.outgoing(event, id="1", source="test", wall_ms=0)])
    assert (await explain(log, LAYOUT, "main", "vision/x")).steps == []


async def test_of_two_jobs_of_one_id_each_has_its_own_story(broker: MemoryBroker) -> None:
    log, written = MemoryLog(broker), LogWriter()
    for tenant in ("search", "vision"):
        spec = JobSpec(id=f"{tenant}/hello", tenant=tenant)
        written.write(JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32))
    for tenant in ("search", "vision"):
        no = JobRefused(job="vision/hello", request="cancel", code=RefuseCode.ALREADY_OVER, tenant=tenant)
        written.write(no)
    await publish(log, written.records, "t")
    found = await explain(log, LAYOUT, "main", "vision/hello")
    assert [step.version for step in found.steps] == [2, 4]


@pytest.mark.parametrize("whose", ["speech", None])
async def test_of_a_job_no_command_of_a_stranger_that_names_it_is_told(log: MemoryLog, whose: str | None) -> None:
    before = [step.sentences for step in (await explain(log, LAYOUT, "main", "first")).steps]
    owner = enqueued("first").spec.tenant
    for number, tenant in enumerate([whose] * 30 + [owner]):
        event = JobRejected(cell="main", job="first", tenant=tenant, command="cancel", code=RejectCode.INVALID_FIELD)
        await log.publish([LAYOUT.outgoing(event, id=str(number), source="test", wall_ms=0)])
    found = await explain(log, LAYOUT, "main", "first")
    assert [step.sentences for step in found.steps] == [
        ("The cancel of job first is rejected (invalid_field).",),
        *before,
    ]


async def test_of_many_rejections_the_newest_are_told(log: MemoryLog) -> None:
    for number in range(REJECTIONS_MAX + 5):
        event = JobRejected(job="a/x", tenant="a", command="submit", code=RejectCode.OVER_JOB_LIMIT)
        event = replace(event, cell="main", wanted=number, allowed=0)
        await log.publish([LAYOUT.outgoing(event, id=str(number), source="test", wall_ms=0)])
    found = await explain(log, LAYOUT, "main", "a/x")
    assert len(found.steps) == REJECTIONS_MAX
    assert f"(wanted {REJECTIONS_MAX + 4}, allowed 0)" in found.steps[-1].sentences[0]


async def test_nothing_is_told_of_a_job_that_never_was(log: MemoryLog) -> None:
    assert (await explain(log, LAYOUT, "main", "absent")).steps == []


def test_every_reason_to_wait_is_explained() -> None:
    assert list(DEFERRED) == list(PendingReason)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("day 2", 172_800_000),
        ("day 2 01:00:01.5", 176_401_500),
        ("1970-01-01", None),
        ("1974-01-01", 126_230_400_000),
        ("2026-03-01 12:30", 1_772_368_200_000),
        ("2026-03-01 12:30:00.007+00:00", 1_772_368_200_007),
        ("2026-03-01T13:30+01:00", 1_772_368_200_000),
        ("day 2 23:59:59.999", 259_199_999),
        ("day 2 24:00", None),
        ("day 2 9:60", None),
        ("day 2 09:00:60", None),
        ("day 999999999 99:99:99", None),
        ("day ٢", None),
        ("yesterday", None),
        ("day x", None),
    ],
)
def test_times_are_read_as_they_are_printed(text: str, ms: int | None) -> None:
    assert moment_of(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 90_000), ("2 h", 7_200_000), ("10min", 600_000), ("5", None), ("-1s", None)]
)
def test_durations_are_read_as_people_write_them(text: str, ms: int | None) -> None:
    assert duration_of(text) == ms


@pytest.mark.parametrize("text", ["soon", "99999999999999999999", "²", "-5"])
def test_a_moment_that_is_none_is_wrong_use(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        then("--at", text)
    assert capsys.readouterr().err.startswith(f"fallow: --at = {text!r}: must be a version of up to 15 digits, ")
