"""Whatever comes together on nodes: every decision can be written, and what operators want of a node outlives it all.

Nodes join with the same and with other hardware, in the same and in new boots, are lost and come back; operators give
orders and plan maintenance; jobs start, fail and end; and several of these come in one decision.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.nodes.quarantine import FAILURES, SMALL_POOL
from fallow.shared.cluster.model.job import HOLDING, JobStatus
from fallow.shared.cluster.model.node import Node
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobKind, JobSpec, NodeStatus, RetryPolicy, RunStatus
from fallow.simulator.history.bookkeeping import Bookkeeper
from fallow.simulator.history.log_form import InForce
from tests.hypothesis_profile import reaches
from tests.placement.worlds.replicas import loose, service, word
from tests.placement.worlds.world import (
    CELL,
    admitted,
    cancel,
    cell_with,
    failed,
    finished,
    joined,
    lost,
    report,
    set_policy,
    spec_of,
    started,
    stopped,
)

NODES = ("n1", "n2")
CLOSED = tuple(f"c{number}" for number in range(SMALL_POOL))
"""Further nodes of the pool, on which nothing is placed: without any of these two no node goes into quarantine."""

REMOVED_AFTER_MS, WORK_MS = 60_000, 30_000
RETRIES = (RetryPolicy(budget=0), RetryPolicy(budget=1_000, backoff_ms=0))
TENANTS = ("ada", "bob")
KINDS = ("crowd", "crowd", "gang", "loose", "service")
TOLD = {"cordon": NodeStatus.CORDONED, "uncordon": NodeStatus.READY, "drain": NodeStatus.DRAINING}

STEPS = st.one_of(
    st.sampled_from(KINDS),
    st.sampled_from(("fail", "fail", "answer", "finish")),
    st.sampled_from(("hardware", "hardware", "labels", "boot", "lose", "back", "device")),
    st.sampled_from((*TOLD, "plan", "give up")),
    st.sampled_from(("wait", "wait long", "restart")),
)
"""A crowd are jobs that fail for good, as many as take a node out of use if they fail there in a row: no tenant's do so
alone.
"""

STORIES = st.lists(st.tuples(STEPS, st.sampled_from(NODES), st.integers(0, 5), st.booleans()), min_size=10, max_size=60)
"""What happens, on which node, a number, and whether it waits for what comes next."""


class Story:
    """A cell, and beside it what its operators want of each node."""

    def __init__(self) -> None:
        self.world = cell_with(*(joined(node) for node in (*NODES, *CLOSED)))
        self.world.tell(*(o.Cordon(cell=CELL, node=node) for node in CLOSED))
        self.world.listens = False  # nodes are lost when it is said
        self.world.tell(set_policy(remove_lost_ms=REMOVED_AFTER_MS))
        self.wanted = dict.fromkeys(NODES, NodeStatus.READY)
        self.work: dict[str, tuple[int, int]] = {}
        self.boots = dict.fromkeys(NODES, 1)
        self.said: list[Event] = []
        self.ordered: dict[str, NodeStatus] = {}
        self.jobs = 0

    def step(self, what: str, node: str, number: int, *, waits: bool) -> None:
        """One thing happens; with `waits` placement hears of it together with the next."""
        if what in ("wait", "wait long", "restart", "plan", "give up") or node in self.ordered:
            self.tell()
        if what in KINDS:
            self.said += [admitted(self.spec(what, number)) for _ in range(FAILURES if what == "crowd" else 1)]
        elif what in TOLD:
            self.order(what, node, number)
        elif what in ("plan", "give up"):
            self.plan(node, number, is_on=what == "plan")
        elif what == "wait":
            self.world.pass_time(1_000 * number)
        elif what == "wait long":
            self.world.pass_time(REMOVED_AFTER_MS)
        elif what == "restart":
            self.world.restart()
        elif what in ("fail", "answer", "finish"):
            self.said += self.words(what, node)
        else:
            self.said += self.of_node(what, node, number)
        if not waits or what in ("plan", "give up"):
            self.tell()

    def tell(self) -> None:
        """Hand over what has gathered, and see whether all is as it is wanted."""
        made = self.world.tell(*self.said)
        refused = [effect.proposal for effect in made if isinstance(effect, e.ProposalRefused)]
        self.wanted.update({node: told for node, told in self.ordered.items() if node not in refused})
        self.said, self.ordered = [], {}
        assert self.world.unwritable == []
        self.work = {node: window for node, window in self.work.items() if window[1] > self.world.now_ms}
        for node in NODES:
            if node in self.world.state.nodes:
                self.is_as_wanted(self.world.state.nodes[node])
            else:
                assert (self.wanted[node], self.work.get(node)) == (NodeStatus.READY, None), f"{node} is forgotten"

    def is_as_wanted(self, node: Node) -> None:
        """A node is wanted as its operators said, or it is in quarantine while they want it to work."""
        told = self.wanted[node.id]
        assert node.wanted is (NodeStatus.CORDONED if node.quarantined else told)
        assert not node.quarantined or told is NodeStatus.READY
        assert node.maintenance_ms == self.work.get(node.id)
        if node.status not in (NodeStatus.LOST, node.wanted):
            assert node.in_maintenance
            assert node.status is NodeStatus.DRAINING

    def spec(self, kind: str, number: int) -> JobSpec:
        self.jobs += 1
        job, retry = f"job-{self.jobs:03}", RETRIES[number % len(RETRIES)]
        if kind == "service":
            return service(job, 1 + number % 3, workers_min=1)
        if kind == "loose":
            return loose(job, 1 + number % 3, workers_min=1, retry=retry)
        if kind == "crowd":
            return spec_of(job, retry=RETRIES[0], tenant=TENANTS[self.jobs % len(TENANTS)])
        return spec_of(job, 4, 2 + number % 2, retry=retry)

    def order(self, what: str, node: str, number: int) -> None:
        orders = {"cordon": o.Cordon(cell=CELL, node=node), "uncordon": o.Uncordon(cell=CELL, node=node)}
        deadline_ms = None if number % 2 else self.world.now_ms + 1_000 * number
        self.said.append(orders.get(what) or o.Drain(cell=CELL, node=node, deadline_ms=deadline_ms))
        self.ordered[node] = TOLD[what]

    def plan(self, node: str, number: int, *, is_on: bool) -> None:
        now_ms, is_there = self.world.now_ms, node in self.world.state.nodes
        window = (now_ms + 10_000 * (number % 3), now_ms + WORK_MS * (1 + 9 * (number % 2)))
        plan = o.PlanMaintenance(cell=CELL, node=node, begin_ms=window[0], end_ms=window[1])
        self.said.append(plan if is_on else o.CancelMaintenance(cell=CELL, node=node))
        if is_on and is_there:
            self.work[node] = window
        elif not is_on:
            self.work.pop(node, None)

    def of_node(self, what: str, node: str, number: int) -> list[Event]:
        """What a node says of itself, or others of it."""
        if what == "boot":
            self.boots[node] += 1
        boot, gpus = f"boot-{self.boots[node]}", (8, 6)[number % 2]
        known = self.world.state.nodes.get(node)
        match what:
            case "hardware" | "boot":
                return [joined(node, gpus, boot=boot, memory_mib=1_000 * (number // 2))]
            case "labels":
                spec = None if known is None else known.offered or known.spec
                return [joined(node, 8 if spec is None else spec.gpus, boot=boot, labels={"fan": str(number)})]
            case "lose":
                return [lost(node, boot=boot)]
            case "device":
                return [report(node, boot=boot, failed=(0,))]
        return [report(node, boot=boot)] if known is not None else [joined(node, boot=boot)]

    def words(self, what: str, node: str | None = None) -> list[Event]:
        """Runs do as they are told; on this node some fail, or training comes to a good end everywhere."""
        said: list[Event] = []
        for job in [self.world.state.jobs[job_id] for job_id in sorted(self.world.state.jobs)]:
            for place in job.workers if job.status in HOLDING else ():
                ends = job.status is JobStatus.STOPPING or place.rank in job.leaving
                is_new = job.runs[place.node if job.spec.gang else str(place.rank)] is RunStatus.STARTING
                cls: type[n.RunEvent] = n.RunStopped if ends else n.RunStarted
                if not ends and what == "fail" and place.node == node:
                    cls = n.RunFailed
                elif not ends and what == "finish" and job.spec.kind is not JobKind.INFERENCE:
                    cls = n.RunFinished
                elif not (ends or is_new):
                    continue
                if job.spec.gang:
                    tells = {n.RunStopped: stopped, n.RunStarted: started, n.RunFailed: failed}.get(cls, finished)
                    boot = self.world.state.nodes[place.node].boot
                    said.append(tells(job.id, place.node, attempt=job.attempt, boot=boot))
                else:
                    said.append(word(cls, self.world, job.id, place.rank))
        return said

    def rest(self, what: str) -> None:
        """Runs do as they are told until nothing changes any more."""
        for _ in range(60):
            before = self.world.state.version
            self.said += self.words(what)
            self.tell()
            self.world.pass_time(2_000)
            if self.world.state.version == before:
                return
        raise AssertionError("the cell does not come to rest")

    def heal(self) -> None:
        """Every node is back, and training is over: only services are left."""
        for node in NODES:
            self.said += self.of_node("back", node, 0)
        self.tell()
        for job_id in sorted(self.world.state.jobs):
            job = self.world.state.jobs[job_id]
            if job.spec.kind is not JobKind.INFERENCE:
                self.said.append(cancel(job_id, job.spec.tenant))
        self.rest("finish")


@given(STORIES)
def test_what_operators_want_of_a_node_outlives_all_that_happens_there(steps: list[tuple[str, str, int, bool]]) -> None:
    story = Story()
    is_out = False
    for what, node, number, waits in steps:
        story.step(what, node, number, waits=waits)
        is_out |= any(node.quarantined for node in story.world.state.nodes.values())
    story.tell()
    reaches("a node is in quarantine while operators want things of nodes", is_out)
    story.heal()
    world = story.world
    held_up = [node.id for node in world.state.nodes.values() if node.is_to_be_emptied and node.jobs]
    assert held_up == [], "services go on on nodes that are to be empty"
    story.said += [cancel(job, world.state.jobs[job].spec.tenant) for job in sorted(world.state.jobs)]
    story.rest("finish")
    assert (world.state.jobs, world.state.offers) == ({}, {})
    world.pass_time(10 * WORK_MS)
    story.tell()
    assert [node.status for node in world.state.nodes.values()] == [node.wanted for node in world.state.nodes.values()]
    books = Bookkeeper(CELL)
    for offset, decision in enumerate(world.decisions):
        books.take(InForce(decision, offset, None))
    assert books.found == []
