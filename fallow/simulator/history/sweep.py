"""I1, I6 and the leases in true time: what ran when, against what the log had decided by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU
from fallow.simulator.history.evidence import CellEvidence, Happened, Violation, What
from fallow.simulator.history.log_form import InForce
from fallow.simulator.history.runs import Orders, RunKey, named, released_by

TOGETHER_NODES = 3
TOGETHER_PERCENT = 20
"""So many living nodes declared lost in one breath are trouble of the control plane, not the death of nodes."""

_DOES = {What.BEGAN: "begins", What.ADOPTED: "is taken up"}


class _Step(NamedTuple):
    """Something at one moment. At the same one decisions come first, and what happens keeps its order: then nothing is
    found that may have been otherwise.
    """

    moment: int
    is_of_node: bool
    number: int
    what: Happened | InForce


@dataclass(slots=True)
class Sweep:
    """Goes through a cell's run in the order of true time."""

    evidence: CellEvidence
    found: list[Violation] = field(default_factory=list)
    _orders: Orders = field(default_factory=Orders)
    _live: dict[str, dict[RunKey, Happened]] = field(default_factory=dict)
    _over: dict[RunKey, int] = field(default_factory=dict)
    _overdue: dict[RunKey, int] = field(default_factory=dict)
    _up: dict[str, bool] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _out_of_use: dict[str, None] = field(default_factory=dict)

    def run(self, decisions: Sequence[InForce]) -> list[Violation]:
        """Every violation; none where no moments are known."""
        if not self.evidence.happened:
            return []
        steps = [_Step(thing.moment, True, number, thing) for number, thing in enumerate(self.evidence.happened)]
        steps += [
            _Step(decision.moment, False, number, decision)
            for number, decision in enumerate(decisions)
            if decision.moment is not None
        ]
        for step in sorted(steps, key=lambda step: step[:3]):
            if isinstance(step.what, InForce):
                self._decided(step.moment, step.what)
            elif step.what.what in (What.BEGAN, What.ADOPTED):
                self._began(step.what)
            else:
                self._ended(step.what)
        for key in self._overdue:
            self._say("I6", f"{named(key)} goes on after its end was confirmed", self._overdue[key])
        return self.found

    def _say(self, invariant: str, text: str, moment: int) -> None:
        self.found.append(Violation(invariant, text, f"{self.evidence.cell}, at {moment}"))

    # The log.

    def _decided(self, moment: int, decision: InForce) -> None:
        for effect in decision.decision.effects:
            self._orders.take(effect)
            for key in released_by(effect, self._orders):
                self._over.setdefault(key, moment)
                if key in self._live.get(key[0], {}) and key[0] not in self.evidence.liars:
                    self._overdue.setdefault(key, moment)
            self._follow(effect)
        self._nodes_are_given_up_singly(moment, decision)
        for effect in decision.decision.effects:
            if isinstance(effect, e.LeaseExpired):
                self._up[effect.node] = False

    def _follow(self, effect: e.AnyEffect) -> None:
        """Which nodes live as the log knows it, and which of them an operator, or a quarantine, keeps out of use."""
        if isinstance(effect, e.NodeChanged):
            node = effect.spec.id
            self._up[node] = effect.status != "lost"
            if effect.status == "ready":
                self._out_of_use.pop(node, None)
            elif effect.status != "lost":
                self._out_of_use[node] = None
        elif isinstance(effect, e.MaintenanceBegan):
            self._out_of_use[effect.node] = None
        elif isinstance(effect, e.NodeRemoved):
            self._up.pop(effect.node, None)
            self._out_of_use.pop(effect.node, None)

    def _nodes_are_given_up_singly(self, moment: int, decision: InForce) -> None:
        """Trouble of the control plane must not look like the death of many nodes that are used."""
        effects = decision.decision.effects
        booted = {effect.spec.id: None for effect in effects if isinstance(effect, e.NodeChanged)}
        lost = [effect.node for effect in effects if isinstance(effect, e.LeaseExpired)]
        living = [n for n in lost if n not in booted and n not in self._gone and n not in self._out_of_use]
        up = sum(self._up.values())
        if len(living) >= TOGETHER_NODES and len(living) * 100 > TOGETHER_PERCENT * up:
            self._say("LEASE", f"{len(living)} living nodes of {up} are declared lost at once: {living}", moment)

    # The nodes.

    def _began(self, run: Happened) -> None:
        key, live = _key(run), self._live.setdefault(run.node, {})
        self._gone.pop(run.node, None)
        if key in live and run.what is What.BEGAN:
            self._say("I6", f"{named(key)} runs twice at a time", run.moment)
        elif key not in self._orders.devices:
            self._say("I6", f"{named(key)} begins before it is decided", run.moment)
        elif key in self._over and run.moment > self._over[key] + self.evidence.late:
            self._say("I6", f"{named(key)} {_DOES[run.what]} after its end was confirmed", run.moment)
        for device in run.devices:
            beside = [other for other, its in live.items() if device in its.devices and other != key]
            held = run.gpu_milli + sum(live[other].gpu_milli for other in beside)
            if beside and held > GPU:
                others = ", ".join(map(named, beside))
                self._say("I1", f"device {device} of {run.node} runs {named(key)} beside {others}", run.moment)
        live[key] = run

    def _ended(self, thing: Happened) -> None:
        live = self._live.setdefault(thing.node, {})
        if thing.what is What.DIED:
            self._gone[thing.node] = None
            ended = list(live)
        else:
            ended = [_key(thing)]
        for key in ended:
            live.pop(key, None)
            due = self._overdue.pop(key, None)
            if due is not None and thing.moment > due + self.evidence.late and thing.what is not What.LEFT:
                self._say("I6", f"{named(key)} goes on until {thing.moment} after its end was confirmed", due)


def _key(run: Happened) -> RunKey:
    return (run.node, run.job, run.attempt, run.rank, run.turn)
