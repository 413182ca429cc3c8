"""A batch whose answers did not get into the log comes again, and is answered alike."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fallow.services.admission.app import answering
from fallow.services.admission.app.answering import Admission, main
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.fields.values import POOLS_MAX, JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobRejected, JobsAdmitted, JobUpdateRequested
from fallow.shared.events.operations import AdvanceTime, ReloadCell
from fallow.shared.events.submissions import JobChanges, SubmitJob, UpdateJob
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.losses import Loss, LossKind
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing, Record, TopicPartition
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import make_context
from fallow.shared.runtime.settings import ClockKind
from tests.contract.eventually import eventually

LAYOUT = Layout("t", {"main": 0})
TEXT = """
cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}]
tenants: [{name: vision, submissions: {per_s: 3}}]
"""


class AwayAtFirst(MemoryLog):
    """Takes the first publish only after it has failed once."""

    is_away = True

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        if self.is_away:
            self.is_away = False
            raise LogUnavailable("away")
        await super().publish(messages)


def submission(number: int) -> Record:
    event = SubmitJob(job=JobSpec(id=f"job-{number}", tenant="vision"))
    headers = ce_headers(event, id="1", source="test", wall_ms=0)
    return Record("t.submissions", 0, number, b"k", encode(event), headers, 1_000)


async def test_a_failed_batch_has_taken_no_tokens() -> None:
    broker = MemoryBroker()
    for topic in ("jobs", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    log, context = AwayAtFirst(broker), make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, log, LAYOUT, parse_cell_file(TEXT, "cell"))
    batch = [submission(number) for number in range(5)]
    with pytest.raises(LogUnavailable):
        await admission.handle(batch)
    await admission.handle(batch)
    reader = log.reader({("t.jobs", 0): 0})
    await reader.start()
    answers = [event_of(record) for record in await reader.poll()]
    await reader.stop()
    admitted, *others = answers
    assert isinstance(admitted, JobsAdmitted)
    assert [job.spec.id for job in admitted.jobs] == ["vision/job-0", "vision/job-1", "vision/job-2"]
    assert [type(answer) for answer in others] == [JobRejected, JobRejected]


@pytest.mark.parametrize("age_ms", [-7_200_000, 0, 200, 3_600_000])
async def test_of_every_submission_it_is_told_when_it_came_whatever_the_clock_here_says(age_ms: int) -> None:
    broker = MemoryBroker()
    broker.create_topic("t.jobs", 1)
    context = make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    at_ms = context.host.wall_ms() - age_ms
    await admission.handle([msgspec.structs.replace(submission(1), timestamp_ms=at_ms)])
    answer = event_of(broker.partition(("t.jobs", 0)).records[0])
    assert isinstance(answer, JobAdmitted)
    assert answer.sent_ms == at_ms


@pytest.mark.parametrize("age_ms", [0, 3_600_000])
@pytest.mark.parametrize(("back_ms", "is_admitted"), [(None, True), (10_000, True), (10_001, False), (-10_001, False)])
async def test_a_submission_may_be_dated_back_by_seconds_from_when_it_came_however_late_it_is_read(
    age_ms: int, back_ms: int | None, is_admitted: bool
) -> None:
    broker = MemoryBroker()
    broker.create_topic("t.jobs", 1)
    context = make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    came_ms = context.host.wall_ms() - age_ms
    submit_ms = None if back_ms is None else came_ms - back_ms
    value = encode(SubmitJob(job=JobSpec(id="job-1", tenant="vision"), submit_ms=submit_ms))
    await admission.handle([msgspec.structs.replace(submission(1), value=value, timestamp_ms=came_ms)])
    answer = event_of(broker.partition(("t.jobs", 0)).records[0])
    assert isinstance(answer, JobAdmitted if is_admitted else JobRejected)
    if isinstance(answer, JobAdmitted):
        assert answer.submit_ms == (came_ms if submit_ms is None else submit_ms)


async def test_a_flood_of_what_can_only_be_set_aside_leaves_no_more_whole_letters_than_its_tenant_may_send() -> None:
    broker = MemoryBroker()
    for topic in ("jobs", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    context = make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    flood = [Record("t.submissions.vision", 0, n, b"k", b"x" * 5_000, (), 1_000) for n in range(50)]
    await admission.handle([*flood, msgspec.structs.replace(submission(50), topic="t.submissions.vision")])
    letters = broker.partition(("t.dead-letters", 0)).records
    assert sorted(len(letter.value or b"") for letter in letters) == [200] * 47 + [5_000] * 3
    (refused,) = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert isinstance(refused, JobRejected)
    assert refused.job == "vision/job-50"


async def test_small_submissions_whose_answers_are_large_fit_their_records() -> None:
    """Admission writes out all the pools that a job may use."""
    pools = ", ".join(f"{{name: {f'p{number:03}':x<63}, gpus: 8}}" for number in range(POOLS_MAX))
    file = parse_cell_file(f"cells: [{{name: main, ordinal: 0, pools: [{pools}]}}]\ntenants: [{{name: vision}}]\n", "c")
    broker = MemoryBroker()
    for topic in ("jobs", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    admission = Admission(make_context("admission", AdmissionSettings(namespace="t")), MemoryLog(broker), LAYOUT, file)
    await admission.handle([submission(number) for number in range(1_000)])
    events = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    jobs = [job for event in events if isinstance(event, JobsAdmitted) for job in event.jobs]
    assert [job.spec.id for job in jobs] == [f"vision/job-{number}" for number in range(1_000)]


def test_a_cell_has_no_more_pools_than_a_job_may_name() -> None:
    pools = ", ".join(f"{{name: p{number}, gpus: 8}}" for number in range(POOLS_MAX + 1))
    with pytest.raises(ValueError, match=f"at most {POOLS_MAX} items"):
        parse_cell_file(f"cells: [{{name: main, ordinal: 0, pools: [{pools}]}}]\ntenants: [{{name: vision}}]\n", "c")


async def test_a_flood_of_orders_to_reload_is_carried_out_once_for_all_that_came_together() -> None:
    broker, stepped = MemoryBroker(), AdmissionSettings(namespace="t", clock=ClockKind.STEPPED)
    broker.create_topic("t.operations", 1)
    for number in range(300):
        broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id=str(number), source="test", wall_ms=0))
    broker.write(LAYOUT.outgoing(AdvanceTime(cell="main", now_ms=7), id="last", source="test", wall_ms=0))
    context = make_context("admission", stepped)
    admission = Admission(
        context, MemoryLog(broker), LAYOUT, parse_cell_file(f"{TEXT}limits: {{submit_skew_ms: 1}}", "cell")
    )
    admission._operations = await admission._stand_at_operations()
    following = asyncio.create_task(admission.follow_operations())

    def reloads() -> float:
        samples = [sample for metric in context.telemetry.reloads.collect() for sample in metric.samples]
        return sum(sample.value for sample in samples if sample.name.endswith("_total"))

    await eventually(lambda: (context.clock.now_ms() == 7 and reloads() >= 1) or following.done())
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await admission.end()
    assert 1 <= reloads() <= 10


async def test_an_update_whose_time_of_arrival_is_known_is_passed_on() -> None:
    broker = MemoryBroker()
    broker.create_topic("t.jobs", 1)
    context = make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    event = UpdateJob(job="job-1", tenant="vision", changes=JobChanges(priority=1))
    headers = ce_headers(event, id="1", source="test", wall_ms=0)
    await admission.handle([Record("t.submissions", 0, 1, b"k", encode(event), headers, context.host.wall_ms())])
    assert isinstance(event_of(broker.partition(("t.jobs", 0)).records[0]), JobUpdateRequested)


WITH_A_TOPIC = TEXT.replace("tenants: [", "tenants: [{name: noisy, own_topic: true}, ")


class Shared:
    """The topics that a process shares with others, in place of a group of Kafka."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics, self.is_open = list(topics), False

    async def start(self) -> None:
        self.is_open = True

    async def stop(self) -> None:
        self.is_open = False


