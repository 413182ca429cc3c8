"""Admission: tests a command against all that does not depend on the cluster's state, and passes it on or turns it
away.
"""

from __future__ import annotations

from dataclasses import replace as replaced

import msgspec
from pydantic import TypeAdapter, ValidationError

from fallow.services.admission.policy import beside_room, limits
from fallow.services.admission.policy.admissible import Admissible
from fallow.services.admission.policy.duplicates import key_twice
from fallow.services.admission.policy.known_arrays import KnownArrays
from fallow.services.admission.policy.rates import GONE, NO_TENANT, OF_NO_TENANT, Kept, SubmissionRates
from fallow.services.admission.policy.resolve import Rejection, cell_of, cell_of_cancel, tenant_of
from fallow.shared.cluster.model.config import CellFile, SubmissionRate
from fallow.shared.events.base import Event, JobId, replace
from fallow.shared.events.codec.encoding import SUBMISSION_BYTES_MAX, UNREAD, Undecodable, decode, shorten
from fallow.shared.events.fields.job_ids import digest_of, full_id, in_full, in_short, own_id
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.events.validation.unknown_fields import finite

COMMANDS: dict[str, str] = {SubmitJob.type: "submit", CancelJob.type: "cancel", UpdateJob.type: "update"}

Command = SubmitJob | CancelJob | UpdateJob

KINDS: dict[str, str] = {type_.rpartition(".")[0]: command for type_, command in COMMANDS.items()}
"""The commands by their types without the version."""

NAME_CHARS_MAX = 100

_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)


