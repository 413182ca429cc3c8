"""Long sentences break between words where a person reads them on a terminal; a pipe gets the line as it is. A width is
one of columns on a screen: some characters take two.
"""

from __future__ import annotations

import shutil
from typing import TextIO

_SET_IN = "  "


def wrapped(text: str, stream: TextIO) -> str:
    """The line, in several where the terminal behind the stream is narrower; what follows is set in."""
    return wrapped_at(text, shutil.get_terminal_size().columns if stream.isatty() else 0)


def wrapped_at(text: str, width: int) -> str:
    """The line, in several where it is wider than the width; what follows is set in. A width of 0 breaks nothing."""
    if width <= 0:
        return text
    body = text.lstrip(" ")
    indent = text[: len(text) - len(body)]
    first, *more = broken(body, width - len(indent), width - len(indent + _SET_IN))
    return "\n".join([indent + first, *(indent + _SET_IN + line for line in more)])


def broken(text: str, width: int, width_of_more: int | None = None) -> list[str]:
    """The text in lines, broken between words where it is wider than the width; a word that is wider stays whole. Lines
    behind the first one may have another width.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - keeps `fallow --help` quick

    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and cell_len(longer) > width:
            lines.append(word)
            width = width if width_of_more is None else width_of_more
        else:
            lines[-1] = longer
    return lines
