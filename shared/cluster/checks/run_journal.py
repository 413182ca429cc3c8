"""I6: each decision takes effect exactly once on a node. Judged from the nodes' own diaries.

A diary is what one node wrote down, in its order: which run it started, adopted after a restart of its agent, and
ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fallow.shared.cluster.checks.invariants import Offence
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Attempt, Count, JobId, Millis, Name, NodeId, Value
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import (
    JobEnqueued,
    JobFinished,
    JobResizing,
    JobRunning,
    JobStarted,
    LeaseExpired,
    WorkersSettled,
)
from fallow.shared.events.fields.values import GPU, RunStatus, WorkerPlace


class DiaryLine(Value, forbid_unknown_fields=False):
    """One line of a node's diary. `devices` and `gpu_milli` are all that the run holds on the node; `status` says how
    it ended; `cell_ms` and `wall_ms` when this was. Where each worker is a run of its own it has a `rank` and a `turn`.
    `ordered_ms` is the cell time of the decision that ordered the run: the id of a job that the cell has forgotten may
    be used again. Older releases did not write it.
    """

    node: NodeId
    job: JobId
    attempt: Attempt
    event: Literal["started", "adopted", "ended"]
    devices: tuple[Count, ...] = ()
    gpu_milli: Count = 0
    status: RunStatus | None = None
    cell_ms: Millis
    wall_ms: Millis
    rank: Count | None = None
    turn: Count = 0
    ordered_ms: Millis | None = None


AGENT_BEHIND_MS = 3_600_000
"""So far behind cell time an agent may have been when it wrote a line that does not say of which run it is."""


def may_be_of(line: DiaryLine, ordered_ms: int) -> bool:
    """Whether a line that does not say so may be about a run that was ordered at this cell time."""
    return line.cell_ms >= ordered_ms - AGENT_BEHIND_MS


class DiaryHorizon(Value):
    """The first line of a diary of which something was forgotten: of runs that the cell's log had ordered by this
    version, the file tells all, or nothing. All later ones stand in it.
    """

    forgotten_version: Count
    cell: Name


HORIZON_BEGINS = b'{"forgotten_version":'
"""How that line begins, and no other."""

RunKey = tuple[str, str, int, int | None, int, int]
"""(node, job, attempt, rank, turn, cell time of its order); of a gang all workers on a node are one run, without a
rank. The time tells it from a run of an earlier job that had the same id.
"""

Attempted = tuple[str, int, int]
"""(job, attempt, cell time of its start)."""

Devices = dict[int, int]
"""Device -> milli-GPUs that a run holds on it."""


@dataclass(slots=True)
class Orders:
    """What the log told the nodes to do. Feed it every accepted decision, from the beginning of the log, or from a
    state: what was ordered by then is not known (`orders_behind`).
    """

    started: dict[RunKey, Devices] = field(default_factory=dict)
    running: dict[Attempted, None] = field(default_factory=dict)
    joined: dict[RunKey, None] = field(default_factory=dict)
    singly: dict[str, dict[int, RunKey]] = field(default_factory=dict)
    """Of each job that is no gang, the newest run of each rank."""
    versions: dict[RunKey, int] = field(default_factory=dict)
    """The version that ordered each run."""
    newest: dict[tuple[str, str, int, int | None, int], RunKey] = field(default_factory=dict)
    """The newest run of each name, for lines that do not say when their run was ordered."""
    earlier: dict[tuple[str, str, int, int | None, int], list[RunKey]] = field(default_factory=dict)
    """The earlier runs of a name, the oldest first, where an id was used again."""
    lost: dict[str, list[int]] = field(default_factory=dict)
    """Of each node the versions at which its lease had expired, ascending: by then it had stopped its own work."""
    version: int = 0
    behind_ms: int | None = None
    """The cell time of the state behind which these orders begin; None where they begin with the cell."""
    _started_ms: dict[str, int] = field(default_factory=dict)
    """When the newest attempt of each job was started."""

    def take(self, decision: Decision) -> None:
        """Note the starts, and the attempts that the nodes must have begun: what ran, and what ended well."""
        self.version = decision.version
        for effect in decision.effects:
            if isinstance(effect, JobStarted):
                self._started_ms[effect.job] = decision.at_ms
                self._order(effect.job, effect.attempt, effect.workers)
            elif isinstance(effect, JobResizing):
                self._order_more(effect)
            elif isinstance(effect, JobEnqueued):
                self._note_kind(effect)
            elif isinstance(effect, LeaseExpired) and not effect.reason:  # a person's word ends no worker
                self.lost.setdefault(effect.node, []).append(self.version)
            elif isinstance(effect, WorkersSettled):
                ranks = self.singly.get(effect.job, {})
                self.joined.update((ranks[rank], None) for rank in (*effect.joined, *effect.done) if rank in ranks)
            elif isinstance(effect, JobRunning | JobFinished) and effect.job not in self.singly:
                self.running[effect.job, effect.attempt, self._started_ms.get(effect.job, 0)] = None

    def _note_kind(self, effect: JobEnqueued) -> None:
        job_id = effect.spec.id
        self.singly.pop(job_id, None)  # an earlier job may have had the same id
        if not effect.spec.gang:
            self.singly[job_id] = {}

    def _order_more(self, effect: JobResizing) -> None:
        joining = effect.add
        if effect.job not in self.singly:
            at = (effect.job, effect.attempt, None, 0, self._started_ms.get(effect.job, 0))
            joining = tuple(place for place in joining if (place.node, *at) not in self.started)
        self._order(effect.job, effect.attempt, joining)

    def _order(self, job: str, attempt: int, places: tuple[WorkerPlace, ...]) -> None:
        ranks, started_ms = self.singly.get(job), self._started_ms.get(job, 0)
        for place in places:
            key: RunKey = (place.node, job, attempt, None, 0, started_ms)
            if ranks is not None:
                ordered_ms = place.since_ms if place.turn else started_ms
                key = ranks[place.rank] = (place.node, job, attempt, place.rank, place.turn, ordered_ms)
            before = self.newest.get(key[:5])
            if before is not None and before != key:
                self.earlier.setdefault(key[:5], []).append(before)
            self.versions[key], self.newest[key[:5]] = self.version, key
            devices = self.started.setdefault(key, {})
            for device in place.devices:
                devices[device] = devices.get(device, 0) + place.gpu_milli // len(place.devices)

    def knows(self, ordered_ms: int) -> bool:
        """Whether all that was ordered at this cell time stands here. A part of what was ordered at the state's own may
        stand before it.
        """
        return self.behind_ms is None or ordered_ms > self.behind_ms

    def can_judge(self, line: DiaryLine) -> bool:
        """Whether the run that a line is about stands here if it was ever ordered."""
        ordered_ms = self.key_of(line)[5]
        return self.behind_ms is None or (
            self.knows(ordered_ms) and (line.ordered_ms is not None or may_be_of(line, ordered_ms))
        )

    def is_over_by_loss(self, one: RunKey, other: RunKey, endless: Collection[RunKey]) -> bool:
        """Whether of two runs on a node the earlier one has no end in any diary, and ended when the node's lease
        expired, before the later one was ordered.
        """
        first, last = sorted((one, other), key=lambda key: self.versions.get(key, 0))
        if first not in endless:
            return False
        lost = self.lost.get(one[0], [])
        at = bisect_left(lost, self.versions.get(first, 0))
        return at < len(lost) and lost[at] <= self.versions.get(last, 0)

    def key_of(self, line: DiaryLine) -> RunKey:
        """The run that a line is about."""
        name = (line.node, line.job, line.attempt, line.rank, line.turn)
        if line.ordered_ms is not None:
            return (*name, line.ordered_ms)
        newest = self.newest.get(name, (*name, 0))
        if may_be_of(line, newest[5]):
            return newest
        return next((key for key in reversed(self.earlier.get(name, ())) if may_be_of(line, key[5])), newest)


def orders_behind(state: CellState) -> Orders:
    """The orders of a log that is read from this state on. The jobs that live in it were enqueued before: whether each
    of their workers is a run of its own only the state tells.
    """
    if state.version == 0:
        return Orders()
    singly = {job.spec.id: dict[int, RunKey]() for job in state.jobs.values() if not job.spec.gang}
    return Orders(singly=singly, behind_ms=state.at_ms)


def check_diaries(
    orders: Orders,
    lines_in_order: Iterable[DiaryLine],
    forgotten_version: int = 0,
    *,
    nodes: Mapping[str, int] | None = None,
) -> list[Offence]:
    """Every offence of the diaries against the orders: starts that are repeated or were never ordered, ends and
    adoptions without a start, confirmed runs that no node began, and two runs on one device at one time. Lines of one
    node stand in the order in which it wrote them. Runs that were ordered by `forgotten_version` need not stand there.

    A run that no line ends is over when its node's lease has expired: its agent was killed, and another one writes in a
    new folder.

    Where the diaries are those of some `nodes`, only their runs are missed: those behind the version given for each.
    Where the orders begin behind a state, lines about runs that may be older say nothing, and such runs are not missed.
    """
    found: list[Offence] = []
    begun: dict[RunKey, None] = {}
    ended: dict[RunKey, None] = {}
    on_node: dict[str, dict[RunKey, Devices]] = {}
    lines = [(orders.key_of(line), line) for line in lines_in_order if orders.can_judge(line)]
    endless = {key for key, _ in lines}.difference(key for key, line in lines if line.event == "ended")
    for key, line in lines:
        live = on_node.setdefault(line.node, {})
        if line.event == "started":
            devices = _devices(orders, key, line)
            beside = {other: held for other, held in live.items() if not orders.is_over_by_loss(key, other, endless)}
            found.extend(_start_offences(orders, begun, key, line))
            found.extend(_beside(beside, key, devices))
            begun[key] = None
            live[key] = devices
            continue
        if key not in begun or key in ended:
            found.append(Offence("I6", f"{_run(key)} {line.event} {'after its end' if key in ended else 'unbegun'}"))
        if line.event == "ended":
            ended[key] = None
            live.pop(key, None)
    unbegun = [
        key
        for key in orders.started
        if key not in begun
        and orders.knows(key[5])
        and (key in orders.joined or (key[1], key[2], key[5]) in orders.running)
        and (nodes is None or key[0] in nodes)
        and _is_missed(orders, key, forgotten_version if nodes is None else nodes[key[0]])
    ]
    return [*found, *(Offence("I6", f"{_run(key)} was confirmed and its node never began it") for key in unbegun)]


def _is_missed(orders: Orders, key: RunKey, forgotten_version: int) -> bool:
    """Whether a diary that may have forgotten what was ordered by this version has to tell of the run."""
    return orders.versions.get(key, forgotten_version + 1) > forgotten_version


def nodes_without_diary(orders: Orders, nodes: Collection[str]) -> tuple[str, ...]:
    """The nodes that confirmed runs and are none of these, of which there are diaries."""
    confirmed = (key[0] for key in orders.started if key in orders.joined or (key[1], key[2], key[5]) in orders.running)
    return tuple(sorted({*confirmed}.difference(nodes)))


def _run(key: RunKey) -> str:
    node, job, attempt, rank, turn, _ = key
    worker = "" if rank is None else f"worker {rank}{f' (turn {turn})' if turn else ''} of "
    return f"{worker}attempt {attempt} of job {job} on node {node}"


def _start_offences(orders: Orders, begun: dict[RunKey, None], key: RunKey, line: DiaryLine) -> list[Offence]:
    if key in begun:
        return [Offence("I6", f"{_run(key)} was begun twice")]
    if key not in orders.started:
        return [Offence("I6", f"{_run(key)} was begun and never ordered")]
    ordered = sorted(orders.started[key])
    if sorted(set(line.devices)) != ordered:
        return [Offence("I6", f"{_run(key)} was begun on devices {sorted(line.devices)}, ordered on {ordered}")]
    return []


def _devices(orders: Orders, key: RunKey, line: DiaryLine) -> Devices:
    """What the run takes: of each device what was ordered, of one that was not ordered all."""
    ordered = orders.started.get(key, {})
    return {device: ordered.get(device, GPU) for device in line.devices}


def _beside(live: dict[RunKey, Devices], key: RunKey, devices: Devices) -> list[Offence]:
    """I1 as the node saw it: no device is promised to more runs at a time than it has room for."""
    found = []
    for device, milli in devices.items():
        others = [other for other in live if device in live[other] and other != key]
        if milli + sum(live[other][device] for other in others) > GPU:
            beside = ", ".join(map(_run, others))
            found.append(Offence("I1", f"device {device} of {key[0]} runs {_run(key)} beside {beside}"))
    return found