class OtherFile(Host):
    """A machine whose cell file is another one each time that it is read."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self._texts = list(texts)

    def cell_file(self, path: Path) -> CellFile:
        return parse_cell_file(self._texts.pop(0) if len(self._texts) > 1 else self._texts[0], str(path))


async def test_the_topic_of_a_tenant_that_came_with_a_reload_is_read_as_soon_as_it_is_there() -> None:
    broker, joined = MemoryBroker(), list[Shared]()
    for topic in ("operations", "submissions", "decisions", "snapshots"):
        broker.create_topic(f"t.{topic}", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=OtherFile(TEXT, WITH_A_TOPIC))

    async def opened(_: object, __: object) -> MemoryLog:
        log = MemoryLog(broker)
        await log.start()
        return log

    def sharing(_: object, topics: Sequence[str], __: object, ___: object) -> Shared:
        joined.append(Shared(topics))
        return joined[-1]

    process = asyncio.create_task(main(context, opened, sharing))
    await eventually(lambda: bool(joined) and joined[0].is_open)
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    missing = "t.submissions.noisy: not there, or without a right to read it. Run: fallow topics create"
    await eventually(lambda: missing in str(context.health.answer("/readyz")))
    assert joined[0].is_open
    broker.create_topic("t.submissions.noisy", 1)
    await eventually(lambda: len(joined) > 1 and joined[-1].is_open, 15)
    assert joined[-1].topics == ["t.submissions", "t.submissions.noisy"]
    assert not joined[0].is_open
    assert missing not in str(context.health.answer("/readyz"))
    context.stopping.set()
    await process


async def test_admission_begins_without_a_tenants_topic_that_it_may_not_read_and_reads_it_once_it_may() -> None:
    broker, joined = MemoryBroker(), list[Shared]()
    for topic in ("operations", "submissions", "decisions", "snapshots"):
        broker.create_topic(f"t.{topic}", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=OtherFile(WITH_A_TOPIC))

    async def opened(_: object, __: object) -> MemoryLog:
        log = MemoryLog(broker)
        await log.start()
        return log

    def sharing(_: object, topics: Sequence[str], __: object, ___: object) -> Shared:
        joined.append(Shared(topics))
        return joined[-1]

    process = asyncio.create_task(main(context, opened, sharing))
    await eventually(lambda: bool(joined) and joined[0].is_open)
    assert joined[0].topics == ["t.submissions"]
    await eventually(lambda: "t.submissions.noisy: not there" in str(context.health.answer("/readyz")))
    # To a client without a right to a topic Kafka says that there is none.
    broker.create_topic("t.submissions.noisy", 1)
    await eventually(lambda: len(joined) > 1 and joined[-1].is_open, 15)
    assert joined[-1].topics == ["t.submissions", "t.submissions.noisy"]
    context.stopping.set()
    await process


async def test_a_topic_that_its_tenant_shall_not_have_any_more_is_read_while_it_is_there() -> None:
    """What lies there was taken by Kafka, and its sender may not know of the new cell file."""
    broker, joined = MemoryBroker(), list[Shared]()
    for topic in ("operations", "submissions", "submissions.noisy", "decisions", "snapshots"):
        broker.create_topic(f"t.{topic}", 1)
    without = WITH_A_TOPIC.replace(", own_topic: true", "")
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=OtherFile(without))

    async def opened(_: object, __: object) -> MemoryLog:
        log = MemoryLog(broker)
        await log.start()
        return log

    def sharing(_: object, topics: Sequence[str], __: object, ___: object) -> Shared:
        joined.append(Shared(topics))
        return joined[-1]

    process = asyncio.create_task(main(context, opened, sharing))
    await eventually(lambda: bool(joined) and joined[0].is_open)
    assert joined[0].topics == ["t.submissions", "t.submissions.noisy"]
    context.stopping.set()
    await process


async def test_a_tenants_topic_that_may_not_be_read_any_more_is_noted_until_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka tells a client without a right to a topic that there is none, and the group leaves it out of its shares."""
    monkeypatch.setattr(answering, "LOOK_FOR_TOPICS_MS", 0)
    hidden = set[str]()

    class Guarded(MemoryLog):
        async def partitions(self, topic: str) -> int:
            return 0 if topic in hidden else await super().partitions(topic)

    broker, joined = MemoryBroker(), list[Shared]()
    for topic in ("operations", "submissions", "submissions.noisy", "decisions", "snapshots"):
        broker.create_topic(f"t.{topic}", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=OtherFile(WITH_A_TOPIC))

    async def opened(_: object, __: object) -> MemoryLog:
        log = Guarded(broker)
        await log.start()
        return log

    def sharing(_: object, topics: Sequence[str], __: object, ___: object) -> Shared:
        joined.append(Shared(topics))
        return joined[-1]

    process = asyncio.create_task(main(context, opened, sharing))
    await eventually(lambda: bool(joined) and joined[0].is_open)
    note = "t.submissions.noisy: not there, or without a right to read it"
    for _ in range(2):
        hidden.add("t.submissions.noisy")
        await eventually(lambda: note in str(context.health.answer("/readyz")))
        hidden.clear()
        await eventually(lambda: note not in str(context.health.answer("/readyz")))
    assert len(joined) == 1
    context.stopping.set()
    await process


