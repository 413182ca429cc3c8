"""Makes bad input out of good: bytes by chance, and JSON that is valid but means what no client may send.

Everything is drawn from one seeded random.Random, so a finding comes again with its seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 - 1,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**30,
    -(10**400),
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "\x00",
    "\n",
    "a\nb c",
    "\ud800",
    "é",
    "A" * 300,
    "9" * 5_000,
    "../../etc",
    "{main}",
    "0",
    "null",
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"type": "JobStarted"},
    {"kind": "JobStarted"},
)
RAW = (
    b"",
    b"\x00",
    b"null",
    b"[]",
    b"{}",
    b'"',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"NaN",
    b"-",
    b"1e999999999",
    b"9" * 10_000,
    b'"\\ud800"',
    b'{"a":1,"a":2}',
    b"\r\n\r\n",
)
DEPTHS = (10, 200, 1_500, 100_000)
BYTES_MAX = 200
DEPTH_OF_PATH_MAX = 8


class Mutator:
    """Bad inputs of one target, from good ones. `lines`: each line of an input is JSON of its own."""

    def __init__(self, seeds: Sequence[bytes], *, lines: bool = False) -> None:
        self._lines = lines
        self.good = list(seeds)
        self._parsed: list[Any] = []
        for seed in seeds:
            self._parsed.append(self._parse(seed))

    def learn(self, found: bytes) -> None:
        """An input that brought about something new: others are made from it, too."""
        self.good.append(found)
        self._parsed.append(self._parse(found))

    def _parse(self, text: bytes) -> Any:
        try:
            return [json.loads(line) for line in text.splitlines()] if self._lines else json.loads(text)
        except (ValueError, RecursionError):
            return None

    def draw(self, random: Random) -> bytes:
        """The next input."""
        dice = random.random()
        at = random.randrange(len(self.good))
        if dice < 0.5 and self._parsed[at] is not None:
            return self._change_json(self._parsed[at], random)
        if dice < 0.93:
            return self._change_bytes(self.good[at], random)
        if dice < 0.97:
            return random.randbytes(random.randrange(BYTES_MAX))
        if dice < 0.995:
            return random.choice(RAW)
        return _deep(random)

    def _change_json(self, parsed: Any, random: Random) -> bytes:
        if not self._lines:
            return _text(_changed(parsed, random), random)
        lines = list(parsed)
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            if lines:
                at = random.randrange(len(lines))
                lines[at] = _changed(lines[at], random)
        lines = _rearranged(lines, random)
        return b"".join(_text(line, random) + b"\n" for line in lines)

    def _change_bytes(self, good: bytes, random: Random) -> bytes:
        text = bytearray(good)
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            at = random.randrange(len(text) + 1)
            match random.randrange(7):
                case 0:
                    text[at : at + 1] = bytes((random.randrange(256),))
                case 1:
                    text[at:at] = random.randbytes(random.choice((1, 1, 2, 8)))
                case 2:
                    del text[at : at + random.choice((1, 1, 2, 8, 50))]
                case 3:
                    del text[at:]
                case 4:
                    text[at:at] = text[at : at + random.choice((1, 4, 30))]
                case 5:
                    other = random.choice(self.good)
                    text[at:] = other[random.randrange(len(other) + 1) :]
                case _:
                    text[at:at] = random.choice(RAW)
        return bytes(text)


def _rearranged(lines: list[Any], random: Random) -> list[Any]:
    if not lines or random.random() < 0.7:
        return lines
    at = random.randrange(len(lines))
    match random.randrange(3):
        case 0:
            return lines[:at] + lines[at + 1 :]
        case 1:
            return [*lines[:at], lines[at], *lines[at:]]
        case _:
            return lines[at:] + lines[:at]


def _changed(value: Any, random: Random) -> Any:
    """The value with one place in it changed; what stays is shared with the original, which is not touched."""
    return _change_at(value, random, random.randrange(1, DEPTH_OF_PATH_MAX))


def _change_at(value: Any, random: Random, steps: int) -> Any:
    if isinstance(value, dict) and value and steps:
        key = random.choice(list(value))
        dice = random.random()
        if dice < 0.08:
            return {name: part for name, part in value.items() if name != key}
        if dice < 0.14:
            return {**value, random.choice(("x", "", "__proto__", "type", "kind", key.upper())): random.choice(NASTY)}
        if dice < 0.18:
            return {**value, key: value[random.choice(list(value))]}
        return {**value, key: _change_at(value[key], random, steps - 1)}
    if isinstance(value, list) and value and steps:
        at = random.randrange(len(value))
        dice = random.random()
        if dice < 0.08:
            return value[:at] + value[at + 1 :]
        if dice < 0.16:
            return value * random.choice((2, 3, 40))
        return [*value[:at], _change_at(value[at], random, steps - 1), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64 and random.random() < 0.4:
        return random.choice((value + 1, value - 1, -value, value * 1000, str(value), float(value)))
    if isinstance(value, str) and random.random() < 0.3:
        return random.choice((value + "x", value[:-1], value.upper(), value * 50, value + "\n", value + "\x7f"))
    return random.choice(NASTY)


def _text(value: Any, random: Random) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=random.random() < 0.9).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return b"{}"


def _deep(random: Random) -> bytes:
    depth = random.choice(DEPTHS)
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"job":', b"}"), (b'[{"effects":', b"}]")))
    return opening * depth + random.choice((b"", b"1", b"null")) + closing * random.choice((0, depth))
