"""The columns of traces: what `fallow simulate` and `fallow replay` read from CSV files of jobs and nodes."""

from __future__ import annotations

from typing import Final, NamedTuple


class Column(NamedTuple):
    """One column. One that is `needed` must stand in the head line; what an empty cell means is its `default`."""

    name: str
    type: str
    unit: str
    default: str
    bounds: str
    meaning: str
    needed: bool = False


TO_THE_LARGEST: Final = "0 to 1,000,000,000,000"

JOBS: Final = (
    Column(
        "job_id",
        "text",
        "",
        "required",
        "no control characters",
        "The job. A tenant's `job_id` stands once, over both files together; else the line is an error. Names are made "
        "to fit: `1234.0`, as elements of arrays are named, becomes `1234-0`, and of names that would become equal all "
        "but one get numbers.",
        needed=True,
    ),
    Column(
        "tenant",
        "text",
        "",
        "`default`",
        "no control characters",
        "The tenant that owns the job. The name is made to fit as a `job_id` is.",
        needed=True,
    ),
    Column(
        "submit_s",
        "number",
        "s",
        "required",
        TO_THE_LARGEST,
        "When the job is submitted, from the beginning of the trace.",
        needed=True,
    ),
    Column(
        "gpus",
        "number",
        "GPUs",
        "required",
        TO_THE_LARGEST,
        "The GPUs of the job in all. Below 1 it is a part of one GPU.",
        needed=True,
    ),
    Column(
        "duration_s",
        "number",
        "s",
        "none",
        TO_THE_LARGEST,
        "How long the job runs. Without it the job runs until it is cancelled.",
        needed=True,
    ),
    Column(
        "workers",
        "whole number",
        "workers",
        "see meaning",
        TO_THE_LARGEST,
        "How many workers the job has. Without it as many as `gpus_per_worker` makes of `gpus`. Without that too one, "
        "or, where `gpus` is more than the largest node has (of the job's `gpu_type`, with a file of nodes), the "
        "fewest equal workers that fit into a node.",
    ),
    Column(
        "gpus_per_worker",
        "number",
        "GPUs",
        "`gpus` by `workers`",
        f"0, or 0.001 and more; {TO_THE_LARGEST}",
        "The GPUs of each worker. It divides `gpus`, and where `workers` are given too, they have `gpus` together; "
        "else the line is an error.",
    ),
    Column(
        "gpu_type",
        "text",
        "",
        "any",
        "no control characters",
        "The type of GPU that the job needs. Only with a file of nodes.",
    ),
    Column(
        "cpu_milli",
        "whole number",
        "1/1000 CPU",
        "`0`",
        TO_THE_LARGEST,
        "CPUs of each worker. Only with a file of nodes.",
    ),
    Column(
        "memory_mib", "whole number", "MiB", "`0`", TO_THE_LARGEST, "Memory of each worker. Only with a file of nodes."
    ),
    Column(
        "kind",
        "word",
        "",
        "`training`",
        "`training`, `inference`; another word counts as `training`",
        "Which kind of job it is. A job that ends by itself (`duration_s`) runs as training.",
    ),
)

NODES: Final = (
    Column(
        "node_id",
        "text",
        "",
        "required",
        "no control characters",
        "The node. It stands once, and is made to fit as a `job_id` is.",
        needed=True,
    ),
    Column(
        "gpus",
        "whole number",
        "GPUs",
        "required",
        "0 to 4,096",
        "How many GPUs the node has. A node without GPUs is left out.",
        needed=True,
    ),
    Column(
        "gpu_type", "text", "", "`gpu`", "no control characters", "The type of its GPUs. Nodes of one type make a pool."
    ),
    Column("cpus", "number", "CPUs", "`0`", TO_THE_LARGEST, "CPUs of the node."),
    Column("memory_gib", "number", "GiB", "`0`", TO_THE_LARGEST, "Memory of the node."),
)


def needed_of(columns: tuple[Column, ...]) -> tuple[str, ...]:
    """The columns that a file must have."""
    return tuple(column.name for column in columns if column.needed)
