"""Whether what was typed is text. The system hands over any bytes; all that is behind the command line takes text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

OURS = "FALLOW_"


def no_text(words: Iterable[str], environment: Mapping[str, str]) -> str:
    """Which argument, or variable of ours, holds bytes that are no UTF-8, as one line; "" where none does."""
    for word in words:
        if not _is_text(word):
            return f"argument {_shown(word)} is no UTF-8"
    for name, value in environment.items():
        if name.startswith(OURS) and not (_is_text(name) and _is_text(value)):
            return f"{name if _is_text(name) else _shown(name)} = {_shown(value)} is no UTF-8"
    return ""


def _is_text(word: str) -> bool:
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:  # Python hands over a byte that is no text as half of a pair of signs
        return False
    return True


def _shown(word: str) -> str:
    return repr(word.encode("utf-8", "surrogateescape" if _is_of_bytes(word) else "backslashreplace"))[1:]


def _is_of_bytes(word: str) -> bool:
    return all("\udc80" <= sign <= "\udcff" for sign in word if "\ud800" <= sign <= "\udfff")
