"""Those outside: tenants who send commands until they are confirmed, and an operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fallow.shared.events.base import Event
from fallow.shared.events.encoding import encode
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.log.port import LogUnavailable
from fallow.simulator.draws.workload import Item
from fallow.simulator.history.record import Submission
from fallow.simulator.storage.broker import Message, message_of

if TYPE_CHECKING:
    from fallow.simulator.world import World

SUBMISSION_PARTITIONS = 3
AGAIN_MS = 700
TRIES_MOST = 8


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
        value = encode(event)
        partition = partition_of(event.key().encode(), SUBMISSION_PARTITIONS)
        message = Message("submissions", partition, event.key(), event.type, None, value)
        sent_ms = self._world.engine.now_ms
        self.unconfirmed += 1

        def told(error: LogUnavailable | None) -> None:
            self.unconfirmed -= 1
            acked_ms = None if error is not None else self._world.engine.now_ms
            note = Submission(sent_ms, item.client, event.type, value, _job_of(event), acked_ms)
            self._world.history.submissions.append(note)
            if error is not None and number < TRIES_MOST:
                self.unconfirmed += 1
                self._world.engine.after(AGAIN_MS, lambda: self._again(item, number + 1))

        self._world.broker.publish(item.client, [message], told)

    def _again(self, item: Item, number: int) -> None:
        self.unconfirmed -= 1
        self._send(item, number)


def _job_of(event: Event) -> str:
    """The job that its tenant means: by an id that says not whose it is, one of its own."""
    assert isinstance(event, SubmitJob | CancelJob | UpdateJob), "what else is there for tenants to send"
    said = event.job if isinstance(event, SubmitJob) else event
    job = event.job.id if isinstance(event, SubmitJob) else event.job
    return job if "/" in job else f"{said.tenant}/{job}"
