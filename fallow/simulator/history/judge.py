"""Judges a whole run from outside: every promise, from the log, the nodes' diaries and what clients were told."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fallow.shared.events.effects import CellFileSet, JobStarted
from fallow.shared.events.fields.values import VirtualRun
from fallow.shared.events.operations import Operation
from fallow.simulator.history.answers import Settlements, stranger_violations, unasked_violations, wish_violations
from fallow.simulator.history.bookkeeping import Bookkeeper
from fallow.simulator.history.books import HELD, QUEUED, RUNNING, Books
from fallow.simulator.history.evidence import CellEvidence, Evidence, Violation
from fallow.simulator.history.log_form import InForce, decisions_in_force, order_violations
from fallow.simulator.history.rules.queues.order import OrderJudge
from fallow.simulator.history.rules.requests.asked import Asked
from fallow.simulator.history.rules.requests.operations import Operations
from fallow.simulator.history.rules.requests.rules_in_force import RulesInForce
from fallow.simulator.history.runs import diary_violations
from fallow.simulator.history.showings import Showings, readings_go_forward
from fallow.simulator.history.sweep import Sweep


def judge(evidence: Evidence) -> list[Violation]:
    """Every violation, cell by cell; none where all promises were kept."""
    found = [violation for cell in evidence.cells for violation in judge_cell(cell)]
    return [*found, *wish_violations(evidence), *stranger_violations(evidence), *unasked_violations(evidence)]


def judge_cell(cell: CellEvidence) -> list[Violation]:
    """The violations in one cell, those of the log's form first."""
    decisions, found = decisions_in_force(cell)
    found += order_violations(cell.cell, decisions)
    found += _in_the_log(cell, decisions)
    if cell.is_damaged:
        # Nodes and clients were told of what is no longer there.
        return found
    found += diary_violations(cell, decisions)
    found += Sweep(cell).run(decisions)
    return [*found, *readings_go_forward(cell.cell, cell.readings)]


def _in_the_log(cell: CellEvidence, decisions: Sequence[InForce]) -> list[Violation]:
    keeper = Bookkeeper(cell.cell)
    settlements, showings = Settlements(cell), Showings(cell)
    keeper.found += showings.compare(keeper.books)
    order = OrderJudge(keeper.books, cell.quiet_from) if cell.quiet_from is not None else None
    operations = Operations(cell)
    asked = Asked(cell, keeper.books) if cell.has_all_requests else None
    in_force = _rules_in_force(cell, keeper.books, decisions) if cell.has_all_requests else None
    before = {} if asked is None or in_force is None else {**asked.before(), **in_force.before()}
    before |= {} if order is None else {JobStarted: order.before_start}
    for decision in decisions:
        if order is not None:
            order.next(decision)
        if asked is not None:
            asked.reads(decision.decision.inputs)
        operations.reads(decision.decision, keeper.books, decision.moment)
        keeper.take(decision, before, operations.behind)
        keeper.found += settlements.take(decision.decision, keeper.books)
        keeper.found += operations.take(decision, keeper.books)
        keeper.found += [] if cell.is_damaged else showings.compare(keeper.books)
    keeper.found += [] if order is None else order.found
    keeper.found += [] if asked is None or in_force is None else [*asked.found, *in_force.found]
    if cell.is_damaged:
        return keeper.found
    keeper.found += showings.of_no_version()
    if cell.is_drained:
        keeper.found += operations.unasked()
        keeper.found += settlements.unread(keeper.books)
        keeper.found += _left_over(keeper.books)
    return keeper.found


def _rules_in_force(cell: CellEvidence, books: Books, decisions: Sequence[InForce]) -> RulesInForce:
    effects = (effect for entry in decisions for effect in entry.decision.effects)
    contents = dict.fromkeys(effect.content for effect in effects if isinstance(effect, CellFileSet))
    files = [*cell.files, *(json.loads(content) for content in contents)]
    asked = [*(each.event for each in cell.operations), *cell.lost_operations]
    return RulesInForce(books, files, [event for event in asked if isinstance(event, Operation)])


def _left_over(books: Books) -> list[Violation]:
    """I9: with faults over and time enough, nothing waits but what is held back, and only what has no end runs."""
    found = []
    for job, page in books.jobs.items():
        is_endless = isinstance(page.spec.run, VirtualRun) and page.spec.run.duration_ms is None
        if page.status == HELD or (page.status == RUNNING and is_endless):
            continue
        why = f", {page.deferred}" if page.status == QUEUED and page.deferred is not None else ""
        found.append(Violation("I9", f"job {job} is still {page.status}{why}", books.cell))
    return found
