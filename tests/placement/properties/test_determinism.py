"""Equal inputs make equal bytes, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.placement.measurements.fingerprint import fingerprint

ROOT = Path(__file__).parent.parent.parent.parent


def in_a_process_with(hash_seed: str) -> str:
    """The fingerprint that another process comes to."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.placement.measurements.fingerprint"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("hash_seed", ["0", "1", "4294967295"])
def test_decisions_are_the_same_bytes_under_any_hash_seed(hash_seed: str) -> None:
    assert in_a_process_with(hash_seed) == fingerprint()
