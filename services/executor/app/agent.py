"""The agent of the machine on which it runs: its main coroutine, and the tasks that carry out what the node decides.

It leaves its workers running when it ends: the next agent goes on with them, and if none comes in time their
supervisors end them with the node's lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from fallow.services.executor.app.catching_up import CatchingUp
from fallow.services.executor.app.outbox import Batch, Outbox, without_outdated
from fallow.services.executor.app.own_machine import FindMachine, OwnMachine, own_machine
from fallow.services.executor.diaries import GROWN_BYTES, Diaries, DiaryUnreadable, Lives
from fallow.services.executor.files import NoRegularFile
from fallow.services.executor.policy.lease import Lease, gone_on_with, has_first_decision
from fallow.services.executor.policy.machine_agent import OwnNode, keeps_boot
from fallow.services.executor.policy.turn import Now, Observation, Start, Stop, Turn
from fallow.services.executor.policy.worker_environment import Gang, gang_of
from fallow.services.executor.processes.folders.state_folder import StateFolderUnusable
from fallow.services.executor.processes.supervisor import cause_of
from fallow.services.executor.settings import AgentSettings
from fallow.services.executor.telemetry import ExecutorTelemetry
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.missing_keys import NODES, NONE_YET, obstacle
from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import OpenLog, layout_for, open_log
from fallow.shared.log.port import Log, LogUnavailable
from fallow.shared.log.sharing.cell_work import work_apart
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.settings import ClockKind
from fallow.shared.runtime.tasks.together import together

READS = ("decisions", "snapshots")
POLL_WAIT_MS, RECORDS_PER_POLL = 1_000, 500

AWAY_FIRST_S = 0.25
SETTLE_WAIT_S = 3.0
EMPTY_WAIT_MS = 15_000
NEVER_MS = 1 << 62
LEASE = "lease file"


class NodeTakenOver(Exception):
    """Another agent speaks for this node, so this one must not."""


async def main(
    context: Context[AgentSettings],
    opening: OpenLog = open_log,
    finding: FindMachine = own_machine,
    grown_bytes: int = GROWN_BYTES,
) -> None:
    """Run the agent until the process stops. Raises CellFileError, WrongOffer, StateFolderInUse, StateFolderUnusable,
    FolderOfAnotherFormat, WorkerUsersUnusable, NodeTakenOver.

    A diary of at least `grown_bytes` is shortened.
    """
    settings = context.settings
    if settings.clock is ClockKind.STEPPED:
        raise ValueError("clock = stepped: processes do not wait for a stepped clock")
    context.reads.update(READS)
    file = context.host.cell_file(settings.cell_file)
    machine = finding(settings, file)
    if machine.not_held:
        # An operator who relies on more than there is finds out from this line alone.
        context.logger.warning(
            "not every guarantee about workers holds", node=machine.spec.id, reason="; ".join(machine.not_held)
        )
    log = await opening(context, file)
    if log is not None:
        try:
            layout = layout_for(context, file)
            agent = Agent(context, log, layout, machine, grown_bytes)
            # An agent has one cell. Fenced, it renews no lease, and its workers end with the last one.
            await work_apart(context, layout, machine.cell, agent.run, begins_anew=False)
        finally:
            await log.stop()
            machine.state.close()


def _of_files(error: BaseException) -> BaseException | None:
    """The error, or the one in a group, that a new start would meet again: a person has to look at a file."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _of_files(inner)) is not None), None)
    return error if isinstance(error, (NoRegularFile, DiaryUnreadable)) else None


@dataclass(slots=True)
class Begun:
    """What there is once the node has begun: the node, and what it says on its way to the log."""

    node: OwnNode
    outbox: Outbox


