"""Standard output that is full or closed: one line and the code of wrong use, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FULL = Path("/dev/full")
COMMANDS = ("--help", "cell check deploy/cell.yaml", "cell check deploy/cell.yaml --json", "case --help")


def ended(words: str, stdout: str) -> subprocess.CompletedProcess[str]:
    """`fallow` with its standard output redirected as a shell would."""
    line = f'exec "{sys.executable}" -m services.cli {words} {stdout}'
    return subprocess.run(["sh", "-c", line], cwd=TOP, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_output_is_told_in_one_line(words: str) -> None:
    done = ended(words, f"> {FULL}")
    assert (done.returncode, done.stderr) == (
        2,
        "fallow: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_closed_output_is_told_in_one_line(words: str) -> None:
    done = ended(words, ">&-")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("fallow: standard output is closed")


def test_closed_errors_do_not_keep_the_answer() -> None:
    done = ended("cell check deploy/cell.yaml", "2>&-")
    assert (done.returncode, bool(done.stdout)) == (0, True)


@pytest.mark.parametrize("words", COMMANDS)
def test_who_has_read_enough_is_told_nothing(words: str) -> None:
    done = ended(words, "| true")
    assert done.stderr == ""
