"""The values that several records share: jobs as submitted, resources, nodes, where a worker runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import force_setattr
from pydantic import AfterValidator, StringConstraints

from fallow.shared.events.base import (
    CONTROL_CHARACTERS,
    LARGEST_INTEGER,
    LINE_PATTERN,
    Count,
    JobId,
    Label,
    Millis,
    Name,
    NodeId,
    Text,
    Value,
)
from fallow.shared.events.value import WrongField, told_of

GPU = 1000
"""One whole GPU in milli-GPUs."""

LABELS_MOST, TAINTS_MOST = 256, 64
"""So many labels and taints a node may have that joins. Readers of decisions take more: earlier nodes may have them."""

WORKERS_MOST = 100_000
AFTER_MOST, ARRAY_MOST, POOLS_MOST = 100, 1_000, 32
BACKOFF_MS, BACKOFF_MOST_MS = 10_000, 600_000

DEVICES_MOST = 4_096
"""So many GPUs a node has at most: hundreds of times what machines have. The devices of a node are the bits of one
number, which the snapshots hold in decimal digits, and Python reads no number of more than 4,300 of them.
"""

Device = Annotated[int, Meta(ge=0, lt=DEVICES_MOST)]
"""A device's number on its node. Bounded, because it becomes a bit of a mask."""

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"

HANDED_PATTERN = rf"^(?:[^{CONTROL_CHARACTERS}]|[\t\n])*$"

VALUE_CHARACTERS_MOST, VARIABLE_CHARACTERS_MOST, FOLDER_CHARACTERS_MOST = 130_000, 1_000, 4_095
"""What Linux takes is 131,071 bytes of a variable with its name, and 4,095 of a path. A log may hold longer ones, which
earlier releases took: so these bind where a job is asked for alone.
"""

Handed = Annotated[str, StringConstraints(pattern=HANDED_PATTERN, max_length=VALUE_CHARACTERS_MOST)]
"""What a process is handed in a variable. As arguments, scripts for `sh -c` have lines and tabs; no other control
character is text, and NUL would end it for the kernel.
"""

VARIABLE_PATTERN = rf"^[^{CONTROL_CHARACTERS}\u2028\u2029=]+$"

Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN, max_length=VARIABLE_CHARACTERS_MOST)]
"""The name of an environment variable: it ends at the first `=`."""

Folder = Annotated[str, StringConstraints(pattern=LINE_PATTERN, max_length=FOLDER_CHARACTERS_MOST)]
"""The path of a folder on the machines."""

LabelRule = Annotated[
    str,
    Meta(max_length=500),
    StringConstraints(pattern=rf"^(?:!{_LABEL}|{_LABEL}(?:!?={_LABEL}(?:\|{_LABEL})*)?)$", max_length=500),
]
"""What a node's labels must be: `zone=a`, `zone=a|b` (one of these), `zone!=a|b` (none of these, or no zone at all),
`zone` (any), `!zone` (none).
"""


class JobKind(StrEnum):
    """What a job is for: training ends by itself, inference runs until it is cancelled."""

    TRAINING = "training"
    INFERENCE = "inference"


class NodeRole(StrEnum):
    """Which side of the house a node belongs to; an inference node may be lent to training."""

    TRAINING = "training"
    INFERENCE = "inference"


class Level(StrEnum):
    """The levels of the network, from near to far (Kant 3.3.5)."""

    NODE = "node"
    DOMAIN = "domain"
    LEAF = "leaf"
    SPINE = "spine"
    SUPERSPINE = "superspine"


