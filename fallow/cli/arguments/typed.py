"""What was typed, where an error repeats it: one of thousands of characters must not hide the rule that it breaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fallow.cli.arguments.given_text import OURS

LONG_CHARS = 200
"""A typed word of more characters is cut; most paths are shorter, and are told whole."""

SHOWN_CHARS = 100


def with_words_cut(text: str, words: Iterable[str], environment: Mapping[str, str]) -> str:
    """The text with each long word of the command line, or value of our variables, cut wherever it is repeated."""
    if len(text) <= LONG_CHARS:
        return text
    ours = [value for name, value in environment.items() if name.startswith(OURS)]
    values = [value for word in (*words, *ours) for value in (word, word.partition("=")[2])]
    for value in sorted(set(values), key=len, reverse=True):
        for told in (value, repr(value)[1:-1], " ".join(value.split())):
            if len(told) > LONG_CHARS:
                text = text.replace(told, f"{told[: SHOWN_CHARS - 3]}...")
    return text
