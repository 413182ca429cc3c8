"""Standard output that is full or closed: one line and the code of wrong use, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FULL = Path("/dev/full")
COMMANDS = ("--help", "cell check deploy/cell.yaml", "cell check deploy/cell.yaml --json", "case --help")


def ended(words: str, stdout: str) -> subprocess.CompletedProcess[str]:
    """`fallow` with its standard output redirected as a shell would."""
    line = f'exec "{sys.executable}" -m fallow.cli {words} {stdout}'
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


TELLS = """
from fallow.cli.output.output import print_json, print_line, print_table
from fallow.cli.output.output_stream import open_streams
open_streams()
for text in TEXTS:
    print_line(text)
    print_table("jobs", ("JOB",), [(text,)])
    print_json({"text": text})
"""
TEXTS = ["日本", "Zoé", "\U0001f600", "\ud800", "ab"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "shift-jis"])
def test_signs_that_the_output_cannot_hold_are_written_out(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    program = TELLS.replace("TEXTS", ascii(TEXTS))
    done = subprocess.run([sys.executable, "-c", program], cwd=TOP, capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode(encoding).splitlines()
    assert [json.loads(line)["text"] for line in lines if line.startswith("{")] == TEXTS


INTERRUPTED_AT_ITS_BEGIN = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
import runpy
runpy.run_module("fallow.cli", run_name="__main__")
"""


def test_who_interrupts_a_command_that_is_being_loaded_sees_no_traceback() -> None:
    words = [sys.executable, "-c", INTERRUPTED_AT_ITS_BEGIN, "jobs"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
