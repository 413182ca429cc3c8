"""The metrics process on a log: what Prometheus reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import generate_latest

from fallow.services.metrics.app.wiring import measure
from fallow.services.metrics.settings import MetricsSettings
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, next_chain
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.runtime.process import make_context
from fallow.shared.runtime.settings import ClockKind
from tests.contract.eventually import eventually
from tests.metrics.logs import CELL, Log, waits

LAYOUT = Layout("test", {CELL: 0})


def broker_with(log: Log) -> MemoryBroker:
    broker, chain = MemoryBroker(), CHAIN_START
    for name in ("decisions", "snapshots", "cells"):
        broker.create_topic(f"test.{name}", 1)
    for decision in log.decisions:
        chain = next_chain(chain, encode(decision))
        more = ((CHAIN_HEADER, chain.encode()),)
        broker.write(LAYOUT.outgoing(decision, id=str(decision.version), source="w", wall_ms=0, more=more))
    return broker


async def test_prometheus_reads_the_figures_of_an_owned_cell(tmp_path: Path) -> None:
    log = Log()
    waits(log, (8, 0), (1, 2_000))
    log.submit(4_000, "late", 1, tenant="birch")
    context = make_context("metrics", MetricsSettings(namespace="test", clock=ClockKind.STEPPED))
    running = asyncio.create_task(measure(context, MemoryLog(broker_with(log)), LAYOUT))
    cursors = context.health.progress.cursors
    await eventually(lambda: cursors.get("test.decisions/0") == len(log.decisions))
    text = generate_latest(context.registry).decode()
    context.stopping.set()
    await asyncio.wait_for(running, 5)
    assert 'fallow_gar_ratio{cell="cell-a",pool="_all"} 0.009' in text
    assert 'fallow_gar_mean_ratio{cell="cell-a",pool="pool-a"} 0.0085' in text
    assert 'fallow_sor_ratio{cell="cell-a",pool="_all"} 0.0085' in text
    assert 'fallow_sor_ratio{cell="cell-a",pool="pool-a"} 0.0085' in text
    assert 'fallow_tenant_gar_ratio{cell="cell-a",tenant="acme"} 0.009' in text
    assert 'fallow_tenant_sor_ratio{cell="cell-a",tenant="acme"} 0.0085' in text
    assert 'fallow_tenant_wait_seconds_sum{cell="cell-a",tenant="acme"} 2.0' in text
    assert 'fallow_pool_wait_seconds_count{cell="cell-a",pool="pool-a"} 2.0' in text
    assert 'fallow_jtted_mean_ratio{cell="cell-a",model="ring",size_class="5-8"} 1.0' in text
    assert 'fallow_gfr_ratio{cell="cell-a",pool="pool-a"} 1.0' in text
    assert 'fallow_wait_seconds_bucket{cell="cell-a",le="1.0",size_class="1"} 0.0' in text
    assert 'fallow_wait_seconds_bucket{cell="cell-a",le="5.0",size_class="1"} 1.0' in text
    assert 'fallow_wait_seconds_count{cell="cell-a",size_class="5-8"} 1.0' in text
    assert 'fallow_wait_percentile_seconds{cell="cell-a",percentile="99",size_class="1"} 2.0' in text
    assert 'fallow_waiting_jobs{cell="cell-a",tenant="birch"} 1.0' in text
    assert 'fallow_effects_total{cell="cell-a",kind="JobStarted"} 2.0' in text
    assert 'fallow_invariant_violations_total{cell="cell-a",invariant="I1"} 0.0' in text
    assert "job-0" not in text
