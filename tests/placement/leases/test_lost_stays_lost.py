"""A node that was declared lost is lost until a word of it is read: whatever it offers, whatever closes it, and whoever
lost it. Until then no job starts on it. What its operator wants of it outlives the loss.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.nodes.quarantine import FAILURES, SMALL_POOL
from fallow.shared.cluster.model.node import Node
from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobSpec, NodeStatus, RetryPolicy
from fallow.shared.events.nodes import NodeEvent, NodeJoined, NodeLost, NodeReport
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    failed,
    finished,
    joined,
    lost,
    report,
    spec_of,
)

POOLS = ("train", "other")
NODES = {"n1": "train", "n2": "train", "n3": "other"}
CLOSED = {f"{pool}-{number}": pool for pool in POOLS for number in range(SMALL_POOL)}
"""Further nodes of each pool, which an operator has closed: the tenth of a pool is one node."""

SILENCE_MS, WORK_MS = 40_001, 60_000
TENANTS = ("ada", "bob")
HOW = ("said", "declared", "silent")
"""Which party declares the node lost: its cell, its operator, or none."""


REACHED = ("in use, in quarantine and on its way elsewhere", "so, where the tenth of its new pool is out")


class Step(NamedTuple):
    what: str
    node: str
    number: int = 0
    waits: bool = False
    """Whether placement hears of it together with what comes next."""


def steps(*what: str) -> st.SearchStrategy[Step]:
    """One of these, on any node."""
    return st.builds(Step, st.sampled_from(what), st.sampled_from(sorted(NODES)), st.integers(0, 5), st.booleans())


ANY = steps("work", "fails", "moves", "ends", "labels", "boot", "back", "back", "cordon", "drain", "uncordon", "plan")
ANY |= steps("work", "time", "restart", *HOW)
LOST_ON_ITS_WAY = ("work", "fails", "moves")
IN_A_ROW = st.builds(
    lambda other, node, how: [Step("fails", other), *(Step(what, node) for what in (*LOST_ON_ITS_WAY, how))],
    st.sampled_from(sorted(NODES)),
    st.sampled_from(sorted(NODES)),
    st.sampled_from(HOW),
)
"""A node in use is in quarantine when it says that it is in another pool, and is lost."""

STORIES = st.lists(st.lists(ANY, min_size=1, max_size=5) | IN_A_ROW, min_size=4, max_size=12)


class Cell:
    """A cell, and beside it which of its nodes are lost and what operators want of them."""

    def __init__(self) -> None:
        nodes = [joined(node, pool=pool, labels={"at": node}) for node, pool in NODES.items()]
        self.world: World = cell_with(*nodes, *(joined(node, pool=pool) for node, pool in CLOSED.items()))
        self.world.checks = False  # what is asked is looked at after each decision, and all of that at the end
        self.world.tell(*(o.Cordon(cell=CELL, node=node) for node in CLOSED))
        self.said: list[Event] = []
        self.boots = dict.fromkeys(NODES, 1)
        self.lost: dict[str, None] = {}
        self.wanted = dict.fromkeys(NODES, NodeStatus.READY)
        self.jobs = 0
        self.reached: dict[str, None] = {}

    @property
    def nodes(self) -> dict[str, Node]:
        return self.world.state.nodes

    def step(self, step: Step) -> None:
        """One thing happens."""
        if step.what in ("fails", "ends", "silent", "time", "restart", "cordon", "drain", "uncordon"):
            self.tell()
        match step.what:
            case "fails":
                self.fail(step.node)
            case "silent":
                self.pass_time(SILENCE_MS, step.node)
            case "time":
                self.pass_time(1_000 << step.number)
            case "restart":
                self.world.restart()
            case _:
                self.said += self.events(step)
        if not step.waits:
            self.tell()

    def events(self, step: Step) -> list[Event]:
        """What placement is told of this step."""
        node, now_ms, boot = step.node, self.world.now_ms, f"boot-{self.boots[step.node]}"
        known = self.nodes[node].offered or self.nodes[node].spec
        labels = {"at": node}
        match step.what:
            case "work":
                return [admitted(self.spec(node))]
            case "moves":
                return [joined(node, boot=boot, pool=POOLS[known.pool == POOLS[0]], labels=labels)]
            case "labels":
                return [joined(node, boot=boot, pool=known.pool, labels={**labels, "fan": str(step.number)})]
            case "boot":
                self.boots[node] += 1
                boot = f"boot-{self.boots[node]}"
                return [joined(node, boot=boot, pool=POOLS[step.number % 2], labels=labels)]
            case "back":
                return [report(node, boot=boot)]
            case "said":
                return [lost(node, boot=boot)]
            case "declared":
                return [o.DeclareLost(cell=CELL, node=node, by="op")]
            case "ends":
                return [finished(job, node, attempt, boot) for job, attempt in self.runs_on(node)]
            case "plan":
                end_ms = now_ms + WORK_MS * (1 + step.number)
                return [o.PlanMaintenance(cell=CELL, node=node, begin_ms=now_ms, end_ms=end_ms)]
        return [self.order(step)]

    def order(self, step: Step) -> Event:
        """What an operator wants of a node; of a lost one nothing can be had."""
        node, deadline_ms = step.node, self.world.now_ms + 1_000 * step.number
        if node not in self.lost:
            told = {"cordon": NodeStatus.CORDONED, "drain": NodeStatus.DRAINING}
            self.wanted[node] = told.get(step.what, NodeStatus.READY)
        if step.what == "drain":
            return o.Drain(cell=CELL, node=node, deadline_ms=deadline_ms)
        return (o.Cordon if step.what == "cordon" else o.Uncordon)(cell=CELL, node=node)

    def spec(self, node: str) -> JobSpec:
        """A job for this node alone, whichever pool that is in; it is not tried again."""
        self.jobs += 1
        tenant, at = TENANTS[self.jobs % 2], (f"at={node}",)
        return spec_of(f"job-{self.jobs}", tenant=tenant, node_labels=at, retry=RetryPolicy(budget=0))

    def fail(self, node: str) -> None:
        """Jobs fail on the node in a row, as many as take it out of use."""
        for _ in range(FAILURES):
            spec = self.spec(node)
            self.said.append(admitted(spec))
            self.tell()
            for job, attempt in self.runs_on(node):
                if job == spec.id:
                    self.said.append(failed(job, node, attempt, f"boot-{self.boots[node]}"))
            self.tell()

    def runs_on(self, node: str) -> list[tuple[str, int]]:
        return [(job, self.world.state.jobs[job].attempt) for job in sorted(self.nodes[node].jobs)]

    def pass_time(self, ms: int, *silent: str) -> None:
        """Time passes while all nodes report but these, and those that are lost."""
        while ms > 0:
            silent = (*silent, *self.lost)
            living = [node for node in (*NODES, *CLOSED) if node not in silent]
            self.said += [report(node, boot=self.nodes[node].boot) for node in living]
            self.tell(min(ms, 10_000))
            ms -= 10_000

    def tell(self, ms: int = 0) -> None:
        """Hand over what has gathered, let so much time pass, and see that lost nodes are lost."""
        said, self.said = self.said, []
        for known in map(self.nodes.__getitem__, NODES):
            if known.quarantined and known.offered is not None:
                self.note(known, said, is_late=bool(ms))
        if ms:
            self.world.hand_over(*said)
            made = self.world.pass_time(ms)
        else:
            made = self.world.tell(*said)
        heard = {event.node for event in said if isinstance(event, NodeJoined | NodeReport)}
        for effect in made:
            self.follow(effect, heard)
        for node in NODES:
            status = self.nodes[node].status
            assert (status is NodeStatus.LOST) is (node in self.lost)
            assert status is NodeStatus.LOST or not is_said_lost_last(node, said)
            self.is_as_wanted(self.nodes[node])

    def note(self, node: Node, said: list[Event], *, is_late: bool) -> None:
        """What this property is about: a node is lost that is in use and in quarantine, and is to come elsewhere."""
        is_gone = any(isinstance(event, NodeLost | o.DeclareLost) and event.node == node.id for event in said)
        is_silent = is_late and not any(getattr(event, "node", "") == node.id for event in said)
        if (is_gone or is_silent) and node.offered is not None and node.offered.pool != node.pool:
            others = (other for other in self.nodes.values() if other.pool == node.offered.pool)
            self.reached[REACHED[0]] = None
            if any(other.quarantined and other.status is not NodeStatus.LOST for other in others):
                self.reached[REACHED[1]] = None

    def follow(self, effect: e.AnyEffect, heard: set[str]) -> None:
        """The log goes on with this."""
        match effect:
            case e.LeaseExpired():
                self.lost[effect.node] = None
            case e.NodeChanged() if effect.status is not NodeStatus.LOST and effect.spec.id in self.lost:
                assert effect.spec.id in heard, f"{effect.spec.id} is {effect.status} without a word of it"
                del self.lost[effect.spec.id]
            case e.JobStarted() | e.JobResizing():
                places = effect.workers if isinstance(effect, e.JobStarted) else effect.add
                assert [place.node for place in places if place.node in self.lost] == []

    def is_as_wanted(self, node: Node) -> None:
        """A quarantine that ends opens no node that a person has closed, and none in its maintenance."""
        told = self.wanted[node.id]
        assert node.wanted is (NodeStatus.CORDONED if node.quarantined else told)
        assert not node.quarantined or told is NodeStatus.READY
        if node.status not in (NodeStatus.LOST, node.wanted):
            assert (node.in_maintenance, node.status) == (True, NodeStatus.DRAINING)


def is_said_lost_last(node: str, said: list[Event]) -> bool:
    """Whether nothing that the node said was read behind the word that it is lost."""
    words = [event for event in said if isinstance(event, NodeEvent) and event.node == node]
    return bool(words) and isinstance(words[-1], NodeLost)


@given(STORIES)
def test_a_node_that_was_declared_lost_is_lost_until_it_speaks(story: list[list[Step]]) -> None:
    cell = Cell()
    for step in chain.from_iterable(story):
        cell.step(step)
    cell.tell()
    cell.world.check()
    for what in REACHED:
        reaches(f"a node is lost {what}", what in cell.reached)


@pytest.mark.parametrize("how", HOW)
def test_a_lost_node_is_not_used_though_the_pool_to_which_it_was_to_come_cannot_do_without_it(how: str) -> None:
    cell = Cell()
    for step in (Step("fails", "n3"), *(Step(what, "n1") for what in (*LOST_ON_ITS_WAY, how)), Step("work", "n1")):
        cell.step(step)
    assert list(cell.reached) == list(REACHED)
    node = cell.nodes["n1"]
    assert (node.status, node.pool, node.quarantined) == (NodeStatus.LOST, "train", True)
    cell.step(Step("back", "n1"))
    node = cell.nodes["n1"]
    assert (node.status, node.pool, node.quarantined) == (NodeStatus.READY, "other", False)
    assert node.jobs
