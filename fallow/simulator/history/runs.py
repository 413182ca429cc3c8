"""I1 and I6 on the nodes: what the log ordered, against what truly ran and what the nodes wrote down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus, WorkerPlace
from fallow.simulator.history.evidence import CellEvidence, Violation
from fallow.simulator.history.log_form import InForce

RunKey = tuple[str, str, int, int | None, int]
"""(node, job, attempt, rank, turn); a gang's workers on a node are one run, without a rank."""


def named(key: RunKey) -> str:
    """The run, for people."""
    node, job, attempt, rank, turn = key
    worker = "" if rank is None else f"worker {rank} of turn {turn} of "
    return f"{worker}attempt {attempt} of job {job} on node {node}"


@dataclass(slots=True)
class Orders:
    """What the log told the nodes: which run on which devices, and what it heard of each attempt. `singly` are the jobs
    that are no gangs, each with the newest run of each rank; `versions` say which decision ordered each run.
    """

    devices: dict[RunKey, dict[int, None]] = field(default_factory=dict)
    runs: dict[tuple[str, int], dict[RunKey, None]] = field(default_factory=dict)
    confirmed: dict[tuple[str, int], str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    singly: dict[str, dict[int, RunKey]] = field(default_factory=dict)
    settled: dict[RunKey, str] = field(default_factory=dict)
    versions: dict[RunKey, int] = field(default_factory=dict)
    version: int = 0

    def take(self, effect: e.AnyEffect, version: int = 0) -> None:
        """Note what one effect of the decision of this version orders or confirms."""
        self.version = version
        match effect:
            case e.JobEnqueued():
                self.singly.pop(effect.spec.id, None)
                if not effect.spec.gang:
                    self.singly[effect.spec.id] = {}
            case e.JobStarted():
                self.attempts[effect.job] = effect.attempt
                self._order(effect.job, effect.attempt, effect.workers)
            case e.JobResizing():
                self._order(effect.job, effect.attempt, effect.add)
            case e.JobRunning() if effect.job not in self.singly:
                self.confirmed[effect.job, effect.attempt] = "running"
            case e.JobFinished() if effect.job not in self.singly:
                self.confirmed[effect.job, effect.attempt] = "finished"
            case e.WorkersSettled():
                for key in self.ranks(effect.job, effect.joined):
                    self.settled[key] = "running"
                for key in self.ranks(effect.job, effect.done):
                    self.settled[key] = "finished"

    def ranks(self, job: str, ranks: Iterable[int]) -> list[RunKey]:
        """The newest runs of these ranks of a job that is no gang."""
        known = self.singly.get(job, {})
        return [known[rank] for rank in ranks if rank in known]

    def _order(self, job: str, attempt: int, places: tuple[WorkerPlace, ...]) -> None:
        singly = self.singly.get(job)
        for place in places:
            key: RunKey = (place.node, job, attempt, None, 0)
            if singly is not None:
                key = singly[place.rank] = (place.node, job, attempt, place.rank, place.turn)
            self.versions[key] = self.version
            self.devices.setdefault(key, {}).update(dict.fromkeys(place.devices))
            self.runs.setdefault((job, attempt), {})[key] = None


def released_by(effect: e.AnyEffect, orders: Orders) -> list[RunKey]:
    """The runs of which nothing may be left once this effect is in force."""
    match effect:
        case e.JobFinished() | e.JobPreempted():
            attempt = effect.attempt
        case e.JobFailed() | e.JobCancelled() | e.JobRequeued():
            attempt = orders.attempts.get(effect.job, 0)
        case e.WorkersSettled():
            return orders.ranks(effect.job, (*effect.done, *effect.gone))
        case e.JobResized():
            stay = {place.node: None for place in effect.workers}
            return [key for key in orders.runs.get((effect.job, effect.attempt), {}) if key[0] not in stay]
        case _:
            return []
    return [*orders.runs.get((effect.job, attempt), {})]


def diary_violations(evidence: CellEvidence, decisions: Sequence[InForce]) -> list[Violation]:
    """I6 in the diaries: what was ordered is begun once and ended once, on the devices of the order, and what the log
    has confirmed was truly begun, or ended well.
    """
    orders = Orders()
    for decision in decisions:
        for effect in decision.decision.effects:
            orders.take(effect, decision.decision.version)
    begun: dict[RunKey, None] = {}
    ended: dict[RunKey, RunStatus | None] = {}
    found: list[Violation] = []
    for line in evidence.diary:
        text = _of_line(line, orders, begun, ended)
        if text is not None:
            found.append(Violation("I6", text, evidence.cell))
    found.extend(Violation("I6", text, evidence.cell) for text in _unconfirmed(evidence, orders, begun, ended))
    return found


def _of_line(
    line: DiaryLine, orders: Orders, begun: dict[RunKey, None], ended: dict[RunKey, RunStatus | None]
) -> str | None:
    """Take in one line; what is wrong with it."""
    key = (line.node, line.job, line.attempt, line.rank, line.turn)
    if line.event == "started":
        known = key in begun
        begun[key] = None
        if known:
            return f"{named(key)} was begun twice"
        if key not in orders.devices:
            return f"{named(key)} was begun and never decided"
        ordered = sorted(orders.devices[key])
        if sorted(dict.fromkeys(line.devices)) != ordered:
            return f"{named(key)} was begun on devices {sorted(line.devices)}, decided on {ordered}"
        return None
    if key not in begun:
        return f"{named(key)} is {line.event} and was never begun"
    if key in ended:
        return f"{named(key)} is {line.event} after its end"
    if line.event == "ended":
        ended[key] = line.status
    return None


def _unconfirmed(
    evidence: CellEvidence, orders: Orders, begun: dict[RunKey, None], ended: dict[RunKey, RunStatus | None]
) -> Iterable[str]:
    """What the log has confirmed and no honest node has done. A shortened diary may tell nothing of early runs."""
    if not evidence.diary:
        return
    confirmed = {
        key: what for (job, attempt), what in orders.confirmed.items() for key in orders.runs.get((job, attempt), {})
    }
    for key, what in {**confirmed, **orders.settled}.items():
        is_forgotten = key not in begun and orders.versions[key] <= evidence.forgotten_version
        if key[0] in evidence.liars or is_forgotten:
            continue
        if key not in begun:
            yield f"{named(key)} was confirmed as {what} and its node never began it"
        elif what == "finished" and ended.get(key) is not RunStatus.FINISHED:
            yield f"{named(key)} was confirmed as finished, its node says {ended.get(key, 'that it runs')}"