WITH_A_TENANT = TEXT.replace("tenants: [", "tenants: [{name: newcomer}, ")


async def following(broker: MemoryBroker, *texts: str) -> Admission:
    """Admission with the first of these files, the next ones on its disk, and standing at the operations."""
    for topic in ("jobs", "operations", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=OtherFile(*texts[1:]))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(texts[0], "cell"))
    admission._operations = await admission._stand_at_operations()
    return admission


def of_tenant(number: int, tenant: str) -> Record:
    return replace_value(submission(number), encode(SubmitJob(job=JobSpec(id=f"job-{number}", tenant=tenant))))


async def test_a_job_that_is_sent_behind_a_reload_is_answered_by_the_new_file() -> None:
    """Placement, which `fallow cell reload` waits for, may read the file first."""
    broker = MemoryBroker()
    admission = await following(broker, TEXT, WITH_A_TENANT)
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    await admission.handle([of_tenant(1, "vision"), of_tenant(2, "newcomer"), of_tenant(3, "absent")])
    admitted, refused = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert isinstance(admitted, JobsAdmitted)
    assert [job.spec.id for job in admitted.jobs] == ["vision/job-1", "newcomer/job-2"]
    assert isinstance(refused, JobRejected)
    assert (refused.job, refused.code) == ("absent/job-3", "unknown_tenant")


