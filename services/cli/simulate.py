"""`fallow simulate`: a trace of jobs under one policy or several, in virtual time, side by side."""

import csv
import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from services.cli.failures import Exit, end_with
from services.cli.moments import duration
from services.cli.output import AsJson, print_json, print_table
from services.cli.replay import workload_for
from services.cli.workload import Workload, WorkloadError
from services.placement.policy.gang import POLICIES
from services.simulator.trace.books import JOB_COLUMNS, PLACEMENT_COLUMNS
from services.simulator.trace.run import Arrival, TraceFigures, TraceRun, run_trace
from shared.cluster.config import CellFile, CellPart, Queue
from shared.events.queue import QueueDiscipline
from shared.events.submissions import SubmitJob
from shared.events.value import replace
from shared.runtime.cell_file import load_cell_file
from shared.runtime.collector import tune_collector

app = typer.Typer()

DEFAULT = QueueDiscipline.BEST_EFFORT_FIFO.value
DISCIPLINES = tuple(each.value for each in QueueDiscipline)


@dataclass(frozen=True, slots=True)
class Policy:
    """An order of the queues and a way to place, as a user names them: `strict-fifo`, `best-fit`, or both with a `+`.
    What is not named stays as the cell file has it.
    """

    name: str
    discipline: QueueDiscipline | None
    placement: str | None

    def on(self, file: CellFile) -> CellFile:
        """The cell file under this policy."""
        part = file.cells[0]
        queues = tuple(_queue(queue, self.discipline) for queue in part.queues)
        policy = part.policy if self.placement is None else replace(part.policy, placement=self.placement)
        cell = CellPart(name=part.name, ordinal=part.ordinal, pools=part.pools, queues=queues, policy=policy)
        return CellFile(cells=(cell,), tenants=file.tenants, limits=file.limits)


def _queue(queue: Queue, discipline: QueueDiscipline | None) -> Queue:
    return queue if discipline is None else Queue(name=queue.name, discipline=discipline)


@app.command()
def simulate(  # noqa: PLR0913, PLR0917 - the options of a command
    jobs: Annotated[Path, typer.Option(help="Jobs, as CSV or CSV.gz.", show_default=False)],
    nodes: Annotated[str, typer.Option(help="How many nodes, or a file of nodes.", show_default=False)],
    carry: Annotated[Path | None, typer.Option(help="Jobs that run already at the beginning.")] = None,
    cell: Annotated[Path | None, typer.Option(help="Pools, queues, tenants and quotas; one queue if none.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Order of queues, way to place, or both with a +; several times.")
    ] = None,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of each node, where nodes are counted.")] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many of the earliest jobs.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for jobs.csv and placements.csv of each policy.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let a trace of jobs run under one policy or several, in virtual time, and compare how the jobs fared.

    The same services as everywhere decide, without Kafka and Redis. Columns of a trace: job_id, tenant, submit_s, gpus,
    workers, gpus_per_worker, gpu_type, duration_s, kind.
    """
    policies = [policy_of(name) for name in policy or [DEFAULT]]
    workload = workload_for(jobs, nodes, carry, gpus_per_node, QueueDiscipline.BEST_EFFORT_FIFO, limit)
    file = workload.cell_file
    if cell is not None:
        file = the_only_cell(load_cell_file(cell))
        workload = in_pools(workload, file.cells[0], counted=nodes.isdigit())
    tune_collector()
    figures: dict[str, TraceFigures] = {}
    for each in policies:
        run = run_trace(each.on(file), workload.nodes, arrivals_of(workload), workload.carried)
        figures[each.name] = run.figures
        if out is not None:
            write_run(run, workload, out / each.name)
    if out is not None:
        told = json.dumps({name: found.as_json() for name, found in figures.items()}, indent=2)
        (out / "summary.json").write_text(told + "\n", encoding="utf-8")
    if as_json:
        print_json({"policies": {name: found.as_json() for name, found in figures.items()}})
    else:
        show(figures)


def policy_of(name: str) -> Policy:
    """The policy that a user names. Ends the command where there is none of that name."""
    discipline: QueueDiscipline | None = None
    placement: str | None = None
    for part in name.split("+"):
        if part in DISCIPLINES and discipline is None:
            discipline = QueueDiscipline(part)
        elif part in POLICIES and placement is None:
            placement = part
        else:
            known = ", ".join((*DISCIPLINES, *POLICIES))
            end_with(Exit.USAGE, f"--policy {name!r}: {part!r} is none of {known}")
    return Policy(name, discipline, placement)


def the_only_cell(file: CellFile) -> CellFile:
    """A file of one cell. Raises WorkloadError."""
    if len(file.cells) != 1:
        raise WorkloadError(f"--cell: a simulation runs one cell, and the file has {len(file.cells)}")
    return file


def in_pools(workload: Workload, part: CellPart, *, counted: bool) -> Workload:
    """The workload on nodes of this cell: nodes that were only counted are of its first pool. Raises WorkloadError."""
    first = part.pools[0]
    nodes = workload.nodes
    if counted:
        nodes = tuple(replace(node, pool=first.name, gpu_type=first.gpu_type) for node in nodes)
    known = {pool.name for pool in part.pools}
    for node in nodes:
        if node.pool not in known:
            raise WorkloadError(f"--cell: node {node.id} is of pool {node.pool!r}, which is not in the file")
    return dataclasses.replace(workload, nodes=nodes)


def arrivals_of(workload: Workload) -> list[Arrival]:
    """The jobs of the workload, in its order."""
    return [Arrival(timed.at_ms, timed.command) for timed in workload.commands if isinstance(timed.command, SubmitJob)]


def write_run(run: TraceRun, workload: Workload, folder: Path) -> None:
    """jobs.csv, placements.csv and nodes.csv: from these each figure can be computed again."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "jobs.csv", JOB_COLUMNS, run.books.job_rows())
    _write(folder / "placements.csv", PLACEMENT_COLUMNS, run.books.placement_rows())
    rows = ((node.id, node.pool, node.gpu_type, node.gpus) for node in workload.nodes)
    _write(folder / "nodes.csv", ("node_id", "pool", "gpu_type", "gpus"), rows)


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def show(figures: dict[str, TraceFigures]) -> None:
    """For people: a column for each policy."""
    rows = [
        (field.replace("_ms", "").replace("_", " "), *(_cell(field, found.as_json()[field]) for found in all_of))
        for all_of in ([*figures.values()],)
        for field in TraceFigures.__dataclass_fields__
    ]
    print_table("Simulated", ("", *(f">{name}" for name in figures)), rows)


def _cell(field: str, value: object) -> str:
    if value is None:
        return "-"
    if "_ms" in field:
        return duration(round(float(str(value))))
    return f"{value:.2%}" if isinstance(value, float) else f"{value:,}"
