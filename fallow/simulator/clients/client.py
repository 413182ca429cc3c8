"""Those outside: tenants who send commands until they are confirmed, and an operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.log.layout import tenant_of
from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.log.port import LogUnavailable
from fallow.simulator.draws.workload import Item
from fallow.simulator.history.record import Submission
from fallow.simulator.history.rules.tenants.owners import STRANGERS_WORDS
from fallow.simulator.storage.broker import Message, message_of

if TYPE_CHECKING:
    from fallow.simulator.world import World

SUBMISSION_PARTITIONS = 3
AGAIN_MS = 700
TRIES_MAX = 8

STRANGER_EVERY = 4
"""Of so many commands of a tenant that has a topic of its own one is followed by a stranger's in its name."""


class Clients:
    """Sends each item when its time has come; a client that was told nothing sends the same once more."""

    def __init__(self, world: World, items: tuple[Item, ...]) -> None:
        self._world = world
        self.unconfirmed = 0
        for item in items:
            world.engine.at(item.at_ms, partial(self._send, item, 1))

    def _send(self, item: Item, number: int) -> None:
        event = item.event
        if event.topic != "submissions":
            self._world.broker.land(message_of(event, self._world.ordinal(event.home() or "")))
            return
        value, tenant = encode(event), tenant_of(event)
        partition = partition_of(event.key().encode(), SUBMISSION_PARTITIONS)
        has_own = tenant in self._world.first_file.own_topics
        if has_own and number == 1 and item.number % STRANGER_EVERY == 0:
            self._speak_in_the_name_of(str(tenant), _job_of(event))
        topic = f"submissions.{tenant}" if has_own else "submissions"
        message = Message(topic, partition, event.key(), event.type, None, value)
        sent_ms = self._world.engine.now_ms
        self.unconfirmed += 1

        def told(error: LogUnavailable | None) -> None:
            self.unconfirmed -= 1
            acked_ms = None if error is not None else self._world.engine.now_ms
            note = Submission(sent_ms, item.client, event.type, value, _job_of(event), acked_ms)
            self._world.history.submissions.append(note)
            if error is not None and number < TRIES_MAX:
                self.unconfirmed += 1
                self._world.engine.after(AGAIN_MS, lambda: self._again(item, number + 1))

        self._world.broker.publish(item.client, [message], told)

    def _speak_in_the_name_of(self, tenant: str, job: str) -> None:
        """A stranger cancels the tenant's job by the topic of which the tenant has no need."""
        cancel = CancelJob(job=job, tenant=tenant, reason=STRANGERS_WORDS)
        partition = partition_of(job.encode(), SUBMISSION_PARTITIONS)
        self._world.broker.land(Message("submissions", partition, job, cancel.type, None, encode(cancel)))

    def _again(self, item: Item, number: int) -> None:
        self.unconfirmed -= 1
        self._send(item, number)


def _job_of(event: Event) -> str:
    """The job that its tenant means: by an id that says not whose it is, one of its own."""
    assert isinstance(event, SubmitJob | CancelJob | UpdateJob), "what else is there for tenants to send"
    said = event.job if isinstance(event, SubmitJob) else event
    job = event.job.id if isinstance(event, SubmitJob) else event.job
    return job if "/" in job else f"{said.tenant}/{job}"
