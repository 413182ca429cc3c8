"""What tests call is what `python -m fallow.cli` is: a command from a process that has loaded it is the same one."""

from __future__ import annotations

import os

import pytest

from tests.cli.worlds.warm import cold, warm

HERE = {"PATH": os.environ["PATH"], "COLUMNS": "90", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        (["--help"], "", 0),
        (["jobs", "--nothing"], "", 2),
        (["cell", "check", "deploy/cell.yaml", "--json"], "", 0),
        (["submit", "-", "--check"], "id: hello\ntenant: hello", 2),
        (["topics", "show", "--cell", "\udcff"], "", 2),
        (["nodes"], "", 3),
    ],
)
def test_a_command_says_and_ends_as_in_a_python_of_its_own(words: list[str], stdin: str, code: int) -> None:
    environment = {**HERE, "FALLOW_KAFKA": "127.0.0.1:1", "FALLOW_REDIS": "redis://127.0.0.1:1/0"}
    ours, own = (run(words, environment, stdin) for run in (warm, cold))
    assert (ours.returncode, ours.stdout, ours.stderr) == (own.returncode, own.stdout, own.stderr)
    assert ours.returncode == code


def test_what_one_command_was_given_is_not_there_for_the_next() -> None:
    said = [warm(["jobs"], {**HERE, **given}, "").stderr for given in ({"FALLOW_KAFKA": "nonsense"}, {})]
    assert ("nonsense" in said[0], "nonsense" in said[1]) == (True, False)
