"""Errors whose text a person reads line by line."""

from __future__ import annotations

from fallow.shared.unshown import without_secrets


class ErrorOfSeveralLines(Exception):
    """It tells one mistake a line, or the last lines of a process. Of any other error an end of line is outside text,
    and is written out. A secret that stands in a wrong place of what was read is masked.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(without_secrets(text))
