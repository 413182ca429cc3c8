"""After any number of jobs and boots of nodes have come and gone, no service holds more than what lives and what is
remembered.
"""

from __future__ import annotations

from typing import Any

from fallow.services.executor.policy.records import Said, as_records
from fallow.services.executor.policy.turn import Now, Turn
from fallow.services.executor.service import ExecutorService
from fallow.services.metrics.policy.watch import REMEMBERED_ENDS
from fallow.services.metrics.service import KEPT_WAITS, MetricsService
from fallow.services.placement.lifecycle.nodes.quarantine import FAILURES
from fallow.services.projector.app.machine import Projection
from fallow.shared.cluster.fold.finished_jobs import SEGMENT_JOBS
from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.fold.spec_interning import KINDS_MAX
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import Dependency, JobSpec, NodeSpec, RetryPolicy, VirtualRun
from fallow.shared.events.nodes import NodeJoined, NodeLost, RunFailed
from fallow.shared.events.operations import RemoveNode
from tests.long_lived.held import held_by
from tests.placement.worlds.world import CELL, World, admitted, cancel, set_policy, spec_of, update

WEEK_MS = 7 * 24 * 3_600_000
REMEMBERED = 40
ROW_BYTES = 29
SLACK = 160
"""So many entries more are no growth: heaps are looked through only when they have some."""

NODES = [NodeSpec(id=f"n{number}", pool="train", gpus=8) for number in range(3)]
MORE_MS = 1_000


class Town:
    """Placement, executor, metrics and projector of one cell, without their shells."""

    def __init__(self) -> None:
        self.world = World()
        self.world.checks = self.world.numbers_words = False
        self.state, self.read, self.rounds = CellState(CELL), 0, 0
        self.metrics = MetricsService(self.state, tenants_named=10)
        self.projection = Projection()
        self.executor = ExecutorService(CELL, NODES, 1, report_every_wall_ms=1_000)
        self.world.tell(
            set_policy(finished_jobs_max=REMEMBERED, finished_jobs_ttl_ms=60_000, stop_grace_wall_ms=WEEK_MS)
        )
        self.hear(self.executor.take_over(0, self.state, 1_000, lambda _: [], self.now()))
        self.tell(*(admitted(spec) for spec in RESIDENTS))

    def now(self) -> Now:
        return Now(self.world.now_ms, self.world.wall_ms, self.world.wall_ms)

    def tell(self, *events: object) -> None:
        """To placement; then all others read what it has decided, and it hears what the nodes say of that."""
        self.world.tell(*events)  # type: ignore[arg-type]
        self.follow()

    def hear(self, turn: Turn) -> None:
        said: list[Said] = turn.events
        self.executor.confirmed(said, self.world.wall_ms)
        if said:
            self.tell(*as_records(CELL, said))

    def follow(self) -> None:
        while self.read < len(self.world.log):
            record = self.world.log[self.read]
            self.read += 1
            if isinstance(record.decision, Decision):
                self.projection.before_fold(self.state, record)
                self.metrics.before(self.state, record.decision.at_ms)
                fold(self.state, record)
                self.metrics.take(self.state, record.decision)
                self.hear(self.executor.decided(self.state, [record.decision], self.now()))
        self.metrics.look(self.state)

    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)
        self.follow()
        self.hear(self.executor.tick(self.state, self.now()))

    def live_on(self, rounds: int) -> None:
        """In each round jobs of all kinds come, and all of them are over in the end."""
        for _ in range(rounds):
            self.rounds += 1
            specs = jobs_of(self.rounds)
            self.tell(*(admitted(spec, self.world.now_ms) for spec in specs))
            self.pass_time(MORE_MS)
            self.tell(
                update(f"service-{self.rounds}", specs[0].tenant, workers=1),
                update(f"limited-{self.rounds}", specs[0].tenant, max_run_ms=WEEK_MS - 1),
            )
            self.pass_time(MORE_MS)
            self.tell(*(cancel(spec.id, spec.tenant) for spec in specs))
            self.pass_time(MORE_MS)
            self.lose_a_node()
            self.have_a_guest()
        assert list(self.state.jobs) == [spec.id for spec in RESIDENTS]

    def lose_a_node(self) -> None:
        """One of those without residents boots anew."""
        node = self.state.nodes[f"n{1 + self.rounds % 2}"]
        before = node.boot
        self.tell(NodeLost(cell=CELL, node=node.id, boot=node.boot, seq=self.executor.agents[node.id].next_seq()))
        self.pass_time(MORE_MS)
        assert self.state.nodes[node.id].boot != before

    def have_a_guest(self) -> None:
        """A node of a size of its own comes, works, what runs there fails, it is lost, and is removed."""
        guest = NodeSpec(id=f"guest-{self.rounds}", pool="other", gpus=1 + self.rounds % 8)
        self.tell(NodeJoined(cell=CELL, node=guest.id, boot="boot-1", seq=1, spec=guest))
        for number in range(FAILURES):
            spec = spec_of(f"doomed-{self.rounds}-{number}", pools=("other",))
            self.tell(admitted(spec, self.world.now_ms))
            said: dict[str, Any] = {"cell": CELL, "node": guest.id, "boot": "boot-1", "job": spec.id, "attempt": 1}
            self.tell(RunFailed(**said, seq=2 + number))
        self.tell(NodeLost(cell=CELL, node=guest.id, boot="boot-1", seq=100))
        self.tell(RemoveNode(cell=CELL, node=guest.id, by="operator"))
        assert guest.id not in self.state.nodes

    def held(self) -> dict[str, int]:
        return held_by(self.world.service, self.world.writer, self.metrics, self.executor)


