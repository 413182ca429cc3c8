"""What the placement process counts."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fallow.shared.events.decisions import INPUTS
from fallow.shared.events.effects import AnyEffect, Effect
from fallow.shared.runtime.telemetry import STEP_SECONDS

APPEND_HELP = "Writing a decision to the log, and before that the check of the last record where one is due"


class PlacementMetrics:
    """Cycles, records and the writer's place in its cell."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycle = Histogram(
            "fallow_cycle_seconds", "Deciding, without the append", ["cell"], buckets=STEP_SECONDS, registry=registry
        )
        self.append = Histogram("fallow_append_seconds", APPEND_HELP, ["cell"], buckets=STEP_SECONDS, registry=registry)
        self.effects = Counter("fallow_effects_total", "Effects in force", ["cell", "kind"], registry=registry)
        self.stale = Counter(
            "fallow_stale_appends_total", "Decisions that were not in force", ["cell", "why"], registry=registry
        )
        self.held = Counter(
            "fallow_jobs_held_by_defects_total",
            "Jobs that decisions did without, since the state refused their start",
            ["cell"],
            registry=registry,
        )
        self.given_up = Counter(
            "fallow_cell_given_up_total",
            "Times that the process left a cell to others because it could not write it",
            ["cell"],
            registry=registry,
        )
        self.past = Counter(
            "fallow_past_node_events_total",
            "Words of nodes that came too late, by why: old_boot, old_sequence, run_over",
            ["cell", "why"],
            registry=registry,
        )
        self.version = Gauge("fallow_state_version", "Version of the state", ["cell"], registry=registry)
        self.epoch = Gauge("fallow_writer_epoch", "Epoch of the newest writer", ["cell"], registry=registry)
        self.writes = Gauge("fallow_is_writer", "1 while this process writes the cell", ["cell"], registry=registry)
        self.waiting = Gauge("fallow_jobs_waiting", "Jobs that wait", ["cell"], registry=registry)
        self.live = Gauge("fallow_jobs_live", "Jobs that wait or run", ["cell"], registry=registry)
        self.frozen = Gauge(
            "fallow_leases_frozen", "1 while many nodes are silent and are declared lost only slowly", ["cell"],
            registry=registry
        )  # fmt: skip
        self.silent = Gauge("fallow_nodes_silent", "Nodes of which nothing is heard", ["cell"], registry=registry)
        self.unread = Gauge(
            "fallow_nodes_unread_seconds", "For how long the reports of nodes were not read to the end", ["cell"],
            registry=registry
        )  # fmt: skip
        self.fenced = Gauge(
            "fallow_input_fenced", "1 while an input that has lost records waits for a person", ["cell", "input"],
            registry=registry
        )  # fmt: skip
        self.deleted_unread = Counter(
            "fallow_inputs_deleted_unread_total", "Input records that were deleted before they were read",
            ["cell", "input"], registry=registry
        )  # fmt: skip
        self.plans_ahead = Counter(
            "fallow_plans_passed_over_total",
            "Plans of starts that were passed over, since the clock of queueing is too far ahead",
            ["cell"],
            registry=registry,
        )


class CellMetrics:
    """The metrics of one cell. Labels are looked up once, and not for each cycle."""

    def __init__(self, metrics: PlacementMetrics, cell: str) -> None:
        self._all, self._cell = metrics, cell
        self.cycle, self.append = metrics.cycle.labels(cell), metrics.append.labels(cell)
        self.version, self.epoch = metrics.version.labels(cell), metrics.epoch.labels(cell)
        self.writes, self.frozen = metrics.writes.labels(cell), metrics.frozen.labels(cell)
        self.silent = metrics.silent.labels(cell)
        self.unread = metrics.unread.labels(cell)
        self.waiting, self.live = metrics.waiting.labels(cell), metrics.live.labels(cell)
        self.given_up = metrics.given_up.labels(cell)
        self.held = metrics.held.labels(cell)
        self.plans_ahead = metrics.plans_ahead.labels(cell)
        self._effects: dict[type[Effect], Counter] = {}
        for name in INPUTS:
            self.deleted_unread(name, 0)

    def in_force(self, effects: Iterable[AnyEffect]) -> None:
        """Count the effects of a decision, by kind."""
        kinds: Tally[type[Effect]] = Tally(map(type, effects))
        for kind, count in kinds.items():
            if kind not in self._effects:
                self._effects[kind] = self._all.effects.labels(self._cell, kind.kind)
            self._effects[kind].inc(count)

    def show(self, version: int, epoch: int, waiting: int, live: int, frozen: int, silent: int) -> None:
        """How the state is now."""
        self.version.set(version)
        self.epoch.set(epoch)
        self.waiting.set(waiting)
        self.live.set(live)
        self.frozen.set(frozen)
        self.silent.set(silent)

    def stale(self, why: str) -> None:
        """A decision was not in force."""
        self._all.stale.labels(self._cell, why).inc()

    def fenced(self, name: str, *, is_fenced: bool) -> None:
        """An input is fenced, or no longer."""
        self._all.fenced.labels(self._cell, name).set(is_fenced)

    def deleted_unread(self, name: str, count: int) -> None:
        """So many records of an input were deleted before they were read."""
        self._all.deleted_unread.labels(self._cell, name).inc(count)

    def past(self, why: str, count: int) -> None:
        """So many words of nodes came too late."""
        self._all.past.labels(self._cell, why).inc(count)
