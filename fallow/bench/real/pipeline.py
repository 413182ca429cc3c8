"""`fallow bench pipeline`: how many jobs a second go through a whole running cell under the hard load."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from fallow.bench.capacity import Trial, highest_held, trials_of
from fallow.bench.figure import Figure
from fallow.bench.load.baseline import chain
from fallow.bench.load.job_mix import rate_for
from fallow.bench.load.stages import fresh_namespace, is_durable, security_of, servers_for
from fallow.bench.pipeline import BASELINE_JOBS_MAX, body_of, by_size, lines_of
from fallow.bench.real.cell import real_cell
from fallow.bench.real.load import Offer, RealLoad, put_real_load
from fallow.bench.real.mix import CLASSES, RealMix
from fallow.local.local_cell import Servers, stage_for
from fallow.local.service_set import Clock
from fallow.shared.events.operations import CellPolicy
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.stack.child import StackError

TRIAL_S = 10.0
RUN_MS_LEAST = 500
"""No search goes beyond the rate at which runs are so short: it would measure how soon nodes answer."""

OFFERED_PART = 0.9
"""Of the highest rate that the search held."""

GROWTH_MAX_PART = 0.05
"""A trial at a rate is held if the backlog grows by no more than this of what comes meanwhile."""

HELD_USE_PCT = 95.0
"""A trial behind a backlog is held if so many of the GPUs are in use: else they are short of starts."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure. Without a rate one is searched."""

    nodes: int
    seconds: float
    classes: int | None = None
    rate: float | None = None
    backlog: int = 0
    durable: bool = True
    by_node: bool = False
    """Whether each node writes records of its own, as agents of single machines do."""

    policy: CellPolicy = field(default_factory=CellPolicy)


@dataclass(frozen=True, slots=True)
class Found:
    """The load, of so many classes, the trials before it, the baseline in jobs a second, whether Kafka flushed each
    record, and by what clients came in.
    """

    real: RealLoad
    classes: int
    trials: list[Trial]
    baseline: float
    durable: bool
    security: Mapping[str, object]


