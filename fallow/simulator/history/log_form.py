"""The decision log's own form: which records are in force, and whether the chain of hashes holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from fallow.shared.events.codec.encoding import Undecodable, decode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import AnyEffect, InputFenced, InputResumed, NodeSilent, WriterStarted
from fallow.simulator.history.evidence import CellEvidence, LogEntry, Violation

_BEFORE_WORK: frozenset[type[AnyEffect]] = frozenset({WriterStarted, InputFenced, InputResumed})
"""A writer takes the log over, and puts inputs in their places, in records of their own."""

_LEAVING: frozenset[type[AnyEffect]] = frozenset({NodeSilent})
"""What the last record of a writer that leaves may tell."""


class InForce(NamedTuple):
    """A decision that extends the one before it, and where and when it came into the log. `does_what_is_due`: nothing
    that was due may wait for a later one, but for what the record has no room for.
    """

    decision: Decision
    offset: int
    moment: int | None
    does_what_is_due: bool = True


def decisions_in_force(evidence: CellEvidence) -> tuple[list[InForce], list[Violation]]:
    """The decisions that every reader has to follow, and what is wrong with the log's form.

    Stale records and those of strangers are passed over, forged ones too. Reading ends where the log is damaged.
    """
    entries, violations = _followed(evidence)
    epochs = [entry.decision.epoch for entry in entries[1:]]
    found = [
        entry._replace(does_what_is_due=_does_what_is_due(entry.decision, next_epoch))
        for entry, next_epoch in zip_longest(entries, epochs)
    ]
    return found, violations


def _does_what_is_due(decision: Decision, next_epoch: int | None) -> bool:
    """Whether its writer was at work. One that takes the log over has not begun yet, however many do so in a row; and
    one that leaves only tells what it has read and which nodes it has not heard.
    """
    kinds = {type(effect) for effect in decision.effects}
    tells_something = bool(kinds or decision.inputs)
    leaves = next_epoch != decision.epoch and tells_something and kinds <= _LEAVING
    return not leaves and not kinds & _BEFORE_WORK


def _followed(evidence: CellEvidence) -> tuple[list[InForce], list[Violation]]:
    found: list[InForce] = []
    version, chain = 0, CHAIN_START
    for place, entry in enumerate(evidence.log):
        if entry.is_forged:
            continue
        decision = _decision_of(entry)
        if decision is None:
            if entry.value is not None and entry.chain == next_chain(chain, entry.value):
                text = "a record that continues the chain cannot be read"
                return found, _judge_damage(evidence, place, version + 1, text)
            continue
        if decision.cell != evidence.cell or decision.version <= version:
            continue
        damage = _damage(entry, decision, version, chain)
        if damage is not None:
            return found, _judge_damage(evidence, place, decision.version, damage)
        found.append(InForce(decision, entry.offset, entry.moment))
        version, chain = decision.version, entry.chain
    return found, []


def _decision_of(entry: LogEntry) -> Decision | None:
    if entry.decision is not None:
        return entry.decision
    event = decode(Decision.type, entry.value)
    return None if isinstance(event, Undecodable) or not isinstance(event, Decision) else event


def _damage(entry: LogEntry, decision: Decision, version: int, chain: str) -> str | None:
    if decision.version > version + 1:
        return f"version {decision.version} follows {version}: records are missing"
    if entry.value is not None and entry.chain != next_chain(chain, entry.value):
        return f"version {decision.version} does not continue the chain"
    return None


def _judge_damage(evidence: CellEvidence, place: int, version: int, damage: str) -> list[Violation]:
    """Damage is no violation where the log was harmed; to go on behind it always is one."""
    found = [] if evidence.is_damaged else [_violation(evidence, evidence.log[place], damage)]
    done = evidence.log[place].moment
    for entry in evidence.log[place + 1 :]:
        later = None if entry.is_forged else _decision_of(entry)
        # One record may have been on its way when the damage was done; and one of each writer that had not looked yet.
        if done is not None and entry.moment is not None and entry.moment < done + evidence.unaware:
            continue
        if later is not None and later.epoch == evidence.deaf:
            continue  # a writer does not read its own records again, and no reader takes what it writes behind
        if later is not None and later.cell == evidence.cell and later.version > version:
            return [*found, _violation(evidence, entry, f"version {later.version} was written behind a damaged record")]
    return found


def _violation(evidence: CellEvidence, entry: LogEntry, text: str) -> Violation:
    return Violation("LOG", text, f"{evidence.cell}, offset {entry.offset}")


def order_violations(cell: str, decisions: Sequence[InForce]) -> list[Violation]:
    """Time, input positions and the writer's epoch never go back from one decision to the next."""
    found: list[Violation] = []
    at_ms, epoch, inputs = 0, 0, dict[str, int]()
    for decision, offset, *_ in decisions:
        where = f"{cell}, version {decision.version}, offset {offset}"
        if decision.at_ms < at_ms:
            found.append(Violation("LOG", f"cell time goes back from {at_ms} to {decision.at_ms}", where))
        if decision.epoch < epoch:
            found.append(Violation("LOG", f"the writer of epoch {decision.epoch} decides after {epoch}", where))
        for source, position in decision.inputs.items():
            if position < inputs.get(source, 0):
                text = f"input {source} goes back from {inputs[source]} to {position}"
                found.append(Violation("LOG", text, where))
        at_ms, epoch = decision.at_ms, decision.epoch
        inputs.update(decision.inputs)
        moved = [effect for effect in decision.effects if isinstance(effect, InputResumed | InputFenced)]
        inputs.update({effect.input: effect.to_offset for effect in moved})
    return found
