"""The assignor of our groups: Kafka's round robin, past the members that decline a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
        self.kept: frozenset[int] = frozenset()
        self._known: frozenset[int] = frozenset()

    def note(self, partitions: Collection[int] | None) -> None:
        """What the topic has now. Any member may be asked to share it next, so each notes it all the time."""
        self._known = frozenset(partitions or self._known)

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member tells the group when it joins."""
        return ConsumerProtocolMemberMetadata(self.version, list(topics), as_bytes(self.declined))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Who gets what. The group's leader is asked; the members of our groups all read one topic. While that is away,
        they share what it had: told beside the partitions, since aiokafka would ask for these without a pause.
        """
        topics = sorted({topic for metadata in members.values() for topic in metadata.subscription})
        declined = {member: from_bytes(metadata.user_data) for member, metadata in members.items()}
        shares = {topic: share(cluster.partitions_for_topic(topic) or (), declined) for topic in topics}
        is_away = not any(cluster.partitions_for_topic(topic) for topic in topics)
        kept = share(self._known if is_away else (), declined)
        return {
            member: ConsumerProtocolMemberAssignment(
                self.version,
                [(topic, shares[topic][member]) for topic in topics if shares[topic][member]],
                as_bytes(kept[member]),
            )
            for member in members
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """What this member was told, before its listener is."""
        self.kept = from_bytes(assignment.user_data)