def jobs_of(number: int) -> list[JobSpec]:
    """One of each kind that leaves something behind for later."""
    forever = VirtualRun(duration_ms=4 * WEEK_MS)
    retry = RetryPolicy(budget=5, backoff_ms=WEEK_MS, backoff_max_ms=WEEK_MS)
    tenant = f"tenant-{number}"
    return [
        spec_of(f"limited-{number}", tenant=tenant, run=forever, max_run_ms=WEEK_MS),
        spec_of(f"brief-{number}", tenant=tenant, run=VirtualRun(duration_ms=10), max_run_ms=WEEK_MS),
        spec_of(f"failing-{number}", tenant=tenant, run=VirtualRun(duration_ms=10, fail_at_ms=5), retry=retry),
        spec_of(f"service-{number}", tenant=tenant, run=forever, workers=3, gang=False, workers_min=1),
        spec_of(f"later-{number}", tenant=tenant, run=forever, not_before_ms=10**12 + number),
        spec_of(f"behind-{number}", tenant=tenant, run=forever, after=(Dependency(job=f"absent-{number}"),)),
        spec_of(f"large-{number}", gpus=8, workers=9, tenant=tenant, run=forever),
        spec_of(f"held-{number}", tenant=tenant, run=forever, hold=True),
    ]


RESIDENTS = [
    spec_of("resident", run=VirtualRun(duration_ms=3 * WEEK_MS), max_run_ms=WEEK_MS - 1),
    spec_of("resident-later", run=VirtualRun(duration_ms=WEEK_MS), not_before_ms=10**11),
]
"""They are due before all others, so that nothing behind them is let go of because it has come to the front."""

BOUNDED = {
    "Ledger.ended": 2 * REMEMBERED_ENDS,
    "Waits._newest": KEPT_WAITS * 3 * 11,
    "CellState.kinds": 4 * KINDS_MAX,
    "_Segment.ids": 2 * SEGMENT_JOBS,
    "_Segment.blocks": 2 * SEGMENT_JOBS,
    "_Segment.rows": 2 * SEGMENT_JOBS * ROW_BYTES,
    "_Segment.tenants": 2 * SEGMENT_JOBS,
    "_Segment.tenant_numbers": 2 * SEGMENT_JOBS,
}
"""What has a bound of its own, however much comes: see the constants."""


def test_what_has_come_and_gone_leaves_nothing_behind() -> None:
    town = Town()
    town.live_on(60)
    before = town.held()
    town.live_on(180)
    after = town.held()
    most = {path: max(before.get(path, 0) + SLACK, BOUNDED.get(path, 0)) for path in after}
    grown = {path: (before.get(path, 0), count) for path, count in after.items() if count > most[path]}
    assert grown == {}