class AdmissionService:
    """Answers one command at a time; every answer depends on the command, the cell file and the time alone."""

    def __init__(self, file: CellFile, of_no_tenant: SubmissionRate = OF_NO_TENANT) -> None:
        """`of_no_tenant` is how much may come for which no tenant answers."""
        self._go_by(file)
        self.rates = SubmissionRates(file, of_no_tenant)
        self._arrays = KnownArrays()

    def reload(self, file: CellFile) -> None:
        """Decide by this cell file from now on."""
        self._go_by(file)
        self.rates.reload(file)

    def _go_by(self, file: CellFile) -> None:
        self._file, self._admissible, self._own_topics = file, Admissible(file), frozenset(file.own_topics)
        self._tenants = frozenset(tenant.name for tenant in file.tenants)

    def knows(self, tenant: str | None) -> bool:
        """Whether the cell file has this tenant."""
        return tenant in self._tenants

    def keep(self) -> Kept:
        """What is counted as it is from now on, for a batch that may have to be handled again."""
        self._arrays.keep()
        return self.rates.keep()

    def back(self, kept: Kept) -> None:
        """Come back to what was kept last."""
        self._arrays.back()
        self.rates.back(kept)

    def answer(
        self, type_: str, value: bytes | None, topic_tenant: str | None, came_ms: int, sent_ms: int | None = None
    ) -> Event | Undecodable:
        """What to publish for one record of a submissions topic, or why it can only be set aside.

        `topic_tenant` is the tenant whose own topic the record came by; it may speak for no other tenant, and a no to
        it is its own. None is the common topic, which speaks for no tenant that has one. `came_ms` is the cell time at
        which it came; `sent_ms` is the same where what is passed on has to tell it.
        """
        return self._to_sender(self._answer_any(type_, value, topic_tenant, came_ms, sent_ms), topic_tenant)

    def _answer_any(
        self, type_: str, value: bytes | None, topic_tenant: str | None, came_ms: int, sent_ms: int | None
    ) -> Event | Undecodable:
        if type_ not in COMMANDS:
            why = Undecodable(
                DeadLetterReason.UNKNOWN_TYPE, "is not a command of this topic", "ce_type", shorten(type_)
            )
            command = KINDS.get(type_.rpartition(".")[0])
            return _reject_or_set_aside(command, value, why, RejectCode.UNKNOWN_VERSION) if command else why
        command = COMMANDS[type_]
        if value is not None and len(value) > SUBMISSION_BYTES_MAX:
            rule = f"a submission has at most {SUBMISSION_BYTES_MAX} bytes"
            why = Undecodable(DeadLetterReason.TOO_LARGE, rule, "", f"{len(value)} bytes")
            return _reject_or_set_aside(command, value, why, RejectCode.TOO_LARGE)
        event = decode(type_, value)
        if isinstance(event, Undecodable):
            return _reject_or_set_aside(command, value, event, RejectCode.INVALID_FIELD)
        assert isinstance(event, Command)
        twice = key_twice(value or b"", event)
        if twice is not None:
            job, tenant = _of_whom(event)
            return _rejected(
                event, job, tenant, Rejection(RejectCode.INVALID_FIELD, shorten(twice), "", "duplicate field")
            )
        return self._answer(event, topic_tenant, came_ms, sent_ms)

    def over_rate(
        self, type_: str, value: bytes | None, topic_tenant: str | None, at_wall_ms: int
    ) -> JobRejected | Undecodable | None:
        """The rejection of a command that is one too many for its tenant at this time, before any of the work on it is
        done. One that is rejected anyway counts as well: each costs a record. `topic_tenant` is the tenant whose own
        topic it came by, whomever it names. By that topic whatever comes counts, also what can only be set aside; by
        the common one nothing counts against a tenant that has its own: that, and what names no tenant of the cell
        file, has a limit together.
        """
        command = COMMANDS.get(type_) or KINDS.get(type_.rpartition(".")[0])
        found = None if command is None else _job_and_tenant(value)
        job, tenant = (None, None) if found is None else found
        is_anothers = topic_tenant is None and tenant in self._own_topics
        sender = topic_tenant or (None if is_anothers else tenant)
        payer = sender if sender is not None and self.knows(sender) else NO_TENANT
        is_cancel = command == COMMANDS[CancelJob.type]
        why = self.rates.refusal(payer, at_wall_ms, are_cancels=is_cancel)
        if why is None:
            return None
        if command is None or job is None:
            return Undecodable(DeadLetterReason.TOO_MANY, why.rule, why.field, why.value)
        why = why if payer else replaced(why, value=tenant or "")
        return _rejected(command, own_id(job) if is_anothers else full_id(tenant or "", job), sender, why)

    def within_rate(self, answer: Event, topic_tenant: str | None, at_wall_ms: int) -> Event:
        """This answer, or the rejection of an array, or of an update of one, whose elements are too many for its
        tenant at this time. The first of them is counted already (`over_rate`). A cancel is one, whatever it ends.
        """
        if isinstance(answer, JobAdmitted):
            command, job, tenant = COMMANDS[SubmitJob.type], answer.spec.id, answer.spec.tenant
            elements = answer.spec.array or 1
        elif isinstance(answer, JobUpdateRequested):
            command, job, tenant = COMMANDS[UpdateJob.type], answer.job, answer.tenant
            elements = self._arrays.elements(answer.cell, tenant, job)
        else:
            return answer
        if elements > 1:
            why = self.rates.refusal(topic_tenant or tenant, at_wall_ms, elements - 1, taken=1)
            if why is not None:
                return _rejected(command, job, topic_tenant or tenant, why)
        if isinstance(answer, JobAdmitted) and answer.spec.array is not None:
            self._arrays.note(answer.cell, tenant, job, answer.spec.array)
        return answer

    def few_of_gone(self, cancel: JobCancelRequested, topic_tenant: str | None, at_wall_ms: int) -> Event:
        """This cancel, of a tenant that the cell file does not have, or its rejection: only few of these are passed
        on, by each topic.
        """
        why = self.rates.refusal(GONE + (topic_tenant or ""), at_wall_ms, are_cancels=True)
        if why is None:
            return cancel
        why = replaced(why, value=cancel.tenant)
        return _rejected(COMMANDS[CancelJob.type], cancel.job, cancel.tenant, why)

    def _to_sender(self, answer: Event | Undecodable, topic_tenant: str | None) -> Event | Undecodable:
        """This answer, addressed to its sender. A no to what came by a tenant's own topic is that tenant's, whichever
        tenant the command names. By the common topic a tenant that has its own has said nothing, so a no is none to it,
        and about no job of it.
        """
        if type(answer) is not JobRejected:
            return answer
        if topic_tenant is not None:
            return replace(answer, tenant=topic_tenant)
        if answer.tenant is None or answer.tenant not in self._own_topics:
            return answer
        return _rejected(answer.command, own_id(answer.job), None, _not_by_the_common_topic(answer.tenant))

    def _answer(self, event: Command, topic_tenant: str | None, came_ms: int, sent_ms: int | None) -> Event:
        job, tenant = _of_whom(event)
        if topic_tenant is not None and tenant != topic_tenant:
            rule = f"this topic is {topic_tenant}'s own"
            return _rejected(event, job, tenant, Rejection(RejectCode.TENANT_NOT_OF_TOPIC, "tenant", tenant, rule))
        if topic_tenant is None and tenant in self._own_topics:
            return _rejected(event, job, tenant, _not_by_the_common_topic(tenant))
        if isinstance(event, SubmitJob):
            return self._submit(event, came_ms, sent_ms)
        strange = beside_room.names_another_tenants(tenant, job)
        if strange is not None:
            return _rejected(event, job, tenant, strange)
        if isinstance(event, CancelJob):
            cell = cell_of_cancel(self._file, tenant, event.cell)
            if isinstance(cell, Rejection):
                return _rejected(event, job, tenant, cell)
            return JobCancelRequested(
                cell=cell.name, job=full_id(tenant, job), tenant=tenant, reason=event.reason, sent_ms=sent_ms
            )
        known = tenant_of(self._file, tenant)
        cell = known if isinstance(known, Rejection) else cell_of(self._file, known, event.cell)
        if isinstance(cell, Rejection):
            return _rejected(event, job, tenant, cell)
        changes = event.changes
        over = limits.over_update_limits(self._file, changes)
        if over is None and changes.priority is not None:
            over = self._admissible.priority_too_high(tenant, changes.priority, "changes.priority")
        if over is not None:
            return _rejected(event, job, tenant, over)
        return JobUpdateRequested(
            cell=cell.name, job=full_id(tenant, job), tenant=tenant, changes=changes, sent_ms=sent_ms
        )

    def _submit(self, event: SubmitJob, came_ms: int, sent_ms: int | None) -> Event:
        spec = in_short(event.job)
        submit_ms = came_ms if event.submit_ms is None else event.submit_ms
        found = beside_room.misnamed(spec) or self._admissible.home(spec)
        if isinstance(found, Rejection):
            return _rejected(event, spec.id, spec.tenant, found)
        late = self._admissible.priority_too_high(spec.tenant, spec.priority, "priority")
        late = late or limits.submit_time_too_far(self._file, submit_ms, came_ms) or limits.over_run_time(spec, found)
        home, (job, after) = found, in_full(spec)
        resolved = replace(
            spec,
            id=job,
            after=after,
            cell=home.cell.name,
            queue=home.queue,
            pools=home.pool_names,
            gang=limits.is_gang(spec),
            max_run_ms=home.line.limit_ms(spec.max_run_ms),
        )
        if late is None and beside_room.asks_for_more(spec):
            late = beside_room.rejection(self._file, resolved, came_ms)
        if late is not None:
            return _rejected(event, spec.id, spec.tenant, late)
        digest = digest_of(spec)
        return JobAdmitted(cell=home.cell.name, spec=resolved, submit_ms=submit_ms, digest=digest, sent_ms=sent_ms)


