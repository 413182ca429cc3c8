"""The end of a demo or a replay: what came of it, read from the topics, as a table, as JSON and as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fallow.cli.arguments.paths import file_in
from fallow.cli.log.read_back import LogOverflowed, read_back
from fallow.cli.verify.verification import LiveCheck
from fallow.cli.verify.verify import Verification
from fallow.local.local_cell import LocalCell
from fallow.replay.report.figures import Figures, figures_of
from fallow.replay.report.job_history import JobRow, write_rows
from fallow.replay.report.outcome import Outcome
from fallow.replay.workload import CELL, Workload
from fallow.shared.runtime.files.signs import visible
from fallow.shared.view.reader import ViewReader
from fallow.shared.view.redis_view import RedisFunctions

NAMED_MAX = 5
"""So many lost jobs and double allocations are named."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run."""

    figures: Figures
    lost: Sequence[str]
    double_allocations: Sequence[str]
    verification: Verification
    seconds: float
    kafka: str
    redis: str
    rss_mb: dict[str, float]
    rows: Sequence[JobRow]

    @property
    def is_good(self) -> bool:
        """Whether no job was lost, no device given twice, and nothing found in the log that must not be."""
        return not self.lost and not self.double_allocations and self.verification.ok

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints; keys and units stand in docs/checks.md."""
        told = self.figures.as_dict()
        counts = ("submitted", "completed", "failed", "cancelled", "rejected", "unfinished")
        return {
            **{key: told.pop(key) for key in counts},
            "lost": len(self.lost),
            "double_allocations": len(self.double_allocations),
            **told,
            "versions": self.verification.to_version,
            "seconds": self.seconds,
            "kafka": self.kafka,
            "redis": self.redis,
            "verify_ok": self.verification.ok,
            "rss_mb": self.rss_mb,
        }


async def report_of(stage: LocalCell, workload: Workload, base_ms: int) -> Report:
    """Read everything back. `seconds` is not known yet. Raises LogOverflowed, LogUnavailable, DiaryError."""
    rss_mb = stage.rss_mb()
    outcome = Outcome(base_ms, workload.carried)
    try:
        check = await read_back(stage.log, stage.layout, CELL, stage.diaries, outcome)
    except LogOverflowed as error:
        whose = "embedded log" if stage.servers.is_embedded else "log"
        raise LogOverflowed(f"{whose} overflowed: {error}") from error
    live = list(check.state.jobs)
    rows = outcome.settle(live)
    return Report(
        figures=figures_of(rows, {node.id: node.gpus for node in workload.nodes}),
        lost=outcome.lost(live),
        double_allocations=outcome.double_allocations,
        verification=await _held_against_redis(stage, check.result()),
        seconds=0.0,
        kafka=stage.servers.kafka.server.description,
        redis=stage.servers.redis.server.description,
        rss_mb=rss_mb,
        rows=rows,
    )


async def _held_against_redis(stage: LocalCell, found: Verification) -> Verification:
    """The verification with I7 added: what Redis shows is what the fold gives at its cursor."""
    functions = RedisFunctions(stage.servers.redis.server.address)
    try:
        view = ViewReader(functions, stage.namespace, (CELL,))
        compared = await LiveCheck(stage.log, stage.layout, CELL, view).run()
    finally:
        await functions.stop()
    return replace(
        found,
        ok=found.ok and compared.ok,
        checks=found.checks + compared.checks,
        first_violation=found.first_violation or compared.first_violation,
    )


def write_report(report: Report, workload: Workload, folder: Path) -> None:
    """jobs.csv, nodes.csv and summary.json: from the two tables each figure of the summary can be computed again."""
    with file_in(folder, "jobs.csv") as part:
        write_rows(part, report.rows)
    lines = ["node_id,pool,gpu_type,gpus\n"]
    lines += [f"{node.id},{node.pool},{node.gpu_type},{node.gpus}\n" for node in workload.nodes]
    with file_in(folder, "nodes.csv") as part:
        part.write_text("".join(lines), encoding="utf-8")
    with file_in(folder, "summary.json") as part:
        part.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")


def show_report(report: Report, console: Console) -> None:
    """For people."""
    figures, table = report.figures, Table("", "", title="Summary", show_header=False)
    for name in ("submitted", "completed", "failed", "cancelled", "rejected", "unfinished"):
        table.add_row(name, f"{getattr(figures, name):,}")
    table.add_section()
    table.add_row("lost", f"{len(report.lost):,}")
    table.add_row("double allocations", f"{len(report.double_allocations):,}")
    table.add_section()
    table.add_row("wait, mean", in_words(figures.wait_ms_mean))
    table.add_row("wait, median", in_words(figures.wait_ms_p50))
    table.add_row("wait, 99th percentile", in_words(figures.wait_ms_p99))
    table.add_row("GPUs allocated (GAR, mean over time)", f"{figures.gar_mean:.1%}")
    table.add_row("nodes fragmented (GFR, mean over time)", f"{figures.gfr_mean:.1%}")
    table.add_section()
    table.add_row("versions of the cell's state", f"{report.verification.to_version:,}")
    table.add_row("memory, MB at most", ", ".join(f"{name} {mb:.0f}" for name, mb in report.rss_mb.items()))
    table.add_row("Kafka", report.kafka)
    table.add_row("Redis", report.redis)
    table.add_row("seconds from the first submission to the last end", f"{report.seconds:.1f}")
    console.print(table)
    show_verdict(report, console)


def show_verdict(report: Report, console: Console) -> None:
    """Whether all is well, and else what is not."""
    told = report.verification
    if told.ok:
        console.print(f"verify: {told.records:,} records, {told.checks:,} checks, no offence", style="green")
    elif told.first_violation is not None:
        first = told.first_violation
        told_of = f"verify: {first.invariant} at version {first.version}: {first.text}"
        console.print(escape(visible(told_of)), style="bold red")
    for what, found in (("lost", report.lost), ("double allocation", report.double_allocations)):
        for text in found[:NAMED_MAX]:
            console.print(escape(visible(f"{what}: {text}")), style="bold red")


def in_words(duration_ms: float) -> str:
    """A duration of cell time for people."""
    seconds = duration_ms / 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
