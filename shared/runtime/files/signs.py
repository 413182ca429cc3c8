"""Signs that a terminal obeys instead of showing them: texts of tenants and nodes may hold any."""

from __future__ import annotations

import json


def visible(text: str) -> str:
    """The text in one line, with each such sign written out as Python would; so is the end of a line, or the writer of
    the text could add lines of its own to ours.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def in_json(text: str) -> str:
    """An object in JSON with such signs escaped; it stays the same object."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return json.dumps(sign)[1:-1]