async def test_a_job_that_is_sent_behind_a_reload_is_answered_by_the_new_file_also_by_which_topic_it_comes() -> None:
    broker, with_own = MemoryBroker(), TEXT.replace("{name: vision", "{name: vision, own_topic: true")
    admission = await following(broker, with_own, TEXT)
    await admission.handle([of_tenant(1, "vision")])
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    admission._look_again_ms = 0
    await admission.handle([of_tenant(2, "vision")])
    refused, admitted = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert isinstance(refused, JobRejected)
    assert (refused.job, refused.tenant, refused.code) == ("job-1", None, "tenant_not_of_topic")
    assert isinstance(admitted, JobAdmitted)


async def test_a_batch_that_is_answered_again_by_a_new_file_takes_its_tokens_once() -> None:
    broker = MemoryBroker()
    admission = await following(broker, TEXT, WITH_A_TENANT)
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    await admission.handle([*(of_tenant(number, "vision") for number in range(3)), of_tenant(3, "newcomer")])
    (admitted,) = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert isinstance(admitted, JobsAdmitted)
    assert len(admitted.jobs) == 4


class Counted(MemoryLog):
    """Counts how often it is asked where its partitions end."""

    asked = 0

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        return await super().end_offsets(tps)


async def test_a_flood_of_what_is_rejected_costs_few_looks_at_the_operations() -> None:
    broker = MemoryBroker()
    admission = await following(broker, TEXT, TEXT)
    admission._log = log = Counted(broker)
    host = SetBack()
    admission._context = replace(admission._context, host=host)
    for number in range(100):
        host.now_ms += 10
        await admission.handle([of_tenant(number, "absent")])
    assert 1 <= log.asked <= 10


