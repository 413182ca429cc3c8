"""Admission's process: shares the submissions with its replicas, answers each command, sets aside what has no
answer.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import TypeGuard

from prometheus_client import CollectorRegistry, Counter, Gauge

from fallow.services.admission.app.keeping_pace import KeepingPace
from fallow.services.admission.policy.records import Answered, as_records
from fallow.services.admission.service import AdmissionService, not_by_the_common_topic
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.fold.fold import OtherRelease
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import TYPE_HEADER, Undecodable, encode
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected
from fallow.shared.events.operations import AdvanceTime, ReloadCell
from fallow.shared.events.reasons import RejectCode
from fallow.shared.log.inputs.dead_letters import TOLD_MAX, dead_letter
from fallow.shared.log.inputs.fenced_input import say_fenced, say_read_again, show_fenced
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.consumer import (
    Bad,
    Dead,
    DeadLetterLimit,
    Handled,
    Taken,
    Tally,
    in_parts,
    joined,
    take_batch,
)
from fallow.shared.log.machine.losses import Loss, LossKind
from fallow.shared.log.opening import AWAY, OpenLog, layout_for, open_log
from fallow.shared.log.port import (
    Log,
    LogTruncated,
    LogUnavailable,
    Outgoing,
    Reader,
    Record,
    TopicPartition,
    UnreadableRecords,
)
from fallow.shared.log.reading import event_of, header, unreadable
from fallow.shared.log.sharing.delivery import Delivery
from fallow.shared.log.sharing.faststream_recipe import FastStreamSubscription
from fallow.shared.log.sharing.share import Subscription
from fallow.shared.runtime.clocks import SteppedCellClock
from fallow.shared.runtime.files.cell_file import reloaded
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.tasks.together import together

READS = ("submissions", "operations", "decisions", "snapshots")
"""The topics that it reads, beside those of tenants."""

OPERATIONS_PAUSE_S, OPERATIONS_PATIENT_MS = 1.0, 500
LOOK_FOR_TOPICS_MS = 5_000

MEND = "Run: fallow topics create"
"""It also puts the declared rights in force."""

LOOK_APART_MS = 100
"""Before a no the operations are looked at, so far apart at least: less than a command takes that reloads a file, and a
flood of what is rejected costs no more than ten looks a second.
"""

LOOK_WAIT_MS = 2 * OPERATIONS_PATIENT_MS
"""So long a look waits for what is known to be there."""

WITH_ANY_FILE = frozenset(
    (
        RejectCode.INVALID_FIELD,
        RejectCode.UNKNOWN_VERSION,
        RejectCode.TOO_MANY_SUBMISSIONS,
    )
)
"""Rejections that no other cell file takes back; and what is one too many shall cost little."""

PART_BYTES = 65_536
"""At most so many records of a batch are answered at once: a few milliseconds."""

Subscribing = Callable[[Context[AdmissionSettings], Sequence[str], str, Delivery], Subscription]
"""How a process comes to its share of these topics in this group, not started."""


def subscribe(
    context: Context[AdmissionSettings], topics: Sequence[str], group: str, delivery: Delivery
) -> Subscription:
    """By FastStream."""
    return FastStreamSubscription(context.settings, context.instance, topics, group, delivery)


class AdmissionMetrics:
    """What the admission process counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answers = Counter("fallow_admission_answers_total", "Commands answered", ["answer"], registry=registry)
        self.fenced = Gauge(
            "fallow_submissions_fenced",
            "1 while a partition of submissions that has lost records, or cannot be read, waits for a person",
            ["topic", "partition"],
            registry=registry,
        )
        self.deleted_unread = Counter(
            "fallow_submissions_deleted_unread_total",
            "Submissions that were deleted before they were read",
            ["topic"],
            registry=registry,
        )


