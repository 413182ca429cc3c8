"""I1 and I6 on the nodes: what the log ordered, against what truly ran and what the nodes wrote down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.simulator.history.evidence import CellEvidence, Violation
from services.simulator.history.log_form import InForce
from shared.cluster.diary import DiaryLine
from shared.events import effects as e
from shared.events.values import RunStatus, WorkerPlace

RunKey = tuple[str, str, int]
"""(node, job, attempt)."""


def named(key: RunKey) -> str:
    """The run, for people."""
    return f"attempt {key[2]} of job {key[1]} on node {key[0]}"


@dataclass(slots=True)
class Orders:
    """What the log told the nodes: which run on which devices, and what it heard of each attempt."""

    devices: dict[RunKey, dict[int, None]] = field(default_factory=dict)
    nodes: dict[tuple[str, int], dict[str, None]] = field(default_factory=dict)
    confirmed: dict[tuple[str, int], str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    def take(self, effect: e.AnyEffect) -> None:
        """Note what one effect orders or confirms."""
        match effect:
            case e.JobStarted():
                self.attempts[effect.job] = effect.attempt
                self._order(effect.job, effect.attempt, effect.workers)
            case e.JobResizing():
                self._order(effect.job, effect.attempt, effect.add)
            case e.JobRunning():
                self.confirmed[effect.job, effect.attempt] = "running"
            case e.JobFinished():
                self.confirmed[effect.job, effect.attempt] = "finished"

    def _order(self, job: str, attempt: int, places: tuple[WorkerPlace, ...]) -> None:
        for place in places:
            self.devices.setdefault((place.node, job, attempt), {}).update(dict.fromkeys(place.devices))
            self.nodes.setdefault((job, attempt), {})[place.node] = None


def released_by(effect: e.AnyEffect, orders: Orders) -> list[RunKey]:
    """The runs of which nothing may be left once this effect is in force."""
    match effect:
        case e.JobFinished() | e.JobPreempted():
            attempt = effect.attempt
        case e.JobFailed() | e.JobCancelled() | e.JobRequeued():
            attempt = orders.attempts.get(effect.job, 0)
        case e.JobResized():
            stay = {place.node: None for place in effect.workers}
            nodes = orders.nodes.get((effect.job, effect.attempt), {})
            return [(node, effect.job, effect.attempt) for node in nodes if node not in stay]
        case _:
            return []
    return [(node, effect.job, attempt) for node in orders.nodes.get((effect.job, attempt), {})]


def diary_violations(evidence: CellEvidence, decisions: Sequence[InForce]) -> list[Violation]:
    """I6 in the diaries: what was ordered is begun once and ended once, on the devices of the order, and what the log
    has confirmed was truly begun, or ended well.
    """
    orders = Orders()
    for decision in decisions:
        for effect in decision.decision.effects:
            orders.take(effect)
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
    key = (line.node, line.job, line.attempt)
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
    """What the log has confirmed and no honest node has done."""
    if not evidence.diary:
        return
    for (job, attempt), what in orders.confirmed.items():
        for node in orders.nodes.get((job, attempt), {}):
            key = (node, job, attempt)
            if node in evidence.liars:
                continue
            if key not in begun:
                yield f"{named(key)} was confirmed as {what} and its node never began it"
            elif what == "finished" and ended.get(key) is not RunStatus.FINISHED:
                yield f"{named(key)} was confirmed as finished, its node says {ended.get(key, 'that it runs')}"
