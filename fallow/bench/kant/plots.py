"""Plots of `fallow bench kant`: ways to place side by side, orders of the queues, and the stretch by job size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fallow.bench.kant.figures import OURS, Told, Way
from fallow.services.metrics.policy.size_classes import in_words
from fallow.simulate.plots import COLOURS, Curves, draw_course, draw_waits, figure, legend, save


def draw_trace(trace: str, curves: Mapping[Way, Curves], runs: Sequence[Told], folder: Path, discipline: str) -> None:
    """`TRACE-course.svg` and `TRACE-jtted.svg` for the ways to place under one order of queues, `TRACE-waits.svg` for
    the orders under E-Binpack.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ways = [_named(curve, way.placement) for way, curve in curves.items() if way.discipline == discipline]
    orders = [_named(curve, way.discipline) for way, curve in curves.items() if way.placement == OURS]
    if ways:
        draw_course(ways, folder / f"{trace}-course.svg", f"{trace}, {discipline}")
        _draw_stretches(trace, runs, folder / f"{trace}-jtted.svg", discipline)
    if orders:
        draw_waits(orders, folder / f"{trace}-waits.svg", f"{trace}, {OURS}")


def _named(curve: Curves, name: str) -> Curves:
    return Curves(name, curve.days, curve.allocated, curve.fragmented, curve.waits_ms)


def _draw_stretches(trace: str, runs: Sequence[Told], path: Path, discipline: str) -> None:
    """The mean stretch of each size class, a line for each way to place."""
    with figure(1, (7.2, 3.0)) as (drawn, axes):
        shown = [run for run in runs if run["trace"] == trace and run["policy"].startswith(f"{discipline}+")]
        for run, colour in zip(shown, COLOURS, strict=False):
            stretches = {in_words(name): told["mean"] for name, told in run["jtted"].items()}
            label = run["policy"].partition("+")[2]
            axes[0].plot(list(stretches), list(stretches.values()), marker="o", ms=3, color=colour, label=label)
        axes[0].set_xlabel("GPUs of the job")
        axes[0].set_ylabel("estimated stretch, mean")
        axes[0].tick_params(axis="x", labelsize=7)
        legend(axes[0], f"{trace}, {discipline}: estimated training time, 1 in the best place")
        save(drawn, path)
