"""A simulated world's history as evidence for the checker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable, decode
from fallow.shared.events.decisions import Decision, input_name
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobsAdmitted
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.view.row_text import account_rows, job_row, node_row
from fallow.simulator.history.evidence import (
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
from fallow.simulator.history.judge import judge
from fallow.simulator.history.record import ENDS_THE_STORY, History, Logged, NodeMoment, ViewAnswer, ViewRows
from fallow.simulator.trouble.faults import Fault

UNAWARE_MS = 500
"""A writer learns with the answer to its next record that the log is not what it was."""

QUIET_MS = 8_000
"""So long after the last fault those that died or stood still are back, and a writer has taken each cell over."""

AWAY_MS = 45_000
"""So long at most a process leaves a cell to others whose records the log refused time after time."""

COMMANDS: dict[str, str] = {SubmitJob.type: "submit", CancelJob.type: "cancel", UpdateJob.type: "update"}

_WHAT = {"started": What.BEGAN, "adopted": What.ADOPTED, "ended": What.ENDED}


def judge_history(history: History) -> list[Violation]:
    """Every promise that this world broke, as an observer outside can tell."""
    return judge(evidence_of(history))


def evidence_of(history: History) -> Evidence:
    """What is left of a world, as plain data."""
    files = [json.loads(file.model_dump_json()) for file in (history.file, *(file for _, file in history.files))]
    cells = [_cell(history, cell.name, cell.ordinal, files) for cell in history.file.cells]
    wishes = [*_wishes(history)] if history.drained else ()
    return Evidence(cells, wishes, submissions=[*_submissions(history)], files=files)


def _submissions(history: History) -> Iterable[SubmitJob | CancelJob | UpdateJob]:
    """What tenants' topics hold, from any sender, and what the world asked for at its end."""
    for (topic, _), records in history.log.items():
        for logged in records if topic.startswith(("submissions", "jobs")) else ():
            event = logged.event()
            if isinstance(event, SubmitJob | CancelJob | UpdateJob):
                yield event
            elif isinstance(event, JobCancelRequested) and event.reason == ENDS_THE_STORY:
                yield CancelJob(job=event.job, tenant=event.tenant)


def _cell(history: History, cell: str, ordinal: int, files: Sequence[Mapping[str, Any]]) -> CellEvidence:
    own = {spec.id: None for spec in history.nodes[cell]}
    return CellEvidence(
        cell,
        [_entry(logged) for logged in history.log.get(("decisions", ordinal), ())],
        diary=[*_diary(history, own)],
        happened=_happened(history, own),
        answers=[*_answers(history.log.get(("jobs", ordinal), ()), ordinal)],
        readings=[_reading(answer) for answer in history.answers if answer.cell == cell],
        views=[_view(rows) for rows in history.views if rows.cell == cell],
        is_drained=history.drained,
        is_damaged=bool(history.lost_tails),
        unaware=UNAWARE_MS,
        cut={f"{lost.topic}-{ordinal}": lost.offset for lost in history.lost_inputs if lost.partition == ordinal},
        lost_answers=[answer.event for answer in _answers(_lost_of("jobs", history, ordinal), ordinal)],
        dead=_dead_of(history, ordinal),
        deaf=_deaf_reign(history, ordinal),
        quiet_from=_quiet_from_ms(history),
        has_all_requests=True,
        operations=[*_answers(history.log.get(("operations", ordinal), ()), ordinal, "operations")],
        lost_operations=[answer.event for answer in _answers(_lost_of("operations", history, ordinal), ordinal)],
        files=files,
        on_disk=[(at_ms, file.content()) for at_ms, file in ((0, history.file), *history.files)],
    )


def _quiet_from_ms(history: History) -> int:
    is_denied = any(fault.kind == Fault.DENIED for fault in history.injected)
    return history.faults_end_ms + QUIET_MS + (AWAY_MS if is_denied else 0)


