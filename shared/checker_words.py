"""What the checker of values (pydantic) says of a mistake, in the words of this project."""

from __future__ import annotations

import re

_OF_OUR_CODE = ("Value error, ", "Assertion failed, ")
"""So begins a rule that a check of ours told; behind it stand our words already."""

HALF_A_CHARACTER = "half of a pair of surrogates is no character, and cannot be written as UTF-8"
"""Both `\\ud83d` and `\\ude00` are halves; together they are one character."""

_WORDS = tuple(
    (re.compile(theirs, re.DOTALL), ours)
    for theirs, ours in (
        (r"^Field required$", "is missing"),
        (r"^Extra inputs are not permitted$", "unknown field"),
        (r"^Keys should be strings$", "must have keys of text only"),
        (r"^Recursion error - .*", "must not be nested in itself, nor in too many levels"),
        (r"^Unable to parse input string as an integer, exceeded maximum size$", "has too many digits"),
        (r"^Unable to extract tag using discriminator (.*)$", r"must have the field \1"),
        (r"^Input tag ('.*') found using ('\w+') .* expected tags: (.*)$", r"\2 is \1, and must be one of \3"),
        (r"^Invalid JSON: EOF while parsing .*", "is no JSON: it is cut short"),
        (r"^Invalid JSON: recursion limit exceeded.*", "is nested in too many levels"),
        (
            r"^Invalid JSON: (unexpected end of|lone leading surrogate in) hex escape.*",
            f"is no JSON: {HALF_A_CHARACTER}",
        ),
        (r"^Invalid JSON: ", "is no JSON: "),
        (r"^\w+ (?:input )?should have (at least|at most|no more than) (\d+ \w+).*", r"must have \1 \2"),
        (r"^String should match pattern ", "must match "),
        (r"^Input should be ", "must be "),
        (r"^must be a valid integer.*", "must be a whole number"),
        (r"^must be a valid (number|decimal).*", "must be a number"),
        (r"^must be a valid (string|bytes).*", "must be text"),
        (r"^must be a valid boolean.*", "must be true or false"),
        (r"^must be (a valid (list|array|tuple|set|frozenset|deque)|iterable).*", "must be a list"),
        (r"^must be (an object|a valid dictionary or .*|a dictionary or .*)$", "must be a mapping of fields"),
        (r"^must be a valid (dictionary|mapping|frozendict|OrderedDict).*", "must be a mapping"),
        (r"^must be None$", "must be null"),
        (r"^must be less than or equal to ", "must be at most "),
        (r"^must be greater than or equal to ", "must be at least "),
    )
)
"""How the checker says it, and how it is told here. A line may change what the lines before it have made."""


_WHOLE = "must be a whole number"

_UNITS = {
    "_ms": "milliseconds",
    "_mib": "MiB",
    "_bytes": "bytes",
    "cpu_milli": "thousandths of a CPU",
    "_milli": "thousandths of a GPU",
}
"""What a field counts, by the end of its name; the first that fits."""


def in_our_words(message: str, field: str = "") -> str:
    """The rule that a value breaks: of a number in the unit that the name of its field ends with. A message that only
    Fallow writes stays as it is.
    """
    for begin in _OF_OUR_CODE:
        if message.startswith(begin):
            return message.removeprefix(begin)
    for theirs, ours in _WORDS:
        message = theirs.sub(ours, message, count=1)
    return f"{_WHOLE}{_of_units(field)}" if message == _WHOLE else message


def _of_units(field: str) -> str:
    name = field.rpartition(".")[2].partition("[")[0]
    return next((f" of {unit}" for end, unit in _UNITS.items() if name.endswith(end)), "")
