"""`fallow simulate`: a trace of jobs under one policy or several, in virtual time, side by side."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli.arguments.paths import count_or_file, file_to_read, folder_to_write, is_count
from fallow.cli.errors.failures import say
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.replay.replay import workload_for
from fallow.replay.workload import Workload, WorkloadError
from fallow.shared.cluster.model.config import CellFile, CellPart
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import DEVICES_MAX
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.runtime.collector import tune_collector
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.simulate.estimates import KINDS, Estimates, estimates_of
from fallow.simulate.plots import Curves, can_draw, curves_of, draw
from fallow.simulate.policies import Policy, policy_of
from fallow.simulate.seeds import JITTER_S, Told, drawn, means, spread
from fallow.simulate.tables import show, write_run, write_summary
from fallow.simulator.trace.figures import TraceFigures
from fallow.simulator.trace.run import Arrival, TraceRun, run_trace

app = typer.Typer()

DEFAULT = QueueDiscipline.BEST_EFFORT_FIFO.value
AS_IN_FILE = Policy("cell-file", None, None)
"""The policy where only a cell file is named: what stands there."""


@dataclasses.dataclass(slots=True)
class Simulation:
    """What was run so far: by policy, a run for each seed. `seeds` is empty where the trace runs as it is."""

    seeds: tuple[int, ...]
    figures: dict[str, list[TraceFigures]] = dataclasses.field(default_factory=dict)
    curves: list[Curves] = dataclasses.field(default_factory=list)
    rejections: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)

    def add(self, policy: str, run: TraceRun) -> None:
        """One more run. The curves are those of a policy's first seed."""
        if policy not in self.figures:
            self.curves.append(curves_of(policy, run))
        self.figures.setdefault(policy, []).append(run.figures)
        self.rejections.setdefault(policy, Counter()).update(run.measures.books.rejections())

    def means(self) -> dict[str, Told]:
        """Each figure of each policy, its mean over the seeds if there are any."""
        if self.seeds:
            return {name: means(found) for name, found in self.figures.items()}
        return {name: found[0].as_json() for name, found in self.figures.items()}

    def spread(self) -> dict[str, Told]:
        """How far the seeds lie apart; empty without seeds."""
        return {name: spread(found) for name, found in self.figures.items()} if self.seeds else {}

    def rejected(self) -> list[str]:
        """A line for each policy that had jobs which were turned away; one for all where these are the same."""
        lines = {
            policy: rejected(codes, [one.rejected for one in self.figures[policy]] if self.seeds else None)
            for policy, codes in self.rejections.items()
            if codes
        }
        if len(lines) == len(self.figures) and len({*lines.values()}) == 1:
            return [next(iter(lines.values()))]
        return [f"{policy}: {line}" for policy, line in lines.items()]

    def as_json(self) -> dict[str, object]:
        """What `--json` prints."""
        told: dict[str, object] = {"policies": self.means(), "rejections": self.rejections}
        if self.seeds:
            told["spread"] = self.spread()
            told["seeds"] = {
                name: {str(seed): one.as_json() for seed, one in zip(self.seeds, found, strict=True)}
                for name, found in self.figures.items()
            }
        return told


