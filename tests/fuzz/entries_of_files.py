"""Files that commands and services read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fallow.cli.cell.archive import ArchiveError, read_archive
from fallow.cli.job.file import JobFileError, read_jobs, read_text
from fallow.cli.log.file import LogFileError
from fallow.cli.verify.verification import DiaryError, read_diaries, verify_file
from fallow.services.executor.nodes_file import NodesFileError, load_nodes
from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file
from fallow.shared.runtime.files.yaml_text import read_yaml
from tests.fuzz.entries import FILE_BYTES_MOST, FILE_MS, Entry
from tests.fuzz.entries_of_services import FULL_JOB
from tests.fuzz.pace import NOT_COUNTED, Turns
from tests.fuzz.targets import CELL_TEXT, archive_file, log_file

# Files.


def reading(path: Path, read: Callable[[Path], Any], *errors: type[Exception]) -> Callable[[bytes], Turns]:
    """What is done with a file of this content."""

    def work(value: bytes) -> Turns:
        path.write_bytes(value)
        yield NOT_COUNTED
        try:
            read(path)
            yield "read"
        except errors as error:
            yield str(error).split("\n", maxsplit=1)[0].removeprefix(str(path))[:25]

    return work


def file_entries(folder: Path) -> list[Entry]:
    path = folder / "file"
    line = b'{"wall_ms":1,"at_ms":1,"node":"n","boot":"n.1","event":"start","job":"a","attempt":1,"devices":[0]}\n'
    node = b'{"cell":"main","node":{"id":"n1","pool":"training","gpus":8}}\n'
    job = json.dumps(FULL_JOB).encode()
    (folder / "diaries").mkdir(exist_ok=True)
    diary = folder / "diaries" / "n.jsonl"
    seeds_of_log, seeds_of_archive = log_file(folder), archive_file(folder)
    return [
        Entry("file/cell", reading(path, load_cell_file, CellFileError), (cell_json(),), FILE_MS, FILE_BYTES_MOST),
        Entry(
            "file/job", reading(path, read_job_file, JobFileError), (job, b"[" + job + b"]"), FILE_MS, FILE_BYTES_MOST
        ),
        Entry(
            "file/job-lines",
            reading(path, read_job_file, JobFileError),
            (job + b"\n" + job,),
            FILE_MS,
            FILE_BYTES_MOST,
            lines=True,
        ),
        Entry(
            "file/nodes", reading(path, load_nodes, NodesFileError), (node * 2,), FILE_MS, FILE_BYTES_MOST, lines=True
        ),
        Entry(
            "file/log", reading(path, verify_file, LogFileError), (seeds_of_log,), FILE_MS, FILE_BYTES_MOST, lines=True
        ),
        Entry(
            "file/archive",
            reading(path, read_archive, ArchiveError),
            (seeds_of_archive,),
            FILE_MS,
            FILE_BYTES_MOST,
            lines=True,
        ),
        Entry("file/diary", reading(diary, read_diary, DiaryError), (line * 2,), FILE_MS, FILE_BYTES_MOST, lines=True),
    ]


def cell_json() -> bytes:
    """A cell file as JSON, which YAML is too."""
    return json.dumps(read_yaml(CELL_TEXT)).encode()


def read_job_file(path: Path) -> None:
    read_jobs(*read_text(str(path)), "vision")


def read_diary(path: Path) -> None:
    for _ in read_diaries(path.parent):
        continue
