"""Who gives a command, for the audit trail."""

from __future__ import annotations

import getpass


def user_name() -> str:
    """The user's name, "" where the system does not know it: a container may run as a number that has none. A sign
    that could not be shown, or that is no text, is a `?`.
    """
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return ""
    return "".join(sign if sign.isprintable() else "?" for sign in name)
