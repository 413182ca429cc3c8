"""A case on the services: its cluster, its running jobs, and everything that happens to them."""

from __future__ import annotations

from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.turn import Observation, Turn
from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.service import Input, PendingDecision
from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.fold.fold import extend
from fallow.shared.cluster.model.job import HOLDING, WAITING, Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, RunStatus, VirtualRun, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.nodes import DeviceFailed, NodeJoined, NodeLost, NodeReport, RunStatusUpdate
from fallow.shared.events.operations import Cordon, SetQuota, Uncordon
from fallow.shared.events.queue import StartsPlanned
from fallow.shared.events.submissions import CancelJob, SubmitJob
from fallow.simulator.cases.reasons import CAN_NEVER_RUN, in_words, waits_in_words
from fallow.simulator.cases.schema import PendingRow, RunningRow
from fallow.simulator.cases.setting import GPU_TYPE, S_MS, NotBuiltIn, Setting, is_invalid, is_many, ms
from fallow.simulator.cases.story import Story
from fallow.simulator.trace.cell import VirtualCell

ORIGIN_MS = 30 * 86_400_000
"""Cell time at second 0 of a case, so that what began before it has a time too."""

DIGEST = "0" * 32
SEQ_STEP = 1_000_000
"""So much higher are the numbers of what a restarted executor's nodes say."""


