"""Commits of topics that are gone: aiokafka tries them again without end.

While it does, the group cannot rearrange itself, so that no topic of it is read. And where a topic of that name is made
meanwhile, what was handled of the old one is committed of the new one, whose records then count as lost.
"""

from __future__ import annotations

from typing import Any

from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.protocol.commit import OffsetCommitRequest


class TopicsGone(Exception):
    """The broker does not have these topics, or not the partitions of theirs that the commit names."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__(f"Kafka does not have what was read of {', '.join(topics)}")


class CommittingClient:
    """aiokafka's client, as its coordinator uses it. A commit that names a topic that is gone raises TopicsGone, which
    the coordinator passes on since it is none of Kafka's errors.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """As aiokafka's."""
        response: Any = await self._client.send(node_id, request, **options)
        if isinstance(request, OffsetCommitRequest):
            codes = [(topic, code) for topic, partitions in response.topics for _, code in partitions]
            gone = sorted({topic for topic, code in codes if code == UnknownTopicOrPartitionError.errno})
            if gone:
                raise TopicsGone(gone)
        return response
