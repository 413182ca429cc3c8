"""How far each group has come, as the coordinator of a simulated Kafka keeps it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from fallow.shared.log.machine.losses import Place
from fallow.simulator.history.record import TopicPartition

if TYPE_CHECKING:
    from fallow.simulator.process import Process

Owned = tuple[str, str, int]
"""A group, a topic and a partition."""


class Commits:
    """A commit counts when it comes from the life of the owner that has asked last where to begin: until another owner
    has, the one before may still say what it has handled.
    """

    def __init__(self, owns: Callable[[Process, int], bool]) -> None:
        """`owns` tells whether a partition is, for the coordinator, this process's: one that hears late that it is not
        any more may ask where to begin, and takes no right to commit by that.
        """
        self._owns = owns
        self._places: dict[Owned, Place] = {}
        self._begun: dict[Owned, tuple[str, int]] = {}

    def next_offset(self, group: str, tp: TopicPartition) -> int:
        """From where the group goes on."""
        place = self._places.get((group, *tp))
        return 0 if place is None else place.next_offset

    def begin(self, process: Process, tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        """Where this process is to begin, of those in which its group has ever committed anything."""
        places: dict[TopicPartition, Place] = {}
        for tp in tps:
            owned = (process.group, *tp)
            if self._owns(process, tp[1]):
                self._begun[owned] = process.life
            if owned in self._places:
                places[tp] = self._places[owned]
        return places

    def commit(self, group: str, life: tuple[str, int], places: Mapping[TopicPartition, Place]) -> bool:
        """Whether the coordinator takes all of these from this life of a process, which may be over since it sent
        them.
        """
        if any(self._begun.get((group, *tp)) != life for tp in places):
            return False
        for tp, place in places.items():
            self._places[group, *tp] = place
        return True
