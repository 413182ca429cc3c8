"""A simulated world's history as evidence for the checker."""

from __future__ import annotations

from collections.abc import Iterable

from services.simulator.history.evidence import (
    Answer,
    CellEvidence,
    Evidence,
    Happened,
    LogEntry,
    Reading,
    View,
    Violation,
    What,
    Wish,
)
from services.simulator.history.judge import judge
from services.simulator.history.record import History, Logged, ViewAnswer, ViewRows
from shared.cluster.diary import DiaryLine
from shared.events.base import Event
from shared.events.decisions import Decision
from shared.events.encoding import Undecodable, decode
from shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from shared.view.row_text import account_rows, job_row, node_row

COMMANDS: dict[str, str] = {SubmitJob.type: "submit", CancelJob.type: "cancel", UpdateJob.type: "update"}


def judge_history(history: History) -> list[Violation]:
    """Every promise that this world broke, as somebody outside can tell."""
    return judge(evidence_of(history))


def evidence_of(history: History) -> Evidence:
    """What is left of a world, as plain data."""
    lies = {fault.what.split()[0]: None for fault in history.injected if fault.kind == "node-lies"}
    cells = [_cell(history, cell.name, cell.ordinal, frozenset(lies)) for cell in history.file.cells]
    return Evidence(cells, [*_wishes(history)] if history.drained else ())


def _cell(history: History, cell: str, ordinal: int, liars: frozenset[str]) -> CellEvidence:
    own = {spec.id: None for spec in history.nodes[cell]}
    return CellEvidence(
        cell,
        [_entry(logged) for logged in history.log.get(("decisions", ordinal), ())],
        diary=[*_diary(history, own)],
        happened=[
            Happened(m.at_ms, m.node, What(m.what), m.job, m.attempt, m.devices, m.gpu_milli)
            for m in history.moments
            if m.node in own
        ],
        liars=liars,
        answers=[*_answers(history.log.get(("jobs", ordinal), ()), ordinal)],
        readings=[_reading(answer) for answer in history.answers if answer.cell == cell],
        views=[_view(rows) for rows in history.views if rows.cell == cell],
        is_drained=history.drained,
        is_damaged=bool(history.lost_tails),
    )


def _entry(logged: Logged) -> LogEntry:
    event = logged.event()
    return LogEntry(
        logged.offset,
        logged.value,
        logged.chain,
        logged.at_ms,
        event if isinstance(event, Decision) else None,
    )


def _diary(history: History, nodes: dict[str, None]) -> Iterable[DiaryLine]:
    for node in sorted(nodes):
        for entry in history.diaries.get(node, ()):
            yield entry.line


def _answers(records: Iterable[Logged], ordinal: int) -> Iterable[Answer]:
    for logged in records:
        event = logged.event()
        if isinstance(event, Event):
            yield Answer(event, f"jobs-{ordinal}", logged.offset)


def _reading(answer: ViewAnswer) -> Reading:
    shown = None if answer.status is None else (answer.status, answer.attempt or 0)
    return Reading(answer.client, answer.version, answer.at_least, {answer.job: shown})


def _view(rows: ViewRows) -> View:
    used = {
        (tenant, account.gpu_type): account.used_milli
        for tenant, text in rows.tenants.items()
        for account in account_rows(text)
    }
    jobs = {job: job_row(text) for job, text in rows.jobs.items()}
    return View(rows.version, rows.cursor - 1, jobs, {node: node_row(text) for node, text in rows.nodes.items()}, used)


def _wishes(history: History) -> Iterable[Wish]:
    """The commands that were confirmed; what is no command may be set aside or turned away."""
    dead = {logged.value: None for logged in history.records("dead-letters")}
    for submission in history.submissions:
        command = COMMANDS.get(submission.type)
        if submission.acked_ms is None or command is None:
            continue
        is_command = not isinstance(decode(submission.type, submission.value), Undecodable)
        if is_command:
            yield Wish(command, submission.job, is_dead=submission.value in dead)
