"""Who gives a command, for the audit trail."""

from __future__ import annotations

import getpass


def user_name() -> str:
    """The user's name, "" where the system does not know it: a container may run as a number that has none."""
    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (OSError, KeyError):
        return ""
