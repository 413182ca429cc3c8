"""On what a figure was measured: the machine, and the version of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import process_time

TOP = Path(__file__).parents[3]
UNKNOWN = "unknown"
ADDITIONS, PART = 20_000_000, 10


@dataclass(frozen=True, slots=True)
class Machine:
    """`memory_mb` in megabytes (10^6 bytes), 0 where the system does not say."""

    cores: int
    memory_mb: int
    cpu: str
    python: str

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.cores} cores ({self.cpu}), {self.memory_mb / 1000:.0f} GB, Python {self.python}"


def this_machine() -> Machine:
    """What the processes of this run can use."""
    model = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    total = [int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")]
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_mb=total[0] * 1024 // 1_000_000 if total else 0,
        cpu=model[0] if model else platform.machine() or UNKNOWN,
        python=platform.python_version(),
    )


@cache
def loop_s() -> float:
    """Processor time of 20,000,000 additions in a plain loop, from a tenth of them: machines differ by a factor of
    two, and the same one from hour to hour.
    """
    total, begin_s = 0, process_time()
    for number in range(ADDITIONS // PART):
        total += number
    return round((process_time() - begin_s) * PART, 2)


def filesystem_of(path: Path) -> str:
    """The type of the file system that a path is on, as the kernel names it (`ext4`, `tmpfs`); `unknown` where it does
    not say.
    """
    found, longest = UNKNOWN, -1
    for line in _lines("/proc/self/mountinfo"):
        # Numbers, the root within the file system, the mount point, options, and behind a dash the type.
        before, _, behind = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        if path.resolve().is_relative_to(mount) and len(mount) >= longest:
            found, longest = behind.split()[0], len(mount)
    return found


def this_commit() -> str:
    """The commit of the checkout that runs, with a `+` where files differ from it; `unknown` outside a checkout."""
    try:
        told = subprocess.run(
            ["git", "-C", str(TOP), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return UNKNOWN
    return told.stdout.strip() or UNKNOWN


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
