"""Standard output that is full or closed: one line and the code of wrong use, never a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.cli.output.output_stream import while_read

TOP = Path(__file__).resolve().parents[3]
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


async def test_work_that_says_nothing_for_long_ends_when_its_reader_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    is_put_in_order = asyncio.Event()

    async def silent() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_put_in_order.set()

    with os.fdopen(writing, "w") as output, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        work = asyncio.create_task(while_read(silent()))
        await asyncio.wait([work], timeout=0.1)
        is_on = not work.done()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            await asyncio.wait_for(work, 10)
    assert (is_on, is_put_in_order.is_set()) == (True, True)


@pytest.mark.parametrize("is_pipe", [False, True])
async def test_work_that_ends_before_gives_what_it_found(
    is_pipe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "found"

    reading, writing = os.pipe() if is_pipe else (-1, os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT))
    with os.fdopen(writing, "w") as output, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        assert await while_read(work()) == "found"
    if is_pipe:
        os.close(reading)
