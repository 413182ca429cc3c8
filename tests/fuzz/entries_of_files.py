"""Files that commands and services read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fallow.cli.cell.archive import ArchiveError, read_archive
from fallow.cli.job.files.file import JobFileError, read_jobs, read_text
from fallow.cli.log.file import LogFileError
from fallow.cli.verify.verification import DiaryError, read_diaries, verify_file
from fallow.services.executor.nodes_file import NodesFileError, load_nodes
from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file
from fallow.shared.runtime.files.yaml_text import read_yaml
from tests.fuzz.entries import FILE_BYTES_MAX, FILE_MS, Entry
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
    line = b'{"wall_ms":1,"cell_ms":1,"node":"n","boot":"n.1","event":"started","job":"a","attempt":1,"devices":[0]}\n'
    node = b'{"cell":"main","node":{"id":"n1","pool":"training","gpus":8}}\n'
    job = json.dumps(FULL_JOB).encode()
    (folder / "diaries").mkdir(exist_ok=True)
    diary = folder / "diaries" / "n.jsonl"
    seeds_of_log, seeds_of_archive = log_file(folder), archive_file(folder)
    job_lines = b"\n".join(json.dumps(FULL_JOB | {"id": name}).encode() for name in ("a", "c"))
    whole = (
        ("cell", reading(path, load_cell_file, CellFileError), (cell_json(),)),
        ("job", reading(path, read_job_file, JobFileError), (job, b"[" + job + b"]")),
    )
    by_lines = (
        ("job-lines", reading(path, read_job_file, JobFileError), job_lines),
        ("nodes", reading(path, load_nodes, NodesFileError), node + node.replace(b"n1", b"n2")),
        ("log", reading(path, verify_file, LogFileError), seeds_of_log),
        ("archive", reading(path, read_archive, ArchiveError), seeds_of_archive),
        ("diary", reading(diary, read_diary, DiaryError), line * 2),
    )
    entries = [Entry(f"file/{name}", work, seeds, "read", FILE_MS, FILE_BYTES_MAX) for name, work, seeds in whole]
    for name, work, seed in by_lines:
        entries.append(Entry(f"file/{name}", work, (seed,), "read", FILE_MS, FILE_BYTES_MAX, lines=True))
    return entries


def cell_json() -> bytes:
    """A cell file as JSON, which YAML is too."""
    return json.dumps(read_yaml(CELL_TEXT)).encode()


def read_job_file(path: Path) -> None:
    read_jobs(*read_text(str(path)), "vision")


def read_diary(path: Path) -> None:
    for _ in read_diaries(path.parent):
        continue
