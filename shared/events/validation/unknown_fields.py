"""Texts of values with fields that they do not have: left out where these may be passed over, told where they may not.

Nothing is made of what stands in an unknown field, nor of what cannot be right where it stands, so that no record costs
much more than a good one of its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from typing import get_type_hints as type_hints

import msgspec
from msgspec import Meta

from fallow.shared.events.fields.value import V, Value, model_of


def read_valid(cls: type[V], text: bytes | str, *, forbid_unknown: bool = False) -> V:
    """The `cls` that this JSON text says, judged by all of its rules. Raises pydantic's ValidationError."""
    if not forbid_unknown:
        return read_known(cls, text)
    model_of(cls).__pydantic_validator__.validate_json(text, extra="forbid")
    return msgspec.json.decode(text, type=cls)


def read_known(cls: type[V], text: bytes | str) -> V:
    """The `cls` that this JSON text says, without what is no field of it, at any depth. Raises pydantic's
    ValidationError, and msgspec's DecodeError where what is no field of it is no JSON.
    """
    known = without_unknown(cls, text.encode() if isinstance(text, str) else text)
    model_of(cls).__pydantic_validator__.validate_json(known)
    return msgspec.json.decode(known, type=cls)


def without_unknown(cls: type[Value], text: bytes) -> bytes:
    """This JSON text, which may be a `cls` but for fields that are unknown, without these. Nothing is made of what
    stands in them, but it must be JSON: raises msgspec's DecodeError where it is none. What is no `cls` stays as it is,
    and of a list that is too long as much as shows that.
    """
    must_be_text(text)
    try:
        found = _loose_decoder(cls).decode(text)
        for name, most in _lists_of(cls).items():
            items = getattr(found, name)
            if items is not msgspec.UNSET and len(items) > most:
                setattr(found, name, items[: most + 1])
        return _ENCODE(found)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return _Known(unknown_max=0).part(cls, msgspec.json.decode(text, type=msgspec.Raw))


_ENCODE = msgspec.json.Encoder().encode


def must_be_text(text: bytes) -> None:
    """Raise msgspec's DecodeError where these bytes are no UTF-8, and so no JSON.

    msgspec takes a name that is no UTF-8 for one that it does not know, and passes the field over: one damaged bit in
    the name of a field would give it its default.
    """
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("is no UTF-8, and JSON is") from error


@cache
def _lists_of(cls: type[Value]) -> dict[str, int]:
    """The fields that are lists of structs of which there may be only so many, with how many."""
    return {
        name: most
        for name, hint in _hints_of(cls).items()
        if get_origin(hint) is Annotated
        and get_origin(get_args(hint)[0]) is tuple
        and _structs_in(get_args(get_args(hint)[0])[0])
        and (most := _max_of(get_args(hint)[1:])) is not None
    }


def _max_of(rules: tuple[Any, ...]) -> int | None:
    return next((rule.max_length for rule in rules if isinstance(rule, Meta) and rule.max_length), None)


