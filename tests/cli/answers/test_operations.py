"""Operators' commands given to a cell that runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer import Exit

from fallow.cli.node.operate import operation
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import Cordon, Drain
from tests.cli.usage.test_commands import call
from tests.e2e.worlds.running_cell import a_job, running_cell

Fallow = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


@pytest.mark.real_kafka
async def test_nodes_and_jobs_are_held_back_and_let_go(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=2) as cell:
        await cell.until(lambda c: len(c.state.nodes) == 2, what="both nodes")
        done = fallow("node", "cordon", "node-000", "--reason", "a new fan")
        assert (done.returncode, done.stdout) == (
            0,
            "Node node-000 of pool training (8 GPUs) is cordoned (a new fan).\n",
        )
        await cell.submit(a_job("long", gpus=8, ms=3_600_000))
        await cell.until(
            lambda c: "vision/long" in c.state.jobs and c.state.jobs["vision/long"].attempt == 1, what="the long job"
        )
        await cell.submit(a_job("next", gpus=8, ms=100))
        await cell.until(lambda c: "vision/next" in c.state.jobs, what="the job that waits")
        assert fallow("job", "hold", "next").stdout == "Job vision/next is held back.\n"
        again = fallow("job", "hold", "next", "--json")
        assert (again.returncode, json.loads(again.stdout)["answer"]) == (0, "Job vision/next is held already.")
        opened = fallow("node", "uncordon", "node-000", "--json")
        assert (opened.returncode, json.loads(opened.stdout)["ok"]) == (0, True)
        await cell.until(lambda c: c.state.nodes["node-000"].status is NodeStatus.READY, what="the open node")
        assert cell.state.jobs["vision/next"].status is JobStatus.HELD
        freed = fallow("job", "release", "next", "absent", "next")
        assert (freed.returncode, freed.stdout.splitlines()[0]) == (1, "Job vision/next is no longer held.")
        assert [line.split()[:6] for line in freed.stdout.splitlines()[1:]] == [
            ["A", "request", "(release)", "about", "job", "absent"]
        ]
        await cell.until_over("next")
        drained = json.loads(fallow("node", "drain", "node-001", "--reason", "moves out", "--json").stdout)
        assert (drained["ok"], drained["jobs"], drained["stop_ms"]) == (True, ["vision/long"], None)
        await cell.until(lambda c: c.state.jobs["vision/long"].attempt == 2, what="the second attempt elsewhere")
        assert cell.state.nodes["node-001"].status is NodeStatus.DRAINING
        why = fallow("log", "why", "long").stdout
        assert "Node node-001 of pool training (8 GPUs) is draining" in why
        assert "must stop within" in why
        assert fallow("node", "drain", "nowhere", "--within", "10min").returncode == 1
        assert fallow("job", "hold", "absent").returncode == 1
        assert cell.problems() == []


def test_what_no_node_can_be_called_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit) as caught:
        operation(Cordon, cell="main", node="NO SUCH")
    assert (caught.value.exit_code, len(capsys.readouterr().err.splitlines())) == (2, 1)


def test_a_command_without_a_wish_leaves_it_out() -> None:
    wish = operation(Drain, cell="main", node="n", deadline_ms=None)
    assert isinstance(wish, Drain)
    assert wish.deadline_ms is None


def test_a_duration_that_is_none_is_wrong_use() -> None:
    done = call("node", "drain", "n", "--within", "soon")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "fallow: --within = 'soon': must be a number of up to 9 digits and a unit: 500ms, 90s, 10min, 2h, 1d\n"
    )
