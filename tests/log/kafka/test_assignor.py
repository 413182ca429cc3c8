"""What the leader of a group gives its members, without any Kafka."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from aiokafka.cluster import ClusterMetadata

from fallow.shared.log.kafka.groups.assignor import DecliningAssignor

TOPIC = "t.submissions"


class Topic:
    """What the cluster tells of the one topic: its partitions, or None where it is away."""

    def __init__(self, partitions: Collection[int] | None) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> Collection[int] | None:
        assert topic == TOPIC
        return self._partitions


def declining(*declined: int) -> DecliningAssignor:
    """A member's, that does not take these."""
    member = DecliningAssignor()
    member.declined = frozenset(declined)
    return member


def assigned(
    leader: DecliningAssignor, partitions: Collection[int] | None, *others: DecliningAssignor
) -> tuple[list[list[int]], list[set[int]]]:
    """What each member gets while the topic has these partitions, and what it is told to keep; the leader's first."""
    members = {f"m{number}": each for number, each in enumerate((leader, *others))}
    told = {name: each.metadata([TOPIC]) for name, each in members.items()}
    given = leader.assign(cast("ClusterMetadata", Topic(partitions)), told)
    for name, each in members.items():
        each.on_assignment(given[name])
    shares = [[p for _, mine in given[name].assignment for p in mine] for name in members]
    return shares, [set(each.kept) for each in members.values()]


def test_of_a_topic_that_is_there_its_partitions_are_shared_and_none_is_kept() -> None:
    leader = declining()
    leader.note({0, 1, 2})
    assert assigned(leader, {0, 1, 2}, declining()) == ([[0, 2], [1]], [set(), set()])


def test_while_the_topic_is_away_its_members_keep_what_it_had_though_nothing_is_known_of_it_any_more() -> None:
    leader = declining()
    for known in ({0, 1, 2}, (), None):
        leader.note(known)
    assert assigned(leader, None, declining()) == ([[], []], [{0, 2}, {1}])


def test_what_a_member_declines_it_keeps_as_little_as_it_gets_it() -> None:
    leader = declining(0)
    leader.note({0, 1})
    assert assigned(leader, {0, 1}, declining(1)) == ([[1], [0]], [set(), set()])
    assert assigned(leader, None, declining(1)) == ([[], []], [{1}, {0}])


def test_of_a_topic_with_other_partitions_than_before_the_newest_are_kept() -> None:
    leader = declining()
    leader.note({0, 1, 2})
    leader.note({0})
    assert assigned(leader, None) == ([[]], [{0}])
