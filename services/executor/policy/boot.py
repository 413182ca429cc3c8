"""Names of a node's boots: `boot-1`, `boot-2`, ... What ran in an earlier boot is gone."""

from __future__ import annotations

_PREFIX = "boot-"


def boot_number(boot: str | None) -> int:
    """The number in a boot's name; 0 for a node that never booted and for a name that another kind of agent chose."""
    number = (boot or "").removeprefix(_PREFIX)
    return int(number) if boot != number and number.isdecimal() else 0


def next_boot(boot: str | None) -> str:
    """The name of the boot after this one; never the same name."""
    return f"{_PREFIX}{boot_number(boot) + 1}"