class Wish(StrEnum):
    """How much a topology wish binds."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class TopologyRequest(Value):
    """All workers within one unit of `level`; with `slice_workers`, each slice of so many workers within one."""

    level: Level
    wish: Wish = Wish.PREFERRED
    slice_workers: Annotated[int, Meta(ge=1, le=WORKERS_MOST)] | None = None


class Resources(Value):
    """What one worker needs. Below 1000 milli-GPUs it shares one device, else it takes whole devices."""

    gpu_milli: Annotated[int, Meta(ge=1, le=DEVICES_MOST * GPU)] = GPU
    cpu_milli: Count = 0
    memory_mib: Count = 0

    def __post_init__(self) -> None:
        if self.gpu_milli == GPU:
            force_setattr(self, "gpu_milli", GPU)  # the default itself, which is left out when it is written
        self.check()

    def check(self) -> None:
        """A share sits on one device."""
        if self.gpu_milli > GPU and self.gpu_milli % GPU:
            rule = "above 1000 must be a multiple of 1000: a share sits on one device"
            raise WrongField("gpu_milli", self.gpu_milli, rule)


class VirtualRun(Value, tag_field="driver", tag="virtual"):
    """A run that only takes time: for replays, demos and tests.

    `duration_ms` None runs without end. With `fail_at_ms` an attempt fails that long after its start;
    `fail_attempts` limits this to the first so many attempts (None: all).
    """

    driver: ClassVar[str] = "virtual"
    duration_ms: Millis | None = None
    fail_at_ms: Millis | None = None
    fail_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None


def _names_a_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    if argv and not argv[0]:
        raise told_of(0, argv[0], "must name a program")
    return argv


class ProcessRun(Value, tag_field="driver", tag="process"):
    """A run of real processes, one per worker."""

    driver: ClassVar[str] = "process"
    argv: Annotated[
        tuple[Annotated[str, Meta(max_length=8192), StringConstraints(pattern=HANDED_PATTERN)], ...],
        Meta(min_length=1, max_length=1000),
        AfterValidator(_names_a_program),
    ]
    env: dict[Variable, Handed] = {}
    dir: Folder | None = None
    checkpoint_dir: Folder | None = None


Run = VirtualRun | ProcessRun


class AfterWhen(StrEnum):
    """Which end of a job lets those that wait for it go on: a good one, or whichever it comes to."""

    OK = "ok"
    ANY = "any"


class Dependency(Value):
    """A job waits until this one is over. Of an array that means all of its elements."""

    job: JobId
    when: AfterWhen = AfterWhen.OK


class RetryPolicy(Value):
    """How often a failed job is tried again. A loss by infrastructure does not count against the budget.

    What no budget ends (a service's replicas, losses) pauses for a second at least, and for up to 10 s when it ends
    again and again, whatever stands here.
    """

    budget: Annotated[int, Meta(ge=0, le=1000)] = 0
    backoff_ms: Millis = BACKOFF_MS
    backoff_max_ms: Millis = BACKOFF_MOST_MS

    def __post_init__(self) -> None:
        # The defaults themselves, which are left out when it is written.
        if self.backoff_ms == BACKOFF_MS:
            force_setattr(self, "backoff_ms", BACKOFF_MS)
        if self.backoff_max_ms == BACKOFF_MOST_MS:
            force_setattr(self, "backoff_max_ms", BACKOFF_MOST_MS)


ONE_GPU, ENDLESS, NO_RETRY = Resources(), VirtualRun(), RetryPolicy()


class JobSpec(Value):
    """A job as its submitter wants it. Policies never look into `run`.

    `workers` is the wanted number; `workers_min` the fewest it can run with (None: exactly `workers`, a rigid job).
    `pools` are tried in their order; none means every pool that the tenant may use. `scaling` is the speed with 1, 2,
    ... workers in thousandths of the speed with one. A node must keep all of `node_labels`, and each of its taints must
    be one of `tolerations`. The nodes of an `exclusive` job run nothing else while it holds them.

    Its tenant names it, and those of `after`, by their ids alone or as `TENANT/ID`, and names no other tenant's;
    admission writes them in full.

    It starts at `not_before_ms` of cell time at the earliest, and when all of `after` are over as each of them says.
    With `array` it is submitted so many times, as elements `ID.0`, `ID.1`, ..., of which `array_max_running` at most
    run at once. `array_of` and `array_index` tell which element it is: the cell sets them. No id that a submission
    gives ends in a dot and a number: only elements are named so.
    """

    id: JobId
    tenant: Name
    kind: JobKind = JobKind.TRAINING
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    queue: Name | None = None
    cell: Name | None = None
    pools: Annotated[tuple[Name, ...], Meta(max_length=POOLS_MOST)] = ()
    gpu_type: Label | None = None
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MOST)] = 1
    workers_min: Annotated[int, Meta(ge=1, le=WORKERS_MOST)] | None = None
    resources: Resources = ONE_GPU
    gang: bool = True
    topology: TopologyRequest | None = None
    spread: Level | None = None
    run: Run = ENDLESS
    preemptible: bool = True
    checkpoint_interval_ms: Millis | None = None
    max_run_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None = None
    estimate_run_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None = None
    min_run_ms: Millis = 0
    fungible: bool = False
    heterogeneous: bool = False
    scaling: Annotated[tuple[Count, ...], Meta(max_length=4096)] = ()
    retry: RetryPolicy = NO_RETRY
    hold: bool = False
    not_before_ms: Millis | None = None
    after: Annotated[tuple[Dependency, ...], Meta(max_length=AFTER_MOST)] = ()
    array: Annotated[int, Meta(ge=1, le=ARRAY_MOST)] | None = None
    array_max_running: Annotated[int, Meta(ge=1, le=ARRAY_MOST)] | None = None
    array_of: JobId | None = None
    array_index: Annotated[int, Meta(ge=0, lt=ARRAY_MOST)] | None = None
    node_labels: Annotated[tuple[LabelRule, ...], Meta(max_length=32)] = ()
    tolerations: Annotated[tuple[Label, ...], Meta(max_length=32)] = ()
    exclusive: bool = False

    def __post_init__(self) -> None:
        # What equals a default becomes the default itself, which is left out when it is written.
        if self.resources is not ONE_GPU and self.resources == ONE_GPU:
            force_setattr(self, "resources", ONE_GPU)
        if self.run is not ENDLESS and self.run == ENDLESS:
            force_setattr(self, "run", ENDLESS)
        if self.retry is not NO_RETRY and self.retry == NO_RETRY:
            force_setattr(self, "retry", NO_RETRY)
        if self.workers_min is not None:
            self.check()

    def check(self) -> None:
        """The fewest workers are no more than those wanted."""
        if self.workers_min is not None and self.workers_min > self.workers:
            raise WrongField("workers_min", self.workers_min, f"must be at most workers, which is {self.workers}")

    @property
    def gpus_milli(self) -> int:
        """All workers' milli-GPUs together."""
        return self.workers * self.resources.gpu_milli


class WorkerPlace(Value):
    """Where one worker of an attempt runs, and what it holds there: `gpu_milli` is held in all, over `devices`.

    A worker that enters a running attempt is told from those of its rank before it by `turn`, the number of the
    resizing that added it, and began at `since_ms`; those that the attempt began with have neither.
    """

    rank: Count
    node: NodeId
    devices: tuple[Device, ...]
    gpu_milli: Count
    cpu_milli: Count = 0
    memory_mib: Count = 0
    turn: Count = 0
    since_ms: Millis = 0


class Setback(Value):
    """What went wrong of late with one rank of a job that is no gang: how often in a row its workers have failed, and
    how often they were lost by no fault of the job. No worker enters the rank before `until_ms`; 0: it does not wait.
    """

    rank: Count
    until_ms: Millis = 0
    failures: Count = 0
    losses: Count = 0


class WorkerRange(Value):
    """So many workers on one node, with consecutive ranks from `rank` on: each is a WorkerPlace of these fields, with
    its equal part of `devices` in their order.

    Only records hold it: it names a node once for all workers there. Every reader gets the workers one by one.
    """

    rank: Count
    node: NodeId
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MOST)] = 1
    devices: tuple[Device, ...]
    gpu_milli: Count
    cpu_milli: Count = 0
    memory_mib: Count = 0
    turn: Count = 0
    since_ms: Millis = 0

    def __post_init__(self) -> None:
        if self.workers > 1:
            self.check()

    def check(self) -> None:
        """Several workers have equal parts of the devices, and none has no device; the last rank is a number, too."""
        if self.rank + self.workers - 1 > LARGEST_INTEGER:
            raise ValueError(f"rank {self.rank} of {self.workers} workers is too large")
        if self.workers > 1 and (len(self.devices) < self.workers or len(self.devices) % self.workers):
            raise ValueError(f"{len(self.devices)} devices cannot be divided among {self.workers} workers")


