"""What every part of a record is: a frozen struct, with a pydantic model of its own for what comes from outside.

The services build, read and write structs: that costs a tenth of what models cost. The model of a struct is made from
the same annotations. It judges what strangers send, words what is wrong with it, and is the published schema.
Numbers and lengths (`Meta`) bind wherever a record is read; patterns (`StringConstraints`) only where outside input is
judged, since the rest is written by one service each.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)
from typing import get_type_hints as type_hints

import msgspec
from msgspec import Meta
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable


class ValueMeta(msgspec.StructMeta):
    """Makes every subclass frozen and built by keyword."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> ValueMeta:
        """The class, with msgspec's own settings for a struct."""
        return super().__new__(mcs, name, bases, namespace, kw_only=True, **config)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value(msgspec.Struct, metaclass=ValueMeta, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A part of a record. Fields that hold their default are left out when it is written.

    A field that it does not have is an error, wherever in a record it stands: what a reader does not know it cannot
    fold. Where that may be passed over, `read_known` does so.

    No value holds itself, so the garbage collector need not look at any. To build one checks nothing; to read one
    does. What several fields demand together is checked by `check`.
    """

    def check(self) -> None:
        """Raise ValueError where fields that are each valid contradict each other."""

    def as_written(self) -> Value:
        """The same value as its record says it, where that is shorter than the fields that its readers get."""
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Within a pydantic model (a cell file): read as `model_of(cls)` would, and given back as the struct."""
        return core_schema.no_info_wrap_validator_function(
            _struct_of(cls),
            handler(model_of(cls)),
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
        )


V = TypeVar("V", bound=Value)
_TUPLE: Any = tuple
_DICT: Any = dict


def replace(value: V, **changes: Any) -> V:
    """The same value with these fields changed. The caller answers for them: only `check` is run."""
    return msgspec.structs.replace(value, **changes)


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
    model_of(cls).__pydantic_validator__.validate_json(text)
    return msgspec.convert(_known(cls, msgspec.json.decode(text)), cls)


def _known(hint: Any, part: Any) -> Any:
    """A part of a record that has been judged, without the fields that its type does not have."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _known(parts[0], part)
    if isinstance(part, list) and origin is tuple:
        return [_known(parts[0], each) for each in part]
    if not isinstance(part, dict):
        return part
    if origin is dict:
        return {key: _known(parts[1], each) for key, each in part.items()}
    candidates = parts if origin in (Union, UnionType) else (hint,)
    structs = [each for each in candidates if isinstance(each, type) and issubclass(each, Value)]
    tag = structs[0].__struct_config__.tag_field
    cls = structs[0] if len(structs) == 1 else next(e for e in structs if e.__struct_config__.tag == part[tag])
    hints = _hints_of(cls)
    return {key: _known(hints.get(key), each) for key, each in part.items() if key in hints or key == tag}


def with_one_unknown(cls: type[Value], text: bytes) -> bytes:
    """This JSON text, which may be a `cls` but for fields that are unknown, with the first of them only, and of that
    one no more than an error message shows. Nothing is made of what stands in those: to build 250,000 empty lists
    takes longer than to read the largest command. What is not so far a `cls` stays as it is.

    It is read as the model reads it, which lets infinite numbers pass. Raises msgspec's DecodeError where it is no
    JSON.
    """
    return _Known().part(cls, msgspec.json.decode(finite(text), type=msgspec.Raw))


def finite(text: bytes) -> bytes:
    """This text with numbers that JSON has in place of those that it has not, and that other writers write (NaN,
    Infinity). These are as large: no finite number of ours. What stands in strings stays as it was sent.
    """
    if b"Infinity" not in text and b"NaN" not in text:
        return text  # nearly always, and a search in C
    parts, place = [], 0
    while found := _UP_TO_NO_NUMBER.match(text, place):
        parts += [found[1], b"1E999"]
        place = found.end()
    return b"".join([*parts, text[place:]]) if parts else text


_UP_TO_NO_NUMBER = re.compile(
    rb'((?:[^"NI]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|N(?!aN)|I(?!nfinity))*+)(?:NaN|Infinity)', re.DOTALL
)
"""All up to the next one that stands outside the strings. A string without an end goes to the end of the text, and
nothing is tried in two ways, so no text is read twice.
"""


UNKNOWN_BYTES_MOST = 1_000
"""What stands in an unknown field is shown as it is read up to this size, else the begin of its text."""


class _Known:
    """Takes a JSON text apart along a type, part by part, and leaves out what the type does not know but for the first
    such field.
    """

    def __init__(self) -> None:
        self._has_unknown = False

    def part(self, hint: Any, part: msgspec.Raw) -> bytes:
        """The text of this part, which should be of this type."""
        origin, parts, text = get_origin(hint), get_args(hint), bytes(part).strip()
        if origin is Annotated:
            most = next((rule.max_length for rule in parts[1:] if isinstance(rule, Meta) and rule.max_length), None)
            return (
                self._list(get_args(parts[0])[0], most, text)
                if _is_list_of_structs(parts[0])
                else (self.part(parts[0], part))
            )
        structs = _structs_of(parts if origin in (Union, UnionType) else (hint,))
        return self._struct(structs, text) if structs and text.startswith(b"{") else text

    def _list(self, hint: Any, most: int | None, text: bytes) -> bytes:
        if not text.startswith(b"["):
            return text
        # One too many is a mistake already, and as good as 100,000.
        items = msgspec.json.decode(text, type=list[msgspec.Raw])[: None if most is None else most + 1]
        return b"[" + b",".join([self.part(hint, item) for item in items]) + b"]"

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
            elif not self._has_unknown:
                self._has_unknown = True
                found.append(_entry(key, _begin_of(bytes(part))))
        return b"{" + b",".join(found) + b"}"


def _is_list_of_structs(hint: Any) -> bool:
    return get_origin(hint) is tuple and bool(_structs_of(get_args(hint)[:1]))


def _structs_of(hints: tuple[Any, ...]) -> list[type[Value]]:
    return [each for each in hints if isinstance(each, type) and issubclass(each, Value)]


def _struct_meant(structs: list[type[Value]], fields: dict[str, msgspec.Raw]) -> type[Value] | None:
    """The struct that the tag names, the only one where there is no choice; None where the tag names none."""
    if len(structs) == 1:
        return structs[0]
    tag = bytes(fields.get(structs[0].__struct_config__.tag_field or "", b""))
    return next((each for each in structs if tag == msgspec.json.encode(each.__struct_config__.tag)), None)


def _tag_alone(structs: list[type[Value]], fields: dict[str, msgspec.Raw]) -> bytes | None:
    """The table with its tag alone, where that is none and too large to be shown."""
    tag = structs[0].__struct_config__.tag_field or ""
    is_large = tag in fields and len(bytes(fields[tag])) > UNKNOWN_BYTES_MOST
    return b"{" + _entry(tag, _begin_of(bytes(fields[tag]))) + b"}" if is_large else None


def _entry(key: str, part: bytes) -> bytes:
    return msgspec.json.encode(key) + b":" + part


def _begin_of(text: bytes) -> bytes:
    if len(text) <= UNKNOWN_BYTES_MOST or text.startswith(b'"'):
        return text
    return msgspec.json.encode(text[:UNKNOWN_BYTES_MOST].decode(errors="replace"))


@cache
def _hints_of(cls: type[Value]) -> dict[str, Any]:
    hints = type_hints(cls, include_extras=True)
    return {name: hints[name] for name in cls.__struct_fields__}


def build_valid(cls: type[V], **fields: Any) -> V:
    """A `cls` of these fields, judged by all of its rules. Raises pydantic's ValidationError."""
    model_of(cls).__pydantic_validator__.validate_json(msgspec.json.encode(fields))
    return cls(**fields)


def plain(value: Value) -> dict[str, Any]:
    """The value as JSON would have it, in plain tables and lists."""
    found = msgspec.to_builtins(value, str_keys=True)
    assert isinstance(found, dict)
    return found


def _struct_of(cls: type[Value]) -> Callable[[Any, Callable[[Any], Any]], Value]:
    """What turns anything that the model of `cls` accepts into a `cls`."""

    def read(value: Any, judge: Callable[[Any], Any]) -> Value:
        return value if isinstance(value, cls) else msgspec.convert(judge(value).model_dump(mode="json"), cls)

    return read


class _Model(BaseModel):
    """Strict: no string becomes a number, no float an integer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)
    struct: ClassVar[type[Value]]

    @model_validator(mode="after")
    def _fits_together(self) -> _Model:
        # The fields of both have the same names.
        self.struct.check(self)  # type: ignore[arg-type]
        return self


@cache
def model_of(cls: type[Value]) -> type[BaseModel]:
    """The pydantic model that accepts what a `cls` may be made of, and nothing else."""
    config = cls.__struct_config__
    fields: dict[str, Any] = {}
    if isinstance(config.tag_field, str) and isinstance(config.tag, str):
        fields[config.tag_field] = (Literal[config.tag], config.tag)
    hints = type_hints(cls, include_extras=True)
    for info in msgspec.structs.fields(cls):
        fields[info.name] = (_readable(hints[info.name]), ... if info.required else _default(info))
    model: type[_Model] = create_model(cls.__name__, __base__=_Model, __doc__=cls.__doc__, **fields)
    model.struct = cls
    return model


def _default(info: msgspec.structs.FieldInfo) -> Any:
    return info.default_factory() if info.default is msgspec.NODEFAULT else info.default


def _readable(hint: Any) -> Any:
    """The annotation as pydantic understands it: its own rules for msgspec's, and the tag that tells structs apart."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        rules = [_rule(part) if isinstance(part, Meta) else part for part in parts[1:]]
        return Annotated[_readable(parts[0]), *rules]
    if origin in (Union, UnionType):
        found: Any = Union[tuple(_readable(part) for part in parts)]  # noqa: UP007 - known only here
        tag = _tag_of(parts)
        return found if tag is None else Annotated[found, Field(discriminator=tag)]
    if origin is tuple:
        # Only the first mistake is told, and to word each of 100,000 takes longer than all the rest.
        return Annotated[_TUPLE[tuple(part if part is ... else _readable(part) for part in parts)], FailFast()]
    if origin is dict:
        found = _DICT[tuple(_readable(part) for part in parts)]
        return Annotated[found, WrapValidator(_part_by_part)] if all(map(_is_text, parts)) else found
    return model_of(hint) if isinstance(hint, type) and issubclass(hint, Value) else hint


def _is_text(hint: Any) -> bool:
    return hint is str or (get_origin(hint) is Annotated and get_args(hint)[0] is str)


ENTRIES_AT_ONCE = 50


def _part_by_part(table: Any, judge: Callable[[Any], Any]) -> Any:
    """Judge a large table in parts, and none behind the first that has mistakes: each one costs to be worded."""
    if not isinstance(table, dict) or len(table) <= ENTRIES_AT_ONCE:
        return judge(table)
    entries = iter(table.items())
    while part := dict(islice(entries, ENTRIES_AT_ONCE)):
        judge(part)
    return table


def _tag_of(parts: tuple[Any, ...]) -> str | None:
    """The field by which structs of one union are told apart; None for any other union."""
    structs = [part for part in parts if isinstance(part, type) and issubclass(part, Value)]
    return structs[0].__struct_config__.tag_field if len(structs) == len(parts) > 1 else None


def _rule(meta: Meta) -> Any:
    names = ("ge", "le", "gt", "lt", "min_length", "max_length")
    return Field(**{name: value for name in names if (value := getattr(meta, name)) is not None})
