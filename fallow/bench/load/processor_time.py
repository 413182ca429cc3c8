"""Who used the processor during a run: each of our processes, and everybody else on the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BUSY_CORES = 0.3
"""With more of the machine than this in the hands of others, a figure says that the machine was busy."""

USER, NICE, SYSTEM, IRQ, SOFTIRQ, STEAL = 0, 1, 2, 5, 6, 7
OWN_USER, OWN_SYSTEM = 11, 12


@dataclass(frozen=True, slots=True)
class Used:
    """Processor time between two moments. `by_process` in seconds; `others_cores` is the mean number of cores that
    processes not of this run kept busy, the machine's host included.
    """

    wall_s: float
    by_process: Mapping[str, float]
    others_cores: float

    @property
    def is_busy(self) -> bool:
        """Whether others used so much that the figures are not those of a quiet machine."""
        return self.others_cores > BUSY_CORES

    @property
    def remark(self) -> str:
        """How busy the machine was, for people."""
        word = "busy" if self.is_busy else "quiet"
        return f"{word}: others used {self.others_cores:.2f} cores"


class ProcessorTime:
    """A stop watch of processor time. Takes in these processes, by name, and from then on counts."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._begin_s = monotonic()
        self._machine = machine_seconds()
        self._own = {name: process_seconds(pid) for name, pid in self._pids.items()}

    def used(self) -> Used:
        """What was used since the beginning. A process that has ended counts for nothing."""
        wall_s = max(monotonic() - self._begin_s, 1e-9)
        machine_s = machine_seconds() - self._machine
        own = {name: max(0.0, process_seconds(pid) - self._own[name]) for name, pid in self._pids.items()}
        return Used(wall_s, own, round(max(0.0, machine_s - sum(own.values())) / wall_s, 2))


def machine_seconds() -> float:
    """Seconds that all cores together were busy since the machine started; what its host took away counts too."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    return sum(fields[at] for at in (USER, NICE, SYSTEM, IRQ, SOFTIRQ, STEAL)) / TICKS_PER_S


def process_seconds(pid: int) -> float:
    """Seconds that a process used so far, all its threads together; 0 when it is gone."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = told.rpartition(")")[2].split()
    return (int(fields[OWN_USER]) + int(fields[OWN_SYSTEM])) / TICKS_PER_S