class Position(Value):
    """Where a node sits in the network; a level without a name is not known."""

    domain: Label | None = None
    leaf: Label | None = None
    spine: Label | None = None
    superspine: Label | None = None


_NOWHERE = Position()


class NodeSpec(Value):
    """A node as it announces itself. Its devices are numbered from 0; `islands` are the sizes of consecutive NVLink
    islands, `nics` those of consecutive groups that share a network card. A taint keeps away new work that does not
    tolerate it, and leaves alone what runs there.
    """

    id: NodeId
    pool: Name
    gpu_type: Label = "gpu"
    gpus: Annotated[int, Meta(ge=0, le=DEVICES_MOST)]
    islands: tuple[Annotated[int, Meta(ge=1, le=DEVICES_MOST)], ...] = ()
    cpu_milli: Count = 0
    memory_mib: Count = 0
    position: Position = _NOWHERE
    labels: dict[Label, Label] = {}
    taints: tuple[Label, ...] = ()
    role: NodeRole = NodeRole.TRAINING
    nics: tuple[Annotated[int, Meta(ge=1, le=DEVICES_MOST)], ...] = ()

    def __post_init__(self) -> None:
        if self.position == _NOWHERE:
            force_setattr(self, "position", _NOWHERE)  # the default itself, which is left out when it is written
        self.check()

    def check(self) -> None:
        """Every device is on one island and at one network card, or these are not told."""
        if self.islands and sum(self.islands) != self.gpus:
            raise WrongField("islands", list(self.islands), f"must add up to gpus, which is {self.gpus}")
        if self.nics and sum(self.nics) != self.gpus:
            raise WrongField("nics", list(self.nics), f"must add up to gpus, which is {self.gpus}")


class NodeStatus(StrEnum):
    """What may happen on a node. Only a ready node gets new work."""

    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    LOST = "lost"


class LoanStatus(StrEnum):
    """Where a lendable node is in its loan."""

    HOME = "home"
    LENT = "lent"
    DRAINING = "draining"


class RunStatus(StrEnum):
    """What a node says of one run (the workers of one attempt on that node)."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


RUN_IS_OVER = frozenset({RunStatus.STOPPED, RunStatus.FINISHED, RunStatus.FAILED})


class ObservedRun(Value):
    """One run as its node sees it. `rank` and `turn` name the worker where each worker is a run of its own."""

    job: JobId
    attempt: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
    status: RunStatus
    exit_code: int | None = None
    text: Text = ""
    rank: Count | None = None
    turn: Count = 0
