"""Whatever asks a command to end, it takes back what it has begun: a real process each time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
WAIT_S = 30

SLOW_COMMAND = """
import asyncio, signal, sys, time, types
from pathlib import Path
import typer

# As a shell starts what is to run in the background; however the tests themselves were started.
signal.signal(signal.SIGINT, signal.SIG_IGN if "ignored" in sys.argv[2:] else signal.default_int_handler)
from fallow.cli import access, app, entry
from fallow.cli.log.file import written_in_order

slow = typer.Typer()

async def in_a_loop():
    print("begun", flush=True)
    await asyncio.sleep(60)

async def busy_in_a_loop():
    print("begun", flush=True)
    try:
        while True:
            sum(range(10_000))
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)  # it has connections to close
        Path(sys.argv[3]).with_name("cancelled").touch()
        raise

def at_work():
    while True:
        sum(range(1000))

WAYS = {"asleep": lambda: time.sleep(60), "loop": lambda: access.run(in_a_loop()), "work": at_work,
        "busy": lambda: access.run(busy_in_a_loop())}

@slow.command()
def command(way: str, file: Path, more: list[str] = typer.Argument(None)):
    with written_in_order(file) as output:
        output.write("a part")
        if way in ("asleep", "work"):
            print("begun", flush=True)
        WAYS[way]()

sys.modules["fallow.slow"] = types.SimpleNamespace(app=slow)
app.COMMANDS["slow"] = ("slow", "")
entry.main()
"""


def begun(file: Path, way: str, *more: str) -> subprocess.Popen[str]:
    """`fallow` in the middle of a command that writes this file."""
    words = [sys.executable, "-c", SLOW_COMMAND, "slow", way, str(file), *more]
    process = subprocess.Popen(words, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("way", ["asleep", "loop", "work"])
def test_a_command_that_is_ended_leaves_no_part_of_a_file_and_its_code_tells_by_what(
    tmp_path: Path, way: str, number: signal.Signals
) -> None:
    process = begun(tmp_path / "log.gz", way)
    assert [*tmp_path.iterdir()], "it has begun to write"
    process.send_signal(number)
    _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said, [*tmp_path.iterdir()]) == (128 + number, "", [])


@pytest.mark.parametrize("way", ["asleep", "loop"])
def test_so_does_one_in_the_background_that_is_to_ignore_the_terminal(tmp_path: Path, way: str) -> None:
    process = begun(tmp_path / "log", way, "ignored")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said, [*tmp_path.iterdir()]) == (143, "", [])


@pytest.mark.parametrize("more", [[], ["ignored"]], ids=["in the foreground", "in the background"])
def test_what_it_does_in_its_event_loop_is_cancelled_and_ends_in_order(tmp_path: Path, more: list[str]) -> None:
    for _ in range(5):
        process = begun(tmp_path / "log", "busy", *more)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WAIT_S)
        assert (process.returncode, said) == (143, "")
        (tmp_path / "cancelled").unlink()
        assert [*tmp_path.iterdir()] == []


def test_the_file_that_was_there_before_stays(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("before")
    process = begun(file, "loop")
    process.terminate()
    process.communicate(timeout=WAIT_S)
    assert ([*tmp_path.iterdir()], file.read_text()) == ([file], "before")


ITEMS_IN_TURN = """
import asyncio, os, signal, sys, types
import typer

WAY = sys.argv[2]
if "ignored" in sys.argv[3:]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
from fallow.cli import access, app, entry

def end():
    os.kill(os.getpid(), signal.SIGTERM)

async def last_turn():
    await asyncio.sleep(0.01)
    end()

async def waited_for():
    work = asyncio.ensure_future(asyncio.sleep(0.01))
    work.add_done_callback(lambda _: end())
    await asyncio.wait_for(work, 5)

async def swallowed():
    asyncio.get_running_loop().call_soon(end)
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        pass

async def twice():
    asyncio.get_running_loop().call_soon(end)
    try:
        await asyncio.sleep(5)
    finally:
        asyncio.get_running_loop().call_later(0.01, end)
        await asyncio.sleep(0.1)

async def found():
    for number in range(4):
        print(number, flush=True)
        if number == 1:
            await globals()[WAY]()
        yield number

slow = typer.Typer()

@slow.command()
def command(way: str, more: list[str] = typer.Argument(None)):
    if "alone" in sys.argv[3:]:
        access.run(globals()[WAY]())
    else:
        for _ in access.in_turn(found()):
            pass

sys.modules["fallow.slow"] = types.SimpleNamespace(app=slow)
app.COMMANDS["slow"] = ("slow", "")
entry.main()
"""


@pytest.mark.parametrize("more", [[], ["ignored"]], ids=["in the foreground", "in the background"])
@pytest.mark.parametrize("way", ["last_turn", "waited_for", "swallowed", "twice"])
def test_whatever_loses_the_cancellation_the_command_begins_nothing_more_and_tells_that_it_was_ended(
    way: str, more: list[str]
) -> None:
    for alone, begun_items in (([], "0\n1\n"), (["alone"], "")):
        words = [sys.executable, "-c", ITEMS_IN_TURN, "slow", way, *more, *alone]
        ended = subprocess.run(words, cwd=TOP, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (143, begun_items, "")
