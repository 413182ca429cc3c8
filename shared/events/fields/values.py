"""The values that several records share: jobs as submitted, resources, nodes, where a worker runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import force_setattr
from pydantic import AfterValidator, Field, StringConstraints

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
from fallow.shared.events.fields.value import WrongField, told_of

GPU = 1000
"""One whole GPU in milli-GPUs."""

LABELS_MAX, TAINTS_MAX = 256, 64
"""So many labels and taints a node may have that joins. Readers of decisions take more: earlier nodes may have them."""

WORKERS_MAX = 100_000
AFTER_MAX, ARRAY_MAX, POOLS_MAX = 100, 1_000, 32
BACKOFF_MS, BACKOFF_MAX_MS = 10_000, 600_000

DEVICES_MAX = 4_096
"""So many GPUs a node has at most: hundreds of times what machines have. The devices of a node are the bits of one
number, which the snapshots hold in decimal digits, and Python reads no number of more than 4,300 of them.
"""

Device = Annotated[int, Meta(ge=0, lt=DEVICES_MAX)]
"""A device's number on its node. Bounded, because it becomes a bit of a mask."""

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"

HANDED_PATTERN = rf"^(?:[^{CONTROL_CHARACTERS}]|[\t\n])*$"

VALUE_CHARACTERS_MAX, VARIABLE_CHARACTERS_MAX, FOLDER_CHARACTERS_MAX = 130_000, 1_000, 4_095
"""What Linux takes is 131,071 bytes of a variable with its name, and 4,095 of a path. A log may hold longer ones, which
earlier releases took: so these bind where a job is asked for alone.
"""

Handed = Annotated[str, StringConstraints(pattern=HANDED_PATTERN, max_length=VALUE_CHARACTERS_MAX)]
"""What a process is handed in a variable. As arguments, scripts for `sh -c` have lines and tabs; no other control
character is text, and NUL would end it for the kernel.
"""

VARIABLE_PATTERN = rf"^[^{CONTROL_CHARACTERS}\u2028\u2029=]+$"

Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN, max_length=VARIABLE_CHARACTERS_MAX)]
"""The name of an environment variable: it ends at the first `=`."""

Folder = Annotated[str, StringConstraints(pattern=LINE_PATTERN, max_length=FOLDER_CHARACTERS_MAX)]
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
    """The unit of the network within which all workers of a gang run. For jobs that are no gang `unsupported`."""
    wish: Wish = Wish.PREFERRED
    """`required`: the job waits for such a place. `preferred`: it takes the nearest place that there is."""
    slice_workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None
    """Only each slice of so many workers, by rank, runs within one unit. Without it all workers do."""


