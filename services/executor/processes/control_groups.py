"""Where the kernel lets the agent make control groups (version 2): whatever a worker starts stays in its group, and the
kernel ends the whole group at once.
"""

from __future__ import annotations

from pathlib import Path


def own_group(name: str) -> Path | None:
    """A group of this name below the agent's own, made if need be; None where that is not allowed."""
    mount, below = _mount(), _membership()
    if mount is None or below is None:
        return None
    group = mount / below.lstrip("/") / name
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    return group if (group / "cgroup.kill").exists() else None


def _mount() -> Path | None:
    for line in _lines("/proc/self/mounts"):
        fields = line.split()
        if fields[2] == "cgroup2":
            return Path(fields[1])
    return None


def _membership() -> str | None:
    return next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
