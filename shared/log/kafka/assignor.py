"""The assignor of our groups: Kafka's round robin, past the members that decline a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from fallow.shared.log.machine.sharing import as_bytes, from_bytes, share


class DecliningAssignor(RoundRobinPartitionAssignor):  # type: ignore[misc]  # aiokafka ships no types
    """One member's: an object, where aiokafka's own are classes, since what is declined differs between members.

    It keeps the name of Kafka's: the members of a group that is being updated must have one in common.
    """

    def __init__(self) -> None:
        self.declined: frozenset[int] = frozenset()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member tells the group when it joins."""
        return ConsumerProtocolMemberMetadata(self.version, list(topics), as_bytes(self.declined))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Who gets what. The group's leader is asked; the members of our groups all read one topic."""
        topics = sorted({topic for metadata in members.values() for topic in metadata.subscription})
        declined = {member: from_bytes(metadata.user_data) for member, metadata in members.items()}
        shares = {topic: share(cluster.partitions_for_topic(topic) or (), declined) for topic in topics}
        return {
            member: ConsumerProtocolMemberAssignment(
                self.version, [(topic, shares[topic][member]) for topic in topics if shares[topic][member]], b""
            )
            for member in members
        }
