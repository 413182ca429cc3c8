"""The reference pages of `docs/reference/`, made from the classes and tables that the code itself goes by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from fallow.reference.fields import NAMED_FORMS, Row, form_of, rows_of
from fallow.replay.columns import JOBS, NODES, Column
from fallow.shared.cluster.model.config import (
    CellFile,
    CellPart,
    Limits,
    Pool,
    PublicKey,
    Queue,
    Signing,
    SubmissionRate,
    Tenant,
    TenantQuota,
)
from fallow.shared.events.fields.values import (
    Dependency,
    JobSpec,
    NodeSpec,
    Position,
    ProcessRun,
    Resources,
    RetryPolicy,
    TopologyRequest,
    VirtualRun,
)
from fallow.shared.events.operations import CellPolicy

NUMBERS: Final = (
    "A number without an upper bound is at most 9,007,199,254,740,991; a time or a duration is at most "
    "1,152,921,504,606,846,976 ms."
)


class Page(NamedTuple):
    """One page: its title, what stands above its tables, and the class of each table by its heading."""

    title: str
    above: str
    tables: Mapping[str, type]


JOB: Final = Page(
    "Fields of a job",
    "What a job may have, in a file for `fallow submit` and in a `SubmitJob` event. A field that is not listed "
    "here is refused. [jobs.md](../jobs.md) has an example and the rules between fields; "
    f"[placement.md](../placement.md) tells how nodes are chosen. {NUMBERS}",
    {
        "A job": JobSpec,
        "resources": Resources,
        "topology": TopologyRequest,
        "retry": RetryPolicy,
        "a job in after": Dependency,
        "run of driver virtual": VirtualRun,
        "run of driver process": ProcessRun,
    },
)

CELL: Final = Page(
    "Fields of the cell file",
    "What a cell file may have. A field that is not listed here is refused; `fallow cell check FILE` names the "
    "line of each mistake. [deploy/cell.yaml](../../deploy/cell.yaml) is an example, and "
    "[quota.md](../quota.md#changing-it-while-the-cell-runs) tells how a changed file comes into force. "
    f"{NUMBERS} GPUs are at most 9,007,199,254,740.",
    {
        "The file": CellFile,
        "cells": CellPart,
        "cells.pools": Pool,
        "cells.queues": Queue,
        "cells.policy": CellPolicy,
        "cells.signing": Signing,
        "cells.signing.keys": PublicKey,
        "tenants": Tenant,
        "tenants.quotas": TenantQuota,
        "tenants.submissions": SubmissionRate,
        "limits": Limits,
    },
)

NODE: Final = Page(
    "Fields of a node",
    "What a node says of itself when it joins. A file of virtual nodes has one JSON object a line, "
    '`{"cell": "main", "node": {...}}`; a [node agent](../operations.md#run-agents) says the same of its machine. '
    "A field that is not listed here is refused. "
    f"[placement.md](../placement.md) tells how jobs choose by them. {NUMBERS}",
    {"A node": NodeSpec, "position": Position},
)

PAGES: Final = {"job-fields.md": JOB, "cell-fields.md": CELL, "node-fields.md": NODE}

COLUMNS: Final = {"A file of jobs": JOBS, "A file of nodes": NODES}


def texts() -> dict[str, str]:
    """Each page by the name of its file. The same code gives the same text."""
    return {**{name: _page(page) for name, page in PAGES.items()}, "trace-columns.md": _trace_columns()}


def _page(page: Page) -> str:
    headings = {cls.__name__: heading for heading, cls in page.tables.items()}
    tables = {heading: rows_of(cls, lambda name: _link(headings[name])) for heading, cls in page.tables.items()}
    return _text(page.title, page.above, tables, "field")


def _trace_columns() -> str:
    above = (
        "What `fallow simulate` and `fallow replay` read, from CSV (also gzipped) with a head line. A column that is "
        "required, or marked with `*`, stands in the head line; columns that are not listed here are left alone. "
        "[checks.md](../checks.md#a-trace-of-your-own) tells how a trace is run."
    )
    return _text(
        "Columns of a trace", above, {title: map(_row_of, columns) for title, columns in COLUMNS.items()}, "column"
    )


def _row_of(column: Column) -> Row:
    default = f"{column.default} *" if column.needed and column.default != "required" else column.default
    return Row(column.name, column.type, column.unit, default, column.bounds, column.meaning)


def _link(heading: str) -> str:
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading}](#{anchor})"


def _text(title: str, above: str, tables: Mapping[str, Iterable[Row]], first: str) -> str:
    parts = [
        f"# {title}",
        "<!-- Made by `python -m fallow.reference` from the code; do not edit. -->",
        above,
    ]
    for heading, rows in tables.items():
        parts.append(f"## {heading}")
        head = f"| {first} | type | unit | default | bounds | meaning |\n|---|---|---|---|---|---|"
        parts.append("\n".join([head, *map(_line, rows)]))
    if first == "field":
        parts += ["## Forms of text", "\n".join(_forms("\n".join(parts)))]
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> str:
    cells = [f"`{row.field}`", *row[1:]]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _forms(text: str) -> Iterable[str]:
    """Those that the page names."""
    for pattern, word in NAMED_FORMS.items():
        if re.search(rf"\| [^|]*\b{word}\b[^|]* \|", text):
            yield f"* **{word}**: {form_of(pattern)}."