class Resources(Value):
    """What one worker needs. Below 1000 milli-GPUs it shares one device, else it takes whole devices."""

    gpu_milli: Annotated[int, Meta(ge=1, le=DEVICES_MAX * GPU)] = GPU
    """GPUs of each worker: 250 is a quarter of one GPU, 1000 is one GPU. Above 1000 it is a multiple of 1000."""
    cpu_milli: Count = 0
    """CPUs of each worker."""
    memory_mib: Count = 0
    """Memory of each worker."""

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
    """A run that only takes time: for replays, demos and tests."""

    driver: ClassVar[str] = "virtual"
    duration_ms: Millis | None = None
    """An attempt ends well after so long. Without it an attempt runs until the job is cancelled."""
    fail_at_ms: Millis | None = None
    """An attempt fails so long after its start. Without it no attempt fails."""
    fail_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Only the first so many attempts fail at `fail_at_ms`. Without it all attempts do."""


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
    """The program and its arguments. Of the control characters it may hold tab and newline."""
    env: dict[Variable, Handed] = {}
    """Variables that are added to the environment of each worker. A name has at most 1,000 characters, no control
    character and no `=`.
    """
    dir: Folder | None = None
    """The folder in which the workers run; a relative path counts from where the agent was started. Without it each
    worker has a folder of its own, where its output is.
    """
    checkpoint_dir: Folder | None = None
    """A folder that is made if it is missing and named to the workers. It is made by the user of the workers, where
    they have one of their own.
    """


Run = VirtualRun | ProcessRun


class AfterWhen(StrEnum):
    """Which end of a job lets those that wait for it go on: a good one, or whichever it comes to."""

    OK = "ok"
    ANY = "any"


class Dependency(Value):
    """A job waits until this one is over. Of an array that means all of its elements."""

    job: JobId
    """A job of the same tenant. The id of an array means all of its elements."""
    when: AfterWhen = AfterWhen.OK
    """`ok`: the other job must end well. `any`: any end will do."""


class RetryPolicy(Value):
    """How often a failed job is tried again. A loss by infrastructure does not count against the budget.

    What no budget ends (a service's replicas, losses) pauses for a second at least, and for up to 10 s when it ends
    again and again, whatever stands here.
    """

    budget: Annotated[int, Meta(ge=0, le=1000)] = 0
    """So many failures are tried again. Losses of nodes do not count."""
    backoff_ms: Millis = BACKOFF_MS
    """The pause before the first repeat. It doubles with each further failure."""
    backoff_max_ms: Millis = BACKOFF_MAX_MS
    """The longest pause."""

    def __post_init__(self) -> None:
        # The defaults themselves, which are left out when it is written.
        if self.backoff_ms == BACKOFF_MS:
            force_setattr(self, "backoff_ms", BACKOFF_MS)
        if self.backoff_max_ms == BACKOFF_MAX_MS:
            force_setattr(self, "backoff_max_ms", BACKOFF_MAX_MS)


ONE_GPU, ENDLESS, NO_RETRY = Resources(), VirtualRun(), RetryPolicy()


class JobSpec(Value):
    """A job as its submitter wants it. Policies never look into `run`.

    Its tenant names it, and those of `after`, by their ids alone or as `TENANT/ID`, and names no other tenant's;
    admission writes them in full.
    """

    id: JobId
    """The name of the job among the jobs of its tenant; the tenant may stand before it (`vision/train-7`). It does
    not end in a dot and a number (`llama-3.1`): only elements of arrays are named so. While the cell remembers a
    job (`finished_jobs_max`, `finished_jobs_ttl_ms`), another one of the same tenant and id is refused.
    """
    tenant: Name
    """The tenant that owns the job: its quotas, shares and limits apply."""
    kind: JobKind = JobKind.TRAINING
    """`training` ends by itself. `inference` is a service: its replicas (`workers`) start and stop one by one."""
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    """Jobs of higher priority go first in their queue. At most the `max_priority` of the tenant."""
    queue: Name | None = None
    """The queue of the cell in which the job waits. Without it the queue of the tenant, else the first one of the
    cell.
    """
    cell: Name | None = None
    """The cell that runs the job. Without it the cell that has the job's pools."""
    pools: Annotated[tuple[Name, ...], Meta(max_length=POOLS_MAX)] = ()
    """Only nodes of these pools, tried in this order. Without them the pools of the job's kind that the tenant may
    use (inference pools for services, else training pools), or all pools where there are none of that kind.
    """
    gpu_type: Label | None = None
    """Only nodes with GPUs of this type. Without it any type of the job's pools."""
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] = 1
    """How many workers the job has."""
    workers_min: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None
    """The smallest number of workers with which a job that is no gang starts (without it 1). For gangs
    `unsupported`.
    """
    resources: Resources = ONE_GPU
    """What each worker needs."""
    gang: bool = True
    """`true`: all workers start at once. `false`: workers start one by one as there is room. A service is never a
    gang.
    """
    topology: TopologyRequest | None = None
    """Where in the network the workers of a gang run together. Without it anywhere."""
    spread: Level | None = None
    """Replicas of a service are shared out over the units of this level. Without it they are packed. For training
    `unsupported`.
    """
    run: Run = ENDLESS
    """What the workers run: a `virtual` run, or a `process`. A pool takes one of the two. Without it a virtual run
    that ends when it is cancelled.
    """
    preemptible: bool = True
    """`false`: the job never borrows GPUs. It runs within the guarantee of its tenant or of the nearest parent that
    has one; where none of them has one, on GPUs that are guaranteed to no tenant.
    """
    checkpoint_interval_ms: Annotated[Millis, Field(ge=1)] | None = None
    """How often the job writes a checkpoint. Of jobs alike in all else the one that loses least since its last
    checkpoint yields first; one that names none counts as if it lost nothing.
    """
    max_run_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None = None
    """An attempt that runs longer is stopped, and the job fails with `run_time_limit`. Planned starts and
    maintenance count on it. At most the `max_run_ms` of the queue. Without it the `default_run_ms` of the queue, else
    its `max_run_ms`; where the queue has neither there is no limit.
    """
    estimate_run_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None = None
    """How long the job will probably run. Nothing is stopped by it; planned starts and maintenance count on it.
    Without it the run time is not known.
    """
    min_run_ms: Millis = 0
    """How long the job runs before it yields to another job of its tenant. Against others the quota says it."""
    fungible: bool = False
    """Whether the job may run on lent inference nodes. `unsupported` in this version."""
    heterogeneous: bool = False
    """Whether one gang may have GPUs of several types. `unsupported` in this version."""
    scaling: Annotated[tuple[Count, ...], Meta(max_length=4096)] = ()
    """The speed of an elastic job with 1, 2, ... workers, in thousandths of the speed with one. `unsupported` in
    this version.
    """
    retry: RetryPolicy = NO_RETRY
    """How often the job is tried again after a failure, and after which pause."""
    hold: bool = False
    """`true`: the job waits until `fallow job release`."""
    not_before_ms: Millis | None = None
    """The earliest cell time at which the job starts. Under `fallow up` and in containers cell time counts from
    1970: there a time before 1973 is rejected as one in seconds. At most `limits.not_before_ahead_ms` of the cell
    file (30 days) ahead. Without it the job starts as soon as it can.
    """
    after: Annotated[tuple[Dependency, ...], Meta(max_length=AFTER_MAX)] = ()
    """Jobs that must be over before this one starts."""
    array: Annotated[int, Meta(ge=1, le=ARRAY_MAX)] | None = None
    """The job is submitted so many times, as elements `ID.0`, `ID.1`, ... Without it the job is one job."""
    array_max_running: Annotated[int, Meta(ge=1, le=ARRAY_MAX)] | None = None
    """At most so many elements run at once. Without it all of them may."""
    array_of: JobId | None = None
    """The array of which the job is an element. The cell sets it; a submission may not."""
    array_index: Annotated[int, Meta(ge=0, lt=ARRAY_MAX)] | None = None
    """The number of the element in its array. The cell sets it; a submission may not."""
    node_labels: Annotated[tuple[LabelRule, ...], Meta(max_length=32)] = ()
    """Each node of the job must keep all of these rules: `zone=a`, `zone=a|b` (one of these), `zone!=a` (another
    value, or no such label), `zone` (any value), `!zone` (no such label).
    """
    tolerations: Annotated[tuple[Label, ...], Meta(max_length=32)] = ()
    """Taints of nodes that the job accepts. A node takes the job only if all of its taints stand here."""
    exclusive: bool = False
    """`true`: the nodes of the job run no other job while it holds them. It starts only on nodes without any job,
    and its workers may share a node. Beside what is guaranteed to others it counts with whole nodes.
    """

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
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] = 1
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
    """The scale-up domain of the node, such as one NVLink domain."""
    leaf: Label | None = None
    """The leaf switch of the node."""
    spine: Label | None = None
    """The spine switch of the node."""
    superspine: Label | None = None
    """The superspine switch of the node."""


