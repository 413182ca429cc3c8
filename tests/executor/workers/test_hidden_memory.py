"""An agent's memory and environment, where passwords may stand, are not for its workers, which are of the same user."""

from __future__ import annotations

import subprocess
import sys

import pytest

OWNER = """
import os
from fallow.services.executor.processes.supervisor import hide_own_memory
{hides}
print(os.stat("/proc/self/environ").st_uid)
"""
AS_NOBODY = ["setpriv", "--reuid", "65534", "--clear-groups"]
USER, ROOT = "65534", "0"


@pytest.mark.parametrize(("hides", "owner"), [("hide_own_memory()", ROOT), ("", USER)])
def test_the_kernel_gives_the_files_of_a_process_that_hides_to_root(hides: str, owner: str) -> None:
    tried = subprocess.run(
        [*AS_NOBODY, sys.executable, "-c", "import fallow.services.executor"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        pytest.skip(f"another user cannot run this Python: {tried.stderr}")
    command = [*AS_NOBODY, sys.executable, "-c", OWNER.format(hides=hides)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == owner
