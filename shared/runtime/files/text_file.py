"""Reads a file that people wrote. A device has no end, and a file that no one could have written fills the memory."""

from __future__ import annotations

import stat
from pathlib import Path

from fallow.shared.runtime.files.unread import why_unread

FILE_BYTES_MAX = 256 * 2**20
"""A file of a million jobs in JSON lines has half as many."""


class TextFileError(ValueError):
    """The file cannot be read; the message is the rule, without the name of the file."""


def read_text_file(path: Path, *, may_be_pipe: bool = False, bytes_max: int = FILE_BYTES_MAX) -> str:
    """The text of a regular file. A pipe is read once only, so it must be allowed. Raises TextFileError."""
    must_be_file(path, may_be_pipe=may_be_pipe)
    try:
        with path.open("rb") as file:
            found = file.read(bytes_max + 1)
    except OSError as error:
        raise TextFileError(f"cannot be read: {why_unread(error)}") from error
    return text_of(found, bytes_max)


def must_be_file(path: Path, *, may_be_pipe: bool = False) -> None:
    """Raises TextFileError where the path leads to a device or a folder, which has no end or no text."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise TextFileError(f"cannot be read: {why_unread(error)}") from error
    if not (stat.S_ISREG(mode) or (may_be_pipe and stat.S_ISFIFO(mode))):
        what = "a regular file or a pipe" if may_be_pipe else "a regular file"
        raise TextFileError(f"cannot be read: must be {what}")


def text_of(found: bytes, bytes_max: int = FILE_BYTES_MAX) -> str:
    """The text that these bytes of a file are. Raises TextFileError."""
    if len(found) > bytes_max:
        raise TextFileError(f"cannot be read: has more than {bytes_max} bytes")
    try:
        return found.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise TextFileError(f"cannot be read: {why_unread(error)}") from error
