"""A node, its devices as bit masks, and what is free on it.

Device number i is bit i of a mask. Masks are integers, so a copy costs nothing and to undo is to put the old one back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from fallow.shared.events.fields.values import GPU, LoanStatus, NodeRole, NodeSpec, NodeStatus, WorkerPlace

ZONE_LABEL, ZONE_NAME = "zone", "inference"
"""A node with this label belongs to the inference zone whatever its role."""

# To look up a member of an enumeration costs more than most of what is done with it here.
_INFERENCE = NodeRole.INFERENCE
_READY, _LOST, _GOING_HOME = NodeStatus.READY, NodeStatus.LOST, LoanStatus.DRAINING


@lru_cache(maxsize=4096)
def mask_of(devices: tuple[int, ...]) -> int:
    """The mask with these bits. The same few tuples come again and again."""
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


def bits(mask: int) -> list[int]:
    """The numbers of a mask's bits, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The numbers of the lowest `count` bits of a mask, or all where there are fewer."""
    found: list[int] = []
    while mask and len(found) < count:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def lowest_of(mask: int, count: int) -> int:
    """The lowest `count` bits of a mask, as a mask, or all where there are fewer."""
    if count >= mask.bit_count():
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


class NodeShare(NamedTuple):
    """What one node adds to its pool's capacity. A tuple, because one is made and compared for each that changed."""

    free: int | None
    shares: tuple[int, ...]
    fragmented: int
    usable: int
    gpus_milli: int
    allocated_milli: int
    tainted: int = 0
    zoned: int = 0
    idle_milli: int = 0


NOTHING = NodeShare(None, (), 0, 0, 0, 0)
"""The share of a node that is not there."""


