"""What `fallow bench kant` tells of each run, and what E-Binpack gains over the other ways to place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fallow.bench.kant.traces import Load
from fallow.services.metrics.policy.report import jtted, jwtd
from fallow.services.metrics.policy.size_classes import SIZE_CLASSES
from fallow.simulator.trace.run import TraceRun

Told = Mapping[str, Any]
"""Figures of one run by the keys of docs/checks.md."""

WAITS = ("wait_ms_mean", "wait_ms_p50", "wait_ms_p95", "wait_ms_p99", "wait_ms_longest")
OURS = "e-binpack"


@dataclass(frozen=True, slots=True)
class Way:
    """An order of the queues, and a way to place."""

    discipline: str
    placement: str

    @property
    def name(self) -> str:
        """As `fallow simulate --policy` takes it."""
        return f"{self.discipline}+{self.placement}"


def told_of(load: Load, way: Way, run: TraceRun, cpu_s: float) -> dict[str, Any]:
    """One object of the answer."""
    figures, measures, course = run.figures, run.measures, run.measures.course
    from_ms, to_ms = load.from_ms, measures.loaded_ms
    waits, stretches = measures.summary.waiting.merged("size_class"), measures.jtted.merged("size_class")
    return {
        "trace": load.name,
        "policy": way.name,
        "nodes": len(load.workload.nodes),
        "gpus": load.workload.gpus,
        "jobs": figures.submitted - len(load.workload.carried),
        "from_ms": from_ms,
        "to_ms": to_ms,
        "gar_median": _ratio(course.allocated.median(from_ms, to_ms)),
        "gar_mean": _ratio(course.allocated.mean(from_ms, to_ms)),
        "sor_median": _ratio(course.sor_median(from_ms, to_ms)),
        "gfr_median": _ratio(course.fragmented.median(from_ms, to_ms)),
        "gfr_mean": _ratio(course.fragmented.mean(from_ms, to_ms)),
        **{name: getattr(figures, name) for name in WAITS},
        "jct_ms_mean": figures.jct_ms_mean,
        "makespan_ms": figures.makespan_ms,
        "completed": figures.completed,
        "rejected": figures.rejected,
        "unfinished": figures.unfinished,
        "preemptions": figures.preemptions,
        "jwtd": {name: jwtd(waits[name]) for name in SIZE_CLASSES if name in waits},
        "jtted_model": measures.jtted.model.name,
        "jtted": {name: _stretch(jtted(stretches[name])) for name in SIZE_CLASSES if name in stretches},
        "cpu_s": round(cpu_s, 2),
    }


def _stretch(told: Told) -> dict[str, Any]:
    """Without the run times that submitters told: traces have none."""
    return {name: value for name, value in told.items() if not name.endswith("_ms")}


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def gains(runs: Sequence[Told]) -> list[dict[str, Any]]:
    """What E-Binpack gains over each other way to place, under the same order of queues on the same trace."""
    packed = [run for run in runs if run["policy"].endswith(f"+{OURS}")]
    return [_gain(ours, other) for ours in packed for other in runs if other is not ours and _are_alike(ours, other)]


def _are_alike(one: Told, other: Told) -> bool:
    """Whether they differ in the way to place alone."""
    return bool(one["trace"] == other["trace"] and one["policy"].split("+")[0] == other["policy"].split("+")[0])


def _gain(ours: Told, other: Told) -> dict[str, Any]:
    discipline, against = other["policy"].split("+")
    better, worse = _classes(ours, other)
    return {
        "trace": ours["trace"],
        "discipline": discipline,
        "against": against,
        "gfr_from": other["gfr_mean"],
        "gfr_to": ours["gfr_mean"],
        "gar_median_gain_pct": _pct(ours["gar_median"], other["gar_median"]),
        "sor_median_gain_pct": _pct(ours["sor_median"], other["sor_median"]),
        "wait_mean_gain_pct": _pct(ours["wait_ms_mean"], other["wait_ms_mean"]),
        "jtted_better": better,
        "jtted_worse": worse,
    }


def _classes(ours: Told, other: Told) -> tuple[list[str], list[str]]:
    """The size classes whose mean stretch is smaller, and those in which it is larger."""
    pairs = [
        (name, ours["jtted"][name]["mean"], other["jtted"][name]["mean"])
        for name in ours["jtted"]
        if name in other["jtted"]
    ]
    return [name for name, we, they in pairs if we < they], [name for name, we, they in pairs if we > they]


def _pct(ours: float | None, other: float | None) -> float | None:
    """By how many per cent ours is more."""
    return round(100 * (ours / other - 1), 2) if ours is not None and other else None
