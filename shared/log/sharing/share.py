"""What a process needs of topics that it shares with its replicas: its partitions, what comes in them, and how far the
group has come.

Two implementations: `kafka_sharing.KafkaShare`, which FastStream drives, and the fault world's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from fallow.shared.log.machine.losses import Place
from fallow.shared.log.port import Record, TopicPartition

Batches = Mapping[TopicPartition, list[Record]]


class CommitFailed(Exception):
    """No proof that the offsets are committed: the partitions may be another's, or the log is away."""


class Share(Protocol):
    """The part of a group's partitions that this process should handle. A hint, not a fence: the process that had a
    partition before may still be at work on it.

    Each partition of a new share is read from the offset that the group has committed, or from its beginning where the
    group has never committed any.
    """

    @property
    def generation(self) -> int:
        """Another number for each share that this process is given, also for one of the same partitions."""

    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions of the newest share."""

    async def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        """How far the group has come in these, where it has ever said so. Raises LogUnavailable, or LogRefused where a
        right is missing for one of their topics.
        """

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on with `offset` at the next poll. No effect on a partition that is not assigned."""

    def hold(self, tp: TopicPartition) -> None:
        """Read no more of this partition until the next share."""

    def release(self, tp: TopicPartition, offset: int) -> None:
        """Read this partition again, from `offset` on, after `hold`. No effect on one that is not assigned."""

    async def poll(self, most: int) -> Batches:
        """Return what is there, `most` records or a few more; wait a while when there is nothing.

        The order is kept within each partition. Raises LogTruncated when a position is not in the log,
        UnreadableRecords when what stands there cannot be read, also after some tries. Nothing comes while the group
        rearranges itself, and while the log is away.
        """

    async def commit(self, places: Mapping[TopicPartition, Place]) -> None:
        """Say how far the group has come in these: from there the next owner goes on. Raises CommitFailed.

        What was handled of a topic that is gone counts no more: the topic is left out, or the commit fails at once. No
        commit waits for a topic to be made anew.
        """


class Subscription(Protocol):
    """A share of some topics, as long as it is wanted. It hands what comes to a Delivery, one batch at a time."""

    async def start(self) -> None:
        """Join the group. Raises LogUnavailable."""

    async def stop(self) -> None:
        """Leave the group; what was handled is committed first. May be called twice."""