@dataclass(slots=True)
class Node:
    """A node. `held` are devices held whole; `shares` the milli-GPUs free on each shared device; `failed` the
    unusable ones. `wanted` is the status that a lost node returns to; what it said with numbers up to `seq` is
    past. `alone` is the exclusive job that keeps all others off. `silent_wall_ms` is for how long nothing was heard
    of it, when that was last put down, at `silence_noted_ms` of cell time; 0: it speaks. Losses were held back for
    `held_from_wall_ms` when this one's lease ran out. `lost_ms` is when it was lost, `lost_alone` whether for its
    silence while few others were silent, `offered` what it has become while it is still held as what it was.
    `is_full` says that too much was started here that is not confirmed yet: it follows from the jobs.
    `room` are devices that are held for waiting jobs for which others yield, whoever uses them still, `cpu_room` and
    `memory_room` what is held with them: this follows from the state's `rooms`.
    `maintenance_ms` is from when to when work on it is planned, or goes on. `failed_jobs` failed here in a row,
    those of `failed_tenants` at `failed_ms`, some by its own fault (`failed_by_node`); `flaps` is how often in a row it
    was lost, and before `rests_until_ms` it gets no new work when it comes back.
    """

    spec: NodeSpec
    boot: str
    status: NodeStatus
    held: int = 0
    shares: dict[int, int] = field(default_factory=dict)
    failed: int = 0
    cpu_used: int = 0
    memory_used: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    loan: str | None = None
    loan_status: LoanStatus = LoanStatus.HOME
    lent_to: str | None = None
    loan_deadline_ms: int | None = None
    drain_deadline_ms: int | None = None
    reason: str = ""
    wanted: NodeStatus = NodeStatus.READY
    seq: int = 0
    maintenance_ms: tuple[int, int] | None = None
    maintenance_why: str = ""
    in_maintenance: bool = False
    silent_wall_ms: int = 0
    silence_noted_ms: int = 0
    held_from_wall_ms: int = 0
    lost_ms: int | None = None
    lost_alone: bool = False
    offered: NodeSpec | None = None
    quarantined: bool = False
    quarantined_until_ms: int | None = None
    failed_jobs: tuple[str, ...] = ()
    failed_tenants: tuple[str, ...] = ()
    failed_ms: tuple[int, ...] = ()
    failed_by_node: tuple[bool, ...] = ()
    flaps: int = 0
    rests_until_ms: int = 0
    is_full: bool = field(default=False, compare=False)
    room: int = field(default=0, compare=False)
    cpu_room: int = field(default=0, compare=False)
    memory_room: int = field(default=0, compare=False)
    alone: str | None = None

    @property
    def id(self) -> str:
        """The node's id."""
        return self.spec.id

    @property
    def pool(self) -> str:
        """The pool in which the node works now: while it is lent, the borrower's."""
        return self.lent_to or self.spec.pool

    @property
    def all_devices(self) -> int:
        """The mask of every device."""
        return (1 << self.spec.gpus) - 1

    @property
    def free(self) -> int:
        """The mask of devices that are healthy, wholly free and held for no waiting job."""
        free = (1 << self.spec.gpus) - 1 & ~(self.held | self.failed | self.room)
        return free & ~mask_of(tuple(self.shares)) if self.shares else free

    @property
    def gpus_free(self) -> int:
        """How many devices are healthy, wholly free and held for no waiting job."""
        return self.free.bit_count()

    @property
    def closed(self) -> int:
        """The mask of devices of which nothing new may have a part: they failed, or are held for a waiting job."""
        return self.failed | self.room

    @property
    def cpu_free(self) -> int:
        """Milli-CPUs that new work may have; below zero while victims still use what is held for another job."""
        return self.spec.cpu_milli - self.cpu_used - self.cpu_room

    @property
    def memory_free(self) -> int:
        """The same of memory, in MiB."""
        return self.spec.memory_mib - self.memory_used - self.memory_room

    @property
    def is_used(self) -> bool:
        """Whether a job holds a place here, or room is held for one."""
        return bool(self.jobs or self.room)

    @property
    def is_in_service(self) -> bool:
        """Whether new work is wanted here: it is ready, and not on its way home."""
        return self.status is NodeStatus.READY and self.loan_status is not LoanStatus.DRAINING

    @property
    def takes_work(self) -> bool:
        """Whether new work may come here: what is free on other nodes is of no use."""
        return takes_work(self.status, self.loan_status, self.silent_wall_ms)

    @property
    def is_to_be_emptied(self) -> bool:
        """Whether replicas here are to move to other nodes: the node drains, or it is wanted and could take new work if
        what it was before was free.
        """
        return self.status is NodeStatus.DRAINING or (self.status is NodeStatus.READY and self.offered is not None)

    @property
    def is_out_for_maintenance(self) -> bool:
        """Whether its maintenance goes on and nobody has opened it again meanwhile."""
        return self.in_maintenance and self.status is not NodeStatus.READY

    @property
    def is_schedulable(self) -> bool:
        """Whether new work may be placed here now."""
        return (
            not self.is_full
            and self.status is _READY  # not by `takes_work`: this is asked for every node and start
            and self.loan_status is not _GOING_HOME
            and not self.silent_wall_ms
            and self.offered is None
        )

    @property
    def allocated_milli(self) -> int:
        """Milli-GPUs in use."""
        whole = self.held.bit_count() * GPU
        return whole + sum(GPU - free for free in self.shares.values()) if self.shares else whole

    @property
    def idle_milli(self) -> int:
        """Milli-GPUs of healthy devices that nobody uses. Not the healthy ones less those in use: a worker runs on
        where its device has failed.
        """
        whole = self.free.bit_count() * GPU
        return whole + sum(free for each, free in self.shares.items() if not self.closed >> each & 1)

    def refusal(self, place: WorkerPlace, wanted: int) -> str | None:
        """Why this place, whose devices are the mask `wanted`, cannot be taken here now, or None if it can."""
        spec, gpu_milli, devices = self.spec, place.gpu_milli, place.devices
        if place.cpu_milli and place.cpu_milli > self.cpu_free:
            return f"needs {place.cpu_milli} milli-CPUs, {self.cpu_free} are free"
        if place.memory_mib and place.memory_mib > self.memory_free:
            return f"needs {place.memory_mib} MiB, {self.memory_free} are free"
        if gpu_milli < GPU:
            return self._share_refusal(place)
        if len(devices) * GPU != gpu_milli or wanted.bit_count() != len(devices):
            return f"{gpu_milli} milli-GPUs are not {len(devices)} whole devices"
        if not wanted & (self.held | self.failed | self.room) and not self.shares and not wanted >> spec.gpus:
            return None
        taken = wanted & ~self.free
        return f"device {bits(taken)[0]} is not free" if taken else None

    def _share_refusal(self, place: WorkerPlace) -> str | None:
        if not place.gpu_milli and not place.devices:
            return None
        if len(place.devices) != 1 or not place.gpu_milli:
            return f"a share of {place.gpu_milli} milli-GPUs sits on one device, not on {len(place.devices)}"
        device = place.devices[0]
        if device in self.shares:
            free = 0 if self.closed >> device & 1 else self.shares[device]
        else:
            free = GPU if self.free >> device & 1 else 0
        return f"device {device} has {free} milli-GPUs free" if place.gpu_milli > free else None


