"""One program of the stack as a child process: its output in a file, its end seen at once, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines

WRAPPER = Path(__file__).with_name("until_parent_dies.py")
POLL_S = 0.02
TAIL_LINES = 15

FIRST_TELLING, LAST_TELLING = 3, 5
"""So many lines that name an error are told before all others: the first is the cause as a rule, in Java the last."""

LOOKED_AT = 100
"""Errors of so many lines are told: what went wrong before has not ended the program."""

PLACES_TOLD, LINE_CHARS_MAX, TAB = 2, 500, 4

INDENT = "    "

TELLS = re.compile(r"\b(?:ERROR|FATAL|Caused by|\w*(?:Exception|Error)\b)|\[error")
PLACE = re.compile(r"\s+(?:at |\.\.\. \d+ |File \")|\s{4,}\S")
"""A line of a stack, which says where, or of a list of settings."""


class StackError(ErrorOfSeveralLines):
    """A part of the stack did not start or ended unexpectedly; the message carries the last lines that it wrote."""


def until_parent_dies(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` and is killed with this process (see until_parent_dies.py)."""
    return [sys.executable, "-I", "-S", str(WRAPPER), str(os.getpid()), *argv]


def environment_with(top: Path, **variables: str) -> dict[str, str]:
    """This process's environment with `variables`, where `python -m` finds the packages in the folder `top`."""
    paths = [str(top), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **variables}


class Child:
    """A child process in a process group of its own, writing to `log_file` (appended, so that restarts stay
    readable).
    """

    def __init__(
        self, name: str, argv: Sequence[str], log_file: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log_file = log_file
        self.environment = None if environment is None else dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._begins = 0

    @property
    def pid(self) -> int:
        """The process id; the program has it too, since the wrapper becomes the program."""
        if self._process is None:
            raise StackError(f"{self.name} was not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the program; does not wait until it is of use (see `wait_until`)."""
        if self.is_running:
            raise StackError(f"{self.name} runs already (process {self.pid})")
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as output:
            self._begins = output.tell()
            self._process = subprocess.Popen(
                until_parent_dies(self.argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                # Ctrl-C at the terminal reaches the parent only, which stops its parts in order.
                start_new_session=True,
            )

    def wait_until(self, is_up: Callable[[], bool], *, wait_s: float) -> None:
        """Waits until `is_up()`; an end of the process before that, or no answer in time, is a StackError."""
        deadline = time.monotonic() + wait_s
        while not is_up():
            if self.ended_within(POLL_S):
                raise StackError(f"{self.name} ended with code {self.exit_code}; {self._what_it_said()}")
            if time.monotonic() > deadline:
                self.kill()
                raise StackError(f"{self.name} did not answer within {wait_s:.0f} s; {self._what_it_said()}")

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs or before it was started."""
        return None if self._process is None else self._process.poll()

    def ended_within(self, wait_s: float) -> bool:
        """Waits at most `wait_s` for the end of the process; whether it has ended."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, *, wait_s: float = 10.0) -> None:
        """Asks by SIGTERM and, after `wait_s`, ends by SIGKILL. Stopping what has ended does nothing."""
        self.signal(signal.SIGTERM)
        if not self.ended_within(wait_s):
            self.kill()

    def kill(self) -> None:
        """Ends the whole process group by SIGKILL, as a power cut would."""
        self.signal(signal.SIGKILL)
        self.ended_within(10.0)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process group, if it still runs."""
        if self.is_running:
            os.killpg(self.pid, number)

    def tail(self) -> str:
        """What its output tells best since it was started last (see `told_by`)."""
        return last_lines(self.log_file, self._begins)

    def _what_it_said(self) -> str:
        return what_it_said(self.log_file, self.tail())


def what_it_said(log_file: Path, lines: str) -> str:
    """Lines of an output, and where all of it is; the end of a sentence."""
    return f"all that it said is in {log_file}:\n{lines}"


def last_lines(file: Path, begins: int) -> str:
    """The end of the output from this byte on: what an earlier process wrote into the same file says nothing of
    the last.
    """
    try:
        with file.open("rb") as output:
            output.seek(begins)
            lines = output.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    return "\n".join(f"{INDENT}{line}" for line in told_by(lines)) or f"{INDENT}(no output)"


def told_by(lines: Sequence[str]) -> list[str]:
    """At most 15 lines of an output, with spaces for tabs: the last ones, and in place of some of these such as name an
    error of a little before. Of a stack only the beginning is told: it may be deeper than what is shown.
    """
    plain = _without_depth([line.expandtabs(TAB)[:LINE_CHARS_MAX] for line in lines])[-LOOKED_AT:]
    telling = [number for number, line in enumerate(plain) if TELLS.search(line) and not PLACE.match(line)]
    chosen = dict.fromkeys(telling[:FIRST_TELLING] + telling[-LAST_TELLING:])
    for number in range(len(plain) - 1, -1, -1):
        if len(chosen) >= TAIL_LINES:
            break
        chosen[number] = None
    return [plain[number] for number in sorted(chosen)]


def _without_depth(lines: Sequence[str]) -> list[str]:
    """The lines, of places in a row the first two and how many more there are."""
    found: list[str] = []
    for is_place, some in groupby(lines, key=lambda line: PLACE.match(line) is not None):
        row = list(some)
        more = len(row) - PLACES_TOLD
        is_long = is_place and more > 1
        found += [*row[:PLACES_TOLD], f"{' ' * TAB}... {more} more lines"] if is_long else row
    return found


def telling_line(lines: str) -> str:
    """The last line of an output that says what happened, and not only where."""
    found = [line for line in lines.splitlines() if line.strip()]
    return next((line.strip() for line in reversed(found) if not PLACE.match(line.removeprefix(INDENT))), "")
