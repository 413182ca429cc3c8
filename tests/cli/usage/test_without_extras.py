"""A command that needs what an extra brings says in one line what to install, and has done nothing before."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fallow.cli.errors.failures import Exit
from fallow.shared.runtime.extras import EXTRAS

HIDDEN = "import sys\nfor name in {names!r}: sys.modules[name] = None\nfrom fallow.cli.entry import main\nmain()\n"
"""Python takes a module for missing whose name stands so in its table."""

TOP = Path(__file__).parents[3]


def call_without(names: list[str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command where these packages are not installed. Its PATH names no server, its temporary folder is empty."""
    environment = {"PYTHONPATH": str(TOP), "PATH": "/nonexistent", "TMPDIR": str(folder), "HOME": str(folder)}
    program = [sys.executable, "-c", HIDDEN.format(names=names), *words]
    return subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "package"), [(("demo", "--count", "5"), "confluent_kafka"), (("faults", "--seeds", "1"), "lupa")]
)
def test_without_the_extra_a_command_says_in_one_line_what_to_install(
    words: tuple[str, ...], package: str, tmp_path: Path
) -> None:
    done = call_without([*EXTRAS, "docker", "testcontainers"], tmp_path, *words)
    assert done.stderr == f"fallow: {package} is not installed: pip install 'fallow[demo]'\n"
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert list(tmp_path.iterdir()) == [], "it ends before it begins its work"


def test_a_cell_of_real_services_names_the_extra_among_the_ways_to_a_kafka(tmp_path: Path) -> None:
    done = call_without([*EXTRAS, "docker", "testcontainers"], tmp_path, "up", "--data", str(tmp_path / "data"))
    assert done.returncode == Exit.AWAY
    assert done.stderr.endswith("embedded: confluent_kafka is not installed: pip install 'fallow[demo]'\n")


def test_each_package_is_brought_by_the_extra_that_is_named() -> None:
    declared = metadata.requires("fallow") or []
    for package, extra in EXTRAS.items():
        name = package.replace("_", "-")
        assert [line for line in declared if line.startswith(name) and f'extra == "{extra}"' in line], package
