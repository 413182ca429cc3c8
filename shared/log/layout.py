"""Where a record belongs: full topic names, the partition of each cell, and by whose keys its decisions are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import SPEC_VERSION, TYPE_HEADER, ce_headers, encode
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.port import Headers, Outgoing, TopicPartition


@dataclass(frozen=True, slots=True)
class Layout:
    """The topics of one namespace. `ordinals` gives each cell's partition; `signers` are those of the process's own
    cell file, so that a reader of a cell's decisions knows which of them to believe. `own_topics` are the tenants
    whose submissions have a topic of their own.
    """

    namespace: str
    ordinals: dict[str, int]
    signers: Signers = field(default_factory=Signers, compare=False, repr=False)
    own_topics: frozenset[str] = frozenset()

    def topic(self, name: str) -> str:
        """The full name of a topic."""
        return f"{self.namespace}.{name}"

    def group(self, service: str) -> str:
        """The consumer group of a service."""
        return f"{self.namespace}.{service}"

    def tp(self, name: str, cell: str) -> TopicPartition:
        """A cell's partition of a topic."""
        return (self.topic(name), self.ordinals[cell])

    def cell_at(self, partition: int) -> str | None:
        """The cell whose partition this is, or None where the topic has more partitions than there are cells."""
        for cell, ordinal in self.ordinals.items():
            if ordinal == partition:
                return cell
        return None

    def outgoing(
        self, event: Event, *, id: str, source: str, wall_ms: int, more: Headers = (), value: bytes | None = None
    ) -> Outgoing:
        """An event as a record to be written: into its cell's partition, or where its key leads.

        `id` is made from what the record is about, so that a repeat has the same one. `value` is given by callers that
        have the event's bytes already. Commands say when they were written and how; all other records leave the time
        to Kafka's own timestamp, since there are thousands of them in a second and each is read several times.
        """
        if event.is_command:
            headers = ce_headers(event, id=id, source=source, wall_ms=wall_ms)
        else:
            headers = (SPEC_VERSION, ("ce_id", id.encode()), _source(source), _type(event.type))
        return Outgoing(
            self._topic_of(event),
            encode(event) if value is None else value,
            event.key().encode(),
            headers + more if more else headers,
            self._partition(event),
        )

    def submissions(self, tenant: str | None = None) -> str:
        """The full name of the common topic of submissions, or of the tenant's own."""
        return self.topic("submissions" if tenant is None else f"submissions.{tenant}")

    @property
    def submission_topics(self) -> tuple[str, ...]:
        """The full names of all topics of submissions, the common one first."""
        return (self.submissions(), *(self.submissions(tenant) for tenant in sorted(self.own_topics)))

    def _topic_of(self, event: Event) -> str:
        if event.topic != "submissions" or not self.own_topics:
            return f"{self.namespace}.{event.topic}"
        tenant = tenant_of(event)
        return self.submissions(tenant if tenant in self.own_topics else None)

    def _partition(self, event: Event) -> int | None:
        if event.topic == "submissions":
            return None
        cell = event.home()
        return min(self.ordinals.values()) if cell is None else self.ordinals[cell]


def tenant_of(event: Event) -> str | None:
    """The tenant in whose name a submission speaks; None of what is no submission."""
    if isinstance(event, SubmitJob):
        return event.job.tenant
    return event.tenant if isinstance(event, CancelJob | UpdateJob) else None


@lru_cache(maxsize=64)
def _source(source: str) -> tuple[str, bytes]:
    return ("ce_source", source.encode())


@lru_cache(maxsize=128)
def _type(type_: str) -> tuple[str, bytes]:
    return (TYPE_HEADER, type_.encode())
