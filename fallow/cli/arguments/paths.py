"""What a path given on the command line must be, checked before the command begins: callbacks of its options."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fallow.cli.errors.failures import refuse
from fallow.cli.errors.wrong_use import WrongValue
from fallow.shared.whole_file import target_of, whole_file

COUNT_MAX = 1_000_000

OUTPUT = Path("-")
"""Standard output, for a command that writes in order. A file of this name is given with its whole path."""

Given = Path | list[Path] | None
Replace = Annotated[bool, typer.Option("--yes", help="Also where a file is there already: it is replaced.")]


def file_to_read(value: Given) -> Given:
    """A file that is there; a pipe is one too."""
    for path in _each(value):
        if _is_folder(path):
            _refuse(path, "must be a file, and is a folder")
        _must_allow(path, os.R_OK, "read")
    return value


def count_or_file(value: str) -> str:
    """A number of nodes, or a file that is there."""
    if is_count(value):
        return value
    path = Path(value)
    if value.isdecimal() or value.startswith("-") or (value.isalnum() and not path.exists()):
        raise WrongValue(value, f"must be a number from 1 to {COUNT_MAX}, or a file")
    file_to_read(path)
    return value


def file_and_column(value: str) -> str:
    """`FILE:COLUMN`, a file that is there and a column of it."""
    file, _, column = value.rpartition(":")
    if not file or not column:
        raise WrongValue(value, "must be FILE:COLUMN")
    try:
        file_to_read(Path(file))
    except WrongValue as error:
        raise WrongValue(value, f"{file} {error.message}") from error
    return value


def is_count(text: str) -> bool:
    """Whether this is a number of nodes, and no file."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(COUNT_MAX)) and 1 <= int(text) <= COUNT_MAX


def folder_to_read(value: Given) -> Given:
    """A folder that is there."""
    for path in _each(value):
        if not _is_folder(path):
            _refuse(path, "must be a folder, and is a file")
        _must_allow(path, os.R_OK | os.X_OK, "read")
    return value


def file_to_write(value: Given) -> Given:
    """A regular file that is there, or can be made in a folder that is there. A link leads to one of these."""
    for path in _each(value):
        try:
            target = target_of(path)
        except OSError as error:
            _refuse(path, str(error.strerror))
        folder = path.parent if target == path.absolute() else target.parent
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            _refuse(path, f"cannot be written: {folder} {what}")
        if target.exists():
            _must_allow(target, os.W_OK, "written")
        else:
            _must_allow(folder, os.W_OK | os.X_OK, "written")
    return value


def must_be_free(option: str, path: Path, *, replaces: bool) -> None:
    """Ends the command where a regular file stands there that holds something, unless it is to be replaced."""
    if not replaces and path.is_file() and path.stat().st_size:
        refuse(option, path, "is there already; with --yes it is replaced")


def to_write_in_order(value: Given) -> Given:
    """A path as in `to_write`, or a target that takes bytes in order: a pipe, a device such as a terminal, `-`."""
    for path in _each(value):
        if path != OUTPUT and not _takes_bytes(path):
            file_to_write(path)
        elif path != OUTPUT:
            _must_allow(path, os.W_OK, "written")
    return value


def _takes_bytes(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


@contextmanager
def file_in(folder: Path, name: str) -> Iterator[Path]:
    """A new file to be filled, which has this name in a folder that a command makes once nothing failed. Raises OSError
    where something else has its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / name) as part:
        yield part


def folder_to_write(value: Given) -> Given:
    """A folder that is there or can be made, with those above it."""
    for path in _each(value):
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not nearest.is_dir():
            _refuse(path, "must be a folder, and is a file" if nearest == path else f"{nearest} is a file")
        _must_allow(nearest, os.W_OK | os.X_OK, "written")
    return value


def _each(value: Given) -> Iterator[Path]:
    """The paths; ends the command at the first that the system cannot look up."""
    for path in value if isinstance(value, list) else () if value is None else (value,):
        try:
            path.exists()
        except OSError as error:
            _refuse(path, f"cannot be used: {error.strerror}")
        yield path


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        _refuse(path, f"cannot be used: {error.strerror}")


def _must_allow(path: Path, what: int, done: str) -> None:
    if not os.access(path, what):
        _refuse(path, f"cannot be {done}: Permission denied")


def _refuse(path: Path, rule: str) -> NoReturn:
    raise WrongValue(str(path), rule)
