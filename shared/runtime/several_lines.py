"""Errors whose text a person reads line by line."""

from __future__ import annotations


class ErrorOfSeveralLines(Exception):
    """It tells one mistake a line, or the last lines of a process. Of any other error an end of line is outside text,
    and is written out.
    """
