"""Planned maintenance, a drain with a deadline, and an array, by the command line on the running services."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import NodeStatus
from tests.cli.usage.test_commands import call
from tests.e2e.worlds.running_cell import RunningCell, a_job, running_cell

Fallow = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.real_kafka


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


def runs_on(job: str, node: str) -> Callable[[RunningCell], bool]:
    return lambda c: c.state.jobs[job].status is JobStatus.RUNNING and c.state.jobs[job].workers[0].node == node


async def test_a_job_yields_to_maintenance_and_to_the_deadline_of_a_drain(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=2) as cell:
        await cell.until(lambda c: len(c.state.nodes) == 2, what="both nodes")
        first, second = sorted(cell.state.nodes)
        closed = fallow("node", "cordon", second, "node-0000", second)
        assert (closed.returncode, closed.stderr) == (1, "")
        assert closed.stdout.splitlines() == [
            f"Node {second} of pool training (8 GPUs) is cordoned.",
            f"node-0000: there is no such node (did you mean {first}?); `fallow nodes` lists them",
        ]
        await cell.submit(a_job("stays", gpus=8, ms=None))
        await cell.until(
            lambda c: "vision/stays" in c.state.jobs and runs_on("vision/stays", first)(c), what="stays to run"
        )
        mistyped = fallow("node", "maintain", first, "--from", "2020-01-02 10:00", "--until", "5h")
        assert (mistyped.returncode, mistyped.stdout) == (2, "")
        assert "lies in the past; without --from maintenance begins now" in mistyped.stderr
        planned = fallow("node", "maintain", first, "--from", "8s", "--until", "16s", "--reason", "fans")
        assert (planned.returncode, planned.stderr) == (0, "")
        assert "(fans)" in planned.stdout
        assert re.search(r"maintenance from \S+ \S+Z to \S+ \S+Z \(fans\)", fallow("node", "show", first).stdout)
        assert fallow("node", "uncordon", second).returncode == 0
        await cell.until(runs_on("vision/stays", second), what="stays to run elsewhere")
        assert cell.state.nodes[first].status is NodeStatus.DRAINING
        await cell.until(lambda c: c.state.nodes[first].status is NodeStatus.READY, what="the end of maintenance")
        drained = fallow("node", "drain", second, "--within", "5s")
        assert drained.returncode == 0
        assert re.search(
            r"(?m)^Stopped there at \S+ \S+Z, and queued again, if not over before: job vision/stays\.$", drained.stdout
        )
        await cell.poll()
        assert runs_on("vision/stays", second)(cell)
        await cell.until(runs_on("vision/stays", first), what="stays to run where it was")
        assert cell.state.jobs["vision/stays"].failures == 0
        assert cell.problems() == []


async def test_an_array_is_submitted_told_and_cancelled_by_its_id(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    file = tmp_path / "many.json"
    file.write_text('{"id": "many", "tenant": "vision", "array_max_running": 1, "run": {"driver": "virtual"}}')
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=1) as cell:
        sent = fallow("submit", str(file), "--array", "3", "--until", "accepted", "--json")
        assert (sent.returncode, sent.stderr) == (0, "")
        assert list(json.loads(sent.stdout)["jobs"]) == ["vision/many.0", "vision/many.1", "vision/many.2"]
        await cell.until(
            lambda c: "vision/many" in c.state.arrays and c.state.jobs["vision/many.0"].status is JobStatus.RUNNING,
            what="one element to run",
        )
        held = json.loads(fallow("job", "hold", "many", "--json").stdout)
        assert (held["ok"], held["elements"], held["others"]) == (True, 2, {"running": 1})
        assert fallow("job", "hold", "many").stdout == "Array vision/many is held already: 2 held, 1 running.\n"
        told = json.loads(fallow("job", "many", "--json").stdout)["array"]
        assert (told["elements"], told["by_status"]) == (3, {"held": 2, "running": 1})
        assert "3 elements" in fallow("job", "many").stdout
        assert json.loads(fallow("cancel", "many", "--json").stdout)["ok"]
        await cell.until_over("vision/many", *(f"vision/many.{number}" for number in range(3)))
        assert cell.state.finished["vision/many"].status is JobStatus.CANCELLED
        assert cell.problems() == []


async def test_several_nodes_are_declared_lost_and_removed_each_with_its_own_outcome(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=3) as cell:
        first, second, third = sorted(cell.state.nodes)
        await cell.submit(a_job("long", gpus=8, ms=None))
        await cell.until(
            lambda c: "vision/long" in c.state.jobs and runs_on("vision/long", first)(c), what="long to run"
        )
        its_job = "its job vision/long is queued again while it may still run there"
        asked = fallow("node", "lost", first, second)
        assert (asked.returncode, asked.stdout) == (2, "")
        assert asked.stderr.splitlines() == [
            f"fallow: node {first} is ready and reports. If it is declared lost, {its_job}.",
            f"fallow: node {second} is ready and reports. If it is declared lost, nothing is queued again: it is idle.",
            "fallow: nothing was done; give --yes to declare lost what reports",
        ]
        assert cell.state.nodes[first].status is NodeStatus.READY
        cell.services.kill("executor", signal.SIGKILL)  # a node that lives would come back at once
        done = fallow("node", "lost", first, "nosuch", second, "--yes", "--reason", "no power")
        assert done.returncode == 1
        assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
            f"Node {first} (boot {cell.state.nodes[first].boot}) is lost",
            "nosuch",
            f"Node {second} (boot {cell.state.nodes[second].boot}) is lost",
        ]
        removed = json.loads(fallow("node", "remove", second, third, "--json").stdout)
        assert (removed["ok"], [each["ok"] for each in removed["nodes"]]) == (False, [True, False]), removed


async def test_a_rejected_job_is_told_at_once_and_found_later(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('[{"id": "typo", "tenant": "visoin"}, {"id": "wrong", "tenant": "vision", "queue": "fast"}]')
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=1):
        sent = fallow("submit", str(file))
        unknown_tenant = "Job visoin/typo is rejected (unknown_tenant): tenant `visoin` is not in the cell file"
        unknown_tenant += " (there are vision, speech)."
        unknown_queue = "Job vision/wrong is rejected (unknown_queue): queue `fast` is not a queue of cell main"
        unknown_queue += " (there is default)."
        assert (sent.returncode, sorted(sent.stdout.splitlines())) == (1, sorted((unknown_tenant, unknown_queue)))
        again = fallow("submit", str(file), "--json")
        assert json.loads(again.stdout)["jobs"] == {"visoin/typo": "rejected", "vision/wrong": "rejected"}
        found = fallow("job", "typo")
        assert (found.returncode, found.stdout.splitlines()[0]) == (0, "job visoin/typo of cell main: rejected")
        assert unknown_tenant in found.stdout
        answer = json.loads(fallow("job", "wrong", "--json").stdout)["rejected"][0]["answer"]
        assert (answer["field"], answer["value"], answer["rule"]) == (
            "queue",
            "fast",
            "is not a queue of cell main (there is default)",
        )
        assert fallow("job", "other").returncode == 1
