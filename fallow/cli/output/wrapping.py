"""Long sentences break between words where a person reads them on a terminal; a pipe gets the line as it is."""

from __future__ import annotations

import shutil
import textwrap
from typing import TextIO


def wrapped(text: str, stream: TextIO) -> str:
    """The line, in several where the terminal behind the stream is narrower; what follows is set in."""
    return wrapped_at(text, shutil.get_terminal_size().columns if stream.isatty() else 0)


def wrapped_at(text: str, width: int) -> str:
    """The line, in several where it is wider than the width; what follows is set in. A width of 0 breaks nothing."""
    if len(text) <= width or width <= 0:
        return text
    body = text.lstrip(" ")
    indent = text[: len(text) - len(body)]
    return textwrap.fill(
        body,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
