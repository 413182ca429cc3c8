"""The executor's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fallow.shared.events.fields.values import RunStatus
from fallow.shared.runtime.telemetry import STEP_SECONDS


class ExecutorTelemetry(Collector):
    """What is counted as it happens; nodes and runs are counted when they are asked for."""

    def __init__(
        self,
        registry: CollectorRegistry,
        nodes: Callable[[], Mapping[str, int]],
        runs: Callable[[], Mapping[tuple[str, RunStatus], int]],
    ) -> None:
        """`nodes` tells how many nodes of each cell are owned, `runs` how many runs of each cell are in which state."""
        self._nodes, self._runs = nodes, runs
        self.reports = Counter("fallow_node_reports_total", "Reports sent", ["cell"], registry=registry)
        self.publish = Histogram(
            "fallow_executor_publish_seconds",
            "From handing a batch of node events to the log to its acknowledgement",
            buckets=STEP_SECONDS,
            registry=registry,
        )
        self.too_large = Counter(
            "fallow_executor_too_large_total", "Refusals of a word for its size", ["cell"], registry=registry
        )
        self.fenced = Counter(
            "fallow_executor_fenced_total", "Slots found to be taken over by another process", registry=registry
        )
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The figures now."""
        nodes = GaugeMetricFamily("fallow_executor_nodes", "Nodes that this process looks after", labels=["cell"])
        for cell, count in self._nodes().items():
            nodes.add_metric([cell], count)
        runs = GaugeMetricFamily("fallow_executor_runs", "Runs on these nodes", labels=["cell", "status"])
        for (cell, status), count in self._runs().items():
            runs.add_metric([cell, status.value], count)
        yield nodes
        yield runs
