"""Membership of a Kafka consumer group on a topic that no client reads: Kafka's own failure detector, used for election
only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Collection

from aiokafka import ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaTopicPartition

from fallow.shared.log.kafka.closing import close, start_or_close
from fallow.shared.log.kafka.connection import client_options, opening_bound_s
from fallow.shared.log.kafka.consumer import SteadyConsumer
from fallow.shared.log.kafka.groups.assignor import DecliningAssignor
from fallow.shared.log.kafka.groups.group_timers import METADATA_AGE_MS, GroupTimers
from fallow.shared.runtime.kafka_access import KafkaAccess, access_to

REBALANCE_TIMEOUT_MS = 5_000
"""How long the others wait for a member that does not come to a rebalance."""

JOIN_STEP_BOUND_S = 2.5
"""For each step of connecting and joining, as they stand in `opening_bound_s`: with SASL there are about twenty."""

POLL_MS = 200
RETRY_MS_MIN = 200
RETRY_MS_MAX = 2_000

logger = logging.getLogger(__name__)


class KafkaMember:
    """Owns what the group's coordinator says, and nothing while the group rearranges itself.

    A background task polls for as long as the member lives, so that Kafka never takes it for stuck; when the client
    gives up, the task makes a new one. A member that is cut off from Kafka learns of its loss only when it is back.
    While the topic is not there, the group shares the partitions that it had.
    """

    def __init__(self, kafka: str | KafkaAccess, client_id: str, group: str, topic: str, timers: GroupTimers) -> None:
        self._kafka = access_to(kafka)
        self._client_id = client_id
        self._group = group
        self._topic = topic
        self._timers = timers
        self._assignor = DecliningAssignor()
        self._owned: frozenset[int] = frozenset()
        self._change_count = 0
        self._seen_count = 0
        self._change = asyncio.Event()
        self._consumer: SteadyConsumer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join; the first partitions come a moment later, through `changed`."""
        self._consumer = await self._join()
        self._task = asyncio.create_task(self._take_part(), name=f"member of {self._group}")

    async def stop(self) -> None:
        """Leave the group, so that the others need not wait for the session to expire."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # Our own cancel.
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._leave()
        self.own(frozenset())

    def owned(self) -> frozenset[int]:
        """As the listener was last told."""
        return self._owned

    async def changed(self) -> frozenset[int]:
        """Meant for one waiter: a second one would take answers from the first."""
        while self._seen_count == self._change_count:
            self._change.clear()
            await self._change.wait()
        self._seen_count = self._change_count
        return self._owned

    def decline(self, partitions: frozenset[int]) -> None:
        """The group rearranges itself; until it has, `owned` still shows what was."""
        if partitions == self._assignor.declined:
            return
        self._assignor.declined = partitions
        if self._consumer is not None:
            # aiokafka has no public way to tell the group something new but to leave it.
            self._consumer._coordinator.request_rejoin()  # noqa: SLF001 - see above

    async def _join(self) -> SteadyConsumer:
        consumer = SteadyConsumer(
            **client_options(self._kafka),
            client_id=f"{self._client_id}-member",
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=self._timers.session_ms,
            heartbeat_interval_ms=self._timers.heartbeat_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            request_timeout_ms=REBALANCE_TIMEOUT_MS + 2_000,
            metadata_max_age_ms=METADATA_AGE_MS,
            partition_assignment_strategy=(self._assignor,),
        )
        consumer.subscribe([self._topic], listener=_Listener(self))
        bound_s = opening_bound_s(self._kafka, JOIN_STEP_BOUND_S)
        await start_or_close(consumer, bound_s, f"group {self._group} at {self._kafka}")
        return consumer

    async def _take_part(self) -> None:
        """Poll until cancelled; replace a consumer that fails, with back-off and jitter."""
        retry_ms = RETRY_MS_MIN
        while True:
            try:
                if self._consumer is None:
                    self._consumer = await self._join()
                self._assignor.note(self._consumer.partitions_for_topic(self._topic))
                # What stands in the topic says nothing: this only shows Kafka that the member is alive.
                await self._consumer.getmany(timeout_ms=POLL_MS)
                retry_ms = RETRY_MS_MIN
            except Exception as error:  # noqa: BLE001 - whatever the client breaks on, this process must have its share again
                logger.warning("membership of %s is interrupted: %r", self._group, error)
                self.own(frozenset())
                await self._leave()
                jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, guards no secret
                await asyncio.sleep(jitter * retry_ms / 1000)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    def assigned(self, partitions: frozenset[int]) -> None:
        """The share that the group gives, of a topic that is there or of one that was; the listener calls this."""
        self.own(partitions | self._assignor.kept)

    def own(self, partitions: frozenset[int]) -> None:
        """Take note of the new share; the listener calls this."""
        if partitions == self._owned:
            return
        self._owned = partitions
        self._change_count += 1
        self._change.set()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """Kafka rebalances eagerly here: all is revoked first, then the new share is assigned."""

    def __init__(self, member: KafkaMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Collection[KafkaTopicPartition]) -> None:  # noqa: ARG002
        self._member.own(frozenset())

    async def on_partitions_assigned(self, assigned: Collection[KafkaTopicPartition]) -> None:
        self._member.assigned(frozenset(tp.partition for tp in assigned))