@app.command()
def simulate(  # noqa: PLR0913, PLR0917 - the options of a command
    jobs: Annotated[Path, typer.Option(callback=file_to_read, help="Jobs, as CSV or CSV.gz.", show_default=False)],
    nodes: Annotated[
        str, typer.Option(callback=count_or_file, help="How many nodes, or a file of nodes.", show_default=False)
    ],
    carry: Annotated[
        Path | None, typer.Option(callback=file_to_read, help="Jobs that run already at the beginning.")
    ] = None,
    cell: Annotated[
        Path | None, typer.Option(callback=file_to_read, help="Pools, queues, tenants and quotas; one queue if none.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Order of queues, way to place, or both with a +; several times.")
    ] = None,
    estimates: Annotated[
        str | None, typer.Option(help=f"What jobs tell of their run times: {KINDS}. As the trace if none.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option(min=1, max=DEVICES_MAX, help="GPUs of each node, where nodes are counted.")
    ] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many of the earliest jobs.")] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of --seeds.")] = 1,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="So many draws of the load; the trace as it is if none.")
    ] = None,
    jitter_s: Annotated[int, typer.Option(min=0, help="With --seeds: how far (s) a submission moves.")] = JITTER_S,
    out: Annotated[
        Path | None, typer.Option(callback=folder_to_write, help="Folder for tables of each policy, and plots.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a trace of jobs run under one policy or several, in virtual time, and compare how the jobs fared.

    The same services as everywhere decide, without Kafka and Redis. Columns of a trace: job_id, tenant, submit_s, gpus,
    duration_s; also workers, gpus_per_worker, gpu_type, kind. Without workers a job that is larger than a node is split
    into the fewest equal workers that fit into one. How many jobs were rejected is told in the end, by code.

    Without --policy the queues and the policy are those of --cell, or one queue of best-effort-fifo.

    With --seeds figures are means over that many runs, each with its spread (standard deviation). A seed moves each
    submission by up to --jitter-s seconds, and shuffles the jobs of --carry; all policies get the same draws.

    With --estimates jobs tell how long they run, and policies go by it: exact is the run time, limits:3 is that times
    1 to 3 (no job is stopped by it), noise:1.0 is that times a log-normal factor of this sigma, drawn with each seed;
    learned is what jobs of the same tenant, name pattern and size took before, which no job tells.
    """
    policies = [policy_of(name) for name in dict.fromkeys(policy or ([] if cell else [DEFAULT]))] or [AS_IN_FILE]
    told = None if estimates is None else estimates_of(estimates)
    workload = workload_for(jobs, nodes, carry, gpus_per_node, QueueDiscipline.BEST_EFFORT_FIFO, limit)
    if cell is not None:
        workload = in_cell(workload, the_only_cell(load_cell_file(cell)), counted=is_count(nodes))
    tune_collector()
    found = Simulation(tuple(range(first_seed, first_seed + seeds)) if seeds else ())
    for each in policies:
        _run(found, each, workload, told, jitter_s, out)
    if out is not None:
        _write(found, out)
    print_json(found.as_json()) if as_json else _show(found)


def _show(found: Simulation) -> None:
    """For people."""
    over = f", mean ± standard deviation of {len(found.seeds)} seeds" if found.seeds else ""
    show(f"Simulated{over}", found.means(), found.spread())
    for line in found.rejected():
        print_line(line)


def _write(found: Simulation, out: Path) -> None:
    """The summary of all policies, and their curves where matplotlib is there."""
    write_summary(found.as_json(), out)
    if can_draw():
        draw(found.curves, out)
    else:
        say("no plots: matplotlib is not installed (pip install '.[plots]' in Fallow's folder)")


def rejected(codes: Mapping[str, int], of_runs: Sequence[int] | None) -> str:
    """How many jobs were turned away, by code. With seeds `of_runs` tells how many in each run, and `codes` all of
    them: the same job comes in every run, and is one job.
    """
    if of_runs is None:
        return f"{counted(sum(codes.values()), 'job')} rejected: {_by_code(codes)}"
    fewest, most = min(of_runs), max(of_runs)
    runs = "in 1 run" if len(of_runs) == 1 else f"in each of {len(of_runs)} runs"
    if fewest == most and not any(count % len(of_runs) for count in codes.values()):
        each = {code: count // len(of_runs) for code, count in codes.items()}
        return f"{counted(most, 'job')} rejected {runs}: {_by_code(each)}"
    some = counted(most, "job") if fewest == most else f"{fewest:,} to {counted(most, 'job')}"
    return f"{some} rejected {runs}; in all of them: {_by_code(codes)}"


def _by_code(codes: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {count:,}" for code, count in codes.items())


def _run(
    found: Simulation, policy: Policy, workload: Workload, told: Estimates | None, jitter_s: int, out: Path | None
) -> None:
    """The workload under one policy: as it is, or once for each seed."""
    file, arrivals, carried = policy.on(workload.cell_file), arrivals_of(workload), workload.carried
    file = file if told is None else told.by(file)
    for seed in found.seeds or (None,):
        coming = arrivals if seed is None else drawn(arrivals, carried, seed, jitter_s)
        coming = coming if told is None else told.on(coming, seed or 0)
        run = run_trace(file, workload.nodes, coming, carried)
        found.add(policy.name, run)
        if out is not None:
            folder = out / policy.name
            write_run(run, workload.nodes, folder if seed is None else folder / f"seed-{seed}")


def the_only_cell(file: CellFile) -> CellFile:
    """A file of one cell. Raises WorkloadError."""
    if len(file.cells) != 1:
        raise WorkloadError(f"--cell: a simulation runs one cell, and the file has {len(file.cells)}")
    return file


def in_cell(workload: Workload, file: CellFile, *, counted: bool) -> Workload:
    """The workload in the cell of this file. Raises WorkloadError."""
    return dataclasses.replace(in_pools(workload, file.cells[0], counted=counted), cell_file=file)


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
