"""A file that people wrote is read whole or refused by one rule; nothing without end is begun."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from fallow.shared.runtime.files.cell_file import CellFileError, load_cell_file
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file


def _refusal(path: Path, *, may_be_pipe: bool = False, bytes_max: int = 100) -> str:
    with pytest.raises(TextFileError) as refused:
        read_text_file(path, may_be_pipe=may_be_pipe, bytes_max=bytes_max)
    return str(refused.value)


def test_a_file_is_read_up_to_its_limit_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("ä\r\n".encode() * 25)
    assert read_text_file(path, bytes_max=100) == "ä\n" * 25
    assert _refusal(path, bytes_max=99) == "cannot be read: has more than 99 bytes"


def test_a_device_is_refused_before_it_is_read() -> None:
    assert _refusal(Path("/dev/zero")) == "cannot be read: must be a regular file"
    assert _refusal(Path("/dev/zero"), may_be_pipe=True) == "cannot be read: must be a regular file or a pipe"


def test_a_folder_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path) == "cannot be read: must be a regular file"
    assert _refusal(tmp_path / "gone") == "cannot be read: No such file or directory"


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\xff")
    assert _refusal(path) == "cannot be read: is not UTF-8 text"


def test_a_pipe_is_read_only_where_it_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert _refusal(path) == "cannot be read: must be a regular file"
    writer = Thread(target=path.write_text, args=("id: a",))
    writer.start()
    assert read_text_file(path, may_be_pipe=True) == "id: a"
    writer.join()


def test_a_cell_file_is_a_regular_file() -> None:
    with pytest.raises(CellFileError, match=r"^/dev/zero: cannot be read: must be a regular file$"):
        load_cell_file(Path("/dev/zero"))