async def test_other_tasks_have_their_turn_while_a_batch_is_answered() -> None:
    """Heartbeats, for one: without them the share is lost, and all of it is answered again."""
    broker = MemoryBroker()
    broker.create_topic("t.jobs", 1)
    context = make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    text = b'{"job":{"id":"a","tenant":"vision","argv":[%s1]}}' % (b"1," * 50_000)
    batch = [replace_value(submission(number), text) for number in range(30)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await admission.handle(batch)
    counting.cancel()
    assert turns >= len(batch)


def replace_value(record: Record, value: bytes) -> Record:
    return msgspec.structs.replace(record, value=value)


async def test_what_could_not_be_read_counts_on_from_part_to_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    for topic in ("jobs", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    context, told = make_context("admission", AdmissionSettings(namespace="t")), list[str]()
    monkeypatch.setattr(context.logger, "error", lambda event, **_: told.append(event))
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    await admission.handle([replace_value(submission(number), b"{" * 200) for number in range(1_001)])
    assert told == ["too many dead letters: is something misconfigured?"]


class SetBack(Host):
    """A machine whose clock is set, while its monotonic time goes on."""

    now_ms, wrong_by_ms = 50_000, 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 1_000_000_000_000 + self.now_ms + self.wrong_by_ms


@pytest.mark.parametrize("before_ms", [0, -60_000, 30_000])
async def test_a_clock_that_is_set_back_makes_no_refusals(before_ms: int) -> None:
    """Two a second, where three are allowed. The clock may have been wrong before, or be wrong from then on."""
    broker, host = MemoryBroker(), SetBack()
    broker.create_topic("t.jobs", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=host)
    admission = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell"))
    for number in range(240):
        host.now_ms, host.wrong_by_ms = 50_000 + 500 * number, before_ms - 30_000 * (number > 120)
        at_ms = 1_000_000_000_000 + host.now_ms - 5
        await admission.handle([msgspec.structs.replace(submission(number), timestamp_ms=at_ms)])
    answers = [type(event_of(record)) for record in broker.partition(("t.jobs", 0)).records]
    assert answers == [JobAdmitted] * 240


@pytest.mark.parametrize("behind_ms", [0, 30_000, 3_600_000, 10 * 3_600_000])
async def test_a_backlog_is_no_flood_where_the_clock_of_admission_is_behind_the_brokers(behind_ms: int) -> None:
    """Two a second, where three are allowed, for ten minutes in which no admission read them."""
    broker, host = MemoryBroker(), SetBack()
    broker.create_topic("t.jobs", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=host)
    admission, begin_ms = Admission(context, MemoryLog(broker), LAYOUT, parse_cell_file(TEXT, "cell")), host.wall_ms()
    host.now_ms, host.wrong_by_ms = host.now_ms + 600_000, -behind_ms
    stamped = [
        msgspec.structs.replace(submission(number), timestamp_ms=begin_ms + 500 * number) for number in range(1_200)
    ]
    for first in range(0, len(stamped), 100):
        await admission.handle(stamped[first : first + 100])
    answers = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert sum(len(answer.jobs) for answer in answers if isinstance(answer, JobsAdmitted)) == 1_200


async def test_a_batch_that_comes_again_is_judged_alike_however_late() -> None:
    """At its second try, ten seconds later, there would be tokens for all of it."""
    broker, host = MemoryBroker(), SetBack()
    for topic in ("jobs", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=host)
    log, at_ms = AwayAtFirst(broker), host.wall_ms() + 60_000
    log.is_away = False
    admission = Admission(context, log, LAYOUT, parse_cell_file(TEXT, "cell"))
    for first, is_away in ((0, False), (3, True)):
        log.is_away = is_away
        batch = [msgspec.structs.replace(submission(first + each), timestamp_ms=at_ms) for each in range(3)]
        if is_away:
            with pytest.raises(LogUnavailable):
                await admission.handle(batch)
            host.now_ms += 10_000
        await admission.handle(batch)
    answers = [type(event_of(record)) for record in broker.partition(("t.jobs", 0)).records]
    assert answers == [JobsAdmitted, JobRejected, JobRejected, JobRejected]
    await admission.handle([msgspec.structs.replace(submission(9), timestamp_ms=at_ms + 10_000)])
    assert isinstance(event_of(broker.partition(("t.jobs", 0)).records[-1]), JobAdmitted)


async def test_another_record_in_the_place_of_one_whose_try_has_failed_is_judged_by_its_own_stamp() -> None:
    """The topic is cut and filled anew while a batch fails; the clock here stands at the time of that try."""
    broker, host = MemoryBroker(), SetBack()
    broker.create_topic("t.jobs", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=host)
    admission, at_ms = Admission(context, AwayAtFirst(broker), LAYOUT, parse_cell_file(TEXT, "cell")), host.wall_ms()
    with pytest.raises(LogUnavailable):
        await admission.handle([msgspec.structs.replace(submission(each), timestamp_ms=at_ms) for each in range(60)])
    others = [msgspec.structs.replace(submission(each), timestamp_ms=at_ms + 1_000 * each) for each in range(60)]
    await admission.handle(others)
    answers = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert sum(len(answer.jobs) for answer in answers if isinstance(answer, JobsAdmitted)) == 60


ONE_A_SECOND = 60
LATER, TOGETHER, ELSEWHERE = "later in its partition", "in one batch with it", "in another partition"


@pytest.mark.parametrize("where", [LATER, TOGETHER, ELSEWHERE])
async def test_what_was_not_in_a_failed_try_is_judged_as_of_its_own_time(where: str) -> None:
    """The share may be lost while a batch fails. Ten minutes later one a second comes, where three are allowed."""
    broker, host = MemoryBroker(), SetBack()
    broker.create_topic("t.jobs", 1)
    context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=host)
    admission, at_ms = Admission(context, AwayAtFirst(broker), LAYOUT, parse_cell_file(TEXT, "cell")), host.wall_ms()
    failed = [msgspec.structs.replace(submission(0), timestamp_ms=at_ms)]
    with pytest.raises(LogUnavailable):
        await admission.handle(failed)
    host.now_ms += 600_000
    others = [
        msgspec.structs.replace(
            submission(number), partition=int(where == ELSEWHERE), timestamp_ms=at_ms + 1_000 * number
        )
        for number in range(1, 1 + ONE_A_SECOND)
    ]
    await admission.handle([*failed, *others] if where == TOGETHER else others)
    answers = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    admitted = [job for answer in answers if isinstance(answer, JobsAdmitted) for job in answer.jobs]
    assert len(admitted) == ONE_A_SECOND + (where == TOGETHER)


def test_a_partition_that_cannot_be_read_is_told_with_its_place_and_the_way_past_it() -> None:
    context = make_context("admission", AdmissionSettings(namespace="t"))
    admission = Admission(context, MemoryLog(MemoryBroker()), LAYOUT, parse_cell_file(TEXT, "cell"))
    loss = Loss(LossKind.UNREADABLE, ("t.submissions", 3), 7, 9, 12, why="the checksum is wrong")
    admission._lose(loss)
    admission._show_held(loss)
    status, _, body = context.health.answer("/readyz")
    assert status == 503
    said = body.decode()
    for words in (
        "t.submissions/3 cannot be read at offset 7 (the checksum is wrong), from offset 9 on it can be",
        "it is looked at twice a minute",
        "stop admission and set the offset of group t.admission there, behind it",
    ):
        assert words in said
    about = {"topic": "t.submissions", "partition": "3"}
    assert context.registry.get_sample_value("fallow_submissions_fenced", about) == 1
