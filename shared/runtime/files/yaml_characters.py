"""Characters in the double quotes of a YAML text, as JSON writes them: readers of YAML 1.1 take some of them otherwise.

JSON writes a character beyond U+FFFF as a pair of surrogates, of which these readers make two halves, or an error. It
has also characters as they are that end a line in YAML 1.1, or that YAML has by their number alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from fallow.shared.checker_words import HALF_A_CHARACTER

Path = tuple[str | int, ...]

_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = f"(?:u|U0000)(?:{_HIGH}|{_LOW})"
_TOO_FAR = "U(?!000|0010)[0-9a-fA-F]{8}"
_BARE = "[\x7f-\x9f\u2028\u2029\ufffe\uffff]"
_LOOKED_FOR = re.compile(rf"\\(?P<escape>{_HALF}|{_TOO_FAR})|{_BARE}")
_IN_QUOTES = re.compile(
    rf"\\(?:u(?P<high>{_HIGH})\\u(?P<low>{_LOW})|(?P<half>{_HALF})|(?P<too_far>{_TOO_FAR})|.)|(?P<bare>{_BARE})",
    re.DOTALL,  # behind a backslash anything may stand, and it is no begin of something else
)

TOO_FAR = "there is no character of this number: the last one has 10FFFF"


class NoCharacter(ValueError):
    """What should be a character is none: in which line, in which field, how it is written, and why it is none."""

    def __init__(self, line: int, path: Path, shown: str, rule: str) -> None:
        super().__init__(rule)
        self.line, self.path, self.shown, self.rule = line, path, shown, rule


@dataclass(frozen=True, slots=True)
class _Quoted:
    """A text in double quotes: where it stands, from `begin` until before `end`, and its field."""

    path: Path
    begin: int
    end: int


@dataclass(slots=True)
class _Part:
    """A list or a mapping that has begun, and how far it has come."""

    is_mapping: bool
    count: int = 0
    key: str = ""
    step: str | int | None = None
    """The number of the item or the key of the value that comes; None where a key comes itself."""

    def goes_on(self, shown: str) -> None:
        """The next item, key or value comes, which stands so in the text."""
        is_key = self.is_mapping and self.count % 2 == 0
        if is_key:
            self.key = shown
        self.step = None if is_key else self.key if self.is_mapping else self.count
        self.count += 1


def with_whole_characters(text: str, loader: Any, levels_max: int) -> str:
    """The text with each such character in double quotes written so that every reader of YAML reads it. One that nests
    in more levels, or is no YAML to the events of this loader, stays as it is. Raises NoCharacter.
    """
    if not _LOOKED_FOR.search(text):
        return text
    text = text.removeprefix("\ufeff")  # not every loader counts it
    pieces, behind = list[str](), 0
    for quoted in _quoted(text, loader, levels_max):
        whole = _IN_QUOTES.sub(partial(_whole, text, quoted), text[quoted.begin : quoted.end])
        pieces += [text[behind : quoted.begin], whole]
        behind = quoted.end
    return "".join([*pieces, text[behind:]])


def _quoted(text: str, loader: Any, levels_max: int) -> list[_Quoted]:
    """What stands in double quotes and holds such a character; nothing where the text is no YAML."""
    try:
        # As long, and of the same form to every loader: so each place in it is the same place in the text.
        return list(_found(text, yaml.parse(_LOOKED_FOR.sub(_stand_in, text), Loader=loader), levels_max))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return []  # the parser of the text tells what is wrong


def _stand_in(found: re.Match[str]) -> str:
    return {1: "x", 6: "\\u0041", 10: "\\U00000041"}[len(found[0])]


def _found(text: str, events: Iterator[yaml.Event], levels_max: int) -> Iterator[_Quoted]:
    parts = list[_Part]()
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            parts.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        begin, end = event.start_mark.index, event.end_mark.index  # type: ignore[union-attr]  # each that is parsed has both
        if parts:
            parts[-1].goes_on(text[begin:end].strip("\"'") if isinstance(event, yaml.ScalarEvent) else "")
        if isinstance(event, yaml.ScalarEvent) and event.style == '"' and _LOOKED_FOR.search(text, begin, end):
            yield _Quoted(tuple(part.step for part in parts if part.step is not None), begin, end)
        if isinstance(event, yaml.CollectionStartEvent):
            parts.append(_Part(isinstance(event, yaml.MappingStartEvent)))
        if len(parts) > levels_max:
            return


def _whole(text: str, quoted: _Quoted, found: re.Match[str]) -> str:
    if found["high"]:
        high, low = int(found["high"], 16), int(found["low"], 16)
        return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"
    if found["half"] or found["too_far"]:
        line = text.count("\n", 0, quoted.begin + found.start()) + 1
        raise NoCharacter(line, quoted.path, found[0], HALF_A_CHARACTER if found["half"] else TOO_FAR)
    return f"\\u{ord(found['bare']):04x}" if found["bare"] else found[0]