def _lost_of(topic: str, history: History, ordinal: int) -> Iterable[Logged]:
    """The records of a cell's `jobs`, or `operations`, that were taken out, or damaged when they were written."""
    for lost in history.lost_inputs:
        if (lost.topic, lost.partition) == (topic, ordinal):
            yield from lost.records
    for flipped in history.flipped:
        if (flipped.whole.topic, flipped.whole.partition) == (topic, ordinal):
            yield flipped.whole


def _dead_of(history: History, ordinal: int) -> frozenset[tuple[str, int, str]]:
    """The jobs that placement set aside because decisions fail on them: those that the world has poisoned, and no other
    job of their records. Nothing else that admission passes on, and no operation, gives cause to be set aside: none
    that a world asks for is such that no record can hold what follows from it.
    """
    poisoned = {fault.what for fault in history.injected if fault.kind == Fault.POISONED}
    failed = {*_set_aside("jobs", history, ordinal, DeadLetterReason.HANDLER_FAILED)}
    admitted = [*history.log.get(("jobs", ordinal), ()), *_lost_of("jobs", history, ordinal)]
    return frozenset(
        (answer.source, answer.offset, answer.event.key())
        for answer in _answers(admitted, ordinal)
        if isinstance(answer.event, JobAdmitted) and answer.event.key() in poisoned and answer.offset in failed
    )


def _set_aside(topic: str, history: History, ordinal: int, reason: DeadLetterReason) -> Iterable[int]:
    """The offsets of one of a cell's inputs that were set aside for this reason."""
    for logged in history.records("dead-letters"):
        sent = {name: value.decode("utf-8", "replace") for name, value in logged.record(logged.topic).headers}
        at = (sent.get("origin_topic", "").rpartition(".")[2], sent.get("origin_partition"))
        if at == (topic, str(ordinal)) and sent["reason"] == reason:
            yield int(sent["origin_offset"])


def _deaf_reign(history: History, ordinal: int) -> int | None:
    """The epoch of the decision that was damaged on its way into the log."""
    damaged = [flipped.whole for flipped in history.flipped if flipped.whole.topic == "decisions"]
    epochs = [event.epoch for logged in damaged if isinstance(event := logged.event(), Decision)]
    return epochs[0] if epochs and damaged[0].partition == ordinal else None


def _entry(logged: Logged) -> LogEntry:
    event = logged.event()
    return LogEntry(
        logged.offset,
        logged.value,
        logged.chain,
        logged.at_ms,
        event if isinstance(event, Decision) else None,
        logged.is_forged,
    )


def _happened(history: History, own: dict[str, None]) -> list[Happened]:
    """What truly ran, in the order of time."""
    truly: dict[str, list[NodeMoment]] = {node: [] for node in own}
    for moment in history.moments:
        if moment.node in own:
            truly[moment.node].append(moment)
    found = [thing for node in own for thing in _on_node(history, node, truly[node])]
    found += [Happened(m.at_ms, m.node, What.DIED) for m in history.moments if m.what == "died" and m.node in own]
    return sorted(found, key=lambda thing: thing.moment)


