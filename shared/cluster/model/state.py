"""The state of one cell: what the fold of its decision log gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.shared.cluster.capacity.capacity import Capacity, PoolCapacity
from fallow.shared.cluster.fold.finished_jobs import FinishedJobs
from fallow.shared.cluster.fold.spec_interning import Kinds
from fallow.shared.cluster.fold.undo_log import UndoLog
from fallow.shared.cluster.model.arrays import ArrayJob
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.unacknowledged import Unacknowledged
from fallow.shared.cluster.quota.fair_use import FairUse
from fallow.shared.cluster.quota.tree import Account, Quotas, QuotaTree, Usage
from fallow.shared.cluster.run_times.learning import Edition, Learned
from fallow.shared.events.decisions import CHAIN_START
from fallow.shared.events.effects import CellFileSet, EvictionsHeld, ReservationSet, RoomHeld
from fallow.shared.events.operations import CellPolicy

Resume = tuple[str, int, int]
"""An input that was read to the first offset is read on from the second."""

NOT_OF_DECISIONS = {
    "offset": "Where this reader stands in its log: the shell moves it, also behind records that are no decisions.",
    "skipped": "How many records this reader has passed over: it follows from what was read, and is never undone.",
    "clock_ms": "The cell time of the decision in the making: the writer sets it anew before each.",
    "tree.kept": "What owners have places kept for: placement derives it from the rest before each look.",
    "capacity.effort": "How much work a search has made: it bounds a walk, and is no part of what the log says.",
}
"""What a shell or placement sets by itself. All else is written by the fold alone, which leaves the old value in
`undo_log` wherever a decision that is tried may be undone.
"""


@dataclass(slots=True)
class CellState:
    """One cell behind the record at `offset` of its log.

    `version` counts the accepted records, `inputs` says how far the writer had read its inputs, `input_checksums` which
    record it read last of each, `chain` is the hash over all accepted bytes. `jobs` are those that wait or run,
    `finished` those that are over and still remembered. `capacity` and `usage` are indices: they can be counted from
    the rest at any time; so is `unacknowledged`, where the policy asks for it.
    `evictions` says that too many nodes are silent to be declared lost at once. `heads` are the first jobs of queues
    that do not fit, with the cell time since when.

    `independent_jobs`, the jobs that hold places and are no gangs, is an index: their workers come and go one by one.
    These are indices, too: `dependents`, the jobs that wait for the end of each job; `ends_untold`, those of these that
    are over, which not all who wait for them have been told; `dependencies_resolved`, the other jobs whose wait has
    ended, well or not, and for which no effect says so yet; `maintenance_starts`, when the planned maintenance of nodes
    will begin; `silent`, the nodes that report nothing; `offers`, those that have returned with other hardware.
    `clock_ms` is the cell time of the decision in the making; only the writer sets it.

    A fold changes the state in place: a copy of 150,000 jobs for each record would serve nobody. `checkpoint` and
    `rollback` give back what it was.
    """

    cell: str
    version: int = 0
    epoch: int = 0
    offset: int = -1
    chain: str = CHAIN_START
    at_ms: int = 0
    skipped: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    input_checksums: dict[str, int] = field(default_factory=dict)
    input_resumes: dict[Resume, int] = field(default_factory=dict)
    """How often a person has had an input read on in each way. One decision of theirs is good for one loss."""
    policy: CellPolicy = field(default_factory=CellPolicy)
    longest_patience_ms: int = 0
    """By its own lease some node may be silent for so long (wall time), longer than the policy's; 0: none may."""
    longest_named_ms: int = 0
    """The longest patience that any policy in the log has named (wall time), longer than today's; 0: none has."""
    cell_file: CellFileSet | None = None
    cell_files: int = 0
    """How many were put in force so far: tells a file that came back from one that stayed."""
    quotas: Quotas = field(default_factory=dict)
    quotas_of_file: dict[Account, bool] = field(default_factory=dict)
    """The quotas that a cell file has set, and whether they are as it set them: False for one that was changed at run
    time since.
    """
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    finished: FinishedJobs = field(default_factory=FinishedJobs)
    reservations: dict[str, ReservationSet] = field(default_factory=dict)
    rooms: dict[str, RoomHeld] = field(default_factory=dict)
    """What is held for each waiting job for which others yield. Its use of quotas is in `usage` already."""
    heads: dict[str, int] = field(default_factory=dict)
    first_plans: dict[str, int] = field(default_factory=dict)
    """When each waiting job for which places are or were kept was first planned to start."""
    learned: Learned = field(default_factory=dict)
    """How long jobs have run, where the policy lets the cell learn it."""
    lessons: int = 0
    """How many jobs it has learned from."""
    edition: Edition = field(default_factory=Edition, compare=False, repr=False)
    """Another one whenever what is said of run times may have changed."""
    independent_jobs: dict[str, None] = field(default_factory=dict)
    arrays: dict[str, ArrayJob] = field(default_factory=dict)
    waiting: int = 0
    waiting_of: dict[str, int] = field(default_factory=dict)
    """How many jobs of each tenant wait; one of which none does is not named. An index."""
    live_bytes: int = 0
    live_bytes_of: dict[str, int] = field(default_factory=dict)
    """What the specifications of the jobs that wait or run take (`spec_bytes`), of all and of each tenant that has any.
    Those that run count, too: they stay in memory. An index.
    """
    entered: int = 0
    """How many jobs have come into the cell so far."""
    dependents: dict[str, dict[str, None]] = field(default_factory=dict)
    ends_untold: dict[str, None] = field(default_factory=dict)
    dependencies_resolved: dict[str, None] = field(default_factory=dict)
    maintenance_starts: dict[str, int] = field(default_factory=dict)
    silent: dict[str, None] = field(default_factory=dict)
    offers: dict[str, None] = field(default_factory=dict)
    evictions: EvictionsHeld | None = None
    clock_ms: int = field(default=0, compare=False, repr=False)
    usage: Usage = field(default_factory=dict)
    tree: QuotaTree = field(init=False, compare=False, repr=False)
    unacknowledged: Unacknowledged | None = None
    fair: FairUse = field(default_factory=FairUse)
    capacity: Capacity = field(init=False, repr=False)
    kinds: Kinds = field(default_factory=dict, compare=False, repr=False)
    undo_log: UndoLog = field(default_factory=UndoLog, compare=False, repr=False)

    def __post_init__(self) -> None:
        """The indices are over tables that are the same for good."""
        self.tree = QuotaTree(self.quotas, self.usage)
        self.capacity = Capacity(self.nodes)

    @property
    def pools(self) -> dict[str, PoolCapacity]:
        """Where room is, pool by pool, as of now: good until the next change."""
        return self.capacity.pools()

    @property
    def has_waits_to_settle(self) -> bool:
        """Whether jobs wait for what is over, and no effect says yet what comes of that."""
        return bool(self.ends_untold or self.dependencies_resolved)

    @property
    def over_first(self) -> int:
        """The number of the oldest remembered job."""
        return self.finished.first

    @property
    def over_next(self) -> int:
        """The number that the next job that ends will get: how many have ended."""
        return self.finished.next

    def checkpoint(self) -> int:
        """Begin a tentative change; end it with `rollback` or `commit`. Checkpoints nest."""
        mark = self.undo_log.checkpoint()
        # What changes with nearly every effect is kept once here instead of each time.
        self.undo_log.entries += (
            (setattr, self, "waiting", self.waiting),
            (setattr, self, "entered", self.entered),
            (setattr, self, "live_bytes", self.live_bytes),
        )
        return mark

    def rollback(self, mark: int) -> None:
        """Undo everything since the checkpoint, exactly."""
        self.undo_log.rollback(mark)

    def commit(self, mark: int) -> None:
        """Keep what was done since the checkpoint."""
        self.undo_log.commit(mark)
