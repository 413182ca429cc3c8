"""What the machine is: its boot, its processors and memory, its NVIDIA devices."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fallow.services.executor.processes.supervisor import cause_of

NVIDIA = Path("/proc/driver/nvidia/gpus")
NVIDIA_SMI_WAIT_S = 30


class NoDevices(ValueError):
    """The number of GPUs cannot be found out."""


def machine_boot() -> str:
    """The id of the machine's boot, new after each start of its kernel. Raises OSError where there is no Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def cpu_milli() -> int:
    """The machine's processors, in thousandths."""
    return 1_000 * (os.cpu_count() or 1)


def memory_mib() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def count_devices(folder: Path = NVIDIA) -> int:
    """The NVIDIA devices, as the driver lists them in `folder` or nvidia-smi does. Raises NoDevices."""
    if folder.is_dir():
        return len(list(folder.iterdir()))
    program = shutil.which("nvidia-smi")
    if program is None:
        raise NoDevices(f"no GPUs were found: there is no {folder} and no nvidia-smi; say how many there are")
    try:
        told = subprocess.run([program, "--list-gpus"], capture_output=True, text=True, timeout=NVIDIA_SMI_WAIT_S)  # noqa: PLW1510
    except (OSError, subprocess.TimeoutExpired) as error:
        why = cause_of(error, program) if isinstance(error, OSError) else f"no answer in {NVIDIA_SMI_WAIT_S} s"
        raise NoDevices(f"{program} --list-gpus: {why}") from error
    if told.returncode:
        raise NoDevices(f"{program} --list-gpus: {(told.stderr or told.stdout).strip()}")
    return sum(line.startswith("GPU ") for line in told.stdout.splitlines())
