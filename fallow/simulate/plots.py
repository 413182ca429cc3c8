"""Plots of simulations, as SVG: allocation and fragmentation over time, and how long jobs waited.

The same input gives the same bytes. matplotlib is an extra (`pip install '.[plots]'`), imported only to draw.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.cli.arguments.paths import file_in
from fallow.simulator.trace.course import Steps
from fallow.simulator.trace.run import TraceRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DAY_MS = 86_400_000
POINTS = 240
"""Of each curve: a mean over that part of the time."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b")
"""Told apart by colour-blind people too."""

STYLE: dict[str, object] = {
    "svg.hashsalt": "fallow",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.1,
    "legend.frameon": False,
}
WAITS_S = (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400)
WAIT_NAMES = ("1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "1 w")


@dataclass(frozen=True, slots=True)
class Curves:
    """What is drawn of one run: shares of GPUs and of nodes over time, and all waits (ms) from short to long."""

    name: str
    days: tuple[float, ...]
    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]
    waits_ms: tuple[int, ...]


def curves_of(name: str, run: TraceRun) -> Curves:
    """The curves up to the last submission, and a tenth longer if jobs still ran then."""
    course = run.measures.course
    until_ms = max(POINTS, min(run.figures.makespan_ms, run.measures.loaded_ms * 11 // 10))
    marks = [until_ms * number // POINTS for number in range(POINTS + 1)]
    return Curves(
        name,
        tuple((from_ms + to_ms) / 2 / DAY_MS for from_ms, to_ms in pairwise(marks)),
        _means(course.allocated, marks),
        _means(course.fragmented, marks),
        tuple(run.measures.summary.waiting.ordered()),
    )


def _means(steps: Steps, marks: Sequence[int]) -> tuple[float, ...]:
    return tuple(100 * (steps.mean(from_ms, to_ms) or 0.0) for from_ms, to_ms in pairwise(marks))


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(curves: Sequence[Curves], folder: Path, title: str = "") -> list[Path]:
    """course.svg and waits.svg in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [draw_course(curves, folder / "course.svg", title), draw_waits(curves, folder / "waits.svg", title)]


def draw_course(curves: Sequence[Curves], path: Path, title: str = "") -> Path:
    """Allocation and fragmentation over time."""
    with figure(2, (7.2, 4.6)) as (drawn, axes):
        for panel, field, label in (
            (axes[0], "allocated", "GPUs allocated, %"),
            (axes[1], "fragmented", "nodes in part allocated, %"),
        ):
            for curve, colour in zip(curves, _colours(), strict=False):
                panel.plot(curve.days, getattr(curve, field), color=colour, label=curve.name)
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0)
        axes[1].set_xlabel("days")
        legend(axes[0], title)
        return save(drawn, path)


def draw_waits(curves: Sequence[Curves], path: Path, title: str = "") -> Path:
    """The share of jobs that waited at most so long."""
    with figure(1, (7.2, 3.4)) as (drawn, axes):
        axis = axes[0]
        longest_s = max((curve.waits_ms[-1] for curve in curves if curve.waits_ms), default=1_000) / 1_000
        xs = [max(10.0, longest_s) ** (number / POINTS) for number in range(POINTS + 1)]
        for curve, colour in zip(curves, _colours(), strict=False):
            count = max(1, len(curve.waits_ms))
            shares = [100 * bisect_right(curve.waits_ms, round(x * 1_000)) / count for x in xs]
            axis.plot(xs, shares, color=colour, label=curve.name)
        axis.set_xscale("log")
        axis.set_xticks(WAITS_S, WAIT_NAMES)
        axis.minorticks_off()
        axis.set_xlim(1, xs[-1])
        axis.set_ylim(0, 101)
        axis.set_xlabel("wait from submission to start")
        axis.set_ylabel("jobs that waited at most so long, %")
        legend(axis, title)
        return save(drawn, path)


@contextmanager
def figure(panels: int, size: tuple[float, float]) -> Iterator[tuple[Figure, list[Axes]]]:
    """An empty figure of so many panels, one above the other, on one axis of x; size in inches. Without a screen."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and half a second
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # its keys are literals of its own
        drawn = Figure(figsize=size, layout="constrained")
        axes = drawn.subplots(panels, 1, sharex=True, squeeze=False)
        yield drawn, [row[0] for row in axes]


def save(drawn: Figure, path: Path) -> Path:
    """Write it; nothing in it tells when or with what."""
    with file_in(path.parent, path.name) as part:
        drawn.savefig(part, format="svg", metadata={"Date": None, "Creator": None})
    return path


def legend(axis: Axes, title: str) -> None:
    """Above the axes, where it hides nothing."""
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8, title=title or None, alignment="left")


def _colours() -> Iterator[str]:
    while True:
        yield from COLOURS
