"""What a simulation writes and prints: jobs.csv, placements.csv, nodes.csv, summary.json, and a table for people."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fallow.cli.arguments.paths import file_in
from fallow.cli.output.durations import duration
from fallow.cli.output.output import print_table
from fallow.shared.events.fields.values import NodeSpec
from fallow.simulate.seeds import Told
from fallow.simulator.trace.books import JOB_COLUMNS, PLACEMENT_COLUMNS
from fallow.simulator.trace.run import TraceRun


def write_run(run: TraceRun, nodes: Sequence[NodeSpec], folder: Path) -> None:
    """jobs.csv, placements.csv and nodes.csv: from these each figure can be computed again."""
    books = run.measures.books
    _write(folder, "jobs.csv", JOB_COLUMNS, books.job_rows())
    _write(folder, "placements.csv", PLACEMENT_COLUMNS, books.placement_rows())
    rows = ((node.id, node.pool, node.gpu_type, node.gpus) for node in nodes)
    _write(folder, "nodes.csv", ("node_id", "pool", "gpu_type", "gpus"), rows)


def write_summary(told: Mapping[str, object], folder: Path) -> None:
    """summary.json: what `--json` prints."""
    with file_in(folder, "summary.json") as part:
        part.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _write(folder: Path, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file_in(folder, name) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def show(title: str, figures: Mapping[str, Told], spread: Mapping[str, Told]) -> None:
    """For people: a column for each policy. `spread` is empty, or says how far the seeds lie apart."""
    names = list(next(iter(figures.values())))
    rows = [
        (name.replace("_ms", "").replace("_", " "), *(_cell(name, figures[p], spread.get(p)) for p in figures))
        for name in names
    ]
    print_table(title, ("", *(f">{policy}" for policy in figures)), rows)


def _cell(name: str, told: Told, spread: Told | None) -> str:
    text, around = _value(name, told[name]), None if spread is None else spread[name]
    return text if not around else f"{text} ± {_value(name, around)}"


def _value(name: str, value: object) -> str:
    if value is None:
        return "-"
    if "_ms" in name:
        return duration(round(float(str(value))))
    if name.startswith(("gar", "sor", "gfr")):
        return f"{value:.2%}"
    return f"{value:,.1f}".removesuffix(".0") if isinstance(value, float) else f"{value:,}"
