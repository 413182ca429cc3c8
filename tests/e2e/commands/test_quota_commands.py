"""Quotas and policies set by the command line while a cell runs, on a real Kafka and a real Redis."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.reasons import PendingReason
from tests.cli.usage.test_commands import call
from tests.e2e.worlds.running_cell import RunningCell, a_job, in_full, running_cell

Fallow = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


def waits_for_quota(job: str) -> Callable[[RunningCell], bool]:
    named = in_full(job)
    return lambda c: named in c.state.jobs and c.state.jobs[named].deferred is PendingReason.QUOTA_REACHED


def runs(job: str) -> Callable[[RunningCell], bool]:
    named = in_full(job)
    return lambda c: named in c.state.jobs and c.state.jobs[named].status is JobStatus.RUNNING


@pytest.mark.real_kafka
async def test_a_start_waits_for_a_quota_and_follows_when_it_is_raised(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=2) as cell:
        await cell.until(lambda c: len(c.state.nodes) == 2, what="both nodes")
        set_ = fallow("quota", "set", "vision", "--gpu-type", "gpu", "--guaranteed", "4", "--no-borrows")
        assert (set_.returncode, set_.stderr) == (0, "")
        assert set_.stdout == "Tenant vision is guaranteed 4 GPUs of type gpu, no limit, borrows nothing.\n"
        await cell.submit(a_job("first", gpus=4, ms=60_000))
        await cell.until(runs("first"), what="the first job")
        await cell.submit(a_job("second", gpus=4, ms=60_000))
        await cell.until(waits_for_quota("second"), what="the reason of the second job")
        raised = fallow("quota", "set", "vision", "--borrows", "--limit", "8", "--json")
        assert (raised.returncode, json.loads(raised.stdout)["ok"]) == (0, True)
        await cell.until(runs("second"), what="the second job")
        told = json.loads(fallow("quota", "show", "--json").stdout)["quotas"]
        assert [(row["tenant"], row["used_milli"], row["borrowed_milli"], row["available_milli"]) for row in told] == [
            ("vision", 8_000, 4_000, 0)
        ]
        assert "vision" in fallow("quota", "show").stdout
        kept = fallow("quota", "remove", "vision")
        assert (kept.returncode, "0 jobs of vision wait and 2 run" in kept.stdout) == (1, True)
        assert cell.problems() == []


@pytest.mark.real_kafka
async def test_a_contradiction_is_refused_as_a_whole_with_its_rule(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("- {tenant: vision, guaranteed: 600}\n- {tenant: speech, guaranteed: 600}\n")
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=1) as cell:
        await cell.until(lambda c: len(c.state.nodes) == 1, what="the node")
        refused = fallow("quota", "set", "--file", str(quotas))
        assert refused.returncode == 1
        assert "all tenants together would be guaranteed 1200 of gpu, the pools have 1024" in refused.stdout
        assert json.loads(fallow("quota", "show", "--json").stdout)["quotas"] == []
        quotas.write_text("quotas: [{tenant: vision, guaranteed: 600}, {tenant: speech, guaranteed: 400, limit: 400}]")
        assert fallow("quota", "set", "--file", str(quotas)).returncode == 0
        await cell.until(lambda c: len(c.state.quotas) == 2, what="both quotas")
        above = fallow("quota", "set", "lab", "--limit", "1000", "--yes")
        assert above.stderr.startswith("fallow: lab is no tenant of the cell file (")
        assert "it is a group, for tenants below it alone; `fallow quota remove lab` takes it away" in above.stderr
        assert fallow("quota", "set", "vision", "--parent", "lab").stdout.endswith("no limit, below lab.\n")
        assert fallow("quota", "set", "lab", "--limit", "1001").returncode == 0, "a group that has a quota is meant"
        assert "tenant vision stands below lab" in fallow("quota", "remove", "lab").stdout
        gone = fallow("quota", "remove", "vision")
        assert (gone.returncode, gone.stdout) == (0, "Tenant vision has no quota of gpu any more.\n")
        assert cell.problems() == []


@pytest.mark.real_kafka
async def test_a_setting_of_the_policy_is_changed_alone(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=1) as cell:
        await cell.until(lambda c: len(c.state.nodes) == 1, what="the node")
        before = json.loads(fallow("policy", "show", "--json").stdout)["policy"]
        assert fallow("policy", "set", "placement=e-binpack", "stop_grace_wall_ms=9000").returncode == 0
        again = fallow("policy", "set", "placement=e-binpack", "--json")
        assert (again.returncode, json.loads(again.stdout)["version"]) == (0, None)
        assert fallow("policy", "set", "placement=magic").returncode == 2
        assert fallow("policy", "set", "placment=best-fit").returncode == 2
        after = json.loads(fallow("policy", "show", "--json").stdout)["policy"]
        assert after == {**before, "placement": "e-binpack", "stop_grace_wall_ms": 9000}
        await cell.poll()
        assert cell.problems() == []