async def main(
    context: Context[AdmissionSettings], opening: OpenLog = open_log, subscribing: Subscribing = subscribe
) -> None:
    """Answer commands until told to stop. While Kafka is away they wait. A batch that cannot be answered for a minute
    for another reason ends the process; it is not lost.
    """
    context.reads.update(READS)
    file = context.host.cell_file(context.settings.cell_file)
    log = await opening(context, file)
    if log is None:
        return
    admission = Admission(context, log, layout_for(context, file), file, subscribing)
    try:
        while await wait_for(context, "its share of the submissions", admission.begin, AWAY):
            context.health.ready()
            work = {
                "operations": admission.follow_operations(),
                "placement": admission.pace.follow(),
                "delivery": admission.fail_when_given_up(),
            }
            try:
                await together(context.stopping, until_stopped={}, cut_off=work)
            except OtherTopics as others:
                context.logger.info("reads more topics from now on", topics=others.topics)
                await admission.leave()
            except OtherRelease as other:
                context.logger.warning("reads no submissions any more", reason=str(other))
                await admission.leave()
    finally:
        await admission.end()
        await log.stop()


class OtherTopics(Exception):
    """There are topics to be read that were not known when the process began."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__(", ".join(topics))
        self.topics = topics


class Admission:
    """The wiring of one process."""

    def __init__(
        self,
        context: Context[AdmissionSettings],
        log: Log,
        layout: Layout,
        file: CellFile,
        subscribing: Subscribing = subscribe,
    ) -> None:
        self._context, self._log, self._layout, self._file = context, log, layout, file
        self._subscribing = subscribing
        self._service = AdmissionService(file, context.settings.of_no_tenant)
        self._metrics = AdmissionMetrics(context.registry)
        self.pace = KeepingPace(context, log, layout, [cell.name for cell in file.cells])
        self._limit, self._tally = DeadLetterLimit(), Tally()
        self._plain = layout.topic("submissions")
        self._told: dict[TopicPartition, Loss] = {}
        self._delivery = self._new_delivery()
        self._subscription: Subscription | None = None
        self._fenced: dict[TopicPartition, Loss] = {}
        self._refused: tuple[str, ...] = ()
        self._partitions = 1
        self._read: list[str] = []
        self._look_at_ms = 0
        self._operations: Reader | None = None
        self._operating, self._look_again_ms = asyncio.Lock(), 0

    async def begin(self) -> str | None:
        """Stand at the operations and join the group that shares the submissions. Raises LogUnavailable. A text says
        why it must not: while the log of any cell is one of another release, readers of that one know no answer of this
        one, and a submission that is answered counts as read.
        """
        try:
            if self._operations is None:
                self._operations = await self._stand_at_operations()
                await self.pace.begin()
            why = await self.pace.others()
            if why is not None:
                return why
            self._delivery = self._new_delivery()
            topics = self._read = await self._topics_there()
            for topic in topics:
                self._metrics.deleted_unread.labels(topic)
            group = self._layout.group("admission")
            self._subscription = self._subscribing(self._context, topics, group, self._delivery)
            await self._subscription.start()
        except LogUnavailable:
            await self.end()
            raise
        return None

    async def leave(self) -> None:
        """Read no submissions any more."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.stop()
        self._context.health.noted("topics")

    async def end(self) -> None:
        """Let go of what `begin` has begun."""
        await self.leave()
        operations, self._operations = self._operations, None
        if operations is not None:
            await operations.stop()
        await self.pace.end()

    def _new_delivery(self) -> Delivery:
        chance, warn = self._context.host.chance, self._context.logger.warning
        return Delivery(
            self.handle,
            self._log,
            on_loss=self._lose,
            on_held=self._show_held,
            told=self._told,
            chance=chance,
            warn=warn,
        )

    def _topics(self) -> list[str]:
        return [self._plain, *(self._layout.submissions(tenant) for tenant in self._file.own_topics)]

    async def _topics_there(self) -> list[str]:
        """Without the own topics of tenants that are not there, or to which admission has no right: they are noted, and
        keep no other submission waiting. With those of tenants that shall have none any more: what was sent there, or
        still is, is not lost. Raises LogUnavailable.
        """
        left = [self._layout.submissions(tenant.name) for tenant in self._file.tenants if not tenant.own_topic]
        counts = await self._log.partition_counts([*self._topics(), *left])
        self._partitions = sum(counts.values())
        return [topic for topic, count in counts.items() if count or topic == self._plain]

    def _lose(self, loss: Loss) -> None:
        """A partition does not hold what admission has committed of it."""
        topic, partition = loss.tp
        if loss.kind is LossKind.DELETED_UNREAD:
            lost = {"topic": topic, "partition": partition, "from_offset": loss.next_offset, "to_offset": loss.begin}
            self._context.logger.error("submissions were deleted unread", **lost)
            self._metrics.deleted_unread.labels(topic).inc(loss.begin - loss.next_offset)
            return
        say_fenced(self._context, loss, self._why_not_read(loss))

    def _show_held(self, loss: Loss) -> None:
        """A partition is not read, as was told before or just now."""
        self._fenced[loss.tp] = loss
        self._metrics.fenced.labels(*loss.tp).set(1)
        show_fenced(self._context, loss, self._why_not_read(loss))

    def _why_not_read(self, loss: Loss) -> str:
        how = f"stop admission and set the offset of group {self._layout.group('admission')} there"
        if loss.kind is LossKind.UNREADABLE:
            how = f"it is looked at twice a minute; to pass over what cannot be read, {how}, behind it"
        return f"{loss}; it is not read: {how}"

    async def fail_when_given_up(self) -> None:
        """End the process when a batch cannot be delivered."""
        raise await self._delivery.given_up()

    async def handle(self, records: list[Record]) -> None:
        """Answer a batch, as soon as placement keeps up; returns when every answer and every dead letter is in the
        log.
        """
        await self.pace.wait()
        kept = self._service.keep()
        try:
            self._service.rates.share(len(self._delivery.assigned), self._partitions)
            taken, file = await self._take(records), self._file
            if self._goes_by_file(taken):
                await self._look_at_operations()
                if self._file is not file:
                    self._service.back(kept)
                    kept = self._service.keep()
                    taken = await self._take(records)
            letters = await self._letters(taken.dead)
            taken = replaced(taken, handled=await self._few_of_gone(taken.handled))
            answers = self._outgoing(taken.handled)
            await self._log.publish([*answers, *letters])
        except BaseException as error:
            self._service.back(kept)
            if isinstance(error, LogUnavailable):
                self._context.health.not_ready(f"answers wait for Kafka: {error}", "answers")
            raise
        self._context.health.ready("answers")
        self._tally = taken.tally
        self._note(taken)

    async def _take(self, records: list[Record]) -> Taken[Event]:
        """Between the parts other tasks have their turn: a member of the group that says nothing for a second and a
        half loses its share.
        """
        parts, tally = list[Taken[Event]](), self._tally
        for part in in_parts(records, PART_BYTES):
            parts.append(take_batch(part, self._answer, self._limit, tally))
            tally = parts[-1].tally
            await asyncio.sleep(0)
        return joined(parts, tally)

    async def _few_of_gone(self, answers: Sequence[Handled[Event]]) -> tuple[Handled[Event], ...]:
        """These answers with few cancels of tenants that are gone from the cell file; by the common topic with none
        of one that still has a topic of its own. Raises LogUnavailable.
        """
        # Judged once: another file may come while Kafka is asked.
        gone = [(place, each.record, each.item) for place, each in _not_admitted(answers) if self._is_of_gone(each)]
        tenants = {cancel.tenant for _, record, cancel in gone if record.topic == self._plain}
        own = {tenant: self._layout.submissions(tenant) for tenant in tenants}
        counts = await self._log.partition_counts(list(own.values())) if own else {}
        found = list(answers)
        for place, record, cancel in gone:
            if record.topic == self._plain and counts[own[cancel.tenant]]:
                answer: Event = not_by_the_common_topic(cancel)
            else:
                answer = self._service.few_of_gone(cancel, self._tenant_of(record), record.timestamp_ms)
            found[place] = Handled(record, answer)
        return tuple(found)

    def _is_of_gone(self, answer: Handled[Event]) -> TypeGuard[Handled[JobCancelRequested]]:
        """Whether a job is cancelled here in the name of a tenant that the cell file does not have."""
        return isinstance(answer.item, JobCancelRequested) and not self._service.knows(answer.item.tenant)

    def _goes_by_file(self, taken: Taken[Event]) -> bool:
        """Whether another cell file might let pass something that is rejected here, or have the tenant of a cancel."""
        others = [each for _, each in _not_admitted(taken.handled)]
        if any(map(self._is_of_gone, others)):
            return True
        answers = [handled.item for handled in others if isinstance(handled.item, JobRejected)]
        too_many = RejectCode.TOO_MANY_SUBMISSIONS
        return any(
            answer.code not in WITH_ANY_FILE or (answer.code == too_many and not self._service.knows(answer.tenant))
            for answer in answers
        )

    async def _letters(self, all_dead: Sequence[Dead]) -> list[Outgoing]:
        """One by one: each may take as long as a part of a batch."""
        letters = list[Outgoing]()
        for dead in all_dead:
            letters.append(dead_letter(dead, service="admission", namespace=self._layout.namespace))
            await asyncio.sleep(0)
        return letters

    def _outgoing(self, answers: Sequence[Handled[Event]]) -> list[Outgoing]:
        """Named by the place of the first command that they answer."""
        source, now_ms, outgoing = self._context.instance, self._context.host.wall_ms(), self._layout.outgoing
        records = as_records([_answered(handled) for handled in answers])
        return [outgoing(answer, id=place, source=source, wall_ms=now_ms) for answer, place in records]

    def _note(self, taken: Taken[Event]) -> None:
        """Tell the metrics, the health and the log what became of a batch."""
        for answer, count in collections.Counter(map(_name_of, taken.handled)).items():
            self._metrics.answers.labels(answer).inc(count)
        for dead in taken.dead:
            self._context.telemetry.dead_letters.labels(dead.record.topic, dead.reason).inc()
        for dead in taken.dead[:TOLD_MAX]:
            self._context.logger.warning("set aside", reason=dead.reason, text=dead.text, offset=dead.record.offset)
        if len(taken.dead) > TOLD_MAX:
            self._context.logger.warning("more set aside", count=len(taken.dead) - TOLD_MAX)
        for (topic, partition), offset in taken.next_offsets.items():
            self._context.health.handled(topic, partition, offset)
        if taken.stop is not None:
            self._context.logger.error("too many dead letters: is something misconfigured?", text=taken.stop.text)

    def _answer(self, record: Record) -> Event | Bad:
        tenant = self._tenant_of(record)
        sent_ms = self._sent_ms(record)
        # However long it lay in its topic: it came when it was sent.
        came_ms = self._context.clock.now_ms() if sent_ms is None else sent_ms
        # By the broker's stamp alone, which no sender writes: no admission begins on a topic that keeps another one.
        # The clock here may be wrong, and tells a later time whenever a record is handled again.
        type_, at_wall_ms = header(record, TYPE_HEADER), record.timestamp_ms
        over = self._service.over_rate(type_, record.value, tenant, at_wall_ms)
        if isinstance(over, Undecodable):
            return Bad(over.reason, str(over), is_one_too_many=True)
        if over is not None:
            return over
        lost = unreadable(record)
        if lost is not None:
            return Bad(lost.reason, str(lost))
        answer = self._service.answer(type_, record.value, tenant, came_ms, sent_ms)
        if isinstance(answer, Undecodable):
            return Bad(answer.reason, str(answer))
        return self._service.within_rate(answer, tenant, at_wall_ms)

    def _tenant_of(self, record: Record) -> str | None:
        """Whose own topic it came by; None is the common one."""
        return None if record.topic == self._plain else record.topic.removeprefix(f"{self._plain}.")

    def _sent_ms(self, record: Record) -> int | None:
        """The cell time at which a submission came, by the broker's stamp: the clock here may be wrong, and cannot
        tell an old one from a new one. None where cell time goes by steps.
        """
        clock = self._context.clock
        return None if isinstance(clock, SteppedCellClock) else clock.at(record.timestamp_ms)

    async def _stand_at_operations(self) -> Reader:
        tps = [self._layout.tp("operations", cell.name) for cell in self._file.cells]
        positions = await (self._log.begin_offsets(tps) if self._goes_by_time else self._log.end_offsets(tps))
        reader = self._log.reader(positions, patient_ms=0 if self._goes_by_time else OPERATIONS_PATIENT_MS)
        await reader.start()
        return reader

    @property
    def _goes_by_time(self) -> bool:
        """Only a bound on submit times needs the stepped time; else the past is nothing, and news may come late."""
        return isinstance(self._context.clock, SteppedCellClock) and self._file.limits.submit_skew_ms is not None

    async def follow_operations(self) -> None:
        """Keep up with a stepped clock, and read the cell file again when told to."""
        reader, by_time = self._operations, self._goes_by_time
        assert reader is not None, "a process begins before it follows"
        while True:
            async with self._operating:
                # Not for long where a look before a no waits for its turn.
                is_done = await self._take_operations(reader, wait_ms=200 if by_time else 0)
            if is_done is None:
                continue
            await self._look_for_topics()
            self._let_go_of_lost()
            self._show_refused()
            self._show_unread()
            if not by_time:
                await self._context.pause(OPERATIONS_PAUSE_S)
                continue
            for (topic, partition), offset in reader.positions().items():
                self._context.health.handled(topic, partition, offset)

    async def _look_at_operations(self) -> None:
        """Carry out what lies in the operations by now. A job that is sent once `fallow cell reload` has its answer is
        answered by the new file, though placement may have read it first. By stepped time they are read as they come.
        """
        reader, now_ms = self._operations, self._context.host.monotonic_ms()
        if reader is None or self._goes_by_time or now_ms < self._look_again_ms:
            return
        self._look_again_ms = now_ms + LOOK_APART_MS
        try:
            ends = await self._log.end_offsets(list(reader.positions()))
        except LogUnavailable:
            return  # the answers wait for the log, too
        async with self._operating:
            while any(offset < ends[tp] for tp, offset in reader.positions().items()):
                if await self._take_operations(reader, LOOK_WAIT_MS) == 0:
                    return

    async def _take_operations(self, reader: Reader, wait_ms: int) -> int | None:
        """Carry out some of what has come; how many that was. None: something cannot be read, and is passed over."""
        try:
            records = await reader.poll(wait_ms=wait_ms)
        except LogTruncated as error:
            # Only the newest time and the newest file count; what was deleted unread is older.
            if isinstance(error, UnreadableRecords):
                self._context.logger.warning("operations are passed over", reason=str(error))
            reader.seek(error.tp, error.begin)
            return None
        await self._operate([event_of(record) for record in records])
        return len(records)

    def _show_unread(self) -> None:
        """A partition of which nothing was read yet: its lag, and what keeps it from being read, show all the same."""
        cursors = self._context.health.progress.cursors
        for (topic, partition), next_offset in self._delivery.standing().items():
            if f"{topic}/{partition}" not in cursors:
                self._context.health.handled(topic, partition, next_offset)

    def _show_refused(self) -> None:
        """The topics to which admission has no right, and those to which it has it by now."""
        refused = dict(self._delivery.refused)
        for topic in self._refused:
            if topic not in refused:
                self._context.health.ready(topic)
        for topic, why in refused.items():
            self._context.health.not_ready(f"{topic} is not read, the other submissions are: {why}", topic)
        self._refused = tuple(refused)

    def _let_go_of_lost(self) -> None:
        """What another admission owns now is no lag of this one, and no loss; what is whole again is none either."""
        assigned, held = self._delivery.assigned, self._delivery.held
        for lost in [tp for tp in self._fenced if tp not in held]:
            del self._fenced[lost]
            self._metrics.fenced.labels(*lost).set(0)
            say_read_again(self._context, lost)
        for name in list(self._context.health.progress.cursors):
            topic, _, partition = name.rpartition("/")
            if self._is_of_submissions(topic) and (topic, int(partition)) not in assigned:
                self._context.health.let_go(int(partition), topic)

    def _is_of_submissions(self, topic: str) -> bool:
        """Whether it is the common topic, or that of any tenant, whichever the cell file declares by now."""
        return topic == self._plain or topic.startswith(f"{self._plain}.")

    async def _operate(self, events: Sequence[object]) -> None:
        """Carry out what came together. The cell file is read once for all of it: each time holds up the answers."""
        clock = self._context.clock
        for event in events:
            if isinstance(event, AdvanceTime) and isinstance(clock, SteppedCellClock):
                clock.advance_to(event.now_ms)
        if any(isinstance(event, ReloadCell) for event in events):
            file = await reloaded(self._context, self._file)
            if file is not None:
                self._file = file
                self._service.reload(file)
            await self.pace.renew_keys()

    async def _look_for_topics(self) -> None:
        """Topics that came with a reload are read once they are there: raises OtherTopics then. Until then it is noted
        that they are not. So it is of one that is read, and to which the right is gone: Kafka says that there is none,
        and the group leaves it out. One that its tenant shall not have any more counts as unread once it is deleted:
        should the tenant have one again, that is another topic.
        """
        declared, now_ms = self._topics(), self._context.host.monotonic_ms()
        own = [topic for topic in dict.fromkeys([*declared, *self._read]) if topic != self._plain]
        if not own:
            self._context.health.noted("topics")  # the tenant is gone again
        if not own or now_ms < self._look_at_ms:
            return
        self._look_at_ms = now_ms + LOOK_FOR_TOPICS_MS
        try:
            counts = await self._log.partition_counts(own)
        except LogUnavailable:
            return
        missing = [topic for topic in own if not counts[topic]]
        self._read = [topic for topic in self._read if topic in declared or topic not in missing]
        unread = [topic for topic in declared if topic not in self._read and topic not in missing]
        if unread:
            raise OtherTopics(unread)
        wanted = ", ".join(topic for topic in missing if topic in declared)
        note = f"{wanted}: not there, or without a right to read it. {MEND}" if wanted else None
        self._context.health.noted("topics", note)


def _not_admitted(answers: Sequence[Handled[Event]]) -> list[tuple[int, Handled[Event]]]:
    """All answers but the jobs that are admitted, which most are, with their places."""
    return [(place, each) for place, each in enumerate(answers) if not isinstance(each.item, JobAdmitted)]


def _answered(handled: Handled[Event]) -> Answered:
    record = handled.record
    # What is admitted may be much larger than what was asked for: all pools of a cell are written out.
    size_bytes = len(encode(handled.item)) if isinstance(handled.item, JobAdmitted) else 0
    return Answered(handled.item, size_bytes, f"{record.topic}/{record.partition}/{record.offset}")


def _name_of(handled: Handled[Event]) -> str:
    """An answer as the metrics name it: what it is, and of a rejection why."""
    answer = handled.item
    return f"JobRejected {answer.code}" if type(answer) is JobRejected else type(answer).__name__
