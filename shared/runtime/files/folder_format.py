"""Which release's files a folder holds that a process keeps for itself: a file `format` in it says so, and one of
another release is left as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fallow.shared.runtime.errors.system_words import words_of_system
from fallow.shared.runtime.files.signs import visible
from fallow.shared.whole_file import whole_file

NAME = "format"

WAY = "go back to the release that wrote it, or give an empty folder"

_BYTES_MAX = 80
"""More than the file ever holds; of a longer one this many bytes are shown."""

_DIARY_BYTES = 65_536
"""Hundreds of lines, each of which names a job."""

_JOB_ALONE = re.compile(rb'"job":"[^"/]*"')

_CAREFUL = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A user who may write in the folder may put there what is no file: no link is followed, and nothing is waited for."""


class FolderOfAnotherFormat(Exception):
    """This release does not read the folder. One line: the setting, the folder, what it holds and what to do."""


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """What a folder is for, in one word, and the version of what stands in it: raised where an earlier release's files
    would be read wrongly.
    """

    kind: str
    version: str

    def __str__(self) -> str:
        """As it stands in the file."""
        return f"fallow {self.kind} {self.version}"


def take_folder(setting: str, folder: Path, own: FolderFormat) -> None:
    """Let the folder be of this format from now on. One that says nothing is, as were all just before there was the
    file, but where it tells that it is older: of the time when jobs had no tenants.

    Raises FolderOfAnotherFormat, and then has changed nothing. Where the file cannot be written, the next start writes
    it.
    """
    if must_be_readable(setting, folder, (own,)):
        return
    if any(map(names_no_tenants, (folder / "runs", folder, folder / "diaries"))):
        told = f"has no file {NAME}, and names jobs without their tenants; {WAY}"
        raise FolderOfAnotherFormat(f"{setting} = {folder}: {told}")
    with contextlib.suppress(OSError), whole_file(folder / NAME) as part:
        part.write_text(f"{own}\n", encoding="ascii")
        part.chmod(0o600)


def must_be_readable(setting: str, folder: Path, known: Collection[FolderFormat]) -> bool:
    """Whether the folder says its format, which is one of these. False: it says nothing, as before there was the file,
    and after a loss of power that left only its name. Raises FolderOfAnotherFormat.
    """
    where = f"{setting} = {folder}"
    try:
        said = _said_in(folder / NAME)
    except OSError as error:
        why = "is no regular file" if isinstance(error, _NoFile) else f"cannot be read: {words_of_system(error)}"
        raise FolderOfAnotherFormat(f"{where}: its file {NAME} {why}; move it away, and start again") from error
    if not said or said in map(str, known):
        return bool(said)
    reads = " or ".join(f"'{each}'" for each in known)
    raise FolderOfAnotherFormat(f"{where}: its file {NAME} says '{visible(said)}', this release reads {reads}; {WAY}")


def names_no_tenants(folder: Path) -> bool:
    """Whether it has a folder of a run, or a diary, of a job that is called by its id alone, as all were once."""
    if folder.name == "runs":
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            return any("~" not in each.name and _is_of_runs(each) for each in found)
    return any(_JOB_ALONE.search(_first_of(path)) for path in sorted(folder.glob("*.jsonl")))


def _is_of_runs(job: os.DirEntry[str]) -> bool:
    """Whether it has a folder of an attempt. Beside those of jobs stands what is being removed, in a hidden one, and
    perhaps what a file system keeps for itself.
    """
    if job.name.startswith(".") or not job.is_dir(follow_symlinks=False):
        return False
    with contextlib.suppress(OSError), os.scandir(job) as found:
        return any(each.name.isdecimal() and each.is_dir(follow_symlinks=False) for each in found)
    return False


def _first_of(diary: Path) -> bytes:
    with contextlib.suppress(OSError):
        opened = os.open(diary, _CAREFUL)
        try:
            return os.read(opened, _DIARY_BYTES) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
        finally:
            os.close(opened)
    return b""


class _NoFile(OSError):
    """Something else has the name of the file."""


def _said_in(path: Path) -> str:
    try:
        opened = os.open(path, _CAREFUL)
    except (FileNotFoundError, NotADirectoryError):  # of what is no folder its user tells
        return ""
    except OSError as error:
        raise (_NoFile if path.is_symlink() or not path.is_file() else OSError)(*error.args) from error
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise _NoFile
        return os.read(opened, _BYTES_MAX).decode("utf-8", "replace").strip("\0 \r\n")
    finally:
        os.close(opened)
