"""What is free on a node, as the score of fragmentation sees it, and where on it a worker would sit."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.services.placement.policy.frag_aware.demand import ResourceRequest
from fallow.services.placement.policy.frag_aware.fragmentation import QUANTUM, Losses
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.fields.values import GPU

Look = tuple[int, int, tuple[int, ...], str, int, int, int]
"""CPU, memory, the parts free on shared devices, the GPU type; then the devices, CPU and memory that it has in all.
What is whole follows from the room.
"""


@dataclass(slots=True)
class Seats:
    """`whole` devices are free, of others these parts, in rising order; `gpu_milli` in all. `stranded` is the loss for
    want of CPUs and memory. `look` is all that tells the node from others of its kind but its name.
    """

    losses: Losses
    gpu_type: str
    whole: int
    parts: tuple[int, ...]
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    stranded: int
    look: Look

    @classmethod
    def of(cls, node: Node, losses: Losses) -> Seats | None:
        """What is free there for new work; None where there may be none."""
        if not node.is_schedulable or node.alone is not None:
            return None
        spec, whole = node.spec, node.gpus_free
        parts: tuple[int, ...] = ()
        if node.shares:
            parts = tuple(sorted([free for at, free in node.shares.items() if free and not node.closed >> at & 1]))
        milli = whole * GPU + sum(parts)
        cpu, memory = node.cpu_free, node.memory_free
        stranded = losses.stranded(milli, cpu, memory)
        look = (cpu, memory, parts, spec.gpu_type, spec.gpus, spec.cpu_milli, spec.memory_mib)
        return cls(losses, spec.gpu_type, whole, parts, milli, cpu, memory, stranded, look)

    def cost(self, ask: ResourceRequest) -> int | None:
        """The loss that a worker would add, in whole quanta, with the room that would be left behind it; None where it
        does not fit. The least is the best.
        """
        cpu, memory = self.cpu_milli - ask.cpu_milli, self.memory_mib - ask.memory_mib
        if cpu < 0 or memory < 0 or ask.gpu_type not in (None, self.gpu_type):
            return None
        milli, losses = ask.gpu_milli, self.losses
        if not milli:
            more = 0
        elif milli < GPU:
            found = self.rest_of(milli)
            if found is None:
                return None
            more = found[0]
        else:
            left = self.whole - milli // GPU
            if left < 0:
                return None
            more = losses.broken(left) - losses.broken(self.whole)
        room = self.gpu_milli - milli
        more += losses.stranded(room, cpu, memory) - self.stranded + milli * losses.wanted
        return (more // QUANTUM << ROOM_BITS) + room

    def rest_of(self, milli: int) -> tuple[int, int] | None:
        """The least loss by rests with which a share finds a device, and how much is free on that one; the fullest of
        equals. None where no device has room.
        """
        losses, best = self.losses, None
        rest, before = losses.rest, 0
        for part in self.parts:
            if part >= milli and part != before:
                before = part
                more = rest[part - milli] - rest[part]
                if best is None or more < best[0]:
                    best = more, part
        if self.whole:
            more = rest[GPU - milli] + losses.broken(self.whole - 1) - losses.broken(self.whole)
            if best is None or more < best[0]:
                best = more, GPU
        return best


ROOM_BITS = 27
"""The room of a node with the most devices that a node may have fits into so many bits."""