def real_pipeline(console: Console, asked: Asked, *, secured: bool = False) -> Figure:
    """Run it. Raises StackError, LogUnavailable, LogOverflowed."""
    mix = RealMix(CLASSES if asked.classes is None else asked.classes)
    with (
        servers_for(console, durable=asked.durable, secured=secured) as (servers, folder),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        cells = _Cells(console, servers, folder, mix, asked)
        return figure_of(runner.run(_measured(cells, asked)), asked)


class _Cells:
    """A cell of its own for each load, on the same servers: what one leaves behind is not in the way of the next."""

    def __init__(self, console: Console, servers: Servers, folder: Path, mix: RealMix, asked: Asked) -> None:
        self.console, self.servers, self.folder, self.mix = console, servers, folder, mix
        self._environment = {"FALLOW_RECORDS_BY_NODE": str(asked.by_node).lower()}
        self._policy = asked.policy
        self._count = 0

    async def load(self, offer: Offer, *, is_told: bool) -> tuple[RealLoad, bool]:
        """What comes of an offer, and whether Kafka flushed each record. Raises StackError as soon as a service ends by
        itself.
        """
        self._count += 1
        workload, path = real_cell(offer.nodes, self.mix, self._policy), self.folder / f"cell-{self._count}"
        behind = f" behind {offer.backlog} waiting jobs" if offer.backlog else ""
        run_ms = offer.run_ms(self.mix)
        told = f"{offer.rate:.0f} jobs/s for {offer.seconds:g} s{behind}, a run takes {run_ms} ms in the mean"
        self.console.print(told, highlight=False)
        say = partial(self.console.print, highlight=False, soft_wrap=True)
        name, more = fresh_namespace(), self._environment
        async with stage_for(workload, self.servers, path, name, Clock(), say=say, more=more) as stage:
            found = await stage.unless_one_ends(put_real_load(stage, self.mix, offer, is_told=is_told))
            return found, await is_durable(self.servers, stage.layout)


async def _measured(cells: _Cells, asked: Asked) -> Found:
    trials = await _trials(cells, asked)
    offer = Offer(asked.nodes, _rate_of(asked, trials), asked.seconds, asked.backlog)
    real, durable = await cells.load(offer, is_told=True)
    cells.console.print("the same bytes over the same hops with bare aiokafka", highlight=False)
    async with chain(cells.servers, cells.folder, real.traffic) as running:
        baseline = (await running.send(min(BASELINE_JOBS_MAX, len(real.load.due_s)), None))[1]
    return Found(real, len(cells.mix.classes), trials, baseline, durable, security_of(cells.servers))


async def _trials(cells: _Cells, asked: Asked) -> list[Trial]:
    """A search where no rate was asked for. Behind a backlog one trial at half the rate tells how many jobs start for
    one that ends in the mean.
    """

    async def tried(rate: float) -> Trial:
        real, _ = await cells.load(Offer(asked.nodes, rate, TRIAL_S, asked.backlog), is_told=False)
        trial = Trial(rate, is_held(real), real.load.jobs_per_s)
        told = f"{trial.started_per_s:.0f}/s started, {real.gpus_in_use_pct} % of the GPUs in use"
        cells.console.print(f"  {'held' if trial.is_held else 'missed'}: {told}", highlight=False)
        return trial

    if asked.rate is None:
        most = rate_for(RUN_MS_LEAST, asked.nodes, cells.mix.gpus_mean)
        return await trials_of(tried, most)
    return [await tried(asked.rate / 2)] if asked.backlog else []


def _rate_of(asked: Asked, trials: list[Trial]) -> float:
    """The rate of the offer, whole where it was searched. Raises StackError where none was held."""
    if asked.rate is None:
        held = highest_held(trials)
        if held is None:
            raise StackError(f"no rate was held, down to {min(trial.per_s for trial in trials):.0f} jobs/s")
        return max(1, round(OFFERED_PART * held.per_s))
    started = trials[0].started_per_s if trials else 0.0
    return asked.rate * trials[0].per_s / started if started else asked.rate


def is_held(real: RealLoad) -> bool:
    """Whether the cell kept up with the offered load: judged by the jobs that were not started, or, behind a backlog,
    by the GPUs on which no job was started.
    """
    if real.offer.backlog:
        return real.gpus_in_use_pct >= HELD_USE_PCT
    load = real.load
    return load.growth <= GROWTH_MAX_PART * load.rate * (load.end_s - load.begin_s)


def figure_of(found: Found, asked: Asked) -> Figure:
    """The figure for people and for programs."""
    real, held = found.real, highest_held(found.trials)
    body = body_of(real.load, real.traffic, found.baseline)
    body |= {
        "quotas": True,
        "security": dict(found.security),
        "nodes": asked.nodes,
        "run_ms_mean": real.run_ms,
        "mix": "real",
        "placement": asked.policy.placement,
        "records_by_node": asked.by_node,
        "backlog": asked.backlog,
        "waiting": real.waiting,
        "waiting_least": real.waiting_least,
        "not_queued": real.not_queued,
        "classes": found.classes,
        "gpus_in_use_pct": real.gpus_in_use_pct,
        "p99_ms_by_class": real.p99_ms(),
        "started_by_class": real.started(),
        "cancelled_before_start": len(real.load.told.gone_s),
        "offered_per_s": round(real.offered_per_s, 1),
        "held_per_s": None if held is None or asked.rate is not None else round(held.started_per_s),
        "trials": [
            {"per_s": round(trial.per_s), "held": trial.is_held, "started_per_s": round(trial.started_per_s)}
            for trial in found.trials
        ],
    }
    return Figure(
        "pipeline",
        [*_own_lines(real, found.classes, by_node=asked.by_node), *lines_of(real.load, body)],
        body,
        real.load.used,
        found.durable,
    )


def _own_lines(real: RealLoad, classes: int, *, by_node: bool) -> list[str]:
    slowest = {label: ms for label, ms in real.p99_ms().items() if ms is not None and "/" not in label}
    never = [label for label, count in real.started().items() if not count and "/" not in label]
    nodes = "each node writes records of its own" if by_node else "one executor joins the words of all nodes"
    return [
        nodes,
        (
            f"mix real, {classes} classes: {real.gpus_in_use_pct} % of the GPUs in use, "
            f"{real.waiting} jobs waiting in the mean, {real.waiting_least} at least, "
            f"{real.not_queued} not queued yet in the end"
        ),
        "p99 in ms by class: " + by_size(slowest) + (f"; none started of {', '.join(never)}" if never else ""),
    ]