class Agent:
    """One node. Between two awaits there is one whole turn: state, diary, processes and outbox agree."""

    def __init__(
        self,
        context: Context[AgentSettings],
        log: Log,
        layout: Layout,
        machine: OwnMachine,
        grown_bytes: int = GROWN_BYTES,
    ) -> None:
        self._context, self._log, self._layout, self._host = context, log, layout, context.host
        self._cell, self._spec, self._state, self._driver = machine.cell, machine.spec, machine.state, machine.driver
        self._follower = Follower(
            log, layout, machine.cell, snapshots=not context.settings.embedded, service=context.service
        )
        self._diaries = Diaries(machine.files, machine.cell, 1, grown_bytes)
        self._begun: Begun
        self._give_way_ms = NEVER_MS
        self._kept_until_ms: int | None = None
        """Until when the lease in its file lets workers live; None: no lease of this boot stands there."""
        self._unsaid: list[Batch] = []
        """What waits for a lease to stand in its file before it is said."""
        self._unkept_why = ""
        self._passed_over_why: str | None = None
        """Why it goes by a picture that is old: until it does not, nothing is said, and the lease runs out."""
        self._asks = asyncio.Event()
        self._catching_up = CatchingUp(context, log, layout.tp("decisions", machine.cell), machine.cell)

    async def run(self) -> None:
        """Work until the process is to stop. Raises NodeTakenOver, StateFolderUnusable."""
        try:
            await self._work()
        except Exception as error:
            if (unusable := _of_files(error)) is None:
                raise
            raise StateFolderUnusable(f"state_dir = {self._context.settings.state_dir}: {unusable}") from error
        finally:
            await self._follower.stop()
            self._driver.close()

    async def _work(self) -> None:
        if not await wait_for(self._context, "the decision log", self._caught_up, (LogUnavailable, OSError)):
            return
        if not await wait_for(self._context, "a decision that tells the lease", self._is_lease_told, (LogUnavailable,)):
            return
        if not await wait_for(self._context, f"node {self._spec.id}", self._is_free, (LogUnavailable,)):
            return
        if not await wait_for(self._context, "the end of what ran before", self._boot, ()):
            return
        self._context.health.ready()
        work = {
            "publisher": self._begun.outbox.run(),
            "decisions": self._follow_log(),
            "processes": self._look(),
            "lease": self._catch_up(),
        }
        await together(self._context.stopping, until_stopped={"end": self._settle()}, cut_off=work)

    async def _caught_up(self) -> str | None:
        await self._follower.stop()
        try:
            await self._follower.start()
            await self._follower.catch_up()
        except BaseException:
            await self._follower.stop()
            raise
        return None

    async def _is_lease_told(self) -> str | None:
        """None once a decision says by which lease nodes go, and those behind it are believed here."""
        if not has_first_decision(self._follower.state):
            await self._follower.catch_up()
        return obstacle(NODES, self._follower, self._context.settings.cell_file)

    async def _is_free(self) -> str | None:
        """None once no other agent speaks for the node. One that lives keeps it: were it given to each that joins, two
        with the same name would take it from each other, and stop its jobs each time.
        """
        await self._follower.catch_up()
        if why := obstacle(NODES, self._follower, self._context.settings.cell_file):
            return why
        node = self._follower.state.nodes.get(self._spec.id)
        if node is None or node.status is NodeStatus.LOST or self._state.has_begun(node.boot):
            return None
        return (
            f"an agent with another state folder speaks for it, in boot {node.boot}; this one goes on when the cell "
            "has lost that one"
        )

    async def _boot(self) -> str | None:
        """Go on with the boot that the log knows, or begin a new one once nothing of the old one is left."""
        state, boot = self._follower.state, self._state.boot()
        kept = self._driver.kept_lease()
        if boot is None or kept is None or not keeps_boot(state, self._spec, boot):
            if not self._driver.stop_everything():
                return "processes that do not end"
            boot, kept = self._state.new_boot(), None
        seq = self._diaries.take(0, self._host.wall_ms())
        every_ms = self._context.settings.report_every_wall_ms
        lease = Lease(self._host.monotonic_ms()) if kept is None else gone_on_with(kept, state)
        self._kept_until_ms = None if kept is None else kept.until_ms
        node = OwnNode(self._cell, self._spec, boot, seq=seq, lease=lease, report_every_wall_ms=every_ms)
        telemetry = ExecutorTelemetry(self._context.registry, lambda: {self._cell: 1}, node.runs_by_status)
        outbox = Outbox(self._context, self._log, self._layout, node, telemetry, self._diaries.sync)
        self._begun = Begun(node, outbox)
        self._context.logger.info("node begins", node=self._spec.id, boot=boot, cell=self._cell)
        self._keep_lease()
        past = self._diaries.read(0, state.jobs)[self._spec.id]
        self._carry_out(node.begin(state, past, self._now()))
        return None

    async def _settle(self) -> None:
        """What was said still goes out; the workers stay."""
        await self._context.stopping.wait()
        with contextlib.suppress(TimeoutError):  # the next agent says it again
            await asyncio.wait_for(self._begun.outbox.drained(), SETTLE_WAIT_S)

    # Turns.

    async def _follow_log(self) -> None:
        away = self._context.back_off(AWAY_FIRST_S)
        while True:
            try:
                decisions = await self._follower.poll(POLL_WAIT_MS, RECORDS_PER_POLL)
            except LogUnavailable as error:
                self._context.logger.warning("cannot read", cell=self._cell, reason=str(error))
                await asyncio.sleep(away.next_s())
                continue
            away.reset()
            self._look_at_keys()
            if decisions:
                self._carry_out(self._begun.node.decided(self._follower.state, decisions, self._now()))
                self._context.telemetry.records_read.labels("decisions").inc(len(decisions))
            self._catching_up.has_read()
            self._show()

    async def _catch_up(self) -> None:
        """When the node has a lease again: tell it when the log has been read to the end that it had by then."""
        while True:
            await self._asks.wait()
            self._asks.clear()
            since_ms = self._begun.node.asks_since_ms
            if since_ms is None:
                continue
            await self._catching_up.wait(self._follower)
            self._begun.node.caught_up(since_ms)

    async def _look(self) -> None:
        while True:
            await self._driver.next_look()
            node = self._begun.node
            self._keep_lease()
            seen = self._driver.look()
            if seen:
                self._carry_out(node.observed(seen, self._now()))
            self._carry_out(node.tick(self._follower.state, self._now()))
            if node.asks_since_ms is not None:
                self._asks.set()
            if node.is_replaced:
                self._give_way()
            self._forget_past()

    def _give_way(self) -> None:
        """Another agent has taken the node: the process ends when nothing runs here any more."""
        now_ms = self._host.monotonic_ms()
        self._give_way_ms = min(self._give_way_ms, now_ms + EMPTY_WAIT_MS)
        # What does not end by then ends with the lease, which is not renewed any more.
        if self._begun.node.agent.is_empty or now_ms >= self._give_way_ms:
            raise NodeTakenOver(f"node {self._spec.id} has joined cell {self._cell} from elsewhere")

    def _carry_out(self, turn: Turn) -> None:
        """The diary first, then the processes, then the world hears of it."""
        while True:
            if turn.lines and self._diaries.write(turn.lines):
                raise NodeTakenOver(f"the diary of node {self._spec.id} is written by another process")
            self._say(turn)
            gang = cache(partial(gang_of, self._follower.state))  # thousands of workers of one job may be begun at once
            seen = [found for action in turn.actions if (found := self._act(action, gang)) is not None]
            for job, attempt in turn.worlds:
                self._driver.show_world(job, attempt, gang(job, attempt))
            if not seen:
                return
            turn = self._begun.node.observed(seen, self._now())

    def _forget_past(self) -> None:
        """Shorten the diary when it has grown. What the log has taken as over needs no line any more."""
        state = self._follower.state
        if self._diaries.grown() and not self._diaries.forget(0, Lives(state.version, state.jobs, (self._spec.id,))):
            raise NodeTakenOver(f"the diary of node {self._spec.id} is written by another process")

    def _act(self, action: Start | Stop, gang: Callable[[str, int], Gang | None]) -> Observation | None:
        if isinstance(action, Stop):
            return self._driver.stop(action)
        return self._driver.start(action, gang(action.job, action.attempt))

    def _say(self, turn: Turn) -> None:
        """Nor may workers outlive what is told of the lease, should this agent die: it stands in its file first. Where
        a shorter one cannot be written, nothing is said, and the cell waits for as long as it was told before. Nor is
        anything said by an agent that passes over decisions.
        """
        node, waited = self._begun.node, bool(self._unsaid)
        batches = [*self._unsaid, Batch(turn.now.monotonic_ms, turn.events)]
        if not self._keep_lease() or self._passed_over_why is not None:
            self._unsaid = [batch for batch in without_outdated(batches) if batch.events]
            return
        self._unsaid = []
        for batch in batches:
            # What went out meanwhile may have been said once more, with newer numbers.
            events = node.renumber(batch.events) if waited else node.still_ours(batch.events)
            self._begun.outbox.put(events, batch.made_ms)

    def _keep_lease(self) -> bool:
        """Write the node's lease into its file. Whether no worker lives longer than that by what stands there now."""
        node = self._begun.node
        until_ms = node.lease_until_ms(self._follower.state)
        try:
            self._driver.keep_lease(node.agent.renewed_ms, until_ms)
        except OSError as error:
            is_kept = self._kept_until_ms is not None and self._kept_until_ms <= until_ms
            self._tell_unkept(cause_of(error), is_kept=is_kept)
            return is_kept
        self._kept_until_ms, self._unkept_why = until_ms, ""
        self._context.health.ready(LEASE)
        return True

    def _tell_unkept(self, why: str, *, is_kept: bool) -> None:
        """Tell people that the lease cannot be written, and what comes of that; the log of the process once."""
        comes = "workers end with the one that was written last"
        if not is_kept:
            comes = "nothing is said of this node until it can, and the cell will take it for lost"
        self._context.health.not_ready(f"the lease of node {self._spec.id} cannot be written, {comes}: {why}", LEASE)
        if self._unkept_why != comes + why:
            self._unkept_why = comes + why
            self._context.logger.error("the lease cannot be written", node=self._spec.id, comes=comes, reason=why)

    def _look_at_keys(self) -> None:
        """Tell people why decisions are passed over here, and the log of the process once."""
        why = obstacle(NODES, self._follower, self._context.settings.cell_file)
        if why == self._passed_over_why:
            return
        self._passed_over_why = why
        if why is None:
            self._context.health.ready("keys")
            return
        self._context.health.not_ready(f"cell {self._cell}: {why}", "keys")
        if why == NONE_YET:  # as at the first start of a new cell, of which nothing is missing
            self._context.logger.info("waiting for the first decision of the cell", node=self._spec.id)
            return
        comes = "nothing is said of this node, and its work ends with its lease"
        self._context.logger.error("decisions are missing", node=self._spec.id, comes=comes, reason=why)

    def _show(self) -> None:
        topic, partition = self._layout.tp("decisions", self._cell)
        self._context.health.handled(topic, partition, self._follower.next_offset)
        self._context.health.progress.version[self._cell] = self._follower.state.version
        self._context.health.progress.busy = not self._begun.outbox.is_empty

    def _now(self) -> Now:
        return Now(self._context.clock.now_ms(), self._host.wall_ms(), self._host.monotonic_ms())