_NOWHERE = Position()


class NodeSpec(Value):
    """A node as it announces itself."""

    id: NodeId
    """The name of the node, usually its host name."""
    pool: Name
    """The pool of the cell file that the node joins."""
    gpu_type: Label = "gpu"
    """The type of all GPUs of the node."""
    gpus: Annotated[int, Meta(ge=0, le=DEVICES_MAX)]
    """How many GPUs the node has. They are numbered from 0."""
    islands: tuple[Annotated[int, Meta(ge=1, le=DEVICES_MAX)], ...] = ()
    """The sizes of its NVLink islands, in the order of its GPUs; they add up to `gpus`. A worker gets GPUs of one
    island where it can, also in a gang.
    """
    cpu_milli: Count = 0
    """CPUs of the node."""
    memory_mib: Count = 0
    """Memory of the node."""
    position: Position = _NOWHERE
    """Where the node sits in the network. A level without a name is not known."""
    labels: dict[Label, Label] = {}
    """What the `node_labels` of jobs look at, for example `zone: a`. A node that joins has at most 256."""
    taints: tuple[Label, ...] = ()
    """Each one keeps away new jobs that do not tolerate it, and leaves alone what runs there. A node that joins has
    at most 64.
    """
    role: NodeRole = NodeRole.TRAINING
    """Which kind of jobs the node is for. An inference node belongs to the zone of services, and may be lent to
    training.
    """
    nics: tuple[Annotated[int, Meta(ge=1, le=DEVICES_MAX)], ...] = ()
    """The sizes of the groups of GPUs that share a network card, in the order of its GPUs; they add up to `gpus`.
    Within an island a worker gets GPUs at as few cards as possible.
    """

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
