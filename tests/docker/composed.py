"""The compose file as a user runs it, as a project of its own with ports of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallow.shared.runtime.clocks import monotonic_ms

TOP = Path(__file__).parents[2]
COMMAND_WAIT_S = 600
SHOWN_LINES = 30
DIARIES = "/var/lib/fallow/diaries"


def obstacle() -> str | None:
    """Why the compose file cannot be run here, or None."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    found = subprocess.run(["docker", "compose", "version"], capture_output=True, text=True, timeout=60, check=False)
    return None if found.returncode == 0 else "the docker command has no compose"


@dataclass(frozen=True, slots=True)
class Composed:
    """One project. `ports` are those of Kafka, Valkey and metrics on this machine, `files` its compose files."""

    name: str
    ports: tuple[int, int, int]
    files: tuple[str, ...] = ("docker-compose.yml",)
    more: Mapping[str, str] = field(default_factory=dict)
    """Further variables of the environment."""

    @property
    def environment(self) -> dict[str, str]:
        """That of each command."""
        kafka, valkey, metrics = (str(port) for port in self.ports)
        return {**os.environ, "KAFKA_PORT": kafka, "VALKEY_PORT": valkey, "METRICS_PORT": metrics, **self.more}

    def compose(self, *words: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """The output of `docker compose WORDS`; an AssertionError with what it said if it ends with none of `codes`."""
        files = [word for file in self.files for word in ("-f", file)]
        command = ["docker", "compose", "--project-name", self.name, *files, "--ansi", "never", *words]
        done = subprocess.run(
            command,
            cwd=TOP,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_WAIT_S,
            check=False,
            env=self.environment,
        )
        said = "\n".join((done.stdout + done.stderr).splitlines()[-SHOWN_LINES:])
        assert done.returncode in codes, f"{' '.join(words)} ended with {done.returncode}:\n{said}"
        return done.stdout

    def fallow(self, service: str, *words: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """The output of a `fallow` command inside a container of this service."""
        return self.compose("exec", "-T", service, "fallow", *words, stdin=stdin, codes=codes)

    def json(self, service: str, *words: str, stdin: str = "", codes: Sequence[int] = (0,)) -> dict[str, Any]:
        """What such a command answers with --json."""
        answer = json.loads(self.fallow(service, *words, "--json", stdin=stdin, codes=codes).splitlines()[-1])
        assert isinstance(answer, dict)
        return answer

    def up(self, *words: str) -> int:
        """`up --wait`; how many milliseconds it took."""
        began_ms = monotonic_ms()
        self.compose("up", "-d", "--wait", *words)
        return monotonic_ms() - began_ms

    def running(self, service: str) -> list[str]:
        """The state of each running container of a service."""
        lines = self.compose("ps", "--format", "json", service).splitlines()
        return [json.loads(line)["Health"] for line in lines]

    def statuses(self) -> dict[str, str]:
        """Each job that the cell knows, with its status."""
        found = self.json("admission", "jobs", "--limit", "1000")
        return {job["id"]: job["status"] for job in found["jobs"]}

    def submit(self, jobs: list[dict[str, Any]]) -> None:
        """Submit these jobs, and wait for nothing but Kafka."""
        self.fallow("admission", "submit", "-", "--tenant", "vision", stdin=json.dumps(jobs))

    def stages_after(self, until: str, jobs: list[dict[str, Any]], codes: Sequence[int] = (0,)) -> dict[str, str]:
        """Submit these jobs, and wait: how far each has come."""
        words = ("submit", "-", "--tenant", "vision", "--until", until, "--timeout", "60")
        stages = self.json("admission", *words, stdin=json.dumps(jobs), codes=codes)["jobs"]
        assert isinstance(stages, dict)
        return stages


def jobs(name: str, count: int, duration_ms: int) -> list[dict[str, Any]]:
    """So many jobs of one GPU that take so long."""
    run = {"driver": "virtual", "duration_ms": duration_ms}
    return [{"id": f"{name}-{number}", "resources": {"gpu_milli": 1000}, "run": run} for number in range(count)]
