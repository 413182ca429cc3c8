"""Under a steady flow jobs start as they come; under a flood, as many as there is room for."""

from __future__ import annotations

from tests.placement.measurements.flow import Flow


def flow_of(nodes: int, run_ms: int, per_step: int, steps: int) -> Flow:
    """So many jobs every 20 ms."""
    flow = Flow(nodes, 20, run_ms)
    for _ in range(steps):
        flow.step(per_step)
    return flow


def test_a_flow_that_fits_starts_at_once() -> None:
    flow = flow_of(nodes=400, run_ms=200, per_step=40, steps=40)
    assert flow.figures()["waiting"] == 0


def test_a_flood_keeps_every_gpu_at_work_and_no_record_grows_without_bound() -> None:
    flow = flow_of(nodes=200, run_ms=300, per_step=400, steps=40)
    assert flow.figures()["waiting"] > 5_000
    assert flow.service.state.pools["train"].free_whole < 20
    # Most are made where the jobs that wait become too many to be walked: up to then each of them gets its reason.
    assert flow.figures()["records_at_once"] <= 6
    assert flow.figures()["records"] < 2 * 40


def test_a_backlog_drains_when_the_flood_is_over() -> None:
    flow = flow_of(nodes=200, run_ms=100, per_step=300, steps=20)
    for _ in range(150):
        flow.step(0)
    assert flow.figures()["started"] == flow.made