def _on_node(history: History, node: str, truly: list[NodeMoment]) -> Iterable[Happened]:
    """What a node wrote down and what was truly so, and where its runs stood still.

    A virtual run lives in its executor: it stands still when that process dies or stands still itself, and when it lets
    go of the node. No service writes down the latter, so a run counts as let go from the last line of its former holder
    on, and where a reign was taken, until it is taken up.
    """
    entries = history.diaries.get(node, [])
    if entries and entries[0].process.startswith("agent"):
        # Its own machine says what truly ran, and what runs there needs no agent.
        yield from (
            Happened(m.at_ms, node, What(m.what), m.job, m.attempt, m.devices, m.gpu_milli, m.rank, m.turn)
            for m in truly
            if m.what != "died"
        )
        return
    counts = Counter(((m.job, m.attempt, m.rank, m.turn), str(m.what)) for m in truly)
    hands: dict[Run, list[str]] = {}
    for entry in reversed(entries):
        hands.setdefault(_run_of(entry.line), []).append(entry.process)
    for entry in entries:
        what = _WHAT[entry.line.event]
        if _is_up(truly, entry.at_ms) if what is What.ADOPTED else counts[_run_of(entry.line), what.value]:
            yield _told(entry.at_ms, what, entry.line)
        follow = hands[_run_of(entry.line)]
        follow.pop()
        if follow and follow[-1] != entry.process:
            yield _told(entry.at_ms, What.LEFT, entry.line)
    for taken in history.taken:
        if taken.node == node:
            yield from (_told(taken.at_ms, What.LEFT, entry.line) for entry in entries if entry.at_ms < taken.at_ms)
    for fault in history.injected:
        if fault.kind in ("crash", "torn", "pause"):
            yield from (
                _told(fault.at_ms, What.LEFT, entry.line)
                for entry in entries
                if entry.process == fault.what and entry.at_ms <= fault.at_ms
            )


Run = tuple[str, int, int | None, int]
"""(job, attempt, rank, turn)."""


def _run_of(line: DiaryLine) -> Run:
    return (line.job, line.attempt, line.rank, line.turn)


def _told(at_ms: int, what: What, line: DiaryLine) -> Happened:
    """What a line tells of, at this time; a run that is left uses nothing that could be told."""
    devices, milli = ((), 0) if what is What.LEFT else (line.devices, line.gpu_milli)
    return Happened(at_ms, line.node, what, line.job, line.attempt, devices, milli, line.rank, line.turn)


def _is_up(truly: list[NodeMoment], at_ms: int) -> bool:
    """Whether the machine was there, as far as is known: one that died is back once something begins on it."""
    up = True
    for moment in truly:
        if moment.at_ms > at_ms:
            break
        up = moment.what != "died"
    return up


def _diary(history: History, nodes: dict[str, None]) -> Iterable[DiaryLine]:
    for node in sorted(nodes):
        for entry in history.diaries.get(node, ()):
            if not entry.is_gone:
                yield entry.line


def _answers(records: Iterable[Logged], ordinal: int, topic: str = "jobs") -> Iterable[Answer]:
    for logged in records:
        event = logged.event()
        if isinstance(event, JobsAdmitted):
            for job in event.jobs:
                one = JobAdmitted(cell=event.cell, spec=job.spec, submit_ms=job.submit_ms, digest=job.digest)
                yield Answer(one, input_name(topic, ordinal), logged.offset)
        elif isinstance(event, Event):
            yield Answer(event, input_name(topic, ordinal), logged.offset, logged.at_ms)


def _reading(answer: ViewAnswer) -> Reading:
    shown = None if answer.status is None else (answer.status, answer.attempt or 0)
    return Reading(answer.client, answer.version, answer.at_least, {answer.job: shown})


def _view(rows: ViewRows) -> View:
    used = {
        (tenant, account.gpu_type): account.used_milli
        for tenant, text in rows.tenants.items()
        for account in account_rows(text)
    }
    jobs = {job: job_row(text, rows.positions.get(job, -1)) for job, text in rows.jobs.items()}
    return View(rows.version, rows.cursor - 1, jobs, {node: node_row(text) for node, text in rows.nodes.items()}, used)


def _wishes(history: History) -> Iterable[Wish]:
    """The commands that were confirmed; what is no command may be set aside or turned away."""
    dead = {logged.value: None for logged in history.records("dead-letters")}
    dead |= {flipped.whole.value: None for flipped in history.flipped if flipped.value in dead}
    for submission in history.submissions:
        command = COMMANDS.get(submission.type)
        if submission.acked_ms is None or command is None:
            continue
        is_command = not isinstance(decode(submission.type, submission.value), Undecodable)
        if is_command:
            yield Wish(command, submission.job, is_dead=submission.value in dead)
