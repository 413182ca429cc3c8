"""What comes by the common topic and is no tenant's to answer for has a limit of its own: a flood of it costs the cell
no more than one of a tenant, and no tenant any of its tokens.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.services.admission.app.answering import LOOK_APART_MS, Admission
from fallow.services.admission.policy.rates import CANCELS_PER_SUBMISSION, OF_GONE
from fallow.services.admission.service import AdmissionService
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.model.config import CellFile, SubmissionRate
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import TYPE_HEADER, Undecodable
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected
from fallow.shared.events.operations import ReloadCell
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Record
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import make_context
from tests.admission.commands import CANCEL, NOW_MS, SUBMIT, UPDATE, bytes_of

TEXT = """
cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 64}]}]
tenants: [{name: alice, own_topic: true, submissions: {per_s: 1, burst: 2}}, {name: bob}, {name: carol}]
"""
FILE = parse_cell_file(TEXT, "cell")
BURST = 20
RATE = SubmissionRate(per_s=10, burst=BURST)
TOO_MANY = RejectCode.TOO_MANY_SUBMISSIONS

OF_NO_TENANT: list[tuple[str, dict[str, Any], str | None]] = [
    (SUBMIT, {"job": {"id": "train", "tenant": "alice"}}, None),
    (SUBMIT, {"job": {"id": "train", "tenant": "alice", "array": 8}}, None),
    (SUBMIT, {"job": {"id": "train", "tenant": "eve"}}, None),
    (SUBMIT, {"job": {"id": "train"}}, None),
    (SUBMIT, {"job": {"id": "train", "tenant": 7}}, None),
    (UPDATE, {"job": "train", "tenant": "alice", "changes": {"priority": 1}}, None),
    (UPDATE, {"job": "train", "tenant": "eve", "changes": {}}, None),
    (SUBMIT, {"job": {"id": "train", "tenant": "bob"}}, "gone"),
    (SUBMIT, {}, None),
    ("no.such.type", {"job": "train", "tenant": "bob"}, "gone"),
]


Answer = Event | Undecodable


def answers(service: AdmissionService, type_: str, text: bytes, by: str | None, count: int) -> list[Answer]:
    found = list[Answer]()
    for _ in range(count):
        over = service.over_rate(type_, text, by, NOW_MS)
        found.append(over if over is not None else service.answer(type_, text, by, NOW_MS))
    return found


def are_too_many(found: list[Answer]) -> int:
    return sum(getattr(each, "code", None) == TOO_MANY or _is_letter(each) for each in found)


def _is_letter(each: Answer) -> bool:
    return isinstance(each, Undecodable) and each.reason is DeadLetterReason.TOO_MANY


@pytest.mark.parametrize(("type_", "command", "by"), OF_NO_TENANT)
def test_of_what_no_tenant_answers_for_a_burst_is_answered_and_the_rest_is_too_many(
    type_: str, command: dict[str, Any], by: str | None
) -> None:
    found = answers(AdmissionService(FILE, RATE), type_, bytes_of(command), by, 100)
    assert are_too_many(found[:BURST]) == 0
    assert are_too_many(found[BURST:]) == 80
    assert not any(isinstance(each, JobAdmitted) for each in found[:BURST] if by is None)


def test_all_of_it_has_one_limit_together() -> None:
    service = AdmissionService(FILE, RATE)
    found = [answers(service, type_, bytes_of(command), by, 5) for type_, command, by in OF_NO_TENANT]
    assert sum(map(are_too_many, found)) == 5 * len(OF_NO_TENANT) - BURST
    assert service.over_rate(SUBMIT, bytes_of(OF_NO_TENANT[0][1]), None, NOW_MS + 100) is None


def test_processes_that_share_the_submissions_share_it() -> None:
    service = AdmissionService(FILE, RATE)
    service.rates.share(6, 12)
    found = answers(service, SUBMIT, bytes_of(OF_NO_TENANT[0][1]), None, 100)
    assert are_too_many(found) == 100 - BURST // 2
    found = answers(service, CANCEL, bytes_of({"job": "train", "tenant": "eve"}), None, 1_000)
    assert are_too_many(found) == 1_000 - CANCELS_PER_SUBMISSION * BURST // 2


def test_no_tenant_pays_for_it_and_whoever_may_speak_is_heard() -> None:
    service = AdmissionService(FILE, RATE)
    for type_, command, by in OF_NO_TENANT:
        answers(service, type_, bytes_of(command), by, 100)
    of_bob, of_alice = (bytes_of({"job": {"id": "train", "tenant": name}}) for name in ("bob", "alice"))
    assert are_too_many(answers(service, SUBMIT, of_bob, None, 1_000)) == 0
    assert are_too_many(answers(service, SUBMIT, of_alice, "alice", 3)) == 1


def test_cancels_of_it_have_a_limit_ten_times_as_large() -> None:
    cancel = bytes_of({"job": "train", "tenant": "eve"})
    found = answers(AdmissionService(FILE, RATE), CANCEL, cancel, None, 1_000)
    assert are_too_many(found) == 1_000 - CANCELS_PER_SUBMISSION * BURST


def cancels(service: AdmissionService, tenant: str, by: str | None, count: int, at_ms: int) -> list[Answer]:
    text, found = bytes_of({"job": "train", "tenant": tenant}), list[Answer]()
    for _ in range(count):
        answer = service.over_rate(CANCEL, text, by, at_ms) or service.answer(CANCEL, text, by, at_ms)
        if isinstance(answer, JobCancelRequested) and not service.knows(tenant):
            answer = service.few_of_gone(answer, by, at_ms)
        found.append(answer)
    return found


def are_passed_on(found: list[Answer]) -> int:
    return sum(isinstance(each, JobCancelRequested) for each in found)


@pytest.mark.parametrize("by", [None, "eve"])
def test_of_cancels_in_the_name_of_no_tenant_of_the_file_few_are_passed_on(by: str | None) -> None:
    """Each becomes a decision, which is kept for long."""
    service = AdmissionService(FILE)
    found = cancels(service, "eve", by, 1_000, NOW_MS)
    assert are_passed_on(found) == OF_GONE.at_once
    assert are_too_many(found) == 1_000 - are_passed_on(found)
    assert are_passed_on(cancels(service, by or "mallory", by, 1_000, NOW_MS + 5_000)) == 5 * OF_GONE.per_s
    assert are_passed_on(cancels(service, "bob", None, 1_000, NOW_MS)) == 1_000


def test_no_topic_takes_tokens_of_another_one_for_such_cancels() -> None:
    service = AdmissionService(FILE)
    for tenant, by in (("mallory", None), ("eve", "eve"), ("gone", "gone")):
        assert are_passed_on(cancels(service, tenant, by, 60, NOW_MS)) == OF_GONE.at_once
    service.reload(FILE)
    assert are_passed_on(cancels(service, "gone", "gone", 60, NOW_MS)) == 0


def test_such_a_cancel_that_is_one_too_many_says_what_is_allowed() -> None:
    found = cancels(AdmissionService(FILE), "eve", None, 51, NOW_MS)[-1]
    assert isinstance(found, JobRejected)
    assert (found.command, found.job, found.tenant) == ("cancel", "eve/train", "eve")
    assert (found.field, found.value, found.wanted, found.allowed) == ("tenant", "eve", 51, 50)
    assert found.rule == (
        "what names no tenant of the cell file may cancel 2 a second and 50 at once; try again in 500 ms"
    )


@pytest.mark.parametrize(("tenant", "told"), [("alice", ("train", None)), ("eve", ("eve/train", "eve"))])
def test_one_too_many_says_what_is_allowed_and_is_no_answer_to_a_tenant_with_a_topic(
    tenant: str, told: tuple[str, str | None]
) -> None:
    text = bytes_of({"job": {"id": "train", "tenant": tenant}})
    found = answers(AdmissionService(FILE, RATE), SUBMIT, text, None, BURST + 1)[-1]
    assert isinstance(found, JobRejected)
    assert (found.job, found.tenant) == told
    assert (found.field, found.value, found.wanted, found.allowed) == ("tenant", tenant, BURST + 1, BURST)
    assert found.rule == (
        "what names no tenant that may send by this topic may submit or update 10 a second and 20 at once; "
        "try again in 100 ms"
    )


def test_without_a_setting_a_thousand_at_once_do_not_get_an_answer_of_their_own() -> None:
    found = answers(AdmissionService(FILE), SUBMIT, bytes_of(OF_NO_TENANT[0][1]), None, 1_000)
    codes = collections.Counter(each.code for each in found if isinstance(each, JobRejected))
    assert codes == {RejectCode.TENANT_NOT_OF_TOPIC: 500, TOO_MANY: 500}


class OtherFile(Host):
    """Its cell file has one tenant more than admission knows."""

    now_ms, tenant = LOOK_APART_MS, "{name: eve}"

    def cell_file(self, path: Path) -> CellFile:
        return parse_cell_file(TEXT.replace("tenants: [", f"tenants: [{self.tenant}, "), str(path))

    def monotonic_ms(self) -> int:
        return self.now_ms


LAYOUT = Layout("t", {"main": 0})


ONE = SubmissionRate(per_s=1, burst=1)


async def admission_at(broker: MemoryBroker, host: Host, of_no_tenant: SubmissionRate = ONE) -> Admission:
    """It answers so many strangers, and stands at the operations."""
    for topic in ("jobs", "operations", "dead-letters"):
        broker.create_topic(f"t.{topic}", 1)
    settings = AdmissionSettings(
        namespace="t", of_no_tenant_per_s=of_no_tenant.per_s, of_no_tenant_burst=of_no_tenant.at_once
    )
    context = replace(make_context("admission", settings), host=host)
    admission = Admission(context, MemoryLog(broker), LAYOUT, FILE)
    admission._operations = await admission._stand_at_operations()
    return admission


async def handle(
    admission: Admission, *tenants: str, topic: str = "t.submissions", type_: str = SUBMIT, at_ms: int = 1_000
) -> None:
    """Hand it a batch of one job of each of these, or of a cancel of one, that came then."""
    headers = ((TYPE_HEADER, type_.encode()),)
    names = [{"id" if type_ == SUBMIT else "job": f"job-{n}", "tenant": each} for n, each in enumerate(tenants)]
    values = [bytes_of({"job": each} if type_ == SUBMIT else each) for each in names]
    await admission.handle([Record(topic, 0, n, b"k", each, headers, at_ms) for n, each in enumerate(values)])


def answered(broker: MemoryBroker) -> list[str]:
    """Why each was rejected, or what else was said of it."""
    found = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    return [each.code if isinstance(each, JobRejected) else type(each).__name__ for each in found]


async def test_a_tenant_that_came_with_a_reload_is_heard_though_strangers_have_used_up_their_limit() -> None:
    """In its batch nothing but what is one too many of strangers is turned away."""
    broker, host = MemoryBroker(), OtherFile()
    admission = await admission_at(broker, host)
    await handle(admission, "x", "y")
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    host.now_ms += LOOK_APART_MS
    await handle(admission, "eve")
    assert answered(broker) == [RejectCode.UNKNOWN_TENANT, TOO_MANY, JobAdmitted.__name__]
    await admission.end()


async def test_for_what_is_one_too_many_of_a_tenant_no_other_file_is_looked_for() -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile())
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    await handle(admission, "alice", "alice", "alice", topic="t.submissions.alice")
    assert answered(broker)[-1] == TOO_MANY
    assert not admission._service.knows("eve")
    await admission.end()


async def test_while_the_own_topic_of_a_tenant_that_is_gone_is_there_no_other_topic_cancels_its_jobs() -> None:
    broker, host = MemoryBroker(), OtherFile()
    admission = await admission_at(broker, host)
    broker.create_topic("t.submissions.gone", 1)
    await handle(admission, "gone", "x", type_=CANCEL)
    await handle(admission, "gone", topic="t.submissions.gone", type_=CANCEL)
    no, *passed_on = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    assert isinstance(no, JobRejected)
    assert (no.command, no.code, no.job, no.tenant) == ("cancel", RejectCode.TENANT_NOT_OF_TOPIC, "job-0", None)
    assert [each.job for each in passed_on if isinstance(each, JobCancelRequested)] == ["x/job-1", "gone/job-0"]
    broker.delete_topic("t.submissions.gone")
    await handle(admission, "gone", type_=CANCEL)
    assert answered(broker)[-1] == JobCancelRequested.__name__
    await admission.end()


async def test_a_cancel_whose_tenants_topic_is_asked_for_in_vain_takes_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile())
    with monkeypatch.context() as away:
        away.setattr(MemoryLog, "partition_counts", _away)
        for _ in range(OF_GONE.at_once):
            with pytest.raises(LogUnavailable):
                await handle(admission, "x", type_=CANCEL)
        await handle(admission, "x", topic="t.submissions.x", type_=CANCEL)
    await handle(admission, "x", type_=CANCEL)
    assert answered(broker) == [JobCancelRequested.__name__] * 2
    await admission.end()


@pytest.mark.parametrize("tenant", ["gone", "x"])
async def test_no_cancel_by_the_common_topic_keeps_a_gone_tenants_own_from_cancelling(tenant: str) -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile(), OF_GONE)
    broker.create_topic("t.submissions.gone", 1)
    await handle(admission, *[tenant] * (OF_GONE.at_once + 10), type_=CANCEL)
    await handle(admission, "gone", topic="t.submissions.gone", type_=CANCEL)
    assert answered(broker)[-1] == JobCancelRequested.__name__
    await admission.end()


async def test_more_cancels_of_gone_tenants_are_passed_on_as_time_goes_by() -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile(), OF_GONE)
    for at_ms, count in ((1_000, OF_GONE.at_once + 1), (2_000, 3)):
        await handle(admission, *["gone"] * count, type_=CANCEL, at_ms=at_ms)
    assert OF_GONE.per_s == 2
    passed_on = [JobCancelRequested.__name__]
    assert answered(broker) == [*passed_on * OF_GONE.at_once, TOO_MANY, *passed_on * 2, TOO_MANY]
    await admission.end()


async def test_a_cancel_that_the_tenants_own_topic_forbids_takes_no_token_and_is_in_no_story() -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile(), OF_GONE)
    broker.create_topic("t.submissions.gone", 1)
    await handle(admission, *["gone"] * (OF_GONE.at_once + 10), "x", type_=CANCEL)
    *refused, passed_on = [event_of(record) for record in broker.partition(("t.jobs", 0)).records]
    found = {(each.code, each.tenant) for each in refused if isinstance(each, JobRejected)}
    assert found == {(RejectCode.TENANT_NOT_OF_TOPIC, None)}
    assert isinstance(passed_on, JobCancelRequested)
    await admission.end()


async def test_a_file_that_comes_while_topics_are_asked_for_changes_nothing_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile())
    broker.create_topic("t.submissions.x", 1)
    other = TEXT.replace("{name: bob}", "{name: x, own_topic: true}")
    _while_asked(monkeypatch, lambda: admission._service.reload(parse_cell_file(other, "cell")))
    await handle(admission, "bob", "x", "y", type_=CANCEL)
    passed_on = JobCancelRequested.__name__
    assert answered(broker) == [passed_on, RejectCode.TENANT_NOT_OF_TOPIC, passed_on]
    await admission.end()


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError])
async def test_a_batch_that_fails_in_any_way_takes_no_token(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    admission = await admission_at(broker, OtherFile())
    with monkeypatch.context() as failing:
        failing.setattr(MemoryLog, "publish", _raising(error))
        with pytest.raises(error):
            await handle(admission, "alice", "alice", topic="t.submissions.alice")
    await handle(admission, "alice", "alice", topic="t.submissions.alice")
    assert TOO_MANY not in answered(broker)
    await admission.end()


def _while_asked(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """This happens while Kafka is asked for topics."""
    ask = MemoryLog.partition_counts

    async def asked(log: MemoryLog, topics: Collection[str]) -> dict[str, int]:
        counts = await ask(log, topics)
        happens()
        return counts

    monkeypatch.setattr(MemoryLog, "partition_counts", asked)


def _raising(error: type[BaseException]) -> Callable[..., Awaitable[None]]:
    async def fails(*_: object) -> None:
        raise error

    return fails


async def _away(_: object, __: object) -> None:
    raise LogUnavailable("away")


async def test_a_cancel_by_the_common_topic_of_a_tenant_that_came_with_its_own_is_not_passed_on() -> None:
    broker, host = MemoryBroker(), OtherFile()
    host.tenant = "{name: eve, own_topic: true}"
    admission = await admission_at(broker, host)
    broker.write(LAYOUT.outgoing(ReloadCell(cell="main"), id="1", source="test", wall_ms=0))
    await handle(admission, "eve", type_=CANCEL)
    assert answered(broker) == [RejectCode.TENANT_NOT_OF_TOPIC]
    await admission.end()
