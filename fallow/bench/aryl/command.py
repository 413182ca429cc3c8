"""`fallow bench aryl`: Lyra's scheme, what it was compared with, and the bounds, on one trace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time

from fallow.bench.aryl.demand import Demand, read_demand
from fallow.bench.aryl.figures import Row, bound_row, bound_share, row_of
from fallow.bench.aryl.kept import digest_of, keep, kept_row
from fallow.bench.aryl.policies.registry import SCHEMES
from fallow.bench.aryl.scenarios import POSSIBLE, Scenario, drawn, trace_runs
from fallow.bench.aryl.table import lines_of
from fallow.bench.aryl.world.run import TraceRun
from fallow.bench.aryl.world.world import Cluster, Outcome, World
from fallow.bench.figure import Figure
from fallow.bench.load.machine import this_commit
from fallow.bench.load.processor_time import ProcessorTime
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.replay.trace import read_trace
from fallow.replay.workload import WorkloadError
from fallow.shared.runtime.collector import tune_collector

INFERENCE_SERVERS = 520
"""4,160 GPUs (Lyra, section 7.1)."""

BOUNDS = ("bound-base", "bound-largest")
FIFO = "fifo"
NAMES = (*SCHEMES, *BOUNDS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """On what the user wants it run."""

    jobs: Path
    carry: Path | None
    demand: str
    nodes: tuple[int, ...]
    is_placed: bool = False
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One row."""

    policy: str
    scenario: Scenario
    nodes: int
    seed: int


def aryl_or_end(wanted: Wanted, scenarios: Sequence[str], policies: Sequence[str], seeds: range) -> Figure:
    """Run what the user asks for. Ends the command where it cannot be used."""
    for name in scenarios:
        if name not in tuple(Scenario):
            refuse("--scenario", name, f"must be one of {', '.join(Scenario)}")
    for name in policies:
        if name not in NAMES:
            refuse("--policy", name, f"must be one of {', '.join(NAMES)}")
    cases = [
        Case(policy, Scenario(scenario), nodes, seed)
        for nodes in wanted.nodes
        for scenario in scenarios
        for seed in seeds
        for policy in policies or NAMES
        if _is_for(policy, Scenario(scenario), is_placed=wanted.is_placed)
    ]
    if not cases:
        told = ", ".join(scenarios) + (" with --placed" if wanted.is_placed else "")
        refuse("--policy", ", ".join(policies), f"none of them is for {told}")
    try:
        return aryl(wanted, cases)
    except WorkloadError as failure:
        end_with(Exit.USAGE, str(failure))


def aryl(wanted: Wanted, cases: Sequence[Case]) -> Figure:
    """Run all cases, one after the other on one core. Raises WorkloadError where a file cannot be used."""
    watch, runner = ProcessorTime({"aryl": os.getpid()}), _Runner(wanted)
    tune_collector()
    rows = [runner.row(case) for case in cases]
    body: dict[str, object] = {"rows": rows, "inference_servers": INFERENCE_SERVERS, "demand": wanted.demand}
    return Figure("aryl", lines_of(rows), body, watch.used())


def _is_for(policy: str, scenario: Scenario, *, is_placed: bool) -> bool:
    if policy in BOUNDS:
        return True
    scheme = SCHEMES[policy]
    if is_placed and (scheme.is_pooled_only or POSSIBLE[scenario].is_one):
        return False
    return not scheme.scenarios or scenario in scheme.scenarios


class _Runner:
    """Runs cases on files that are read once."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        name, _, column = wanted.demand.rpartition(":")
        file = Path(name)
        self._demand: Demand = read_demand(file, column)
        trace = read_trace(wanted.jobs, wanted.carry)
        self._runs = trace_runs(trace.jobs, trace.carried)
        if not self._runs:
            raise WorkloadError(f"{wanted.jobs}: has no job to run")
        files = [path for path in (wanted.jobs, wanted.carry, file) if path is not None]
        self._made_from = digest_of(files, column, INFERENCE_SERVERS, this_commit())
        self._fifo: dict[int, tuple[Row, Outcome, float]] = {}

    def row(self, case: Case) -> Row:
        """The row of a case, kept or new."""
        how = "placed" if self._wanted.is_placed else "pooled"
        name = f"{case.policy}-{case.scenario}-{case.nodes}-{how}-{case.seed}"
        folder = self._wanted.out / name if self._wanted.out is not None else None
        row = kept_row(folder, self._made_from) if folder is not None else None
        if row is None:
            row, outcome = self._new_row(case)
            if folder is not None:
                keep(folder, self._made_from, row, outcome)
        return row

    def _new_row(self, case: Case) -> tuple[Row, Outcome | None]:
        jobs = drawn(self._runs, case.scenario, case.seed)
        fifo, fifo_outcome, fifo_s = self._fifo_of(case.nodes)
        bound = bound_row(jobs, largest=True)
        outcome: Outcome | None = None
        if case.policy in BOUNDS:
            figures, seconds = bound_row(jobs, largest=case.policy == BOUNDS[1]), 0.0
        elif case.policy == FIFO:
            figures, outcome, seconds = fifo, fifo_outcome, fifo_s
        else:
            figures, outcome, seconds = self._run(case, jobs)
        scheme = SCHEMES.get(case.policy)
        row = {
            "policy": case.policy,
            "scenario": case.scenario.value,
            "nodes": case.nodes,
            "placed": self._wanted.is_placed,
            "seed": case.seed,
            "information": scheme.information.value if scheme is not None else "oracle",
            **figures,
            "bound_share": bound_share(figures, fifo, bound),
            "seconds": round(seconds, 2),
        }
        return row, outcome

    def _fifo_of(self, nodes: int) -> tuple[Row, Outcome, float]:
        """FIFO knows no draws: it is the same in all scenarios and with all seeds."""
        if nodes not in self._fifo:
            self._fifo[nodes] = self._run(Case(FIFO, Scenario.SCALING, nodes, 0), self._runs)
        return self._fifo[nodes]

    def _run(self, case: Case, jobs: Sequence[TraceRun]) -> tuple[Row, Outcome, float]:
        """The figures, all that happened, and the processor time that it took."""
        possible, wanted = POSSIBLE[case.scenario], self._wanted
        cluster = Cluster(
            case.nodes, INFERENCE_SERVERS, self._demand, wanted.is_placed, possible.lends, possible.is_one
        )
        too_large = next((job for job in jobs if job.gpus > cluster.training_gpus), None)
        if too_large is not None:
            gpus = cluster.training_gpus
            raise WorkloadError(f"job {too_large.id}: {too_large.gpus} GPUs: {case.nodes} servers have {gpus}")
        random = Random(f"reclaim {case.seed}")  # noqa: S311 - chance of a simulation
        begin_s = process_time()
        outcome = World(jobs, cluster, SCHEMES[case.policy], random).run()
        return row_of(outcome, cluster), outcome, process_time() - begin_s
