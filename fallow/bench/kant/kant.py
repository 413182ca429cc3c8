"""`fallow bench kant`: E-Binpack against other ways to place, and the orders of queues against each other, on three
loads; in the figures that Kant tells of itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

from fallow.bench.figure import Figure
from fallow.bench.kant.figures import Told, Way, gains, told_of
from fallow.bench.kant.plots import draw_trace
from fallow.bench.kant.traces import Load, folder_of, loads
from fallow.bench.load.processor_time import ProcessorTime
from fallow.cli.errors.failures import refuse, say
from fallow.cli.output.durations import HOUR_MS, duration
from fallow.cli.output.output import print_table
from fallow.services.metrics.policy.size_classes import in_words
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.runtime.collector import tune_collector
from fallow.simulate.estimates import Estimates
from fallow.simulate.plots import Curves, can_draw, curves_of
from fallow.simulate.policies import policy_of
from fallow.simulate.simulate import arrivals_of
from fallow.simulate.tables import write_run, write_summary
from fallow.simulator.trace.run import TraceRun, run_trace

COMPARED = ("e-binpack", "binpack", "spread", "first-fit")
DISCIPLINES = tuple(each.value for each in (QueueDiscipline.BEST_EFFORT_FIFO, QueueDiscipline.BACKFILL))
STRICT = QueueDiscipline.STRICT_FIFO.value
DRAWN = QueueDiscipline.BEST_EFFORT_FIFO.value
"""Under this order of the queues the ways to place are drawn."""

WAYS = (*(Way(order, place) for order in DISCIPLINES for place in COMPARED), Way(STRICT, COMPARED[0]))


def kant(
    traces: str | None,
    names: tuple[str, ...],
    *,
    seed: int,
    out: Path | None,
    as_json: bool,
    ways: Sequence[Way] = WAYS,
    estimates: Estimates | None = None,
) -> Figure:
    """Run all of them, one after the other on one core; with `estimates` jobs tell how long they run. Raises
    WorkloadError.
    """
    folder, watch = folder_of(traces, names), ProcessorTime({"kant": os.getpid()})
    skipped = [name for name in names if name != "generated" and folder is None]
    if skipped:
        say(f"{', '.join(skipped)}: left out, for neither --traces nor FALLOW_TRACES names a folder of traces")
    tune_collector()
    runs: list[dict[str, Any]] = []
    for load in loads(names, folder, seed):
        runs += _run(load, ways, estimates, seed, out)
        if not as_json:
            _show(load, [run for run in runs if run["trace"] == load.name])
    told = None if estimates is None else estimates.name
    body: dict[str, object] = {
        "runs": runs, "gains": gains(runs), "skipped": skipped, "seed": seed, "estimates": told,
    }  # fmt: skip
    if out is not None:
        # How long it took is no part of what came of it: the same input gives the same bytes.
        plain = [{key: value for key, value in run.items() if key != "cpu_s"} for run in runs]
        write_summary({**body, "runs": plain}, out)
    return Figure("kant", _lines(gains(runs)), body, watch.used())


def ways_of(names: Sequence[str] | None) -> tuple[Way, ...]:
    """The policies that a user names, each an order of queues and a way to place; all that are compared if none. Ends
    the command where one of these lacks.
    """
    found = []
    for name in names or ():
        policy = policy_of(name)
        if policy.discipline is None or policy.placement is None or policy.order is not None:
            refuse("--policy", name, f"must be an order of queues and a way to place, such as {DRAWN}+{COMPARED[0]}")
        found.append(Way(policy.discipline.value, policy.placement))
    return tuple(dict.fromkeys(found)) or WAYS


def _run(
    load: Load, ways: Sequence[Way], estimates: Estimates | None, seed: int, out: Path | None
) -> list[dict[str, Any]]:
    arrivals, runs, curves = arrivals_of(load.workload), list[dict[str, Any]](), dict[Way, Curves]()
    arrivals = arrivals if estimates is None else estimates.on(arrivals, seed)
    for way in ways:
        begin_s = process_time()
        file = policy_of(way.name).on(load.workload.cell_file)
        file = file if estimates is None else estimates.by(file)
        run = run_trace(file, load.workload.nodes, arrivals, load.workload.carried)
        runs.append(told_of(load, way, run, process_time() - begin_s))
        if out is not None:
            curves[way] = _keep(load, way, run, out)
    if out is not None and can_draw():
        draw_trace(load.name, curves, runs, out, DRAWN)
    return runs


def _keep(load: Load, way: Way, run: TraceRun, out: Path) -> Curves:
    write_run(run, load.workload.nodes, out / load.name / way.name)
    return curves_of(way.name, run)


def _show(load: Load, runs: Sequence[Told]) -> None:
    """A table for people."""
    columns = ("policy", ">GAR median", ">GAR", ">SOR median", ">GFR", ">wait mean", ">p99", ">longest", ">makespan")
    rows = [
        (
            run["policy"],
            *(f"{run[key]:.2%}" for key in ("gar_median", "gar_mean", "sor_median", "gfr_mean")),
            *(duration(round(run[key])) for key in ("wait_ms_mean", "wait_ms_p99", "wait_ms_longest", "makespan_ms")),
        )
        for run in runs
    ]
    print_table(f"{load.name}: {load.told}, {runs[0]['jobs']:,} jobs", columns, rows)
    sizes = list(runs[0]["jtted"])
    for title, told in (("wait, mean, hours, by GPUs", _wait), ("estimated stretch, mean, by GPUs", _stretch)):
        rows = [(run["policy"], *(told(run, size) for size in sizes)) for run in runs]
        print_table(f"{load.name}: {title}", ("policy", *(f">{in_words(size)}" for size in sizes)), rows)


def _wait(run: Told, size: str) -> str:
    return f"{run['jwtd'][size]['mean_ms'] / HOUR_MS:.2f}" if size in run["jwtd"] else "-"


def _stretch(run: Told, size: str) -> str:
    return f"{run['jtted'][size]['mean']:.3f}" if size in run["jtted"] else "-"


def _lines(found: Sequence[Told]) -> list[str]:
    return [
        f"{gain['trace']}, {gain['discipline']}: e-binpack over {gain['against']}: GFR {gain['gfr_from']:.2%} to "
        f"{gain['gfr_to']:.2%}, GAR median {gain['gar_median_gain_pct']:+.1f} %, SOR median "
        f"{gain['sor_median_gain_pct']:+.1f} %; JTTED better in {len(gain['jtted_better'])} classes, worse in "
        f"{', '.join(gain['jtted_worse']) or 'none'}"
        for gain in found
    ]