def _reject_or_set_aside(command: str, value: bytes | None, why: Undecodable, code: RejectCode) -> Event | Undecodable:
    """A command that is not valid is answered if it says whose it is, else it can only be set aside. What is no JSON
    says nothing, though parts of it could be read.
    """
    found = None if why.reason is DeadLetterReason.UNREADABLE else _job_and_tenant(value)
    if found is None:
        return why
    job, tenant = found
    job = full_id(tenant or "", job)
    field = why.field.removeprefix("job.")  # as a job file names it
    return JobRejected(job=job, tenant=tenant, command=command, code=code, field=field, value=why.value, rule=why.rule)


def not_by_the_common_topic(cancel: JobCancelRequested) -> JobRejected:
    """The answer to this cancel, which came by the common topic, where its tenant has its own."""
    return _rejected(COMMANDS[CancelJob.type], own_id(cancel.job), None, _not_by_the_common_topic(cancel.tenant))


def _not_by_the_common_topic(tenant: str) -> Rejection:
    rule = f"is heard by its own topic alone: submissions.{tenant}"
    return Rejection(RejectCode.TENANT_NOT_OF_TOPIC, "tenant", tenant, rule)


def _of_whom(event: Command) -> tuple[str, str]:
    """The job and the tenant that a command names."""
    return (event.job.id, event.job.tenant) if isinstance(event, SubmitJob) else (event.job, event.tenant)


