"""What every part of a record is: a frozen struct, with a pydantic model of its own for what comes from outside.

The services build, read and write structs: that costs a tenth of what models cost. The model of a struct is made from
the same annotations. It judges what strangers send, words what is wrong with it, and is the published schema.
Numbers and lengths (`Meta`) bind wherever a record is read; patterns (`StringConstraints`), and numbers of which a log
may hold larger ones (`Field`), only where outside input is judged, since the rest is written by one service each.
"""

from __future__ import annotations

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
    ValidationError,
    ValidationInfo,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fallow.shared.events.validation.reader_words import reader_mistake

if TYPE_CHECKING:
    from collections.abc import Callable


class ValueMeta(msgspec.StructMeta):
    """Makes every subclass frozen and built by keyword."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> ValueMeta:
        """The class, with msgspec's own settings for a struct."""
        return super().__new__(mcs, name, bases, namespace, kw_only=True, **config)


class WrongField(ValueError):
    """What `check` raises where it is one field that does not fit the others: its name, its value and the rule."""

    def __init__(self, field: str, value: Any, rule: str) -> None:
        super().__init__(f"{field} = {value}: {rule}")
        self.field, self.value, self.rule = field, value, rule


def told_of(field: int | str, value: Any, rule: str) -> ValidationError:
    """The checker's mistake that tells this field or item, and not the whole in which it stands."""
    mistake = PydanticCustomError("value_error", rule)
    return ValidationError.from_exception_data("", [{"type": mistake, "loc": (field,), "input": value}])


FROM_LOG = {"is_from_log": True}
"""The context in which pydantic reads what the log holds (a cell file). An earlier release accepted it, by the bounds
of that time. What is asked for has no context.
"""


def is_from_log(info: ValidationInfo) -> bool:
    """Whether what is read stands in the log: rules that say what may be asked for do not judge it."""
    return info.context is FROM_LOG


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value(msgspec.Struct, metaclass=ValueMeta, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A part of a record. Fields that hold their default are left out when it is written.

    A field that it does not have is an error, wherever in a record it stands: what a reader does not know it cannot
    fold. Where that may be passed over, `read_known` does so.

    No value holds itself, so the garbage collector need not look at any. To build one checks nothing; to read one
    does. What several fields demand together is checked by `check`.
    """

    def check(self) -> None:
        """Raise ValueError where fields that are each valid contradict each other: WrongField where one is to blame."""

    def as_written(self) -> Value:
        """This value as its record says it, where that is shorter than the fields that its readers get."""
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Within a pydantic model (a cell file): read as `model_of(cls)` would, and given back as the struct. What is
        `FROM_LOG` is read as all of the log is, by numbers and lengths of `Meta` alone.
        """
        return core_schema.with_info_wrap_validator_function(
            _struct_of(cls),
            handler(model_of(cls)),
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
        )


V = TypeVar("V", bound=Value)
_TUPLE: Any = tuple
_DICT: Any = dict


def replace(value: V, **changes: Any) -> V:
    """This value with these fields changed. The caller answers for them: only `check` is run."""
    return msgspec.structs.replace(value, **changes)


def build_valid(cls: type[V], **fields: Any) -> V:
    """A `cls` of these fields, judged by all of its rules. Raises pydantic's ValidationError."""
    model_of(cls).__pydantic_validator__.validate_json(msgspec.json.encode(fields))
    return cls(**fields)


def plain(value: Value) -> dict[str, Any]:
    """The value as JSON would have it, in plain tables and lists."""
    found = msgspec.to_builtins(value, str_keys=True)
    assert isinstance(found, dict)
    return found


def _struct_of(cls: type[Value]) -> Callable[[Any, Callable[[Any], Any], ValidationInfo], Value]:
    """What turns anything that the model of `cls` accepts into a `cls`."""

    def read(value: Any, judge: Callable[[Any], Any], info: ValidationInfo) -> Value:
        if isinstance(value, cls):
            return value
        return (
            _from_log(cls, value) if is_from_log(info) else msgspec.convert(judge(value).model_dump(mode="json"), cls)
        )

    return read


def _from_log(cls: type[Value], value: Any) -> Value:
    """The `cls` that these plain tables of the log say. Raises the checker's mistake, and ValueError."""
    try:
        return msgspec.convert(value, cls)
    except msgspec.ValidationError as error:
        field, rule, _ = reader_mistake(str(error))
        if isinstance(value, dict) and field in value:
            raise told_of(field, value[field], rule) from error
        raise ValueError(f"{field}: {rule}" if field else rule) from error


class _Model(BaseModel):
    """Strict: no string becomes a number, no float an integer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)
    struct: ClassVar[type[Value]]

    @model_validator(mode="after")
    def _fits_together(self) -> _Model:
        # The fields of both have the same names.
        try:
            self.struct.check(self)  # type: ignore[arg-type]
        except WrongField as wrong:
            raise told_of(wrong.field, wrong.value, wrong.rule) from wrong
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
