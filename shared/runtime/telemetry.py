"""Metrics of a process: a registry of its own, and the names of all metrics in one typed place.

Names follow Prometheus: the unit comes last, seconds and bytes, counters end in _total.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# Steps of a loop: from a tenth of a millisecond to the 100 ms that nothing may block, and what goes beyond.
STEP_SECONDS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Telemetry:
    """The metrics that every service has. A service adds its own to `registry`, in a class like this one."""

    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(ProcessCollector())
        self.records_read = Counter(
            "fallow_records_read_total", "Records taken from the log", ["topic"], registry=self.registry
        )
        self.records_published = Counter(
            "fallow_records_published_total", "Records published", ["topic"], registry=self.registry
        )
        self.dead_letters = Counter(
            "fallow_dead_letters_total", "Records set aside", ["topic", "reason"], registry=self.registry
        )
        self.reloads = Counter(
            "fallow_cell_file_reloads_total",
            "Times that the cell file was read again, by what became of it: in_force, refused",
            ["outcome"],
            registry=self.registry,
        )
        self.cell_fenced = Gauge(
            "fallow_cell_fenced",
            "1 while nothing is done for a cell whose log cannot be trusted",
            ["cell"],
            registry=self.registry,
        )
        self.forged_decisions = Counter(
            "fallow_forged_decisions_total",
            "Records of topic decisions that no key of the cell proves, and that were passed over",
            ["cell"],
            registry=self.registry,
        )
        self.cell_failures = Counter(
            "fallow_cell_failures_total",
            "Errors after which the work on a cell began anew",
            ["cell"],
            registry=self.registry,
        )
        self.lag = Gauge(
            "fallow_lag_records", "End of the log less the cursor", ["topic", "partition"], registry=self.registry
        )
        self.open_transaction = Gauge(
            "fallow_open_transaction_seconds",
            "For how long a transaction has been open behind which nothing can be read",
            ["topic", "partition"],
            registry=self.registry,
        )
        self.lag_seconds = Gauge(
            "fallow_lag_seconds",
            "For how long there has been something behind the cursor",
            ["topic", "partition"],
            registry=self.registry,
        )
        self.step = Histogram(
            "fallow_step_seconds", "One step of the loop", ["step"], buckets=STEP_SECONDS, registry=self.registry
        )
        self.loop_delay = Gauge(
            "fallow_loop_delay_seconds", "How late the loop woke up, the worst of 5 s", registry=self.registry
        )
        self.ready = Gauge("fallow_ready", "1 while the service is ready", ["service"], registry=self.registry)
        self.ready.labels(service).set(0)

    def knows(self, cells: Iterable[str]) -> None:
        """Count from 0 what happens to these: without a sample before it the first event would be no increase."""
        for outcome in ("in_force", "refused"):
            self.reloads.labels(outcome)
        for cell in cells:
            self.cell_failures.labels(cell)
            self.forged_decisions.labels(cell)


class ProcessCollector(Collector):
    """Memory, CPU time and collections of this process, read when they are asked for."""

    def collect(self) -> Iterator[Metric]:
        """The figures now."""
        yield GaugeMetricFamily("process_resident_memory_bytes", "Memory in RAM", value=rss_bytes())
        used = os.times()
        yield CounterMetricFamily("process_cpu_seconds", "User and system time", value=used.user + used.system)
        full = gc.get_stats()[-1]["collections"]
        yield CounterMetricFamily("python_full_collections", "Collections of the oldest generation", value=full)


def rss_bytes(pid: int | None = None) -> int:
    """The resident memory of a process (this one by default); 0 when it is gone or the system does not say."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        fields = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[1]) * PAGE_BYTES


def rss_peak_bytes(pid: int | None = None) -> int:
    """The most memory that a process (this one by default) ever held; 0 when it is gone or the system does not say."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        status = Path(f"/proc/{pid or 'self'}/status").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0
