"""A service that is started without standard streams runs, and ends in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.eventually import eventually


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_a_service_whose_standard_streams_are_closed_ends_in_order(closed: str, tmp_path: Path) -> None:
    port = tmp_path / "port"
    line = f'exec "{sys.executable}" -m tests.runtime.process.tiny_service {closed}'
    environment = {**os.environ, "FALLOW_PORT_FILE": str(port)}
    pipe = asyncio.subprocess.PIPE
    tiny = await asyncio.create_subprocess_exec("sh", "-c", line, env=environment, stdout=pipe, stderr=pipe)
    await eventually(lambda: port.exists() or tiny.returncode is not None)
    tiny.send_signal(signal.SIGTERM)
    _, said = await tiny.communicate()
    assert (tiny.returncode, said) == (0, b"")


def test_what_a_program_opens_for_itself_stays_open_for_the_one_in_its_place() -> None:
    becomes = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import os; os.fstat(0)'])"
    program = f"from fallow.shared.runtime.standard_streams import open_missing_streams as o; o(); {becomes}"
    done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, program], check=False)
    assert done.returncode == 0