def _rejected(event: Event | str, job: str, tenant: str | None, why: Rejection) -> JobRejected:
    """The answer to this command, or to one of this kind."""
    return JobRejected(
        cell=why.cell,
        job=full_id(tenant or "", job),
        tenant=tenant,
        command=event if isinstance(event, str) else COMMANDS[event.type],
        code=why.code,
        field=why.field,
        value=why.value[:100],
        rule=why.rule,
        wanted=why.wanted,
        allowed=why.allowed,
    )


class _Job(msgspec.Struct, gc=False):
    """What is read of the job of a submission to know whose it is."""

    id: str | None = None
    tenant: str | None = None


class _Plain(msgspec.Struct, gc=False):
    """What is read of a command to know whose it is, where what says so is text or is not there."""

    job: _Job | str | None = None
    tenant: str | None = None


_PLAIN = msgspec.json.Decoder(_Plain)


class _Whose(msgspec.Struct):
    """The tenant and the id that a command names, and those of the job in it, whatever stands there."""

    job: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    tenant: msgspec.Raw = msgspec.Raw()


_WHOSE = msgspec.json.Decoder(_Whose)


def _job_and_tenant(value: bytes | None) -> tuple[str, str | None] | None:
    """The job's id and tenant of a command, broken or not, as far as they can be read and obey the naming rule."""
    try:
        return _plainly_named(value or b"")
    except UNREAD:
        return _named_somehow(value or b"")


def _named_somehow(text: bytes) -> tuple[str, str | None] | None:
    try:
        try:
            return _named(text)
        except UNREAD:
            return _named(finite(text))
    except UNREAD:
        return None


def _plainly_named(text: bytes) -> tuple[str, str | None] | None:
    """What `_named` tells, by one reading. Raises what UNREAD names where something else than text says whose it is."""
    found = _PLAIN.decode(text)
    job = found.job
    return _as_names(job.id, job.tenant) if isinstance(job, _Job) else _as_names(job, found.tenant)


def _named(text: bytes) -> tuple[str, str | None] | None:
    found = _WHOSE.decode(text)
    job, tenant = found.job, found.tenant
    if bytes(job).startswith(b"{"):
        inner = _WHOSE.decode(job)
        job, tenant = inner.id, inner.tenant
    return _as_names(_text(job), _text(tenant))


def _text(raw: msgspec.Raw) -> str | None:
    return msgspec.json.decode(raw, type=str) if bytes(raw).startswith(b'"') else None


def _as_names(job: object, tenant: object) -> tuple[str, str | None] | None:
    try:
        name = _JOB_ID.validate_python(job, strict=True)
    except ValidationError:
        return None
    if isinstance(tenant, str) and len(tenant) <= NAME_CHARS_MAX:
        return name, tenant
    return own_id(name), None  # a sender that names no tenant is told of no job