class Theatre(VirtualCell):
    """The cell of a case. Silent are nodes whose words do not arrive, and jobs whose starts no node acknowledges."""

    def __init__(self, setting: Setting, story: Story) -> None:
        self.setting, self.names, self.story = setting, setting.names, story
        self.silent: dict[str, list[Said]] = {}
        self.unacknowledged: dict[str, None] = {}
        self.rejected: dict[str, JobRejected] = {}
        self.submitted: dict[str, None] = {}
        self.queue_of: dict[str, str] = {}
        self.verdict_wall_s = 0.0
        self.takes_plans = setting.case.policy.queue_policy == "backfill"
        self._plans = 0
        self._told: list[tuple[int, Input]] = []
        self._diaries: dict[str, list[DiaryLine]] = {}
        super().__init__(setting.file, setting.nodes, (story.follow,))

    def open(self) -> None:
        """The cluster as the case begins: nodes are there, running jobs run, nothing is submitted yet."""
        rows = self.setting.case.running
        began = {row.job: ORIGIN_MS + ms(row.started_s or 0) - ms(row.running_for_s or 0) for row in rows}
        self.begin(min((*began.values(), ORIGIN_MS)))
        for node in self.setting.case.cluster.nodes:
            if not node.healthy:
                self._fail(self.names.inside("node", node.name), range(node.gpus))
        self.settle()
        self.unacknowledged = {self.names.job_of(row.queue, row.job): None for row in rows if not row.acknowledged}
        for row in sorted(rows, key=lambda row: began[row.job]):
            self._let_run(row, began[row.job])
        self.advance(max((*began.values(), ORIGIN_MS)))
        self.story.begin_step()
        for row in rows:
            if is_invalid(row):
                self._break(self.names.inside("job", row.job))
        self.settle()

    @property
    def now_s(self) -> float:
        """The case's time."""
        return (self.now_ms - ORIGIN_MS) / S_MS

    def _let_run(self, row: RunningRow, at_ms: int) -> None:
        """Decide what an earlier decision has decided: the job is known and holds its places."""
        self.advance(at_ms)
        if is_many(row):
            jobs = [(f"{row.job}-{number}", [node]) for number, node in enumerate(row.nodes)]
        else:
            jobs = [(row.job, list(row.nodes))]
        for name, nodes in jobs:
            spec = self.setting.spec(row, name=name, tasks=1 if is_many(row) else None)
            ahead_ms = ORIGIN_MS - at_ms
            if isinstance(spec.run, VirtualRun) and spec.run.duration_ms is not None:
                spec = replace(spec, run=VirtualRun(duration_ms=spec.run.duration_ms + max(0, ahead_ms)))
            self._start(spec, [self.names.inside("node", node) for node in nodes], at_ms)
        self.settle()

    def _start(self, spec: JobSpec, nodes: list[str], at_ms: int) -> None:
        self.submitted[spec.id] = None
        self.queue_of[spec.id] = spec.tenant
        pools = tuple(dict.fromkeys(self.state.nodes[node].spec.pool for node in nodes))
        resolved = replace(spec, cell=self.state.cell, queue=spec.tenant, pools=pools)
        effects: list[e.AnyEffect] = [
            e.JobEnqueued(spec=resolved, submit_ms=at_ms, digest=DIGEST),
            e.JobStarted(job=spec.id, attempt=1, workers=self._places(spec, nodes)),
        ]
        mark = self.state.checkpoint()
        try:
            for effect in effects:
                apply(self.state, effect, at_ms)
        except IllegalEffect as error:
            raise NotBuiltIn(f"running job {self.names.outside(spec.id)}: {self.names.in_words(str(error))}") from error
        self._keep(mark, PendingDecision(effects, {}, at_ms, at_ms, (), has_more=False))

    def _places(self, spec: JobSpec, nodes: list[str]) -> tuple[WorkerPlace, ...]:
        """The lowest free devices of each node."""
        free = {node: self.state.nodes[node].free for node in nodes}
        places, each = [], spec.resources.gpu_milli // GPU
        for rank, node in enumerate(nodes):
            devices = tuple(bit for bit in range(free[node].bit_length()) if free[node] >> bit & 1)[:each]
            if len(devices) < each:
                raise NotBuiltIn(f"running jobs need more GPUs than node {self.names.outside(node)} has")
            for device in devices:
                free[node] ^= 1 << device
            places.append(WorkerPlace(rank=rank, node=node, devices=devices, gpu_milli=each * GPU))
        return tuple(places)

    def settle(self) -> None:
        """Let the services act until none has anything left to do; queueing plans behind them."""
        super().settle()
        if self.takes_plans:
            self._plan()
            super().settle()

    def _plan(self) -> None:
        state, queues = self.state, self.file.cells[0].queues
        starts = plan_starts(state, queues, self.now_ms, state.policy.reservations_max, estimator_of(state))
        self._plans += 1
        self.placement.hear_plan(
            StartsPlanned(
                cell=state.cell,
                writer="queueing",
                plan=self._plans,
                version=state.version,
                at_ms=self.now_ms,
                starts=starts,
            )
        )

    # Jobs.

    def hand_in(self, row: PendingRow, submit_ms: int, *, name: str | None = None) -> None:
        """Submit a job that has waited since `submit_ms`."""
        spec = self.setting.spec(row, name=name)
        self.submitted[spec.id] = None
        self.queue_of[spec.id] = spec.tenant
        answer = self.submit(SubmitJob(job=spec, submit_ms=submit_ms))
        self._note(spec.id, answer)

    def _note(self, job: str, answer: Event | Undecodable) -> None:
        if isinstance(answer, Undecodable):
            raise NotBuiltIn(f"job {self.names.outside(job)}: {answer}")
        if isinstance(answer, JobRejected):
            self.rejected[job] = answer

    def finish(self, job: str) -> None:
        """The job ends well, now."""
        found = self.state.jobs.get(job)
        turn = Turn(self._now())
        for node in dict.fromkeys(place.node for place in found.workers) if found is not None else ():
            seen = Observation(node, job, found.attempt if found is not None else 0, RunStatus.FINISHED, 0)
            self.executor.agents[node].observe(turn, seen)
        self.say(turn)
        self.settle()

    def delete(self, job: str) -> None:
        """Its tenant cancels it. The word of its end is lost once, and comes twice when the node says all again."""
        nodes = [place.node for place in self.state.jobs[job].workers] if job in self.state.jobs else []
        for node in nodes:
            self.silent[node] = []
        self.submit(CancelJob(job=job, tenant=self.queue_of[job], cell=self.state.cell))
        self.settle()
        for node in dict.fromkeys(nodes):
            words = self.silent.pop(node)
            for _ in range(2):
                turn = Turn(self._now())
                turn.events += self.executor.renumber(words)
                self.say(turn)
                self.settle()

    # Nodes, quotas.

    def heard(self, said: list[Said]) -> list[Said]:
        """What gets through: no report of silent nodes, and no acknowledgement that the case withholds."""
        through = []
        for each in said:
            if each.node in self.silent:
                self.silent[each.node].append(each)
            elif not (isinstance(each, RunStatusUpdate) and each.job in self.unacknowledged):
                through.append(each)
        return through

    def set_node(self, node: str, state: str) -> None:
        """The node goes down, comes back, is closed, or is healthy again."""
        cell = self.state.cell
        if state == "down":
            self.silent[node] = []
            boot, seq = self.state.nodes[node].boot, self.executor.agents[node].next_seq()
            self.tell(NodeLost(cell=cell, node=node, boot=boot, seq=seq, at_ms=self.now_ms))
        elif state == "cordoned":
            self.tell(Cordon(cell=cell, node=node))
        else:
            self._bring_back(node)
        self.settle()

    def _bring_back(self, node: str) -> None:
        words = [each for each in self.silent.pop(node, []) if isinstance(each, NodeJoined)]
        turn = Turn(self._now())
        if words:
            turn.events += self.executor.renumber(words[-1:])
        elif self.state.nodes[node].failed:
            self.tell(NodeLost(cell=self.state.cell, node=node, boot=self.state.nodes[node].boot,
                               seq=self.executor.agents[node].next_seq(), at_ms=self.now_ms))  # fmt: skip
        else:
            self.tell(Uncordon(cell=self.state.cell, node=node))
        self.say(turn)

    def _fail(self, node: str, devices: range) -> None:
        boot = self.state.nodes[node].boot
        for device in devices:
            seq = self.executor.agents[node].next_seq()
            self.tell(
                DeviceFailed(cell=self.state.cell, node=node, boot=boot, seq=seq, at_ms=self.now_ms, device=device)
            )

    def _break(self, job: str) -> None:
        """The device of the job's first task fails, and its node says that the run there is over by that."""
        found = self.state.jobs[job]
        place = found.workers[0]
        self._fail(place.node, range(place.devices[0], place.devices[0] + 1))
        turn = Turn(self._now())
        seen = Observation(place.node, job, found.attempt, RunStatus.FAILED, None, infrastructure=True)
        self.executor.agents[place.node].observe(turn, seen)
        self.say(turn)

    def set_quota(self, queue: str, **changes: object) -> None:
        """Another guarantee for a queue, or another rule for what it takes back, under its other rules."""
        row = next((row for row in self.setting.case.queues if row.name == queue), None)
        if row is None:
            raise NotBuiltIn(f"queue {queue!r} is made while the cell runs")
        name = self.names.inside("queue", queue)
        parent = None if row.parent is None else self.names.inside("queue", row.parent)
        types = dict.fromkeys(node.gpu_type for node in self.setting.nodes) or {GPU_TYPE: None}
        changed = row.model_copy(update=changes)
        quotas = tuple(self.setting.quota(changed, gpu_type).in_milli(name, parent) for gpu_type in types)
        self.tell(SetQuota(cell=self.state.cell, quotas=quotas))

    def report(self) -> None:
        """Every node says all again."""
        turn = Turn(self._now())
        for agent in self.executor.agents.values():
            agent.report(turn, self.state.policy)
        turn.events = [each for each in turn.events if isinstance(each, NodeReport)]
        self.say(turn)
        self.settle()

    # Killing every service.

    def hand_over(self, item: Input) -> None:
        """Keep what was told, so that it can be told again."""
        self._told.append((self.now_ms, item))
        super().hand_over(item)

    def say(self, turn: Turn) -> None:
        """Keep the lines of the nodes' diaries: they outlive their services."""
        for line in turn.lines:
            self._diaries.setdefault(line.node, []).append(line)
        super().say(turn)

    def restart(self, redeliver_ms: int) -> None:
        """Kill and restart every service: they know the log and the diaries, and hear what was told lately again."""
        since_ms, seq = self.now_ms - redeliver_ms, max(agent.seq for agent in self.executor.agents.values())
        recent = [decision for decision in self.story.decisions if decision.at_ms >= since_ms]
        reader = CellState(self.state.cell)
        for decision in self.story.decisions:
            extend(reader, decision, reader.chain)
        self.begin_services(reader)
        self.take_writer()
        self.say(self.executor.take_over(0, self.state, seq + SEQ_STEP, self._diary, self._now()))
        for at_ms, item in [*self._told]:
            if at_ms >= since_ms:
                super().hand_over(item)
        self.say(self.executor.decided(self.state, recent, self._now()))
        self.settle()

    def _diary(self, node: str) -> list[DiaryLine]:
        return self._diaries.get(node, [])

    # What is so now.

    def running(self) -> dict[str, Job]:
        """The jobs that hold GPUs."""
        return {job.id: job for job in self.state.jobs.values() if job.status in HOLDING}

    def waiting(self) -> list[str]:
        """The jobs that wait, and those that were turned away because they can never run."""
        never = [job for job, why in self.rejected.items() if why.code.value in CAN_NEVER_RUN]
        return [*(job.id for job in self.state.jobs.values() if job.status in WAITING), *never]

    def reason(self, job: str) -> tuple[str, str]:
        """Code and words of why it waits; "" where no service has said."""
        refused = self.rejected.get(job)
        if refused is not None:
            return refused.code.value, self.names.in_words(in_words(refused))
        found = self.state.jobs.get(job)
        if found is None or found.status not in WAITING:
            return "", ""
        why = why_not(self.state, found, self.file.cells[0].queues, self.now_ms)
        code = why.codes[0] if why.codes else why.recorded
        return "" if code is None else code.value, self.names.in_words(waits_in_words(why, found.spec))