def takes_work(status: NodeStatus, loan_status: LoanStatus, silent_wall_ms: int) -> bool:
    """Whether a node that is so takes new work at all: it is ready, not on its way home, and speaks."""
    return status is NodeStatus.READY and loan_status is not LoanStatus.DRAINING and not silent_wall_ms


def share_of(node: Node) -> NodeShare:
    """What the node adds now. A node is fragmented while some but not all of its healthy devices are in use (Kant's
    GFR). One that a job holds alone has nothing free, as if it was full.
    """
    spec = node.spec
    zoned = int(is_in_zone(node)) if spec.labels or spec.role is _INFERENCE else 0
    if (
        not node.shares
        and not node.failed
        and not node.room
        and node.alone is None
        and not spec.taints
        and node.is_schedulable
    ):
        return _share_of_whole(spec.gpus, node.held.bit_count(), zoned)
    allocated, tainted = node.allocated_milli, int(bool(spec.taints))
    if node.status is NodeStatus.LOST:
        return NodeShare(None, (), 0, 0, 0, allocated, tainted, zoned)
    healthy = node.all_devices & ~node.failed
    gpus_milli = healthy.bit_count() * GPU
    fragmented, usable = int(0 < allocated < gpus_milli), int(gpus_milli > 0)
    if not node.is_schedulable:
        return NodeShare(None, (), fragmented, usable, gpus_milli, allocated, tainted, zoned, node.idle_milli)
    free, shares = (node.gpus_free, _free_shares(node)) if node.alone is None else (0, ())
    return NodeShare(free, shares, fragmented, usable, gpus_milli, allocated, tainted, zoned, node.idle_milli)


def is_in_zone(node: Node) -> bool:
    """Whether the node is kept for services: the inference zone (Kant 3.3.4). One that is lent to another pool works
    there like any other.
    """
    spec = node.spec
    if spec.role is not _INFERENCE and not (spec.labels and spec.labels.get(ZONE_LABEL) == ZONE_NAME):
        return False
    return node.lent_to is None


@lru_cache(maxsize=4096)
def _share_of_whole(gpus: int, held: int, zoned: int) -> NodeShare:
    """The share of a healthy node none of whose devices is shared: nearly every node, and of few forms."""
    free, is_fragmented = gpus - held, 0 < held < gpus
    return NodeShare(free, (), int(is_fragmented), int(gpus > 0), gpus * GPU, held * GPU, 0, zoned, free * GPU)


def _free_shares(node: Node) -> tuple[int, ...]:
    return tuple(sorted({free for device, free in node.shares.items() if free and not node.closed >> device & 1}))
