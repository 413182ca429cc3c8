"""Jobs that are real processes: two agents make a cluster of one machine, and a toy model is really trained on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fallow.services.executor.processes.supervisor import processes
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.effects import JobFailed, JobStarted, LeaseExpired
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.events.submissions import CancelJob
from fallow.shared.runtime.stack.services import ServiceSpec
from tests.contract.eventually import eventually
from tests.e2e.worlds.running_cell import RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka

TOY = Path(__file__).parents[3] / "examples" / "train_toy.py"
STEPS = 240
CELL_FILE = """
cells:
  - name: main
    ordinal: 0
    pools:
      - {name: training, gpus: 64}
      - {name: machines, gpus: 8, gpus_per_node: 2, driver: process}
    policy: {node_lease_wall_ms: LEASE, lease_margin_wall_ms: MARGIN, stop_grace_wall_ms: 20000}
tenants:
  - {name: vision}
"""


@asynccontextmanager
async def two_agents(
    kafka: str, redis_url: str, namespace: str, folder: Path, lease_ms: int = 60_000, margin_ms: int = 10_000
) -> AsyncIterator[RunningCell]:
    cell_file = CELL_FILE.replace("LEASE", str(lease_ms)).replace("MARGIN", str(margin_ms))
    agents = [an_agent(folder, name) for name in ("machine-a", "machine-b")]
    try:
        async with running_cell(
            kafka, redis_url, namespace, folder, nodes=1, cell_file=cell_file, beside=agents
        ) as cell:
            await cell.until(lambda c: len(c.state.nodes) == 3, what="both machines to join")
            yield cell
    finally:
        for pid in below(folder):
            os.kill(pid, signal.SIGKILL)


def an_agent(folder: Path, name: str) -> ServiceSpec:
    """`fallow agent`, as a user starts it."""
    offer = ("--node", name, "--gpus", "2", "--pool", "machines", "--label", "address=127.0.0.1")
    return ServiceSpec(name, "fallow.cli", arguments=("agent", *offer, "--state-dir", str(folder / name)))


def a_training(id: str, folder: Path, *, step_ms: int) -> JobSpec:
    argv = (sys.executable, str(TOY), "--steps", str(STEPS), "--step-ms", str(step_ms), "--checkpoint-every", "20")
    run = ProcessRun(argv=argv, checkpoint_dir=str(folder / "checkpoints"))
    return a_job(id, workers=4, run=run, pools=("machines",))


def a_sleep(id: str) -> JobSpec:
    return a_job(id, run=ProcessRun(argv=("sh", "-c", "echo up; exec sleep 600")), pools=("machines",))


def below(folder: Path) -> list[int]:
    """The processes, supervisors among them, that were started below this folder."""
    return [pid for pid in processes() if str(folder).encode() in _words(pid, "cmdline") + _words(pid, "environ")]


def workers_of(folder: Path, job: str) -> set[int]:
    """The processes that are the workers of a job's first attempt."""
    return {int(path.read_text()) for path in folder.glob(f"machine-*/runs/vision~{job}/1/*/worker")}


def live(job: str) -> list[int]:
    """The processes of a job's workers."""
    return [pid for pid in processes() if f"FALLOW_JOB={job}\0".encode() in _words(pid, "environ")]