@cache
def _loose_decoder(cls: type[Value]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(_loose(cls))


@cache
def _loose(cls: type[Value]) -> type[msgspec.Struct]:
    """A struct of the same fields, of which one may be missing and others may stand beside them, and none is looked at
    closely: it takes thousands of parts apart as quickly as they are read.
    """
    config = cls.__struct_config__
    fields = [(name, _loose_hint(hint) | msgspec.UnsetType, msgspec.UNSET) for name, hint in _hints_of(cls).items()]
    return msgspec.defstruct(cls.__name__, fields, tag_field=config.tag_field, tag=config.tag, kw_only=True, gc=False)


def _loose_hint(hint: Any) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _loose_hint(parts[0])
    if origin is tuple and _structs_in(parts[0]):
        return list[_loose_hint(parts[0])]  # type: ignore[misc]  # a type that is made
    structs = _structs_in(hint)
    if not structs:
        return msgspec.Raw
    others = (NoneType,) if NoneType in parts else ()
    return Union[(*map(_loose, structs), *others)]


def with_one_unknown(cls: type[Value], text: bytes) -> bytes:
    """This JSON text, which may be a `cls` but for fields that are unknown, with the first of them only, and of that
    one no more than an error message shows. Nothing is made of what stands in those: to build 250,000 empty lists
    takes longer than to read the largest command. What is not so far a `cls` stays as it is.

    It is read as the model reads it, which lets infinite numbers pass. Raises msgspec's DecodeError where it is no
    JSON.
    """
    return _Known(unknown_max=1).part(cls, msgspec.json.decode(finite(text), type=msgspec.Raw))


def finite(text: bytes) -> bytes:
    """This text with numbers that JSON has in place of those that it has not, and that other writers write (NaN,
    Infinity). These are as large: no finite number of ours. What stands in strings stays as it was sent, and so does
    all of a text that holds what no UTF-8 holds, which is no JSON anyway.
    """
    if b"Infinity" not in text and b"NaN" not in text:
        return text  # nearly always, and a search in C
    return _finite(text)


@lru_cache(maxsize=1)
def _finite(text: bytes) -> bytes:
    """The text with numbers that JSON knows. Of one command admission asks up to three times."""
    if any(sign in text for sign in _NO_UTF8):
        return text
    # With signs that are escaped out of the way, every other piece between quotation marks stands outside of strings.
    for escaped, sign in zip(_ESCAPED, _NO_UTF8, strict=True):
        text = text.replace(escaped, sign)
    parts, has_more = list[bytes](), True
    while has_more:
        pieces = text.split(b'"', _PIECES_AT_ONCE)
        has_more = len(pieces) > _PIECES_AT_ONCE
        text = pieces.pop() if has_more else b""
        outside = b'"'.join(pieces[::2]).replace(b"NaN", b"1E999").replace(b"Infinity", b"1E999")
        pieces[::2] = outside.split(b'"')
        parts.append(b'"'.join(pieces))
    text = b'"'.join(parts)
    for escaped, sign in zip(_ESCAPED, _NO_UTF8, strict=True):
        text = text.replace(sign, escaped)
    return text


_PIECES_AT_ONCE = 16_000
"""An even number. A list of all pieces of a text takes many times as much memory as the text."""

_ESCAPED, _NO_UTF8 = (rb"\\", rb"\""), (b"\xfe", b"\xff")


UNKNOWN_BYTES_MAX = 1_000
"""What stands in an unknown field is shown as it is read up to this size, else the begin of its text."""

SHOWN_MAX = 100
"""An error message shows no more signs of a value."""

PARTS_MAX = 10_000
"""What has more brackets is dear to build: its mistake is told in the words of its reader, which builds nothing."""


class _Known:
    """Takes a JSON text apart along a type, part by part, and leaves out what the type does not know but for the first
    such fields.
    """

    def __init__(self, unknown_max: int) -> None:
        self._unknown_left = unknown_max

    def part(self, hint: Any, part: msgspec.Raw, most: int | None = None) -> bytes:
        """The text of this part, which should be of this type; of a list, which has no more items than `most`."""
        origin, parts, text = get_origin(hint), get_args(hint), bytes(part).strip()
        if origin is Annotated:
            return self.part(parts[0], part, _max_of(parts[1:]))
        if origin is tuple and _structs_in(parts[0]):
            return self._list(parts[0], most, text)
        if len(text) > UNKNOWN_BYTES_MAX and text.startswith(b"{") and not _may_be_table(hint):
            return _first_of(text)
        structs = _structs_in(hint)
        return self._struct(structs, text) if structs and text.startswith(b"{") else text

    def _list(self, hint: Any, most: int | None, text: bytes) -> bytes:
        if not text.startswith(b"["):
            return text
        # One too many is a mistake already, and as good as 100,000.
        items = msgspec.json.decode(text, type=list[msgspec.Raw])[: None if most is None else most + 1]
        found = list[bytes]()
        for item in items:
            found.append(self.part(hint, item))
            if not found[-1].startswith(b"{") or (found[-1] == b"{}" and not _may_be_empty(hint)):
                break  # a mistake: what stands behind it makes no difference
        return b"[" + b",".join(found) + b"]"

    def _struct(self, structs: list[type[Value]], text: bytes) -> bytes:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        cls = _struct_meant(structs, fields)
        if cls is None:
            return _tag_alone(structs, fields) or text
        hints, found = _hints_of(cls), list[bytes]()
        for key, part in fields.items():
            if key in hints:
                found.append(_entry(key, self.part(hints[key], part)))
            elif key == cls.__struct_config__.tag_field:
                found.append(_entry(key, bytes(part)))
            elif self._unknown_left:
                self._unknown_left -= 1
                found.append(_entry(key, _begin_of(bytes(part))))
        return b"{" + b",".join(found) + b"}"


@cache
def _may_be_empty(hint: Any) -> bool:
    """Whether a table without fields may be of this type."""
    try:
        msgspec.json.decode(b"{}", type=hint)
    except msgspec.ValidationError:
        return False
    return True


def _structs_in(hint: Any) -> list[type[Value]]:
    """The structs that a part of this type may be."""
    candidates = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [each for each in candidates if isinstance(each, type) and issubclass(each, Value)]


def _struct_meant(structs: list[type[Value]], fields: dict[str, msgspec.Raw]) -> type[Value] | None:
    """The struct that the tag names, the only one where there is no choice; None where the tag names none."""
    if len(structs) == 1:
        return structs[0]
    tag = bytes(fields.get(structs[0].__struct_config__.tag_field or "", b""))
    return _by_tag(tuple(structs)).get(tag)


@cache
def _by_tag(structs: tuple[type[Value], ...]) -> dict[bytes, type[Value]]:
    return {msgspec.json.encode(each.__struct_config__.tag): each for each in structs}


def _tag_alone(structs: list[type[Value]], fields: dict[str, msgspec.Raw]) -> bytes | None:
    """The table with its tag alone, where that is none and too large to be shown."""
    tag = structs[0].__struct_config__.tag_field or ""
    is_large = tag in fields and len(bytes(fields[tag])) > UNKNOWN_BYTES_MAX
    return b"{" + _entry(tag, _begin_of(bytes(fields[tag]))) + b"}" if is_large else None


def _entry(key: str, part: bytes) -> bytes:
    return msgspec.json.encode(key) + b":" + part


def _begin_of(text: bytes) -> bytes:
    if len(text) <= UNKNOWN_BYTES_MAX or text.startswith(b'"'):
        return text
    return msgspec.json.encode(text[:UNKNOWN_BYTES_MAX].decode(errors="replace"))


def _may_be_table(hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) or origin is Annotated:
        return any(map(_may_be_table, parts[: 1 if origin is Annotated else None]))
    return origin is dict or bool(_structs_in(hint))


def _first_of(text: bytes) -> bytes:
    """A table that cannot be right where it stands, as far as an error message shows it; one of very many tables and
    lists stays as it is.
    """
    if text.count(b"{") + text.count(b"[") > PARTS_MAX:
        return text
    shown = islice(msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items(), SHOWN_MAX)
    return b"{" + b",".join([_entry(key[:SHOWN_MAX], _begin_of(bytes(part))) for key, part in shown]) + b"}"


def fields_around(cls: type[Value], path: Sequence[int | str]) -> list[str]:
    """The fields of that part of a `cls` in which the last of the path stands, if that were one of them."""
    parts = [cls]
    for name in path[:-1]:
        tagged = [each for each in parts if each.__struct_config__.tag == name]
        below = [struct for each in parts for struct in _structs_below(_hints_of(each).get(str(name)))]
        parts = tagged or below or parts
    return [name for each in parts for name in each.__struct_fields__]


def _structs_below(hint: Any) -> list[type[Value]]:
    """The structs that stand in a part of this type: `Dependency` in `tuple[Dependency, ...]`."""
    return _structs_in(hint) or [struct for inner in get_args(hint) for struct in _structs_below(inner)]


@cache
def _hints_of(cls: type[Value]) -> dict[str, Any]:
    hints = type_hints(cls, include_extras=True)
    return {name: hints[name] for name in cls.__struct_fields__}
