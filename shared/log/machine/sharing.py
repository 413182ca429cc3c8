"""How a group shares the partitions of one topic: round robin over its members, past those that decline a partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def share(partitions: Collection[int], declined: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
    """The partitions of each member. `declined` names every member, and what it does not take.

    A partition that all members decline belongs to none of them.
    """
    members = sorted(declined)
    shares: dict[str, list[int]] = {member: [] for member in members}
    position = 0
    for partition in sorted(partitions):
        for step in range(len(members)):
            member = members[(position + step) % len(members)]
            if partition not in declined[member]:
                shares[member].append(partition)
                position += step + 1
                break
    return shares


def as_bytes(declined: Collection[int]) -> bytes:
    """What a member declines, as it tells the group."""
    return b",".join(b"%d" % partition for partition in sorted(declined))


def from_bytes(told: bytes | None) -> frozenset[int]:
    """What a member has told. A member that tells something else declines nothing."""
    parts = (told or b"").split(b",")
    return frozenset(int(part) for part in parts if part.isdigit() and len(part) < len("1000000000"))
