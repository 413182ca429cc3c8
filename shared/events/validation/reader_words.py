"""What the reader of records (msgspec) says of a mistake, in the words of this project: for records that no model is
asked about, since they are large or of one service.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$", re.DOTALL)
_KINDS = {
    "array": "a list",
    "object": "a mapping of fields",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
_ITEMS = {"array": "item", "object": "entry", "str": "character"}
_BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}

_LENGTH = re.compile(r"Expected `(array|object|str)` of length (<=|>=) (\d+)")
_BOUND = re.compile(r"Expected `(?:int|float)` (<=|>=|<|>) (\S+)")
_KIND = re.compile(r"Expected `([^`]+)`(?:, got `[^`]+`)?")
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_OF_A_FEW = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_TOO_LARGE = re.compile(r"(Integer value|Number) out of range")


class ReaderMistake(NamedTuple):
    """The field at fault ("" where there is no single one), the rule that it breaks, and its value where the reader
    tells it.
    """

    field: str
    rule: str
    value: str = ""


def reader_mistake(message: str) -> ReaderMistake:
    """What the reader means. `words[...].node` is the field of some item of `words`: of which one it does not say."""
    place = _PLACE.search(message)
    field = "" if place is None else place[1]
    what = message if place is None else message[: place.start()]
    if found := _MISSING.fullmatch(what):
        return ReaderMistake(f"{field}.{found[1]}".removeprefix("."), "is missing")
    if found := _UNKNOWN.fullmatch(what):
        return ReaderMistake(f"{field}.{found[1]}".removeprefix("."), "unknown field")
    if found := _OF_A_FEW.fullmatch(what):
        return ReaderMistake(field, "must be one of the values that there are", found[1].strip("'"))
    return ReaderMistake(field, _rule(what))


def _rule(what: str) -> str:
    if found := _LENGTH.fullmatch(what):
        most, noun = int(found[3]), _ITEMS[found[1]]
        plural = noun if most == 1 else "entries" if noun == "entry" else f"{noun}s"
        return f"must have {_BOUNDS[found[2]]} {most:,} {plural}"
    if found := _BOUND.fullmatch(what):
        return f"must be {_BOUNDS[found[1]]} {found[2]}"
    if _TOO_LARGE.fullmatch(what):
        return "has too many digits"
    if found := _KIND.fullmatch(what):
        return f"must be {' or '.join(_KINDS.get(kind, kind) for kind in found[1].split(' | '))}"
    if what == "Input data was truncated":
        return "is no JSON: it is cut short"
    if what.startswith("maximum recursion depth exceeded"):
        return "is nested in too many levels"
    return what.replace("JSON is malformed: ", "is no JSON: ", 1)
