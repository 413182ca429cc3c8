"""Standard output that cannot be written: it is closed, or what it leads to is full."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Coroutine
from io import TextIOWrapper
from typing import Any, TypeVar

from fallow.shared.runtime.standard_streams import open_missing_streams
from fallow.shared.runtime.tasks.cancels import end_tasks

T = TypeVar("T")


class OutputFails(Exception):
    """Standard output cannot be written, and why."""


class Answers(TextIOWrapper):
    """Standard output that says that it is what cannot be written: of a file that a command writes the same is told
    otherwise. A reader that has read enough and closes it is no failure.
    """

    def write(self, text: str, /) -> int:
        """As always."""
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _failure(error) from error

    def flush(self) -> None:
        """As always."""
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _failure(error) from error


def _failure(error: OSError) -> OutputFails:
    drop_output()
    return OutputFails(f"standard output cannot be written: {error.strerror}")


def open_streams() -> bool:
    """Whether there is a standard output. What is missing of the standard streams leads nowhere from now on."""
    is_open = sys.stdout is not None
    open_missing_streams()
    if type(sys.stdout) is TextIOWrapper:
        said, is_line = sys.stdout, sys.stdout.line_buffering
        encoding = said.encoding
        # A tenant's text may have signs that this encoding lacks: they are written out, as on standard error.
        sys.stdout = Answers(said.detach(), encoding, "backslashreplace", line_buffering=is_line)
    return is_open


def drop_output() -> None:
    """What Python would still flush goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def while_read(work: Coroutine[Any, Any, T]) -> T:
    """Do the work for as long as standard output has a reader. Raises BrokenPipeError where that is a pipe whose
    reader has gone: work that waits without a word would not find out.
    """
    pipe = _pipe_of_output()
    if pipe is None:
        return await work
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    task, waits = asyncio.create_task(work, name="work"), asyncio.create_task(gone.wait(), name="output")
    loop.add_reader(pipe, gone.set)  # nothing comes from the end that is written: it is told that the other is closed
    try:
        await asyncio.wait([task, waits], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise BrokenPipeError  # without a number: typer takes one that has it for a failure
        return task.result()
    finally:
        loop.remove_reader(pipe)
        await end_tasks(task, waits)


def _pipe_of_output() -> int | None:
    try:
        number = sys.stdout.fileno()
        return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None
    except OSError:  # it is closed, or is no file
        return None
