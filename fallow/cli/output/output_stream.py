"""Standard output that cannot be written: it is closed, or what it leads to is full."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from fallow.shared.runtime.standard_streams import open_missing_streams


class OutputFails(Exception):
    """Standard output cannot be written, and why."""


class Answers(TextIOWrapper):
    """Standard output that says that it is what cannot be written: of a file that a command writes the same is told
    otherwise. Whoever reads it and has read enough is no failure.
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
