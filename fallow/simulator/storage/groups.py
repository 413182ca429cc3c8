"""Which member is told to own what: the group protocol, as far as it matters. A hint, never a fence.

A member that is paused beyond its session is given up, and believes to own its share until it wakes and hears better. A
member that gains may be told before the one that loses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.simulator.network import BROKER
from fallow.simulator.process import Process
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.world import World

SESSION_MS = 1_500


class Groups:
    """All groups of a world. `owners` is what the coordinator believes."""

    def __init__(self, world: World, partitions: dict[str, int]) -> None:
        self._world, self._partitions = world, partitions
        self.members: dict[str, list[Process]] = {group: [] for group in partitions}
        self.owners: dict[tuple[str, int], Process | None] = {}
        self._tenures: dict[tuple[str, int], int] = {}
        self._known: dict[tuple[str, int], dict[int, int]] = {}
        self._turn = 0

    def joined(self, process: Process) -> None:
        """A process has started and asks for its share."""
        members = self.members[process.group]
        process.is_member = True
        if process not in members:
            members.append(process)
        self._world.engine.after(self._world.engine.between(20, 300), lambda: self.share(process.group))

    def left(self, process: Process) -> None:
        """A process is silent from now on: the others hear of it when its session is over."""
        self._world.engine.after(SESSION_MS, lambda: self.share(process.group))

    def leaves(self, process: Process) -> None:
        """A process says that it wants no share any more: the others hear of it soon."""
        process.is_member = False
        self._world.engine.after(self._world.engine.between(1, 40), lambda: self.share(process.group))

    def declines(self, process: Process, partitions: frozenset[int]) -> None:
        """A process wants none of these: others get them, or none where all decline."""
        process.declines = partitions
        self._world.engine.after(self._world.engine.between(20, 300), lambda: self.share(process.group))

    def share(self, group: str, *, anew: bool = False) -> None:
        """Give every partition to a member that lives; `anew` to another one than before, where there is one."""
        self._turn += anew
        living = [member for member in self.members[group] if member.is_member and self._is_heard(member)]
        shares: dict[str, set[int]] = {member.name: set() for member in self.members[group]}
        for partition in range(self._partitions[group]):
            willing = [member for member in living if partition not in member.declines]
            owner = willing[(partition + self._turn) % len(willing)] if willing else None
            if owner is not self.owners.get((group, partition)):
                self._tenures[group, partition] = self._tenures.get((group, partition), 0) + 1
            self.owners[group, partition] = owner
            if owner is not None:
                shares[owner.name].add(partition)
        for member in self.members[group]:
            if member.is_member:
                self._tell(member, frozenset(shares[member.name]))

    def _is_heard(self, member: Process) -> bool:
        return not member.is_paused and self._world.broker.network.reaches(member.name, BROKER)

    def _tell(self, member: Process, owned: frozenset[int]) -> None:
        """A process that loses partitions may hear of it late; a paused one hears of it when it wakes."""
        loses = not member.owned <= owned
        late = loses and self._world.faults.happens(Fault.REBALANCE, f"{member.name} hears late of its loss")
        delay_ms = self._world.engine.between(500, 3_000) if late else self._world.engine.between(1, 40)

        def tell() -> None:
            if not self._world.broker.network.reaches(member.name, BROKER):
                return  # it is told when it is heard again
            # The newest word counts, also when an older one comes later; what went and came back came back anew.
            mine = {p: self._tenures[g, p] for (g, p), o in self.owners.items() if g == member.group and o is member}
            if mine != self._known.get(member.life, {}):
                self._known[member.life] = mine
                member.told(frozenset(mine))

        member.after(delay_ms, tell)

    def owns(self, process: Process, partition: int) -> bool:
        """Whether the coordinator would take a commit from this process."""
        return self.owners.get((process.group, partition)) is process and process.is_up
