"""The end of a story: faults have stopped, and everything must come to its end (I9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.base import Event, replace
from fallow.shared.events.decisions import input_name
from fallow.shared.events.fields.values import JobKind, NodeStatus
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobsAdmitted, JobUpdateRequested
from fallow.shared.events.operations import ReleaseJob, SetQuota, Uncordon
from fallow.simulator.history.record import ENDS_THE_STORY
from fallow.simulator.storage.broker import message_of

if TYPE_CHECKING:
    from fallow.simulator.history.record import Logged
    from fallow.simulator.oracle import Oracle
    from fallow.simulator.world import World

LOOK_EVERY_MS, TIDY_EVERY_MS = 250, 4_000
SETTLE_MS = 2_500
FAR_MS = 600_000
STANDSTILL_MS = 90_000
"""So long nothing may come to its end. The longest chain: a lease runs out, an attempt times out, its retries back off,
and others queue behind it.
"""

LONGEST_MS = 1_800_000
"""Nothing takes so long, however much waits for the same devices: what goes on then goes on for ever."""


class Standstill:
    """Since when nothing has come to its end: no job, and no attempt of one."""

    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = self.since_ms = begin_ms
        self._left: frozenset[tuple[str, int]] = frozenset()

    def look(self, now_ms: int, left: Iterable[tuple[str, int]]) -> None:
        """`left` are the jobs that are not over, by the number of their attempt."""
        now_left = frozenset(left)
        if self._left - now_left:
            self.since_ms = now_ms
        self._left = now_left

    def is_over(self, now_ms: int) -> bool:
        """Whether there is nothing to wait for."""
        return now_ms >= min(self.since_ms + STANDSTILL_MS, self._begin_ms + LONGEST_MS)


class Drain:
    """An operator undoes what operators did, and waits for as long as jobs come to their end. What is left is stuck."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_over = self.is_drained = False
        self.stuck: tuple[str, ...] = ()
        self._tidy_ms = self._quiet_since_ms = -1
        self._standstill = Standstill(0)

    def begin(self) -> None:
        """The faults have stopped now."""
        world = self._world
        self._standstill = Standstill(world.engine.now_ms)
        self._tidy_ms = world.engine.now_ms
        if world.file is not world.first_file:
            world.mishaps.reload(world.first_file)
        self._look()

    def _look(self) -> None:
        now_ms, world = self._world.engine.now_ms, self._world
        if now_ms >= self._tidy_ms:
            self._tidy_ms = now_ms + TIDY_EVERY_MS
            for oracle in world.oracles:
                self._tidy(oracle)
        left = self._left()
        self._standstill.look(now_ms, [job for oracle in world.oracles for job in _attempts(oracle)])
        if left:
            self._quiet_since_ms = -1
        elif self._quiet_since_ms < 0:
            self._quiet_since_ms = now_ms
        self.is_drained = not left and now_ms - self._quiet_since_ms >= SETTLE_MS
        self.is_over = self.is_drained or self._standstill.is_over(now_ms) or world.is_fenced
        if self.is_over:
            self._end(left)
        else:
            world.engine.after(LOOK_EVERY_MS, self._look)

    def _end(self, left: list[str]) -> None:
        self.stuck = tuple(left)
        world = self._world
        if world.broker.lost_tails:
            return
        world.readers.look_at_all()
        if left:
            world.violated("I9", f"{len(left)} things did not come to their end: {'; '.join(left[:5])}")
        for oracle in world.oracles:
            offence = oracle.recount()
            if offence is not None:
                world.violated(offence.invariant, offence.text)

    def _left(self) -> list[str]:
        world = self._world
        log = world.broker.log
        found = [f"{world.clients.unconfirmed} submissions are unconfirmed"] if world.clients.unconfirmed else []
        if world.broker.network.is_lagging:
            found.append("records still come later than they are written")  # one more answer may be among them
        found += [f"input {source} has lost what was read, and is not read on" for source in world.person.to_mend]
        for (topic, partition), logged in log.items():
            handled = world.commits.next_offset("admission", (topic, partition))
            if topic.startswith("submissions") and handled < len(logged):
                found.append(f"{topic} of partition {partition} are unread")
        for oracle in world.oracles:
            ordinal = world.ordinal(oracle.cell)
            jobs = len(log.get(("jobs", ordinal), ()))
            if oracle.state.inputs.get(input_name("jobs", ordinal), 0) < jobs and self._matters(oracle):
                found.append(f"admitted jobs of {oracle.cell} are unread")
            rows = world.redis.rows(oracle.cell)
            if rows is None or rows.cursor < len(log.get(oracle.tp, ())):
                found.append(f"the view of {oracle.cell} is {'not there' if rows is None else 'behind'}")
            found += [f"{job.id} is {job.status} ({job.deferred})" for job in oracle.state.jobs.values()]
        return found

    def _matters(self, oracle: Oracle) -> bool:
        """Inputs of which nothing comes are not written down as read; others are."""
        ordinal = self._world.ordinal(oracle.cell)
        read = oracle.state.inputs.get(input_name("jobs", ordinal), 0)
        unread = self._world.broker.log[("jobs", ordinal)][read:]
        return any(_has_an_answer(oracle, record) for record in unread)

    def _tidy(self, oracle: Oracle) -> None:
        state = oracle.state
        for node in state.nodes.values():
            if node.status in (NodeStatus.CORDONED, NodeStatus.DRAINING):
                self._operate(Uncordon(cell=oracle.cell, node=node.id, by="operator"))
            elif node.failed and node.status is NodeStatus.READY:
                # Its device is replaced; a new boot begins with all of them.
                self._world.cut_power(node.id)
                self._world.mishaps.say_lost(oracle.cell, node.id, node.boot)
        for job in state.jobs.values():
            if job.status is JobStatus.HELD:
                self._operate(ReleaseJob(cell=oracle.cell, job=job.id, by="operator"))
            elif job.spec.kind is JobKind.INFERENCE or job.not_before_ms > state.at_ms + FAR_MS:
                # It has no end of its own, or would wait for years.
                tenant = job.spec.tenant
                self._operate(JobCancelRequested(cell=oracle.cell, job=job.id, tenant=tenant, reason=ENDS_THE_STORY))
        # A job that was admitted under another limit may need more than its tenant has now: no job is held back here.
        first = {
            (quota.tenant, quota.gpu_type): replace(quota, guaranteed_milli=0, limit_milli=None)
            for quota in self._world.first_file.quotas()
        }
        wrong = tuple(quota for at, quota in first.items() if state.quotas.get(at) != quota)
        if wrong:
            self._operate(SetQuota(cell=oracle.cell, quotas=wrong, by="operator"))

    def _operate(self, event: Event) -> None:
        self._world.broker.land(message_of(event, self._world.ordinal(event.home() or "")))


def _attempts(oracle: Oracle) -> Iterable[tuple[str, int]]:
    return ((job.id, job.attempt) for job in oracle.state.jobs.values())


def _has_an_answer(oracle: Oracle, logged: Logged) -> bool:
    """Whether this record of `jobs` makes a decision, once it is read. What cannot be read is set aside."""
    event, state = logged.event(), oracle.state
    match event:
        case JobAdmitted():
            return not any(event.spec.id in known for known in (state.jobs, state.arrays, state.finished))
        case JobsAdmitted():
            return any(job.spec.id not in state.jobs and job.spec.id not in state.finished for job in event.jobs)
        case JobCancelRequested():
            over = state.finished.get(event.job)
            return over is None or over.status is not JobStatus.CANCELLED
        case JobUpdateRequested():
            return True
    return False