def _words(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def nodes_of(cell: RunningCell, job: str) -> list[str]:
    """Where each of the job's attempts was started."""
    starts = [e for d in cell.decisions for e in d.effects if isinstance(e, JobStarted) and e.job == in_full(job)]
    return [",".join(sorted({place.node for place in start.workers})) for start in starts]


async def test_a_model_is_trained_over_two_agents_cancelled_and_goes_on_from_its_checkpoint(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    checkpoint, result = tmp_path / "checkpoints" / "checkpoint.json", tmp_path / "checkpoints" / "result.json"
    async with two_agents(kafka, redis_url, namespace, tmp_path) as cell:
        await cell.submit(a_training("toy-1", tmp_path, step_ms=100))
        await cell.until(lambda _: checkpoint.exists(), what="a checkpoint")
        assert nodes_of(cell, "toy-1") == ["machine-a,machine-b"]
        assert len(cell.state.jobs["vision/toy-1"].runs) == 2
        await cell.publish(CancelJob(job="toy-1", tenant="vision"))
        await cell.until_over("toy-1")
        assert cell.state.finished["vision/toy-1"].status is JobStatus.CANCELLED
        assert live("toy-1") == []
        reached = read(checkpoint)["step"]
        assert 20 < reached < STEPS  # written at the notice, and not when a checkpoint was due

        await cell.submit(a_training("toy-2", tmp_path, step_ms=1))
        await cell.until_over("toy-2")
        assert cell.state.finished["vision/toy-2"].status is JobStatus.FINISHED
        trained = read(result)
        assert (trained["begin"], trained["step"]) == (reached, STEPS)
        assert trained["loss"] == pytest.approx(loss_without_a_break(tmp_path / "alone"), rel=1e-9)
        assert cell.problems() == []


def loss_without_a_break(folder: Path) -> float:
    folder.mkdir()
    environment = {**os.environ, "FALLOW_CHECKPOINT_DIR": str(folder)}
    subprocess.run([sys.executable, TOY, "--steps", str(STEPS), "--step-ms", "0"], env=environment, check=True)
    return float(read(folder / "result.json")["loss"])


async def test_exit_codes_and_last_words_reach_the_log(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with two_agents(kafka, redis_url, namespace, tmp_path) as cell:
        run = ProcessRun(argv=("sh", "-c", 'test "$RANK" != 2 || { echo "bad luck" >&2; exit 42; }; sleep 600'))
        await cell.submit(a_job("bad", workers=4, run=run, pools=("machines",)))
        await cell.until_over("bad")
        failed = next(e for d in cell.decisions for e in d.effects if isinstance(e, JobFailed))
        assert failed.text == "worker 2 ended with exit code 42: bad luck"
        assert live("bad") == []
        assert cell.problems() == []


async def test_a_killed_agent_that_comes_back_goes_on_with_its_workers(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with two_agents(kafka, redis_url, namespace, tmp_path) as cell:
        go = tmp_path / "go"
        script = f"echo up; while [ ! -e {go} ]; do sleep 0.1; done"
        await cell.submit(a_job("long", workers=4, run=ProcessRun(argv=("sh", "-c", script)), pools=("machines",)))
        await cell.until(lambda c: c.story("long")[-1:] == ["JobRunning"], what="it to run")
        workers = workers_of(tmp_path, "long")
        boots = {node.id: node.boot for node in cell.state.nodes.values()}
        await cell.services.restart("machine-a", signal.SIGKILL)
        await cell.services.restart("machine-b", signal.SIGTERM)
        await cell.services.wait_ready(wait_s=30)
        assert len(workers) == 4
        assert workers <= set(live("long"))
        go.touch()
        await cell.until_over("long")
        story = [kind for kind in cell.story("long") if kind != "RunObserved"]
        assert story == ["JobEnqueued", "JobStarted", "JobRunning", "JobFinished"]
        assert {node.id: node.boot for node in cell.state.nodes.values()} == boots
        assert cell.problems() == []


async def test_the_work_of_an_agent_that_is_gone_ends_before_it_begins_elsewhere(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with two_agents(kafka, redis_url, namespace, tmp_path, lease_ms=4_000, margin_ms=2_000) as cell:
        await cell.submit(a_sleep("moves"))
        await cell.until(lambda c: c.story("moves")[-1:] == ["JobRunning"], what="it to run")
        first, old = nodes_of(cell, "moves")[0], live("moves")
        cell.services.kill(first, signal.SIGKILL)
        await cell.until(lambda c: has_expired(c, first), what="the node to be lost")
        assert not set(old) & set(live("moves"))
        await cell.until(lambda c: c.story("moves").count("JobRunning") == 2, what="it to run elsewhere")
        second = nodes_of(cell, "moves")[1]
        assert {first, second} == {"machine-a", "machine-b"}

        await cell.services.restart(first, signal.SIGKILL)
        await cell.until(lambda c: c.state.nodes[first].status == "ready", what="the node to be back")
        await cell.publish(CancelJob(job="moves", tenant="vision"))
        await cell.until_over("moves")
        await eventually(lambda: live("moves") == [])
        assert cell.problems() == []


def has_expired(cell: RunningCell, node: str) -> bool:
    return any(isinstance(e, LeaseExpired) and e.node == node for d in cell.decisions for e in d.effects)
