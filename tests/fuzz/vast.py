"""Makes inputs that are as large as one may be: 30,000 of everything, in every place of a good input.

What is repeated is drawn too: control characters, NUL, surrogates, extremes, names, keys that stand twice. Everything
comes from one seeded random.Random, so a finding comes again with its seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

BYTES_MAX = 512_000
"""So large is the largest submission."""

MANY = (300, 3_000, 30_000, 250_000)
SIGNS = (
    "a",
    "0",
    "-",
    ".",
    "/",
    " ",
    "\\",
    '"',
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    "\u202e",
    "\ud800",
    "é",
    "\U0001d50a",
    "\n",
)
RAW_SIGNS = (b"\x00", b"\xff", b"\xed\xa0\x80", b" ", b"\n", b'"', b"\\", b"[", b"{", b'{"a":', b"9", b"-", b",")
LEAVES = (b"0", b"-1", b"9007199254740991", b"1e308", b"NaN", b"null", b"true", b'""', b'"a"', b'"\\u0000"', b"[]")
DEEP = ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"))
HERE = "\ufdd0here"
"""Stands in a value where the large piece is to be."""

Piece = Callable[[int], bytes]
"""The item of this number."""


class Vast:
    """Large inputs of one entry, from good ones. `lines`: each line of an input is JSON of its own."""

    def __init__(self, seeds: Sequence[bytes], *, lines: bool = False, bytes_max: int = BYTES_MAX) -> None:
        self._seeds, self._lines, self._bytes_max = tuple(seeds), lines, bytes_max
        self._parsed = [_parsed(seed, lines=lines) for seed in seeds]

    def draw(self, random: Random) -> bytes:
        """The next input."""
        at, dice = random.randrange(len(self._seeds)), random.random()
        parsed = self._parsed[at]
        if parsed is None or dice < 0.1:
            return self._raw(self._seeds[at], random)[: self._bytes_max]
        if self._lines:
            return self._many_lines(parsed, random)[: self._bytes_max]
        return self._filled(parsed, random)

    def draw_some(self, random: Random, count: int) -> list[bytes]:
        """The next `count` inputs, the last of which is larger than half of the largest, and can be read as a whole
        where a good input can be.
        """
        found = [self.draw(random) for _ in range(count)]
        while not self._is_searching(found[-1]):
            found[-1] = self.draw(random)
        return found

    def _is_searching(self, value: bytes) -> bool:
        """Whether a reader has to read all of this input, and much of it."""
        if len(value) <= self._bytes_max // 2:
            return False
        return all(parsed is None for parsed in self._parsed) or _parsed(value, lines=self._lines) is not None

    def _filled(self, parsed: Any, random: Random) -> bytes:
        """A good input with one place in it that is large."""
        place: list[Any] = []
        marked = _marked(parsed, random, random.randrange(7), place)
        text = json.dumps(marked, separators=(",", ":"))
        before, _, behind = text.partition(json.dumps(HERE))
        room = self._bytes_max - len(before) - len(behind)
        return before.encode() + _large(place[0], random, room) + behind.encode()

    def _many_lines(self, parsed: list[Any], random: Random) -> bytes:
        if not parsed or random.random() < 0.5:
            line = random.choice(self._seeds).splitlines() or [b""]
            return (random.choice(line) + b"\n") * random.choice(MANY)
        at = random.randrange(len(parsed))
        lines = [json.dumps(line, separators=(",", ":")).encode() for line in parsed]
        rest = sum(map(len, lines)) + len(lines)
        lines[at] = Vast([lines[at]], bytes_max=max(self._bytes_max - rest, 1_000))._filled(parsed[at], random)
        return b"".join(line + b"\n" for line in lines)

    def _raw(self, seed: bytes, random: Random) -> bytes:
        """Bytes in a row somewhere in a good input, or without one."""
        piece, at = random.choice(RAW_SIGNS), random.randrange(len(seed) + 1)
        many = piece * (self._bytes_max // len(piece) if random.random() < 0.5 else random.choice(MANY))
        if random.random() < 0.3:
            return many
        return (seed[:at] + many)[: max(0, self._bytes_max - len(seed) + at)] + seed[at:]


def _parsed(seed: bytes, *, lines: bool) -> Any:
    try:
        return [json.loads(line) for line in seed.splitlines()] if lines else json.loads(seed)
    except (ValueError, RecursionError):
        return None


def _marked(value: Any, random: Random, steps: int, place: list[Any]) -> Any:
    """The value with `HERE` in a place of it, and what stood there."""
    if isinstance(value, dict) and value and steps:
        key = random.choice(list(value))
        if random.random() < 0.1:
            place.append(value[key])
            return {**value, random.choice(("x", key.upper(), "resources", "id")): HERE}
        return {**value, key: _marked(value[key], random, steps - 1, place)}
    if isinstance(value, list) and value and steps:
        at = random.randrange(len(value))
        return [*value[:at], _marked(value[at], random, steps - 1, place), *value[at + 1 :]]
    place.append(value)
    return HERE


def _large(value: Any, random: Random, room: int) -> bytes:
    """Something large in the place of this value, often of its own kind."""
    dice, count = random.random(), random.choice(MANY)
    if isinstance(value, list) and value and dice < 0.7:
        return _list_of(_like(random.choice(value), random), count, room)
    if isinstance(value, dict) and value and dice < 0.7:
        return _dict_of(value, random, count, room)
    kind = random.randrange(6)
    if kind == 0:
        return _text(random, count if random.random() < 0.5 else room)[: max(room, 2)]
    if kind == 1:
        return (random.choice((b"9", b"-9", b"0.")) + b"9" * count)[:room]
    if kind == 2:
        opening, closing = random.choice(DEEP)
        depth = min(count, (room - 1) // (len(opening) + len(closing)))
        return opening * depth + b"0" + closing * depth
    if kind == 3:
        return _dict_of({}, random, count, room)
    return _list_of(_like(value, random) if kind == 4 else _leaf(random), count, room)


def _leaf(random: Random) -> Piece:
    leaf = random.choice(LEAVES)
    numbered = random.choice((False, True))
    return (lambda number: b'"n%d"' % number) if numbered else lambda _: leaf


def _like(value: Any, random: Random) -> Piece:
    """Items like this one: the same again and again, or each with names of its own."""
    text = json.dumps(value, separators=(",", ":")).encode()
    if random.random() < 0.3:
        return lambda _: text
    if isinstance(value, str):
        return lambda number: json.dumps(f"{value}{number}").encode()
    if isinstance(value, int):
        return lambda number: b"%d" % number
    if not isinstance(value, dict):
        return lambda _: text
    named = [key for key in ("id", "job", "node", "tenant", "name") if isinstance(value.get(key), str)]
    inner = [key for key in value if isinstance(value[key], dict) and "id" in value[key]]
    marked = {**value, **{key: f"{value[key]}{HERE}" for key in named}}
    marked.update({key: {**value[key], "id": f"{value[key]['id']}{HERE}"} for key in inner})
    before = json.dumps(marked, separators=(",", ":")).encode()
    here = json.dumps(HERE)[1:-1].encode()
    return lambda number: before.replace(here, b"%d" % number)


def _list_of(piece: Piece, count: int, room: int) -> bytes:
    items, size = list[bytes](), 2
    for number in range(count):
        item = piece(number)
        size += len(item) + 1
        if size > room:
            break
        items.append(item)
    return b"[" + b",".join(items) + b"]"


def _dict_of(value: dict[str, Any], random: Random, count: int, room: int) -> bytes:
    """As many keys: of their own, or one of its keys again and again."""
    leaf, key = random.choice(LEAVES), random.choice([*value, "a"])
    if random.random() < 0.4:
        again = json.dumps(value.get(key, 0)).encode() if random.random() < 0.7 else leaf
        name = json.dumps(key).encode()
        return b"{" + _list_of(lambda _: name + b":" + again, count, room)[1:-1] + b"}"
    sign = json.dumps(random.choice(("k", *SIGNS)))[:-1].encode()
    return b"{" + _list_of(lambda number: b'%b%d":%b' % (sign, number, leaf), count, room)[1:-1] + b"}"


def _text(random: Random, count: int) -> bytes:
    sign = json.dumps(random.choice(SIGNS), ensure_ascii=random.random() < 0.7)[1:-1].encode("utf-8", "surrogatepass")
    return b'"' + sign * (count // len(sign)) + b'"'
