"""Where the kernel lets the agent make control groups (version 2): whatever a worker starts stays in its group, the
kernel ends the whole group at once, and it may use so much and no more.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

AGENTS_OWN = "fallow-agent"
"""The group into which an agent goes, where the kernel limits no group that has processes beside other groups."""

CONTROLLERS = ("cpu", "memory", "pids")


def own_group(name: str) -> Path | None:
    """A group of this name below the agent's own, made if need be; None where that is not allowed."""
    mount, below = _mount(), _membership()
    if mount is None or below is None:
        return None
    base = mount / below.lstrip("/")
    base = base.parent if base.name == AGENTS_OWN else base
    group = base / name
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    if not (group / "cgroup.kill").exists():
        return None
    hand_down(base, is_top=base == mount)
    hand_down(group, is_top=True)
    return group


def controllers_of(group: Path) -> frozenset[str]:
    """What is limited in the groups of the workers below this one."""
    return frozenset(" ".join(_lines(str(group / "cgroup.subtree_control"))).split()) & {*CONTROLLERS}


def hand_down(group: Path, *, is_top: bool) -> None:
    """Let the groups below have their limits, as far as this one has them. Any but the topmost one must have no process
    of its own for that.
    """
    given = " ".join(_lines(str(group / "cgroup.controllers"))).split()
    wanted = [each for each in CONTROLLERS if each in given and each not in controllers_of(group)]
    if not wanted or all(_hands_down(group, each) for each in wanted) or is_top:
        return
    with contextlib.suppress(OSError):  # then there are no limits, which the agent tells
        own = group / AGENTS_OWN
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text("0", encoding="ascii")
        done = [_hands_down(group, each) for each in wanted]
        if not all(done):
            (group / "cgroup.procs").write_text("0", encoding="ascii")  # others are in it, too
            own.rmdir()


def _hands_down(group: Path, controller: str) -> bool:
    try:
        (group / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
    except OSError:
        return False
    return True


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
