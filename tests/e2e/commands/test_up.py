"""`fallow up` on this machine: whatever of it is killed comes back, and the next job runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fallow.shared.runtime.stack import embedded_broker, kafka_jars
from fallow.shared.runtime.stack.child import environment_with

TOP = Path(__file__).parents[3]
FALLOW = [sys.executable, "-m", "fallow.cli"]
CELL_FILE = """
cells: [{name: main, ordinal: 0, pools: [{name: virtual, gpus: 64, gpus_per_node: 8}]}]
tenants: [{name: acme}]
"""
CHILDREN = {
    "placement": "fallow.services.placement",
    "admission": "fallow.services.admission",
    "queueing": "fallow.services.queueing",
    "loaning": "fallow.services.loaning",
    "executor": "fallow.services.executor",
    "projector": "fallow.services.projector",
    "metrics": "fallow.services.metrics",
    "Kafka": "kafka.Kafka",
    "Redis": "valkey-server",
}
"""The name in what `up` says, and how its process is known by its command line."""


NO_JARS = kafka_jars.obstacle()
"""Asked once: Java is started for the answer."""

needs_jars = pytest.mark.skipif(NO_JARS is not None, reason=str(NO_JARS))

SERVICES = ["admission", "queueing", "loaning", "executor", "projector", "metrics"]


class Up:
    """`fallow up` as a process, what it has said so far, and its children."""

    def __init__(self, kafka: str, folder: Path, nodes: int, *more: str, cell_file: str = CELL_FILE) -> None:
        (folder / "cell.yaml").write_text(cell_file, encoding="utf-8")
        self._folder, self._said = folder, folder / "said.txt"
        self._words = ["--redis", "wheel", "--cell-file", str(folder / "cell.yaml")]
        environment = environment_with(TOP, FALLOW_NAMESPACE="up")
        command = [*FALLOW, "--kafka", kafka, *self._words, "up", "--nodes", str(nodes)]
        command += ["--data", str(folder / "data"), *more]
        self._command = command
        with self._said.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        self.environment = environment

    def again(self) -> subprocess.CompletedProcess[str]:
        """Runs this command a second time beside the first one, to its end."""
        return subprocess.run(
            self._command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def again_as_in_its_other_terminal(self, *more: str) -> subprocess.CompletedProcess[str]:
        """`fallow up` where the line that this one printed was pasted, to its end."""
        return subprocess.run(
            [*FALLOW, "up", *more], env=self.pasted(), capture_output=True, text=True, timeout=60, check=False
        )

    def pasted(self) -> dict[str, str]:
        """The environment of a terminal with the line that it printed."""
        words = shlex.split(self.waits_for("export FALLOW_KAFKA=").split("export ")[1])
        return {**self.environment, **dict(word.split("=", 1) for word in words)}

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")

    def waits_for(self, words: str, *, since: int = 0, within_s: float = 60) -> str:
        """Until it has said so; the whole line."""
        deadline = time.monotonic() + within_s
        while not (found := re.search(f"^.*(?:{words}).*$", self.said[since:], re.MULTILINE)):
            assert self.process.poll() is None, self.said[-3_000:]
            assert time.monotonic() < deadline, f"{words!r} is missing in: {self.said[-3_000:]}"
            threading.Event().wait(0.05)
        return found[0]

    def waits_for_lost_nodes(self, number: int) -> None:
        """Until its lines tell of so many nodes: the leases of nodes end one by one, so one look may not find all."""
        deadline = time.monotonic() + 60
        while sum(map(int, re.findall(r"^(\d+) nodes? of cell main declared lost", self.said, re.MULTILINE))) < number:
            assert self.process.poll() is None, self.said[-3_000:]
            assert time.monotonic() < deadline, self.said[-3_000:]
            threading.Event().wait(0.05)

    def children(self) -> dict[str, int]:
        """The processes that it has started, by the names in CHILDREN."""
        found: dict[str, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended since the folder was listed
            if parent == self.process.pid:
                found |= {name: int(folder.name) for name, end in CHILDREN.items() if words.endswith(end)}
                found |= {name: int(folder.name) for name in ("Kafka", "Redis") if CHILDREN[name] in words}
        return found

    def runs_a_job(self, job: str, *, gpu_milli: int = 1000) -> None:
        """Submit a job by the command line, and wait for its end."""
        self.submits([job], gpu_milli=gpu_milli, duration_ms=100, until="ended")

    def submits(self, jobs: list[str], *, gpu_milli: int, duration_ms: int, until: str) -> None:
        """Submit jobs by the command line, and wait until all are that far."""
        file = self._folder / f"{jobs[0]}.json"
        shape = {"tenant": "acme", "pools": ["virtual"], "resources": {"gpu_milli": gpu_milli}}
        run = {"driver": "virtual", "duration_ms": duration_ms}
        file.write_text(json.dumps([{"id": job, **shape, "run": run} for job in jobs]), encoding="utf-8")
        self.tells("submit", str(file), "--until", until, "--timeout", "60")

    def has_ended_well(self, job: str) -> bool:
        """What the view says of a job."""
        return "finished" in self.tells("job", job)

    def tells(self, *words: str) -> str:
        """What a command says in another terminal."""
        command = [*FALLOW, *words]
        done = subprocess.run(command, env=self.pasted(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr + self.said[-3_000:]
        return done.stdout


@contextmanager
def up(kafka: str, folder: Path, nodes: int = 2, *more: str, cell_file: str = CELL_FILE) -> Iterator[Up]:
    running = Up(kafka, folder, nodes, *more, cell_file=cell_file)
    try:
        yield running
    finally:
        running.process.send_signal(signal.SIGINT)  # nothing where the test has killed it
        assert running.process.wait(60) in (0, 130, -signal.SIGKILL)


@pytest.mark.skipif(embedded_broker.obstacle() is not None, reason=str(embedded_broker.obstacle()))
def test_up_on_the_embedded_broker_gets_ready_and_runs_a_job(tmp_path: Path) -> None:
    with up("embedded", tmp_path) as running:
        running.waits_for("everything runs")
        running.runs_a_job("first")
        assert running.has_ended_well("first")


@pytest.mark.by_turns
@needs_jars
def test_whatever_is_killed_comes_back_and_the_next_job_runs(tmp_path: Path) -> None:
    with up("jars", tmp_path) as running:
        running.waits_for("everything runs", within_s=120)
        running.runs_a_job("before")
        assert running.children().keys() == CHILDREN.keys()
        for names in (["placement"], SERVICES, ["Kafka"], ["Redis"]):
            before, since = running.children(), len(running.said)
            for name in names:
                os.kill(before[name], signal.SIGKILL)
            for name in names:
                running.waits_for(f"{name} (was killed by SIGKILL|died); it is started again in 0.5 s", since=since)
            for name in {"Kafka", "Redis"} & set(names):
                running.waits_for(f"{name} runs again at", since=since)
            running.runs_a_job(f"after-{names[0].lower()}")
            assert all(running.children()[name] != before[name] for name in names)


@pytest.mark.by_turns
@needs_jars
def test_up_with_fewer_nodes_on_the_same_data_does_the_work_of_those_that_are_gone(tmp_path: Path) -> None:
    long = [f"long-{number}" for number in range(8)]
    with up("jars", tmp_path, nodes=8) as running:
        running.waits_for("everything runs", within_s=120)
        running.submits(long, gpu_milli=8_000, duration_ms=10_000, until="started")
    with up("jars", tmp_path, nodes=4) as running:
        running.waits_for_lost_nodes(4)
        running.waits_for("everything runs")
        running.runs_a_job("after", gpu_milli=8_000)
        assert all(running.has_ended_well(job) for job in long)


@pytest.mark.by_turns
@needs_jars
def test_a_second_up_on_the_same_data_changes_nothing_and_a_killed_one_gives_the_data_free(tmp_path: Path) -> None:
    with up("jars", tmp_path) as running:
        running.waits_for("everything runs", within_s=120)
        second = running.again()
        assert second.returncode == 2, second.stdout + second.stderr
        rule = f"process {running.process.pid} uses it; end it, or give another --data"
        assert second.stderr == f"fallow: --data = {str(tmp_path / 'data')!r}: {rule}\n"
        joining = running.again_as_in_its_other_terminal("--data", str(tmp_path / "other"))
        assert joining.returncode == 1, joining.stdout + joining.stderr
        assert "where services of namespace up run already; unset FALLOW_KAFKA and FALLOW_REDIS" in joining.stderr
        running.runs_a_job("first")
        running.process.kill()
        running.process.wait(60)
        with up("jars", tmp_path) as third:
            third.waits_for("everything runs", within_s=120)
            third.runs_a_job("second")
            assert third.has_ended_well("first")


@pytest.mark.by_turns
@needs_jars
def test_another_cell_file_comes_into_force_on_own_data_only_where_that_is_asked_for(tmp_path: Path) -> None:
    other = CELL_FILE.replace("acme", "other")
    with up("jars", tmp_path) as running:
        running.waits_for("everything runs", within_s=120)
    refused = Up("jars", tmp_path, 2, cell_file=other)
    assert refused.process.wait(120) == 1, refused.said
    says = refused.said.splitlines()[-1]
    assert re.match(r"fallow: cell main goes by cell file [0-9a-f]{8}, from which .* differs in tenants, ", says), says
    assert says.endswith(
        "without tenant acme; nothing was done: name that file by --cell-file, or give --yes to put this one in force, "
        "all but its policy"
    )
    with up("jars", tmp_path, 2, "--yes", cell_file=other) as running:
        running.waits_for("everything runs", within_s=120)
    policy = other.replace("ordinal: 0,", "ordinal: 0, policy: {unknown_dependency_ms: 7},")
    assert policy != other
    with up("jars", tmp_path, 2, cell_file=policy) as running:
        running.waits_for("differs in main.policy: that comes into force with `fallow cell reload`", within_s=120)
        running.waits_for("everything runs", within_s=120)


@pytest.mark.by_turns
@needs_jars
def test_a_cell_moves_to_another_kafka_and_goes_on_there(tmp_path: Path) -> None:
    """As docs/operations.md tells it: Kafka and Redis run without services on both sides."""
    here, there, archive = tmp_path / "here", tmp_path / "there", str(tmp_path / "cell.gz")
    here.mkdir()
    there.mkdir()
    with up("jars", here) as running:
        running.waits_for("everything runs", within_s=120)
        running.submits(["runs", "waits"], gpu_milli=8_000, duration_ms=3_000, until="accepted")
    with up("jars", here, 2, "--servers-only") as running:
        running.waits_for("Kafka and Redis run, without services", within_s=120)
        assert running.children().keys() == {"Kafka", "Redis"}
        running.tells("snapshot", "export", archive)
    with up("jars", there, 2, "--servers-only") as running:
        running.waits_for("Kafka and Redis run, without services", within_s=120)
        running.tells("snapshot", "import", archive)
    with up("jars", there) as running:
        running.waits_for("everything runs", within_s=120)
        running.runs_a_job("after")
        assert running.has_ended_well("runs")
        running.tells("verify")
