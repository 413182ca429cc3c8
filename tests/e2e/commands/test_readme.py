"""The commands of the README's first job, in their order, on a clean `fallow up`: each does what the README says."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow.shared.runtime.stack import kafka_jars
from fallow.shared.runtime.stack.child import environment_with

TOP = Path(__file__).parents[3]
SECTION = "## A first job by hand"
NO_JARS = kafka_jars.obstacle()
"""Asked once: Java is started for the answer."""

TOLD = {
    "cat > hello.yaml": "",
    "fallow submit hello.yaml --wait": r"Job vision/hello starts, attempt 1: 16 GPUs on main-training-000\d \(0-7\)",
    "fallow job hello": r"(?s)job vision/hello of cell main: (starting|running).*where it ran.*main-training-000\d",
    "fallow nodes": r"(?s)8 nodes of cell main at version \d+, 48 GPUs free.*main-training-000\d",
    "fallow cancel hello": "Job vision/hello must stop within 30.0 s: cancelled",
    "fallow log tail": r"(?s)version \d+.*Job vision/hello is accepted and waits",
    "fallow log why hello": "(?s)Job vision/hello starts.*In all it waited .*, started once",
    "fallow log repair": "Nothing is to be repaired",
    "fallow log at 3": "cell main at version 3",
    'fallow log at "$': r"cell main at version \d+, 20\d\d-",
    "fallow log diff 2 3": r"(?s)from version 2.*to version 3.*1 decision in",
    "sed s/hello/many/": "",
    "fallow submit many.yaml": r"^1 submitted: vision/many \(20 elements, each ",
    "fallow job many": r"array vision/many of cell main, 20 elements: .*(running|starting|queued|awaiting)",
    "fallow node drain main-training-0001": "Node main-training-0001 of pool training .8 GPUs. is draining until ",
    "fallow node maintain main-training-0002": r"Maintenance of node main-training-0002 is planned .*\(new fans\)",
    "fallow node lost main-training-0003": "Node main-training-0003 .boot .*. is lost",
    "fallow verify": r"no offence in \d+ checks",
    "fallow snapshot export": "cell main at version",
}
"""What each command prints, by how it begins."""


def commands() -> list[str]:
    """The commands of the section, each with the lines of its here-document."""
    section = (TOP / "README.md").read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    block = section.split("```")[1]
    return [found.strip() for found in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


def expected(command: str) -> str | None:
    plain = command.removeprefix(".venv/bin/")
    return next((told for begin, told in reversed(TOLD.items()) if plain.startswith(begin)), None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder in which `.venv/bin/fallow` is what the README calls."""
    program = tmp_path / ".venv" / "bin" / "fallow"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fallow.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {name: value for name, value in environment_with(TOP).items() if not name.startswith("FALLOW_")}
    return {**kept, "FALLOW_CACHE_DIR": str(kafka_jars.cache_folder()), "COLUMNS": "80"}


@pytest.fixture
def exported(home: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """`fallow up` as the README starts it; the variables of the line that it prints."""
    said = home / "said.txt"
    with said.open("w") as output:
        process = subprocess.Popen(
            commands()[0].split(), cwd=home, env={**environment, "FALLOW_KAFKA": "jars", "FALLOW_REDIS": "wheel"},
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not (found := re.search(r"everything runs.*export (.*)", said.read_text(encoding="utf-8"))):
            assert process.poll() is None, said.read_text(encoding="utf-8")[-3_000:]
            assert time.monotonic() < deadline, said.read_text(encoding="utf-8")[-3_000:]
            threading.Event().wait(0.1)
        yield {**environment, **dict(word.split("=", 1) for word in found[1].split())}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_every_command_is_expected_to_print_something() -> None:
    first, second, *rest = commands()
    assert first == ".venv/bin/fallow up --nodes 8"
    assert second.startswith("export FALLOW_KAFKA=")
    assert [command for command in rest if expected(command) is None] == []


SAID_BESIDE = {"snapshot export": "fallow: placement and admission of namespace fallow still run, so what .*\n"}
"""What a command says on standard error beside its answer: all others say nothing there."""


@pytest.mark.skipif(NO_JARS is not None, reason=str(NO_JARS))
def test_the_readme_can_be_followed(home: Path, exported: dict[str, str]) -> None:
    for command in commands()[2:]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=home, env=exported, capture_output=True, text=True, timeout=120, check=False
        )
        told = f"{command}\n{done.stdout}{done.stderr}"
        beside = "".join(says for part, says in SAID_BESIDE.items() if part in command)
        assert (done.returncode, bool(re.fullmatch(beside, done.stderr, re.DOTALL))) == (0, True), told
        assert re.search(expected(command) or "", done.stdout, re.MULTILINE), told
    assert (home / "cell.gz").stat().st_size > 0
